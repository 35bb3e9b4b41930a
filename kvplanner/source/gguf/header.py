"""The header of a GGUF file: metadata and tensor table, versions 1 to 3 in both byte orders.

Layout and rules: llama.cpp's gguf.cpp (October 2026). Vocabularies, merges and scores are stepped over, never built.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final, NoReturn

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.ggml import REMOVED, TYPES, GgmlType
from kvplanner.reading import ByteSource, open_file
from kvplanner.record import NamedTuple
from kvplanner.source.gguf.window import ByteOrder, Window
from kvplanner.units import round_up

TENSOR_LIMIT: Final = 200_000
KEY_LIMIT: Final = 65_536
# The largest vocabulary known has 262,144 entries and the longest list of merges some 600,000.
STRINGS_LIMIT: Final = 4_000_000
ARRAY_LIMIT: Final = 1 << 24
# Arrays up to this length are built: per-layer values, tags, languages.
KEPT_LENGTH: Final = 2048
KEPT_STRING: Final = 4096
# What all kept arrays and texts together may cost; beyond it they are stepped over.
KEPT_ELEMENTS: Final = 200_000
KEPT_TEXT_BYTES: Final = 4 << 20
STRING_LIMIT: Final = 16 << 20
NAME_LIMIT: Final = 1024

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]

_STRING, _ARRAY, _BOOL = 8, 9, 7
_TABLE: Final = "the table of tensors"
_SCALARS: Final[dict[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_SIZES: Final = {number: struct.calcsize("=" + code) for number, code in _SCALARS.items()}


class GgufTensor(NamedTuple):
    """One tensor: shape with the fastest dimension first, as GGUF counts; offset from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    bytes: int


class GgufHeader(NamedTuple):
    """What a GGUF file says of itself.

    metadata: scalars, short strings and short arrays; lengths: of every array by key, built or not.
    data_start: file position of the data; padded_bytes: of the data, each tensor padded to `alignment`.
    missing_bytes: by how much the file is too short.
    """

    version: int
    order: ByteOrder
    metadata: dict[str, Value]
    lengths: dict[str, int]
    tensors: tuple[GgufTensor, ...]
    alignment: int
    data_start: int
    padded_bytes: int
    missing_bytes: int = 0

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors without padding."""
        return sum(tensor.bytes for tensor in self.tensors)


def read_header(path: Path, *, allow_truncated: bool = False) -> GgufHeader:
    """The header of a file on this machine.

    Raises BadInput for a broken or hostile header, and, unless `allow_truncated`, for data shorter than it says;
    NotModelled for tensor types that llama.cpp does not read.
    """
    with open_file(path) as file:
        return parse_header(file, allow_truncated=allow_truncated)


def read_metadata(path: Path, *, recipe: bool = True) -> GgufHeader:
    """The metadata without the tensor table, as far as a list needs it: up to the recipe and the tokenizer's first key.

    Quantising tools write the recipe last, after the tokenizer; who does not need it stops before. Raises BadInput.
    """
    with open_file(path) as file:
        version, order = _magic(file)
        parser = _Parser(Window(file, order), version)
        _, keys = parser.counts()
        for _ in range(keys):
            known = not recipe or "general.file_type" in parser.metadata
            if parser.key_value().startswith("tokenizer.") and known:
                break
        return GgufHeader(version, order, parser.metadata, parser.lengths, (), 32, 0, 0)


def parse_header(source: ByteSource, *, allow_truncated: bool = False) -> GgufHeader:
    """As read_header, of any source of bytes."""
    version, order = _magic(source)
    parser = _Parser(Window(source, order), version)
    tensor_count, key_count = parser.counts()
    for _ in range(key_count):
        parser.key_value()
    alignment = parser.alignment()
    tensors = parser.tensor_table(tensor_count)
    start = round_up(parser.window.position, alignment)
    padded = _checked_layout(tensors, alignment, source.name)
    # The last tensor's padding may be absent, and a file without tensors ends where its table does.
    end = start + tensors[-1].offset + tensors[-1].bytes if tensors else 0
    missing = max(0, end - source.size)
    if missing and not allow_truncated:
        raise BadInput(f"the data end {missing:,} bytes before what the header says", source.name, _REMEDY)
    return GgufHeader(
        version, order, parser.metadata, parser.lengths, tuple(tensors), alignment, start, padded, missing
    )


_REMEDY: Final = "It is incomplete or damaged: download it again"


def _magic(source: ByteSource) -> tuple[int, ByteOrder]:
    if source.size < 8:
        raise BadInput(f"{source.size} bytes are too few for a GGUF file", source.name, _REMEDY)
    head = source.read(0, 8)
    if head[:4] != b"GGUF":
        old = {b"lmgg": "GGML", b"tjgg": "GGJT", b"fmgg": "GGMF"}.get(head[:4])
        raise BadInput(
            f"an old {old} file" if old else "it does not start with GGUF", source.name,
            "Convert it to GGUF" if old else "It is not a GGUF file, or one piece of a file that was cut in pieces",
        )  # fmt: skip
    # A version number whose low half is zero was written in the other byte order.
    order: ByteOrder = "little" if head[4:6] != b"\0\0" else "big"
    version = int.from_bytes(head[4:8], order)
    if version not in (1, 2, 3):
        raise BadInput(
            f"GGUF version {version}; known are 1 to 3", source.name, "It is damaged, or newer than kvplanner"
        )
    return version, order


class _Parser:
    def __init__(self, window: Window, version: int) -> None:
        self.window = window
        self.metadata: dict[str, Value] = {}
        self.lengths: dict[str, int] = {}
        self._wide = version > 1  # version 1 counts in 32 bits
        self._sign = "<" if window.order == "little" else ">"
        self._elements_left = KEPT_ELEMENTS
        self._text_left = KEPT_TEXT_BYTES
        window.take(8, "the magic")

    def counts(self) -> tuple[int, int]:
        """Numbers of tensors and of keys, refused here when they are out of bounds."""
        tensors = self._length("the tensor count")
        keys = self._length("the key count")
        if tensors > TENSOR_LIMIT:
            self._fail(f"announces {tensors:,} tensors; at most {TENSOR_LIMIT:,} are accepted")
        if keys > KEY_LIMIT:
            self._fail(f"announces {keys:,} metadata keys; at most {KEY_LIMIT:,} are accepted")
        # Shortest possible: a key of one letter with one byte; a nameless tensor without dimensions.
        shortest = keys * 14 + tensors * 24 if self._wide else keys * 10 + tensors * 20
        if shortest > self.window.left:
            self._fail(
                f"announces {tensors:,} tensors and {keys:,} keys, more than its {self.window.source.size:,} bytes hold"
            )
        return tensors, keys

    def key_value(self) -> str:
        """One metadata entry; returns its key."""
        key = self._text(NAME_LIMIT, "a metadata key")
        if not key:
            self._fail("a metadata key is empty")
        if key in self.metadata or key in self.lengths:
            self._fail(f"the metadata key {key[:100]!r} stands twice")
        kind = self.window.u32(f"the type of {key[:100]!r}")
        if kind == _ARRAY:
            self._array(key)
        else:
            value = self._scalar(kind, key)
            if value is not None:
                self.metadata[key] = value
        return key

    def _scalar(self, kind: int, key: str) -> Scalar | None:
        """A value; None for a text too long to be worth keeping (chat templates)."""
        if kind == _STRING:
            length = self._length(f"the length of {key[:100]!r}")
            if length > STRING_LIMIT:
                self._fail(f"the text of {key[:100]!r} has {length:,} bytes; at most {STRING_LIMIT:,} are accepted")
            self._text_left -= length
            if length > KEPT_STRING or self._text_left < 0:
                self._text_left += length
                self.window.skip(length, f"the text of {key[:100]!r}")
                self.lengths[key] = length
                return None
            return self._decoded(self.window.take(length, f"the text of {key[:100]!r}"), key)
        code = _SCALARS.get(kind)
        if code is None:
            self._fail(f"the metadata key {key[:100]!r} has the unknown type {kind}")
        value: int | float = struct.unpack(self._sign + code, self.window.take(_SIZES[kind], f"{key[:100]!r}"))[0]
        return bool(value) if kind == _BOOL else value

    def _array(self, key: str) -> None:
        kind = self.window.u32(f"the element type of {key[:100]!r}")
        count = self._length(f"the length of {key[:100]!r}")
        if count > (STRINGS_LIMIT if kind == _STRING else ARRAY_LIMIT):
            self._fail(f"the array {key[:100]!r} announces {count:,} elements")
        self.lengths[key] = count
        kept = count <= min(KEPT_LENGTH, self._elements_left) and not key.startswith("tokenizer.")
        self._elements_left -= count if kept else 0
        if kind == _STRING:
            if kept:
                values = [self._scalar(_STRING, key) for _ in range(count)]
                self.metadata[key] = tuple(value for value in values if value is not None)
                self.lengths[key] = count
            else:
                self.window.skip_strings(count, 8 if self._wide else 4, f"the array {key[:100]!r}")
            return
        code = _SCALARS.get(kind)
        if code is None:
            what = "arrays of arrays" if kind == _ARRAY else f"elements of the unknown type {kind}"
            self._fail(f"the metadata key {key[:100]!r} holds {what}")
        size = count * _SIZES[kind]
        if not kept:
            self.window.skip(size, f"the array {key[:100]!r}")
            return
        unpacked = struct.unpack(f"{self._sign}{count}{code}", self.window.take(size, f"the array {key[:100]!r}"))
        self.metadata[key] = tuple(map(bool, unpacked)) if kind == _BOOL else unpacked

    def alignment(self) -> int:
        """general.alignment: a power of two, 32 when absent."""
        value = self.metadata.get("general.alignment", 32)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 30 or value & (value - 1):
            self._fail(f"general.alignment is {value!r}, not a power of two")
        return value

    def tensor_table(self, count: int) -> list[GgufTensor]:
        """All tensor infos; shapes and types are checked, offsets not yet."""
        tensors: list[GgufTensor] = []
        names: set[str] = set()
        known: dict[tuple[int, ...], tuple[tuple[int, ...], GgmlType, int]] = {}
        tails = [struct.Struct(f"{self._sign}{n}{'Q' if self._wide else 'I'}IQ") for n in range(5)]
        for _ in range(count):
            name = self._text(NAME_LIMIT, _TABLE)
            if name in names:
                self._fail(f"the tensor {name[:100]!r} stands twice")
            names.add(name)
            dimensions = self.window.u32(_TABLE)
            if dimensions > 4:
                self._fail(f"the tensor {name[:100]!r} has {dimensions:,} dimensions; at most 4 exist")
            tail = tails[dimensions]
            *sizes, offset = tail.unpack(self.window.take(tail.size, _TABLE))
            key = tuple(sizes)
            found = known.get(key)
            if found is None:
                # Few shapes and types occur, each of them often: checked once.
                found = known[key] = self._size_of(name, key[:-1], key[-1])
            shape, type_, bytes_ = found
            tensors.append(GgufTensor(name, shape, type_, offset, bytes_))
        return tensors

    def _size_of(self, name: str, shape: tuple[int, ...], kind: int) -> tuple[tuple[int, ...], GgmlType, int]:
        """Shape, type and bytes of a tensor; `name` for messages."""
        type_ = TYPES.get(kind)
        if type_ is None:
            past = kind in REMOVED
            what = "a format that llama.cpp no longer reads" if past else "one that only a fork of llama.cpp knows"
            raise NotModelled(
                f"the tensor {name[:100]!r} has the type {kind}, {what}",
                self.window.source.name,
                "Use a file of a current type",
            )
        elements = 1
        for size in shape:
            elements *= size
        if elements >= 1 << 63 or any(size >= 1 << 63 for size in shape):
            self._fail(f"the tensor {name[:100]!r} has a shape of more than 2^63 elements")
        row = shape[0] if shape else 1
        if row % type_.block:
            self._fail(f"rows of {name[:100]!r} have {row:,} elements, not a multiple of {type_.name}'s {type_.block}")
        return shape, type_, elements // type_.block * type_.bytes

    def _length(self, what: str) -> int:
        return self.window.u64(what) if self._wide else self.window.u32(what)

    def _text(self, limit: int, what: str) -> str:
        length = self._length(what)
        if length > limit:
            self._fail(f"{what} should have {length:,} bytes; at most {limit:,} are accepted")
        return self._decoded(self.window.take(length, what), what)

    def _decoded(self, data: bytes, what: str) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{what[:100]} is not valid UTF-8", self.window.source.name, _REMEDY) from error

    def _fail(self, what: str) -> NoReturn:
        raise BadInput(what, self.window.source.name, "It is damaged, or made to do harm")


def _checked_layout(tensors: list[GgufTensor], alignment: int, name: str) -> int:
    """Bytes of the data section. Offsets must be the running sum of padded sizes, in file order, as llama.cpp asks."""
    expected = 0
    for tensor in tensors:
        if tensor.offset != expected:
            trouble = "overlaps the tensor before it" if tensor.offset < expected else "leaves a gap before it"
            raise BadInput(
                f"{tensor.name[:100]!r} starts at {tensor.offset:,}, not {expected:,}: it {trouble}", name, _REMEDY
            )
        expected += round_up(tensor.bytes, alignment)
    return expected


_SPLIT: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)


def split_parts(path: Path) -> tuple[Path, ...] | None:
    """All parts of the split file that `path` belongs to, in order; None for a file of one part."""
    match = _SPLIT.fullmatch(path.name)
    count = int(match[3]) if match else 0
    if match is None or not 1 <= int(match[2]) <= count or count > 10_000:
        return None
    return tuple(path.with_name(f"{match[1]}-{n:05d}-of-{match[3]}.gguf") for n in range(1, count + 1))
