"""Fitted constants: read once from resources/vllm_constants.json, chosen by version, runner, GPU class, ranks and host.

packaging/fit_constants.py writes that file and names the start-up reports behind every value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, cast

from kvplanner.engine.shared.identity import forget, of_last
from kvplanner.engine.vllm.gpu import Gpu, GpuKind
from kvplanner.engine.vllm.releases import NEWEST
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.estimate import Basis
from kvplanner.files import has_packs, shipped
from kvplanner.record import NamedTuple
from kvplanner.units import counted

# What an entry may ask for beside a run of versions.
_CONDITIONS: Final = ("runner", "gpu", "ranks", "stage", "pipeline", "graphs", "host", "states")
# Releases to come take the newest entries.
_LATEST: Final = (NEWEST[0], 99)
_NO_LAST: Final = (10**9, 0)
_FILE: Final = shipped("vllm_constants.json")

_SEPARATE_MEMORY: Final[tuple[GpuKind, ...]] = ("hbm", "pcie")


class Constant(NamedTuple):
    """One fitted value with its 90 % band, in the unit that its name says.

    source: one clause for people, with the number of reports that the value rests on.
    """

    value: float
    low: float
    high: float
    basis: Basis
    source: str

    @property
    def band(self) -> tuple[float, float, float]:
        """(value, low, high)."""
        return self.value, self.low, self.high

    def scaled(self, factor: float) -> tuple[int, int, int]:
        """(value, low, high) times factor, as whole bytes."""
        return round(self.value * factor), round(self.low * factor), round(self.high * factor)


def lookup(name: str, settings: Settings, gpu: Gpu, stage: int = 0, *, states: bool = False) -> Constant:
    """The entry of `name` for these settings: version, runner, GPU class, ranks, pipeline stage, graphs or none,
    the host's system, and whether layers keep recurrent states.

    Entries stand from the most to the least particular; the first whose conditions all hold is taken. Where the
    GPU's class is assumed, the band spans every class of GPU that it may be.
    Raises KeyError when none holds (a test walks every combination).
    """
    at = _conditions(settings, gpu, stage, states)
    found = _lookup(name, settings.version, at)
    if gpu.kind_is_known:
        return found
    kind = _CONDITIONS.index("gpu")
    others = [_lookup(name, settings.version, (*at[:kind], other, *at[kind + 1 :])) for other in _SEPARATE_MEMORY]
    low, high = min(o.low for o in others), max(o.high for o in others)
    if (low, high) == (found.low, found.high):
        return found
    return Constant(found.value, low, high, "assumed", f"{found.source}; the GPU's kind is not known")


@of_last
def _conditions(settings: Settings, gpu: Gpu, stage: int, states: bool) -> tuple[str, ...]:
    """What holds here, one value for each of _CONDITIONS."""
    return (
        settings.era.runner, gpu.kind, {1: "one", 2: "two"}.get(settings.parallel.tp, "several"),
        "last" if stage == settings.parallel.pp - 1 else "before last", "yes" if settings.parallel.pp > 1 else "no",
        "yes" if settings.graphs.mode != "NONE" else "no", "windows" if gpu.windows else "linux",
        "yes" if states else "no",
    )  # fmt: skip


@cache
def _table() -> Mapping[str, list[Mapping[str, Any]]]:
    return cast("Mapping[str, list[Mapping[str, Any]]]", json.loads(_FILE.read_bytes())["constants"])


def replace_table(entries: Mapping[str, list[dict[str, Any]]]) -> None:
    """Take these entries in place of the shipped ones, for this process: to measure a fit on what it left out."""
    table = _table()
    assert isinstance(table, dict)
    table.clear()
    table.update(entries)
    _lookup.cache_clear()
    forget()


@lru_cache(maxsize=4096)
def _lookup(name: str, version: tuple[int, int], values: tuple[str, ...]) -> Constant:
    here = dict(zip(_CONDITIONS, values, strict=True))
    newest = min(version, _LATEST)  # a release to come has the newest of the shipped entries
    for entry, at in ((e, at) for entries, at in ((_added(name), version), (_table()[name], newest)) for e in entries):
        inside = tuple(entry.get("first", (0, 0))) <= at <= tuple(entry.get("last", _NO_LAST))
        if inside and all(_same(entry.get(key, value), value) for key, value in here.items()):
            return _constant(entry)
    raise KeyError(f"{name} for {version}, {here}")


def _added(name: str) -> list[dict[str, Any]]:
    """Entries that data packs bring."""
    if not has_packs():
        return []
    from kvplanner import packfile

    return packfile.constants("vllm", name)


def check(given: Mapping[str, list[dict[str, Any]]], where: str) -> None:
    """Whether a data pack's entries can be used in place of the shipped ones. Raises BadInput naming the field."""
    for name, entries in given.items():
        if name not in _table():
            raise BadInput("no constant of this name", f"{where}.{name[:60]}", "Leave it out")
        for at, entry in enumerate(entries):
            _check_entry(entry, f"{where}.{name}[{at}]")


def _check_entry(entry: Mapping[str, Any], where: str) -> None:
    unknown = sorted(entry.keys() - {"first", "last", *_CONDITIONS, "value", "low", "high", "basis", "why", "rows"})
    if unknown:
        raise BadInput(f"the field {unknown[0][:60]!r} is not known", where, "Leave it out")
    given = [entry.get(key) for key in ("low", "value", "high")]
    band = [float(part) for part in given if isinstance(part, int | float) and not isinstance(part, bool)]
    if len(band) != len(given):
        raise BadInput("low, value and high are not all numbers", where, "Give all three")
    if not band[0] <= band[1] <= band[2]:
        raise BadInput("low, value and high are not in this order", where, "Exchange them")
    if entry.get("basis") not in ("calibrated", "measured", "analytic", "assumed", "exact"):
        raise BadInput("basis is none", where, "Write calibrated, measured, analytic, assumed or exact")
    if not isinstance(entry.get("why"), str) or not isinstance(entry.get("rows", []), list):
        raise BadInput("why is no text, or rows no list", where, "Say what the entry rests on")
    for key in ("first", "last"):
        version = entry.get(key, [0, 0])
        if not isinstance(version, list) or [type(part) for part in version] != [int, int]:
            raise BadInput("not a release such as [33, 0]", f"{where}.{key}", "Write minor version and patch")
    for key in _CONDITIONS:
        if not isinstance(entry.get(key, ""), str):
            raise BadInput("not a text", f"{where}.{key}", "Leave it out for every case")


def _same(wanted: str, value: str) -> bool:
    """Whether an entry's condition holds; "many" ranks are two or several."""
    return wanted == value or (wanted == "many" and value in ("two", "several"))


def _constant(entry: Mapping[str, Any]) -> Constant:
    rows = len(entry.get("rows", ()))
    source = f"{entry['why']}; {counted(rows, 'start-up report', 'start-up reports')}" if rows else str(entry["why"])
    return Constant(entry["value"], entry["low"], entry["high"], entry["basis"], source)
