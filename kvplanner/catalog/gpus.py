"""The bundled GPU catalogue: a small index at start, a record parsed when it is asked for.

Totals that no public print shows are estimated by rule and marked `assumed`, never above the nominal memory:
a CUDA total is the NVML total less 2 % (at least 300 MiB); an NVML total is that of the nearest card of the same
memory and family; where host and GPU share the memory, what CUDA sees is in proportion to that of the nearest board.
Drivers without NVML keep nothing to themselves: there both totals are what is printed.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from typing import Any, Final

from kvplanner.errors import UnknownName
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.files import has_packs, shipped
from kvplanner.gpu.spec import GpuEntry, GpuSpec, Machine
from kvplanner.units import GB, GIB, MB, MIB

_FOLDER: Final = shipped("gpus")
_RESERVED_SHARE: Final = 0.02
_RESERVED_LEAST: Final = 300 * MIB


@cache
def _index() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_FOLDER / "index.json").read_bytes())
    return loaded


@cache
def index() -> tuple[GpuEntry, ...]:
    """All GPUs, in the catalogue's order."""
    shipped_ones = tuple(GpuEntry(g[0], g[1], tuple(g[2]), *g[3:]) for g in _index()["gpus"])
    if not has_packs():
        return shipped_ones
    brought = {name: entry_of(facts) for name, facts in _brought().items()}
    return (*(brought.get(entry.id, entry) for entry in shipped_ones),
            *(entry for name, entry in brought.items() if name not in {e.id for e in shipped_ones}))  # fmt: skip


def made() -> str:
    """The date of the facts that came with the program, as YYYY-MM-DD."""
    return str(_index()["made"])


def shipped_count() -> int:
    """How many GPUs came with the program."""
    return len(_index()["gpus"])


def entry_of(facts: dict[str, Any]) -> GpuEntry:
    """What the index says of a record."""
    aliases = tuple(facts.get("aliases", ()))
    name = facts.get("nvml_name") or (aliases[0] if aliases else facts["id"])
    modified = bool(facts.get("modified"))
    return GpuEntry(facts["id"], name, aliases, facts["vendor"], facts["class"], facts.get("memory_gb"), modified)


def _brought() -> dict[str, dict[str, Any]]:
    """Records of data packs."""
    from kvplanner import packfile

    return {name: facts for name, (facts, _) in packfile.gpus().items()}


@cache
def _lines() -> dict[str, bytes]:
    lines = (_FOLDER / "records.jsonl").read_bytes().splitlines()
    return {entry[0]: line for entry, line in zip(_index()["gpus"], lines, strict=True)}


@cache
def record(gpu_id: str) -> dict[str, Any]:
    """The facts of one GPU with their provenance. Raises UnknownName."""
    if has_packs() and (facts := _brought().get(gpu_id)):
        return facts
    line = _lines().get(gpu_id)
    if line is None:
        raise UnknownName(f"no GPU has the id {gpu_id!r}", "GPU catalogue", (), "kvplanner gpus lists them")
    loaded: dict[str, Any] = json.loads(line)
    return loaded


@cache
def gpu(gpu_id: str) -> GpuSpec:
    """The GPU with an id; its totals are None only when not even the memory size is known."""
    facts = record(gpu_id)
    return spec_of(facts, next(e for e in index() if e.id == gpu_id))


def spec_of(facts: dict[str, Any], entry: GpuEntry) -> GpuSpec:
    """The GPU of a record and its entry."""
    capability = facts.get("compute_capability")
    major_minor = tuple(int(part) for part in str(capability).split(".")) if capability else None
    total, cuda_total = _totals(facts)
    return GpuSpec(
        id=entry.id,
        name=entry.name,
        vendor=facts["vendor"],
        total=total,
        cuda_total=cuda_total,
        compute_capability=(major_minor[0], major_minor[1]) if major_minor and len(major_minor) == 2 else None,
        arch=facts.get("arch", ""),
        memory_type=facts.get("memory_type", ""),
        gpu_class=facts["class"],
        unified_memory=facts.get("unified_memory", False),
        nvlink=bool(facts.get("nvlink")),
        ecc_default={"on": True, "off": False}.get(facts.get("ecc_default", "")),
        bandwidth_gbs=facts.get("bandwidth_gbs"),
        aliases=entry.aliases,
    )


def machine(text: str, *, choose: bool = False) -> Machine:
    """The machine that text such as "2xRTX 4090" names; `choose`: see `parse_machine`. Raises UnknownName, BadInput."""
    from kvplanner.gpu.match import parse_machine

    return parse_machine(text, index(), gpu, choose=choose)


def machine_words(machine: Machine) -> str:
    """The text that `machine` reads back, here or on another computer: "2xh100-sxm-80gb,1x24GiB"."""
    known = {entry.id for entry in index()}
    parts: list[str] = []
    for spec, run in groupby(machine.devices, key=lambda d: d.gpu):
        named = spec.id in known or spec.id.partition(" ")[0] in known  # a board or a slice of a known one
        name = spec.id if named else _exact_size(spec.total.value if spec.total else 0)
        parts.append(f"{len(list(run))}x{name}")
    return ",".join(parts)


def _exact_size(size_bytes: int) -> str:
    """A size as text that reads back to the same byte."""
    for unit, factor in (("GiB", GIB), ("GB", GB), ("MiB", MIB), ("MB", MB)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes // 1000}.{size_bytes % 1000:03}kB"


def by_nvml_name(name: str, total_bytes: int | None = None) -> GpuSpec | None:
    """The GPU that NVML calls `name`; among boards of one name the one whose total is nearest."""
    found = [e for e in index() if e.name.lower() == name.lower()]
    if not found:
        from kvplanner.gpu.match import find

        try:
            found = [find(name, index())]
        except UnknownName:
            return None
    specs = [gpu(e.id) for e in found]
    if total_bytes is None:
        return specs[0]
    return min(specs, key=lambda s: abs((s.total.value if s.total else 0) - total_bytes))


def _totals(facts: dict[str, Any]) -> tuple[Estimate | None, Estimate | None]:
    cuda_mib, nvml_mib = _linux_total_mib(facts), facts.get("nvml_total_mib")
    cuda = _printed(facts, "torch_total_mib") if cuda_mib else None
    total = _printed(facts, "nvml_total_mib") if nvml_mib else None
    if facts.get("unified_memory"):
        seen = cuda or _shared_memory(facts) or _nominal(facts)
        return seen, seen
    if facts["vendor"] != "nvidia":
        return _without_nvml(facts, cuda)
    if total is None:
        total = _total_from_cuda(facts) if cuda_mib else _like_nearest(facts) or _nominal(facts)
    if cuda is None and total is not None:
        cuda = _cuda_from_total(total)
    return total, cuda


def _linux_total_mib(facts: dict[str, Any]) -> int | None:
    """What CUDA sees where engines run; Windows keeps its share elsewhere, so its prints say nothing about Linux."""
    value: int | None = facts.get("torch_total_mib")
    on_windows = facts.get("facts", {}).get("torch_total_mib", {}).get("note", "") == "Windows"
    return None if on_windows and not facts.get("unified_memory") else value


def _printed(facts: dict[str, Any], key: str, unit: int = MIB) -> Estimate:
    sources = facts.get("facts", {}).get(key, {}).get("sources", [])
    where = "; ".join(sources) if sources else "catalogue"
    value = facts[key] * unit
    return exact(value, "{total}", Input("total", value, "B", where))


def _without_nvml(facts: dict[str, Any], seen: Estimate | None) -> tuple[Estimate | None, Estimate | None]:
    """What the driver's own tool prints and what programs see; each stands in for the other where it is not known."""
    total = _printed(facts, "driver_total_bytes", 1) if "driver_total_bytes" in facts else None
    if total is None and seen is None:
        return _nominal(facts), _nominal(facts)
    if total is None and seen is not None:
        total = _up_to_nominal(facts, seen.value, seen.value, seen.value, "{seen}",
                               Input("seen", seen.value, "B", "assumed: no more than programs see"))  # fmt: skip
    return total, seen or total


def _up_to_nominal(facts: dict[str, Any], value: int, low: int, high: int, formula: str, *inputs: Input) -> Estimate:
    """An assumed total: no board has more than its nominal memory, in GiB."""
    most = int((facts.get("memory_gb") or 0) * GIB)
    if most >= low:
        value, high = min(value, most), min(high, most)
    return banded(value, low, high, "assumed", formula, *inputs)


def _cuda_from_total(total: Estimate) -> Estimate:
    reserved = max(round(total.value * _RESERVED_SHARE), _RESERVED_LEAST)
    return banded(
        total.value - reserved,
        total.low - 2 * reserved,
        total.high,
        "assumed",
        "{NVML total} − {driver reserved}",
        Input("NVML total", total.value, "B", total.inputs[0].source if total.inputs else "catalogue"),
        Input("driver reserved", reserved, "B", "assumed: 2 % of the total, at least 300 MiB"),
    )


def _total_from_cuda(facts: dict[str, Any]) -> Estimate:
    cuda = facts["torch_total_mib"] * MIB
    nearest = _nearest(facts, "torch_total_mib")
    if nearest:
        reserved = max(nearest["nvml_total_mib"] - nearest["torch_total_mib"], 0) * MIB
        why = f"as on {nearest.get('nvml_name') or nearest['id']}"
    else:
        reserved, why = max(round(cuda * _RESERVED_SHARE), _RESERVED_LEAST), "assumed: 2 %, at least 300 MiB"
    return _up_to_nominal(
        facts,
        cuda + reserved,
        cuda,
        cuda + 2 * reserved,
        "{CUDA total} + {driver reserved}",
        Input("CUDA total", cuda, "B", "public print"),
        Input("driver reserved", reserved, "B", why),
    )


def _like_nearest(facts: dict[str, Any]) -> Estimate | None:
    nearest = _nearest(facts, "nvml_total_mib")
    if nearest is None:
        return None
    value = nearest["nvml_total_mib"] * MIB
    name = nearest.get("nvml_name") or nearest["id"]
    return _up_to_nominal(
        facts,
        value,
        round(value * 15 / 16),  # error-correcting memory on GDDR takes one sixteenth
        round(value * 1.01),
        "{total}",
        Input("total", value, "B", f"assumed: as {name}, the nearest card of the same memory and family"),
    )


def _nominal(facts: dict[str, Any]) -> Estimate | None:
    size = facts.get("memory_gb")
    if not size:
        return None
    value = int(size * 1024) * MIB
    source = "assumed: the nominal size, no print known"
    return banded(
        value, round(value * 15 / 16), value, "assumed", "{nominal size}", Input("nominal size", value, "B", source)
    )


def _shared_memory(facts: dict[str, Any]) -> Estimate | None:
    """What CUDA sees of memory that is the host's too: the part of its size that it is on the nearest measured board.

    Nearest is of the same architecture where one is measured, then of the most alike size. The range goes from the
    least part on any measured board of the maker's to halfway between the greatest and the whole.
    """
    size = facts.get("memory_gb")
    boards = [record(e.id) for e in index() if e.vendor == facts["vendor"] and e.memory_gb and e.id != facts["id"]]
    known = [board for board in boards if board.get("unified_memory") and board.get("torch_total_mib")]
    if not size or not known:
        return None
    nominal = int(size * 1024) * MIB
    parts = {board["id"]: board["torch_total_mib"] / 1024 / board["memory_gb"] for board in known}
    alike = [board for board in known if board.get("arch") == facts.get("arch")] or known
    nearest = min(alike, key=lambda board: max(board["memory_gb"], size) / min(board["memory_gb"], size))
    part = parts[nearest["id"]]
    name = f"{nearest.get('nvml_name') or nearest['id']} {nearest['memory_gb']:g}GB"
    return banded(
        round(nominal * part),
        round(nominal * min(parts.values())),
        round(nominal * (1 + max(parts.values())) / 2),
        "assumed",
        "{nominal size} × {part that CUDA sees}",
        Input("nominal size", nominal, "B", "catalogue"),
        Input("part that CUDA sees", part, "", f"assumed: as on {name}, the nearest measured board"),
    )


def _nearest(facts: dict[str, Any], needed: str) -> dict[str, Any] | None:
    """The card of the same nominal memory, best of the same architecture and class, whose `needed` total is known."""
    best: dict[str, Any] | None = None
    best_score = 0
    for entry in index():
        if entry.memory_gb != facts.get("memory_gb") or entry.vendor != facts["vendor"] or entry.id == facts["id"]:
            continue
        other = record(entry.id)
        if not other.get("nvml_total_mib") or not other.get(needed) or other.get("unified_memory"):
            continue
        if needed == "torch_total_mib" and _linux_total_mib(other) is None:
            continue
        score = (
            1
            + 4 * (other.get("arch") == facts.get("arch"))
            + 2 * (other.get("memory_type") == facts.get("memory_type"))
            + (other.get("class") == facts.get("class"))
        )
        if score > best_score:
            best, best_score = other, score
    return best
