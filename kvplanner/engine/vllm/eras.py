"""Rule eras: runs of vLLM versions that account for memory in the same way.

Borders come from the engine's change history and from public start-up reports; `sure` says how well each is known.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from kvplanner.engine.vllm.settings import Era
from kvplanner.errors import BadInput

NEWEST: Final = (33, 0)
_LAST_PATCH: Final = 99
# A version is (minor, patch) of 0.x; each major release counts as so many minor ones.
_MAJOR: Final = 10_000
_VERSION: Final = r"(?i)v?(\d{1,3})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?(?:post|rc|dev|a|b)\d*\S*)?(?:\+\S*)?"


def spelled(version: tuple[int, int]) -> str:
    """A version as the engine writes it: "0.33.0"."""
    major, minor = divmod(version[0], _MAJOR)
    return f"{major}.{minor}.{version[1]}"


class EraMatch(NamedTuple):
    """The era of a version. version: (minor, patch) of 0.x; warnings: why it may not be quite the right one."""

    era: Era
    version: tuple[int, int]
    warnings: tuple[str, ...]


def _era(first: tuple[int, int], last: tuple[int, int], runner: str, sure: str, **rules: Any) -> Era:
    name = f"0.{first[0]}{f'.{first[1]}' if first[1] else ''}–0.{last[0]}"
    name += "" if last[1] == _LAST_PATCH else f".{last[1]}"
    values: dict[str, Any] = {
        "consumed_rule": False,
        "graphs_in_budget": False,
        "snapshot_after_nccl": False,
        "free_memory_check": True,
        "default_utilization": 0.9,
        "printed_tokens": "pool",
        "runner": runner,
    }
    return Era(f"{name}, {runner} runner", first, last, sure=sure, **(values | rules))


# Oldest first, without holes. 0.21 is where the log's token figure became int(concurrency × length): a 0.20 report
# still prints blocks // groups × block size, all 0.21 reports print the product.
ERAS: Final[tuple[Era, ...]] = (
    _era((0, 0), (6, 4), "V0", "the borders before 0.6.5 are from single reports", free_memory_check=False),
    _era((6, 5), (7, _LAST_PATCH), "V0", "four-part profile line seen from 0.6.5", free_memory_check=False),
    _era((8, 0), (9, 0), "V1", "V1 became the default with 0.8", free_memory_check=False),
    _era((9, 1), (10, 1), "V1", "the start-up check is seen from 0.9.1"),
    _era((10, 2), (18, _LAST_PATCH), "V1", "kv_cache_memory_bytes and the final summary are seen from 0.10.2"),
    _era((19, 0), (20, _LAST_PATCH), "V1", "the release that raised the default utilisation is uncertain",
         default_utilization=0.92),
    _era((21, 0), (24, _LAST_PATCH), "V1", "stated by the engine's own message", default_utilization=0.92,
         graphs_in_budget=True, snapshot_after_nccl=True, printed_tokens="concurrency"),
    _era((25, 0), (26, _LAST_PATCH), "V2", "the V2 runner estimated no graphs here; uncertain at its ends",
         default_utilization=0.92, snapshot_after_nccl=True, printed_tokens="concurrency"),
    _era((27, 0), (28, _LAST_PATCH), "V2", "the consumed-memory split is seen from 0.27", default_utilization=0.92,
         snapshot_after_nccl=True, consumed_rule=True, printed_tokens="concurrency"),
    _era((29, 0), (33, _LAST_PATCH), "V2", "0.33 is read from the engine; 0.29 to 0.32 follow public reports",
         default_utilization=0.92, snapshot_after_nccl=True, consumed_rule=True, graphs_in_budget=True,
         printed_tokens="concurrency"),
)  # fmt: skip


def era_of(version: str | None) -> EraMatch:
    """The era of a version such as "0.27.1", "v0.30", "0.24.0rc1" or "1.0"; None is the newest modelled one.

    A version outside the known run takes the nearest era, with a warning. Raises BadInput for other text.
    """
    if version is None:
        return EraMatch(ERAS[-1], NEWEST, ())
    match = re.fullmatch(_VERSION, version.strip())
    if match is None:
        raise BadInput(f"{version[:40]!r} is not a vLLM version", "--engine-version", "Write for example 0.33.0")
    wanted = (int(match[1]) * _MAJOR + int(match[2]), int(match[3] or 0))
    name = spelled(wanted)
    if wanted > ERAS[-1].last:
        said = f"vLLM {name} is newer than 0.33, the newest modelled: planned by its rules"
        return EraMatch(ERAS[-1], wanted, (said,))
    era = next(e for e in ERAS if wanted <= e.last)
    warnings = () if wanted >= (6, 0) else (f"vLLM {name} is older than 0.6: planned by the rules of 0.6",)
    return EraMatch(era, wanted, warnings)
