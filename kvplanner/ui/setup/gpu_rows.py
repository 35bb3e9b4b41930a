"""What the GPU chooser lists for a text: "2", "4090", "2x4090", "8 h100", "48GB", "4x79.2GiB"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from kvplanner.app.messages import in_window
from kvplanner.catalog import gpus
from kvplanner.errors import PlannerError, UnknownName
from kvplanner.gpu.match import MAX_DEVICES, label, product
from kvplanner.gpu.names import short_name
from kvplanner.gpu.spec import GpuEntry, Machine
from kvplanner.record import NamedTuple
from kvplanner.ui.setup.marks import FITTING
from kvplanner.ui.setup.rows import Row
from kvplanner.units import ByteUnit, format_both, format_bytes, parse_size

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
FITS, STARRED = FILTERS = ("Fits", "Starred")
_LARGEST_LONE_COUNT: Final = 16
_SIZE: Final = re.compile(r"\d+(?:\.\d*)?\s*(?:[mg]i?b?|ti?b)", re.IGNORECASE)  # "4060 Ti" is no size
_TIMES: Final = re.compile(r"(\d{1,2})\s*[x×*]\s*(.*)", re.IGNORECASE)
_ANY_COUNT: Final = re.compile(r"(-?\d+)\s*[x×*]\s*(.*)", re.IGNORECASE)
_MAX_DIGITS: Final = 9
MIG: Final = re.compile(r"(?i)\b[1-7]g\.\d+gb")
NO_GPU: Final = "No GPU says that. Type its memory, for example 48GB, for one of your own."
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


def nothing_found(text: str) -> str:
    """What to say when no row matches a text: a size or a count may be what is wrong."""
    size = _custom_data(parse_query(text))
    if size:
        return _refusal(size)
    match = _ANY_COUNT.match(text.strip())
    if match is None or not match[2].strip():
        return NO_GPU
    count = int(match[1]) if len(match[1]) <= _MAX_DIGITS else MAX_DEVICES + 1
    if count > MAX_DEVICES:
        return f"A plan has {MAX_DEVICES} GPUs at most: type {MAX_DEVICES}x{match[2].strip()} or fewer."
    return f"A plan has at least one GPU: type 1x{match[2].strip()} or more." if count == 0 else NO_GPU


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


class Stock(NamedTuple):
    """What the chooser draws from. recent, starred: texts for parse_machine; current: that of the chosen machine."""

    entries: Sequence[GpuEntry]
    recent: Sequence[str]
    current: str
    unit: ByteUnit
    starred: Sequence[str] = ()


def search(text: str, stock: Stock) -> list[Row]:
    """Rows for a text over the catalogue; data is the text that parse_machine reads."""
    entries = stock.entries
    query = parse_query(text)
    words = query.words.lower().split()
    count = query.number or 1
    rows: list[Row] = []
    size = _custom_data(query)
    if size and _refusal(size):
        return []  # "0GB" is no part of a name
    rows += _custom_rows(size)
    if not text.strip():
        rows += [*_named("Recent", stock.recent, stock), *_named("Starred", stock.starred, stock)]
    by_id = {entry.id: entry for entry in entries}
    if not words:
        rows.append(Row("heading", "Common"))
        rows += [_row(by_id[i], count, stock) for i in COMMON if i in by_id]
        return rows + _by_class(count, stock)
    found = [e for e in entries if all(word in _haystack(e) for word in words)]
    found.sort(key=lambda e: _rank(e, words))
    listed = [*_boards(found, query.words, count, stock)]
    # What a command line would read costs a look at every name: where no name holds all words, or several are mixed.
    named = [] if found and not set(",+") & set(text) else _named_rows(text, stock)
    known = {row.data for row in listed if row.kind == "item"}
    return [*rows, *(row for row in named if row.data not in known), *listed]


def _boards(found: Sequence[GpuEntry], words: str, count: int, stock: Stock) -> Iterator[Row]:
    """A row for each; where several boards are sold under the name that was typed, those first, by memory."""
    made = product(words)
    alike = [e for e in found if made and product(e.name) == made and not e.modified]
    sizes = {e.memory_gb for e in alike}
    if len(alike) < 2 or (len(alike) == len(found) and len(sizes) in (1, len(alike))):
        yield from (_row(entry, count, stock) for entry in found)
        return
    if len(sizes) in (1, len(alike)):
        yield Row("heading", "Several boards have this name")
        yield from (_row(entry, count, stock) for entry in alike)
    else:
        for size in sorted(sizes, key=lambda size: -(size or 0)):
            yield Row("heading", f"With {size:g} GB" if size else "Of unknown memory")
            yield from (_row(entry, count, stock) for entry in alike if entry.memory_gb == size)
    if others := [entry for entry in found if entry not in alike]:
        yield Row("heading", "Others")
        yield from (_row(entry, count, stock) for entry in others)


def _custom_data(query: Query) -> str:
    """The text that names GPUs of a size alone, "" when no size was typed."""
    words = query.words.strip()
    if not _SIZE.fullmatch(words) or words.isdigit():
        return ""
    return f"{query.number or 1}x{words}{'' if words.lower().endswith('b') else 'B'}".replace(" ", "")


def _refusal(data: str) -> str:
    """Why a machine cannot be had, "" when it can."""
    try:
        gpus.machine(data)
    except PlannerError as error:
        return in_window(f"{error.what[:1].upper()}{error.what[1:]}. {error.remedy}")
    return ""


def _custom_rows(data: str) -> list[Row]:
    if not data:
        return []
    count, _, spelled = data.partition("x")
    size = format_both(parse_size(spelled))
    about = "exactly that much, nothing reserved by a driver"
    return [Row("item", f"{count} × custom GPU of {spelled}", about, size, "custom", data)]


def _named_rows(text: str, stock: Stock) -> list[Row]:
    """What a command line would make of the text: several kinds, a board of another memory, a slice; or its choices."""
    if not text.strip():
        return []
    try:
        machine = gpus.machine(text.strip())
        return (
            [] if machine.source == "custom" and "," not in text and "+" not in text else [_machine_row(machine, stock)]
        )
    except UnknownName as error:
        if " fits " not in error.what or not MIG.search(text):
            return []
        return [_machine_row(gpus.machine(name), stock) for name in error.near]
    except PlannerError:
        return []


def _machine_row(machine: Machine, stock: Stock) -> Row:
    total = sum(d.gpu.total.value for d in machine.devices if d.gpu.total)
    kinds = {device.gpu.id for device in machine.devices}
    detail = "mixed" if len(kinds) > 1 else "as named"
    data = gpus.machine_words(machine)
    size = format_bytes(total, stock.unit) if total else "memory varies"
    return Row("item", short_name(machine.describe()), detail, size, "", data, data == stock.current)


def _named(title: str, texts: Sequence[str], stock: Stock) -> list[Row]:
    rows: list[Row] = []
    for text in texts:
        try:
            machine = gpus.machine(text)
        except PlannerError:
            continue  # of a catalogue that knew it
        total = sum(d.gpu.total.value for d in machine.devices if d.gpu.total)
        size = format_bytes(total, stock.unit) if total else ""
        name = short_name(machine.describe())
        rows.append(Row("item", name, "", size, "", text, text == stock.current, text in stock.starred))
    return [Row("heading", title), *rows] if rows else []


def filtered(rows: Sequence[Row], only: frozenset[str], marks: Mapping[object, str]) -> list[Row]:
    """Rows that the filters leave in, with the headings that have any."""
    kept: list[Row] = []
    for row in rows:
        if row.kind == "heading":
            if kept and kept[-1].kind == "heading":
                kept.pop()
            kept.append(row)
        elif not ((FITS in only and marks.get(row.data) not in FITTING) or (STARRED in only and not row.starred)):
            kept.append(row)
    return kept[:-1] if kept and kept[-1].kind == "heading" else kept


def _by_class(count: int, stock: Stock) -> list[Row]:
    groups: dict[str, list[GpuEntry]] = {}
    for entry in stock.entries:
        groups.setdefault(_CLASSES.get(entry.gpu_class, entry.gpu_class.title()), []).append(entry)
    rows: list[Row] = []
    for title, members in groups.items():
        rows.append(Row("heading", title))
        members.sort(key=lambda e: -(e.memory_gb or 0))
        rows += [_row(entry, count, stock) for entry in members]
    return rows


def _row(entry: GpuEntry, count: int, stock: Stock) -> Row:
    name = short_name(label(entry, stock.entries))
    kind = _CLASSES.get(entry.gpu_class, entry.gpu_class)
    note = "" if entry.vendor == "nvidia" else "vLLM: cannot tell"
    data = f"{count}x{entry.id}"
    detail = kind if kind == _VENDORS.get(entry.vendor) else f"{_VENDORS.get(entry.vendor, entry.vendor)} {kind}"
    title = f"{count} × {name}" if count > 1 else name
    return Row("item", title, detail, _size_text(entry.id, count, stock.unit), note, data, data == stock.current,
               data in stock.starred)  # fmt: skip


@lru_cache(maxsize=1024)
def _size_text(gpu_id: str, count: int, unit: ByteUnit) -> str:
    """The whole memory as the driver counts it, as on the card and in the bars."""
    total = gpus.gpu(gpu_id).total
    if total is None:
        return "memory varies"
    each = format_bytes(total.value, unit)
    return each if count == 1 else f"{count} × {each} = {format_bytes(count * total.value, unit)}"
