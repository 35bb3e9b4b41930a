"""From a person's words to a Machine: "H100", "2xRTX 4090", "1xRTX 4090,1xRTX 3090", "80GB", "4x79.2GiB";
also "H100 x2", "4090x2", "8h100", "two 3090s", "2x3090+4090", "2080 Ti 22GB", "H100 3g.40gb", and as a machine
describes itself: "2 × H100 + H200".

Names match by exact alias, then exact name without vendor words (with its memory where names repeat), then the same
product ("3080" is no 3080 Ti), then all words present; unmodified boards come before re-worked ones. What stays
ambiguous is an error that lists the choices: the memories first where there are several, then the boards. Who plans may
have boards of one product and one memory ("A100 80GB": SXM4 or PCIe) chosen from, with the choice named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from kvplanner.errors import BadInput, UnknownName
from kvplanner.estimate import Input, exact
from kvplanner.gpu.spec import Device, GpuEntry, GpuSpec, Machine
from kvplanner.gpu.variant import profile_of, variant
from kvplanner.units import GIB, MIB, TIB, counted, format_bytes, parse_size

MAX_DEVICES: Final = 64
_MAX_DIGITS: Final = 9
_REMEDY: Final = "kvplanner gpus lists all; any other by its memory, for example 2x24GiB"
_VENDOR_WORDS: Final = frozenset({"nvidia", "geforce", "tesla", "amd", "apple", "intel", "gpu", "graphics"})
# What tells boards of one product apart: form and memory, and for workstation cards the generation, which is often left
# out ("RTX 6000": Turing's or Ada's).
_BOARD: Final = re.compile(
    r"\b(sxm\d?|pcie|hbm\d\w?|\d+\s?gb?|rtx|gtx|quadro|nvidia|geforce|tesla|ada|turing|generation)\b"
)
_WORD: Final = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_COUNTED: Final = re.compile(r"(\d+)\s*[x×*]\s*(.+)", re.IGNORECASE | re.DOTALL)
# The x of "RTX 4090" is no sign of a count.
_COUNTED_BEHIND: Final = r"(?is)(.+?)(?:\s+|(?<=\d))[x×*]\s*(\d{1,3})"
_COUNT_WORDS: Final = {
    "one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6, "eight": 8,
}  # fmt: skip
_IN_WORDS: Final = re.compile(rf"(?i)({'|'.join(_COUNT_WORDS)})\s+(.+)")
_BEFORE: Final = re.compile(r"(\d{1,2})(?:\s+(?=\S)|(?=[a-z]))(.+)", re.IGNORECASE | re.DOTALL)
_SPLIT: Final = re.compile(r",|\s\+\s|(?<=\d)\+(?=[\da-z])|(?<=[a-z])\+(?=\d+\s*[x×*])", re.IGNORECASE)
_NO_UNIT: Final = r"(?i)(\d+(?:\.\d*)?)\s*([kmgt])"
_SIZE: Final = r"(?i)\d+(?:\.\d*)?\s*(?:[kmgt]i?b)"


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _plain(text: str) -> str:
    return " ".join(word for word in _words(text) if word not in _VENDOR_WORDS)


def find(text: str, entries: Sequence[GpuEntry]) -> GpuEntry:
    """The one GPU that `text` names. Raises UnknownName with the near ones."""
    found = _matching(text, entries)
    if len(found) > 1:
        raise _ambiguous(text.strip(), found, entries)
    if not found:
        raise UnknownName(f"no GPU is called {text!r}", "--gpu", _near(_plain(text), entries), _REMEDY)
    return found[0]


def _matching(text: str, entries: Sequence[GpuEntry]) -> list[GpuEntry]:
    """The GPUs that `text` fits best, none where it fits none. Raises UnknownName where it has no word of a name."""
    wanted = text.strip().lower()
    plain, words = _plain(text), _plain(text).split()
    if not plain:
        raise UnknownName(f"{text!r} names no GPU", "--gpu", (), _REMEDY)
    made = product(text)
    stages: tuple[Callable[[GpuEntry], bool], ...] = (
        lambda e: wanted in (e.id, e.name.lower()) or any(wanted == a.lower() for a in e.aliases),
        lambda e: plain == _plain(e.name) or any(plain == _plain(a) for a in e.aliases),
        lambda e: plain == _plain(label(e, entries)),
        lambda e: made != "" and made == product(e.name) and _has_words(words, e),
        lambda e: _has_words(words, e),
    )
    for matches in stages:
        found = [e for e in entries if matches(e)]
        if found:
            return [e for e in found if not e.modified] or found
    return []


def _alike(text: str, entries: Sequence[GpuEntry]) -> list[GpuEntry]:
    """The boards that `text` fits where all are one product with one memory, so that a plan needs no answer which."""
    found = _matching(text, entries)
    same = len({(product(e.name), e.memory_gb) for e in found}) == 1 and found[0].memory_gb is not None
    return found if same and len(found) > 1 else []


def _ambiguous(text: str, found: Sequence[GpuEntry], entries: Sequence[GpuEntry]) -> UnknownName:
    """Asks which of several GPUs is meant: more than two boards of one product by their memory, which tells most."""
    what = f"{text!r} fits {len(found)} GPUs"
    sizes = sorted({e.memory_gb for e in found if e.memory_gb}, reverse=True)
    if len(found) > 2 and 1 < len(sizes) < len(found) and len({product(e.name) for e in found}) == 1:
        return UnknownName(what, "--gpu", tuple(f"{text} {size:g}GB" for size in sizes), "Say which memory")
    return UnknownName(what, "--gpu", tuple(label(e, entries) for e in found[:6]), "Name one of them")


def product(name: str) -> str:
    """What is sold under one name: "a100" of "NVIDIA A100-SXM4-80GB", "3080 ti" of "GeForce RTX 3080 Ti"."""
    return " ".join(_BOARD.sub(" ", name.lower().replace("-", " ")).split())


def label(entry: GpuEntry, entries: Sequence[GpuEntry]) -> str:
    """The GPU's name, with its memory where several GPUs share the name."""
    shared = sum(e.name == entry.name for e in entries) > 1
    return f"{entry.name} {entry.memory_gb:g}GB" if shared and entry.memory_gb else entry.name


def _has_words(wanted: list[str], entry: GpuEntry) -> bool:
    size = (f"{entry.memory_gb:g}", "gb") if entry.memory_gb else ()
    spellings = ({*_words(text), *size} for text in (entry.name, *entry.aliases))
    return any(have.issuperset(wanted) for have in spellings)


def _near(plain: str, entries: Sequence[GpuEntry]) -> tuple[str, ...]:
    from difflib import get_close_matches

    by_plain = {_plain(name): label(e, entries) for e in entries for name in (e.name, *e.aliases)}
    close = [by_plain[name] for name in get_close_matches(plain, by_plain, n=5, cutoff=0.5)]
    inside = [name for key, name in by_plain.items() if plain.split()[0] in key.split()]
    return tuple(dict.fromkeys(close + inside))[:5]


def custom_gpu(total_bytes: int) -> GpuSpec:
    """A GPU of which only the memory is given: total and CUDA total alike, nothing reserved."""
    if not 256 * MIB <= total_bytes <= 4 * TIB:
        size = format_bytes(total_bytes)
        raise BadInput(f"a GPU of {size} is out of range", "--gpu", "Give between 256 MiB and 4 TiB")
    total = exact(total_bytes, "{given}", Input("given", total_bytes, "B", "custom GPU"))
    gb, gib = total_bytes / 10**9, total_bytes / GIB
    name = f"{gb:g} GB" if round(gb, 3) == gb else f"{gib:g} GiB"
    return GpuSpec(f"custom-{total_bytes}", f"Custom {name}", "custom", total, total, gpu_class="custom")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadInput(str(error), "--gpu", "Example: --gpu 2x24GiB") from error


def _count(part: str) -> tuple[int, str]:
    """How many of which GPU: "2xH100", "H100 x2" or "H100". Raises BadInput."""
    match, behind = _COUNTED.fullmatch(part), re.fullmatch(_COUNTED_BEHIND, part)
    if match and behind and int(match[1][:_MAX_DIGITS]) > MAX_DEVICES >= int(behind[2]) > 0:
        match = None  # "4090x2" is no 4,090 GPUs
    number, name = match.groups() if match else behind.groups()[::-1] if behind else ("1", part)
    spelled = _IN_WORDS.fullmatch(part)
    if spelled:
        number, name = str(_COUNT_WORDS[spelled[1].lower()]), spelled[2]
    if len(number) > _MAX_DIGITS:
        raise BadInput("more GPUs than can be counted", "--gpu", f"Give 1 to {MAX_DEVICES} in all")
    if short := re.fullmatch(_NO_UNIT, name.strip()):
        said, letter = short[1], short[2].upper()
        raise BadInput(f"{name.strip()!r} could be {letter}B or {letter}iB", "--gpu",
                       f"Write {said}{letter}B or {said}{letter}iB")  # fmt: skip
    return int(number), name


def _named(count: int, name: str, entries: Sequence[GpuEntry], load: Callable[[str], GpuSpec]) -> tuple[int, GpuSpec]:
    """How many of which GPU: by name, as a board with another memory or a slice of it, or with a count before it."""
    try:
        return count, load(find(name, entries).id)
    except UnknownName as error:
        refused = error
    if " fits " not in refused.what:
        before = None if profile_of(name) else _BEFORE.fullmatch(name)
        if count == 1 and before and 0 < int(before[1]) <= MAX_DEVICES and (spec := _one(before[2], entries, load)):
            return int(before[1]), spec
        if name.lower().endswith("s") and (spec := _one(name[:-1], entries, load)):
            return count, spec
        found = variant(name, lambda text: _board(text, entries, load), [(e.name, e.memory_gb) for e in entries])
        if isinstance(found, GpuSpec):
            return count, found
        if found:
            raise UnknownName(f"{name!r} fits {len(found)} GPUs", "--gpu", found[:6], "Name one of them")
    raise refused


def _one(name: str, entries: Sequence[GpuEntry], load: Callable[[str], GpuSpec]) -> GpuSpec | None:
    try:
        return load(find(name, entries).id)
    except UnknownName:
        return None


def _board(name: str, entries: Sequence[GpuEntry], load: Callable[[str], GpuSpec]) -> GpuSpec | None:
    """The GPU of a name, whichever of its memories: another one stands behind the name."""
    found = _one(name, entries, load)
    if found is None:
        words = _plain(name).split()
        alike = [e for e in entries if words and not e.modified and _has_words(words, e)]
        shortest = min((len(e.name) for e in alike), default=0)
        alike = [e for e in alike if len(e.name) == shortest]
        if len({e.name for e in alike}) == 1:
            return load(alike[0].id)
    return found


def parse_machine(
    text: str, entries: Sequence[GpuEntry], load: Callable[[str], GpuSpec], *, choose: bool = False
) -> Machine:
    """The machine that `text` names; `load` fetches a GpuSpec by id.

    With `choose` the first of several boards of one product and memory is taken, and `assumed` of the machine says so.
    Raises UnknownName for names and BadInput for counts and sizes that make no sense.
    """
    devices: list[Device] = []
    assumed: list[str] = []
    custom = False
    for part in _SPLIT.split(text):
        if not part.strip():
            what = "no GPU is named" if not text.strip(", ") else f"{text!r} has a comma without a GPU beside it"
            raise BadInput(what, "--gpu", "Write for example H100, 2xRTX 4090 or 1xRTX 4090,1x24GiB")
        count, name = _count(part.strip())
        if not 1 <= count <= MAX_DEVICES or len(devices) + count > MAX_DEVICES:
            few = f"{counted(count, 'GPU', 'GPUs')} of {name[:60]}"
            raise BadInput(f"{few} cannot be planned", "--gpu", f"Give 1 to {MAX_DEVICES} in all")
        if re.fullmatch(_SIZE, name.strip()):
            spec, custom = custom_gpu(_size(name)), True
        else:
            alike = _alike(name, entries) if choose and _plain(name) else []
            if alike:
                spec = load(alike[0].id)
                assumed.append(_choice(name.strip(), alike))
            else:
                count, spec = _named(count, name.strip(), entries, load)
            if len(devices) + count > MAX_DEVICES:
                raise BadInput(f"more than {MAX_DEVICES} GPUs cannot be planned", "--gpu", "Name fewer")
        first = len(devices)
        devices.extend(Device(first + i, spec) for i in range(count))
    return Machine(tuple(devices), "custom" if custom else "catalogue", tuple(dict.fromkeys(assumed)))


def _choice(text: str, found: Sequence[GpuEntry]) -> str:
    names = " or ".join(e.name for e in found)
    return f"{text!r} is {names}, with {found[0].memory_gb:g} GB alike: planned for {found[0].name}"
