"""What the GPU chooser lists for a text: "2", "4090", "2x4090", "8 h100", "48GB", "4x79.2GiB"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kvplanner.gpu.match import MAX_DEVICES, GpuEntry, label
from kvplanner.ui.setup.labels import short_name
from kvplanner.ui.setup.rows import Row
from kvplanner.units import format_both, parse_size

COMMON: Final = (
    "rtx-4090", "rtx-3090", "rtx-5090", "rtx-4060-ti-16gb", "rtx-6000-ada", "rtx-pro-6000-blackwell-ws", "l4", "l40s",
    "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm", "b200",
)  # fmt: skip
_CLASSES: Final = {
    "geforce": "GeForce", "workstation": "Workstation", "datacenter": "Data centre", "laptop": "Laptop",
    "soc": "Unified memory", "mod": "Re-worked boards", "amd-datacenter": "AMD", "amd-consumer": "AMD",
    "amd-workstation": "AMD", "amd-apu": "AMD", "apple": "Apple",
}  # fmt: skip
_VENDORS: Final = {"nvidia": "NVIDIA", "amd": "AMD", "apple": "Apple", "intel": "Intel"}
_LARGEST_LONE_COUNT: Final = 16
_SIZE: Final = re.compile(r"\d+(?:\.\d*)?\s*[mgt]i?b?", re.IGNORECASE)
_TIMES: Final = re.compile(r"(\d{1,2})\s*[x×*]\s*(.*)", re.IGNORECASE)
_BEFORE: Final = re.compile(r"(\d{1,2})(?:\s+(.*))?")


class Query(NamedTuple):
    """number None: none was typed."""

    number: int | None
    words: str


def parse_query(text: str) -> Query:
    """The count and the name in a search text; a lone number up to 16 counts, a larger one names."""
    text = text.strip()
    if _SIZE.fullmatch(text) and not text.isdigit():
        return Query(None, text)
    match = _TIMES.fullmatch(text) or _BEFORE.fullmatch(text)
    if match is None:
        return Query(None, text)
    count, rest = int(match[1]), (match[2] or "").strip()
    explicit = match.re is _TIMES or bool(rest)
    if not 1 <= count <= (MAX_DEVICES if explicit else _LARGEST_LONE_COUNT):
        return Query(None, text)
    return Query(count, rest)


@lru_cache(maxsize=512)
def _haystack(entry: GpuEntry) -> str:
    memory = f"{entry.memory_gb:g}gb {entry.memory_gb:g} gb" if entry.memory_gb else ""
    words = (entry.name, *entry.aliases, entry.id, _CLASSES.get(entry.gpu_class, ""), memory)
    return " ".join(words).lower()


def _rank(entry: GpuEntry, words: Sequence[str]) -> tuple[int, int, int]:
    names = [name.lower() for name in (*entry.aliases, short_name(entry.name))]
    joined = " ".join(words)
    best = 0 if joined in names else 1 if any(n.split()[-1:] == [joined] for n in names) else 2
    return best, entry.id not in COMMON, int(entry.modified)


def search(text: str, entries: Sequence[GpuEntry], recent: Sequence[str], current: str) -> list[Row]:
    """Rows for a text over the catalogue; data is the text that parse_machine reads. recent: such texts."""
    query = parse_query(text)
    words = query.words.lower().split()
    count = query.number or 1
    rows: list[Row] = []
    custom = _custom_row(query.words, count)
    if custom is not None:
        rows.append(custom)
    if not text.strip():
        rows += _recent_rows(recent, current)
    by_id = {entry.id: entry for entry in entries}
    if not words:
        rows.append(Row("heading", "Common"))
        rows += [_row(by_id[i], count, entries, current) for i in COMMON if i in by_id]
        rows += _by_class(entries, count, current)
        return rows
    found = [e for e in entries if all(word in _haystack(e) for word in words)]
    found.sort(key=lambda e: _rank(e, words))
    return rows + [_row(entry, count, entries, current) for entry in found]


def _custom_row(words: str, count: int) -> Row | None:
    if not _SIZE.fullmatch(words.strip()) or words.strip().isdigit():
        return None
    spelled = words.strip() if words.strip().lower().endswith("b") else f"{words.strip()}B"
    try:
        size = parse_size(spelled)
    except ValueError:
        return None
    data = f"{count}x{spelled.replace(' ', '')}"
    return Row("item", f"{count} × custom GPU of {spelled}", "exactly that much, nothing reserved by a driver",
               format_both(size), "custom", data)  # fmt: skip


def _recent_rows(recent: Sequence[str], current: str) -> list[Row]:
    if not recent:
        return []
    rows = [Row("item", text.replace("x", " × ", 1), "", "", "", text, text == current) for text in recent]
    return [Row("heading", "Recent"), *rows]


def _by_class(entries: Iterable[GpuEntry], count: int, current: str) -> list[Row]:
    groups: dict[str, list[GpuEntry]] = {}
    everything = tuple(entries)
    for entry in everything:
        groups.setdefault(_CLASSES.get(entry.gpu_class, entry.gpu_class.title()), []).append(entry)
    rows: list[Row] = []
    for title, members in groups.items():
        rows.append(Row("heading", title))
        members.sort(key=lambda e: -(e.memory_gb or 0))
        rows += [_row(entry, count, everything, current) for entry in members]
    return rows


def _row(entry: GpuEntry, count: int, entries: Sequence[GpuEntry], current: str) -> Row:
    name = short_name(label(entry, entries))
    memory = entry.memory_gb
    each = f"{memory:g} GB" if memory else "memory varies"
    trailing = f"{count} × {each} = {count * memory:g} GB" if memory and count > 1 else each
    kind = _CLASSES.get(entry.gpu_class, entry.gpu_class)
    note = "" if entry.vendor == "nvidia" else "vLLM: cannot tell"
    data = f"{count}x{entry.id}"
    detail = kind if kind == _VENDORS.get(entry.vendor) else f"{_VENDORS.get(entry.vendor, entry.vendor)} {kind}"
    return Row("item", f"{count} × {name}" if count > 1 else name, detail, trailing, note, data, data == current)
