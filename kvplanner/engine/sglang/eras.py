"""Rule eras: runs of SGLang releases that share their default rules and their budget.

Read from the releases 0.4.6.post5, 0.4.10, 0.5.3, 0.5.6.post2, 0.5.9, 0.5.10.post1, 0.5.11 to 0.5.15, 0.5.17, 0.5.18,
0.5.20, 0.5.22 and 0.5.23; a border between two of them lies somewhere between the named ones.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple

Version = tuple[int, int, int]
NEWEST: Final[Version] = (0, 5, 23)
_VERSION: Final = r"(?i)v?(\d{1,3})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?(?:post|rc|dev|a|b)\d*\S*)?(?:\+\S*)?"
_LAST: Final = 9999
_NO_LIMIT: Final = 1 << 40


class Capacity(NamedTuple):
    """Defaults of GPUs with less than `below_mib` of memory.

    chunk: tokens of a prefill chunk. graphs, graphs_wide: largest decode batch that is captured, below and from
    tensor parallel size 4.
    """

    below_mib: int
    chunk: int
    graphs: int
    graphs_wide: int


class Era(NamedTuple):
    """A run of SGLang releases.

    fraction: the rule of --mem-fraction-static: "by_ranks" (a table of the tensor-parallel size), "by_memory" (a
    reserve by the card's size), "reserve" (chunk and graphs). prefill_graphs: captured by default; prefill_reserve:
    what they add to the reserve. speculation_mib: added to the reserve by an EAGLE draft. charges_draft: draft weights
    and draft cache are charged to the budget. raises_tokens: EAGLE raises the tokens beyond the budget. media_mib: kept
    back for media by multimodal models. fallback: the fraction where the total is unknown. states: how slots of
    recurrent state are found. caps_windows: the window pool may be sized from requests. sure: what is not known.
    """

    name: str
    first: Version
    last: Version
    capacities: tuple[Capacity, ...]
    fraction: Literal["by_ranks", "by_memory", "reserve"] = "reserve"
    prefill_graphs: bool = True
    speculation_mib: int = 0
    charges_draft: bool = True
    raises_tokens: bool = False
    media_mib: int = 100
    fallback: float = 0.88
    caps_windows: bool = False
    sure: str = ""


def _capacities(*rows: tuple[int, int, int, int]) -> tuple[Capacity, ...]:
    return tuple(Capacity(gib * 1024 if gib else _NO_LIMIT, chunk, small, wide) for gib, chunk, small, wide in rows)


# arg_groups/memory_hook.py (0.5.23); server_args.py of the older releases.
_T4: Final = (20, 2048, 8, 8)
_LARGEST: Final = (0, 16384, 512, 512)
_NOW: Final = _capacities(_T4, (35, 4096, 48, 160), (60, 4096, 32, 160), (90, 8192, 256, 512), (160, 8192, 256, 512),
                          _LARGEST)  # fmt: skip
_TO_0_5_18: Final = _capacities(_T4, (35, 2048, 24, 80), (60, 4096, 32, 160), (90, 8192, 256, 512),
                                (160, 8192, 256, 512), _LARGEST)  # fmt: skip
_IN_0_5_3: Final = _capacities(_T4, (35, 2048, 16, 80), (60, 4096, 32, 160), (90, 8192, 256, 512),
                               (160, 8192, 256, 512), _LARGEST)  # fmt: skip
_IN_0_4_10: Final = _capacities(_T4, (35, 2048, 8, 80), (60, 8192, 160, 160), (90, 8192, 160, 160),
                                (160, 8192, 256, 256), _LARGEST)  # fmt: skip
_UNREAD: Final = "the border lies between two releases that were read"

ERAS: Final[tuple[Era, ...]] = (
    Era("0.4-table", (0, 0, 0), (0, 4, 6), _IN_0_4_10, fraction="by_ranks", prefill_graphs=False, charges_draft=False,
        raises_tokens=True, media_mib=0, sure=_UNREAD),
    Era("0.4.10", (0, 4, 7), (0, 5, 2), _IN_0_4_10, fraction="by_memory", prefill_graphs=False, charges_draft=False,
        raises_tokens=True, media_mib=0, sure=_UNREAD),
    Era("0.5.3", (0, 5, 3), (0, 5, 9), _IN_0_5_3, prefill_graphs=False, speculation_mib=2048, charges_draft=False,
        raises_tokens=True, media_mib=0),
    Era("0.5.10", (0, 5, 10), (0, 5, 13), _TO_0_5_18, speculation_mib=4096, charges_draft=False, media_mib=0),
    Era("0.5.14", (0, 5, 14), (0, 5, 17), _TO_0_5_18, media_mib=0),
    Era("0.5.18", (0, 5, 18), (0, 5, 19), _TO_0_5_18, sure=_UNREAD),
    Era("0.5.20", (0, 5, 20), NEWEST, _NOW, fallback=0.95, caps_windows=True),
)  # fmt: skip


class EraMatch(NamedTuple):
    """The era of a version; warnings: why it may not be quite the right one."""

    era: Era
    version: Version
    warnings: tuple[str, ...]


def spelled(version: Version) -> str:
    """A version as the engine writes it: "0.5.23"."""
    return ".".join(map(str, version))


def era_of(version: str | None) -> EraMatch:
    """The era of a version such as "0.5.9", "v0.4.6.post5" or "0.5.23rc1"; None is the newest modelled one.

    A version outside the known run takes the nearest era, with a warning. Raises BadInput for other text.
    """
    if version is None:
        return EraMatch(ERAS[-1], NEWEST, ())
    match = re.fullmatch(_VERSION, version.strip())
    if match is None:
        raise BadInput(f"{version[:40]!r} is not an SGLang version", "--engine-version", "Write for example 0.5.23")
    wanted = (int(match[1]), int(match[2]), int(match[3] or 0))
    if wanted > NEWEST:
        newer = f"SGLang {spelled(wanted)} is newer than {spelled(NEWEST)}, the newest modelled: planned by its rules"
        return EraMatch(ERAS[-1], wanted, (newer,))
    era = next(e for e in ERAS if wanted <= e.last)
    if wanted < (0, 3, 0):
        older = f"SGLang {spelled(wanted)} is older than 0.3: planned by the rules of {era.name}"
        return EraMatch(era, wanted, (older,))
    return EraMatch(era, wanted, ())
