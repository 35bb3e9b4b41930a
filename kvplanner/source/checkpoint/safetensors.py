"""The header of a safetensors file, read by our own strict parser: 8 bytes of length, then JSON.

Format: the safetensors README and its reference implementation (0.6): little-endian u64 length, a JSON object that
maps each name to dtype, shape and data_offsets (begin, end, from the end of the header), and "__metadata__".
Offsets must cover the data without gap or overlap; the header is at most 25 MB here (the reference allows 100 MB).
"""

from __future__ import annotations

import json
import re
from array import array
from pathlib import Path
from typing import Final, NoReturn

from kvplanner.errors import BadInput
from kvplanner.reading import ByteSource, open_file
from kvplanner.record import NamedTuple

HEADER_LIMIT_BYTES: Final = 25_000_000
TENSOR_LIMIT: Final = 200_000
# As in GGUF; the longest names of published files have 150 characters.
NAME_LIMIT: Final = 1024
METADATA_LIMIT: Final = 10_000
# Few shapes and dtypes occur, each of them often: the largest models have some dozens.
SHAPE_LIMIT: Final = 8192
MAX_DIMENSIONS: Final = 32
MAX_BYTES: Final = 1 << 63

# Bits of one element, by the spelling in headers.
DTYPE_BITS: Final[dict[str, int]] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


class Tensor(NamedTuple):
    """One tensor of a header: dtype as spelled there, shape, and its bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Header(NamedTuple):
    """What a safetensors file says of itself.

    header_bytes: before the data; data_bytes: of all tensors; missing_bytes: by how much the file is too short.
    """

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]
    header_bytes: int
    data_bytes: int
    missing_bytes: int = 0


def read_header(path: Path, *, allow_truncated: bool = False) -> Header:
    """The header of a file on this machine.

    Raises BadInput for a broken or hostile header, and, unless `allow_truncated`, for data shorter than it says.
    """
    with open_file(path) as file:
        return parse_header(file, allow_truncated=allow_truncated)


def parse_header(source: ByteSource, *, allow_truncated: bool = False) -> Header:
    """As read_header, of any source of bytes."""
    if source.size < 8:
        raise BadInput(f"{source.size} bytes are too few for a safetensors file", source.name, _REMEDY)
    length = int.from_bytes(source.read(0, 8), "little")
    if length > HEADER_LIMIT_BYTES:
        raise BadInput(
            f"its first 8 bytes announce a header of {length:,} bytes; at most {HEADER_LIMIT_BYTES:,} are accepted",
            source.name,
            "It is not a safetensors file, or it is damaged",
        )
    if 8 + length > source.size:
        raise BadInput(
            f"the header should have {length:,} bytes, but the file ends {8 + length - source.size:,} bytes earlier",
            source.name,
            _REMEDY,
        )
    data = source.read(8, length)
    if not data.startswith(b"{"):
        raise BadInput("the header does not start with '{'", source.name, "It is not a safetensors file")
    walked = _Walk(data, source.name)
    # The text is the larger part of what a header costs: let go of before anything is made of the entries.
    del data
    walked.run()
    return _validated(source, walked, 8 + length, allow_truncated)


_REMEDY: Final = "It is incomplete or damaged: download it again"
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Names and the usual spelling of an entry, in one step; any other spelling takes the slower way.
_ENTRY: Final = re.compile(
    rb'[ \t\n\r]*"([^"\\\x00-\x1f]+)"[ \t\n\r]*:[ \t\n\r]*\{"dtype":"([A-Z0-9_]{1,16})","shape":\[([0-9,]{0,700})\],'
    rb'"data_offsets":\[([0-9]{1,20}),([0-9]{1,20})\]\}[ \t\n\r]*([,}])'
)
_MAX_ENTRY_BYTES: Final = 4096


class _Walk:
    """Walks the header's top level, so that no entry's cost exceeds its own few bytes."""

    def __init__(self, text: bytes, name: str) -> None:
        self.text = text
        self.name = name
        self.metadata: dict[str, str] = {}
        self.tensors: list[Tensor] = []
        self.begins = array("Q")
        self._known: dict[tuple[bytes, bytes], tuple[str, tuple[int, ...], int]] = {}
        self._names: set[str] = set()
        self._metadata_seen = False

    def run(self) -> None:
        """Fills tensors, where each begins, and metadata; raises BadInput. The text is gone afterwards."""
        position = self._skip(1)
        separator = b"}" if self.text.startswith(b"}", position) else b","
        position += separator == b"}"
        while separator == b",":
            match = _ENTRY.match(self.text, position)
            if match is not None and match[1] != b"__metadata__":
                name, dtype, shape, begin, end, separator = match.groups()
                self._add(self._decoded(name), dtype, shape, int(begin), int(end))
                position = match.end()
            else:
                position, separator = self._slow_entry(position)
        if self._skip(position) != len(self.text):
            self._fail(f"text after the end of the header, at byte {position + 8:,}")
        self.text = b""
        self._names.clear()

    def _slow_entry(self, position: int) -> tuple[int, bytes]:
        """One entry in any valid spelling; returns the position after its separator, and the separator."""
        name, position = self._string(self._skip(position))
        position = self._expect(b":", position)
        if name == "__metadata__":
            position = self._metadata(position)
        else:
            if not self.text.startswith(b"{", position):
                self._fail(f"the entry of {name[:100]!r} is not an object {{...}}")
            # An entry holds no nested object, so it ends at the next brace.
            end = self.text.find(b"}", position, position + _MAX_ENTRY_BYTES) + 1
            if not end:
                self._fail(f"the entry of {name[:100]!r} does not end within {_MAX_ENTRY_BYTES:,} bytes")
            self._object_entry(name, self.text[position:end])
            position = end
        position = self._skip(position)
        separator = self.text[position : position + 1]
        if separator not in (b",", b"}"):
            self._fail(f"',' or '}}' expected after the entry of {name[:100]!r}")
        return position + 1, separator

    def _object_entry(self, name: str, text: bytes) -> None:
        try:
            pairs = json.loads(text, object_pairs_hook=list)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the entry of {name[:100]!r} is not JSON", self.name, _REMEDY) from error
        fields = dict(pairs) if isinstance(pairs, list) and all(isinstance(p, tuple) for p in pairs) else {}
        if len(fields) != 3 or len(pairs) != 3 or fields.keys() != {"dtype", "shape", "data_offsets"}:
            self._fail(f"the entry of {name[:100]!r} must have dtype, shape and data_offsets, each once")
        dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
        if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            self._fail(f"dtype, shape or data_offsets of {name[:100]!r} are not a name, sizes and two offsets")
        self._add(name, dtype.encode(errors="replace"), b",".join(b"%d" % n for n in shape), offsets[0], offsets[1])

    def _metadata(self, position: int) -> int:
        if self._metadata_seen:
            self._fail("'__metadata__' stands twice")
        self._metadata_seen = True
        position = self._expect(b"{", position)
        if self.text.startswith(b"}", position):
            return position + 1
        while True:
            key, position = self._string(self._skip(position))
            value, position = self._string(self._expect(b":", position))
            if key in self.metadata:
                self._fail(f"the metadata field {key[:100]!r} stands twice")
            self.metadata[key] = value
            if len(self.metadata) > METADATA_LIMIT:
                self._fail(f"more than {METADATA_LIMIT:,} metadata fields")
            position = self._skip(position)
            separator = self.text[position : position + 1]
            position += 1
            if separator == b"}":
                return position
            if separator != b",":
                self._fail("metadata must map names to strings")

    def _add(self, name: str, dtype: bytes, shape: bytes, begin: int, end: int) -> None:
        key = (dtype, shape)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= SHAPE_LIMIT:
                self._fail(f"more than {SHAPE_LIMIT:,} different shapes")
            found = self._known[key] = self._sized(name, dtype, shape)
        spelled, sizes, bytes_ = found
        if end - begin != bytes_ or end > MAX_BYTES:
            self._fail(
                f"{name[:100]!r} ({spelled}, {list(sizes)}) needs {bytes_:,} bytes, "
                f"but its offsets {begin:,} to {end:,} hold {end - begin:,}"
            )
        if len(name) > NAME_LIMIT:
            self._fail(f"the name {name[:100]!r}… has {len(name):,} characters; at most {NAME_LIMIT:,} are accepted")
        if name in self._names:
            self._fail(f"the tensor {name[:100]!r} stands twice")
        if len(self.tensors) >= TENSOR_LIMIT:
            self._fail(f"more than {TENSOR_LIMIT:,} tensors")
        self._names.add(name)
        self.tensors.append(Tensor(name, spelled, sizes, bytes_))
        self.begins.append(begin)

    def _sized(self, name: str, dtype: bytes, shape: bytes) -> tuple[str, tuple[int, ...], int]:
        """Dtype, shape and bytes of a tensor; `name` for messages."""
        spelled = dtype.decode(errors="replace")
        bits = DTYPE_BITS.get(spelled)
        if bits is None:
            self._fail(f"the dtype {spelled[:32]!r} of {name[:100]!r} is none that safetensors defines")
        parts = shape.split(b",") if shape else []
        if len(parts) > MAX_DIMENSIONS or not all(part and len(part) <= 20 for part in parts):
            self._fail(f"{name[:100]!r} has a shape that is not at most {MAX_DIMENSIONS} sizes")
        sizes = tuple(map(int, parts))
        total = bits
        for size in sizes:
            total *= size
        if total > 8 * MAX_BYTES:
            self._fail(f"{name[:100]!r} has a shape of more than 2^63 bytes")
        if total % 8:
            self._fail(f"{name[:100]!r} ({spelled}, {list(sizes)}) needs {total / 8:,} bytes, not a whole number")
        return spelled, sizes, total // 8

    def _string(self, position: int) -> tuple[str, int]:
        if not self.text.startswith(b'"', position):
            self._fail(f"a quoted name expected at byte {position + 8:,}")
        match = _STRING.match(self.text, position)
        if match is None:
            self._fail(f"the string that begins at byte {position + 8:,} does not end")
        try:
            return str(json.loads(self._decoded(match[0]))), match.end()
        except ValueError as error:
            raise BadInput(f"a broken string at byte {position + 8:,}", self.name, _REMEDY) from error

    def _decoded(self, text: bytes) -> str:
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"invalid UTF-8 in {text[:100]!r}", self.name, _REMEDY) from error

    def _skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def _expect(self, character: bytes, position: int) -> int:
        position = self._skip(position)
        if not self.text.startswith(character, position):
            self._fail(f"{character.decode()!r} expected at byte {position + 8:,} of the file")
        return self._skip(position + 1)

    def _fail(self, what: str) -> NoReturn:
        raise BadInput(what, self.name, _REMEDY)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 64 for item in value)


def _validated(source: ByteSource, walked: _Walk, header_bytes: int, allow_truncated: bool) -> Header:
    begins = walked.begins
    expected = 0
    # Almost always in the file's order already; a tensor of no bytes comes before the one that begins where it does.
    order = sorted(range(len(begins)), key=lambda at: (begins[at], walked.tensors[at].bytes))
    for at in order:
        tensor, begin = walked.tensors[at], begins[at]
        if begin != expected:
            trouble = "overlaps the tensor before it" if begin < expected else "leaves a gap before it"
            raise BadInput(
                f"{tensor.name[:100]!r} starts at {begin:,}, not {expected:,}: it {trouble}", source.name, _REMEDY
            )
        expected += tensor.bytes
    missing = header_bytes + expected - source.size
    if missing > 0 and not allow_truncated:
        raise BadInput(f"the data end {missing:,} bytes before what the header says", source.name, _REMEDY)
    if missing < 0:
        raise BadInput(f"{-missing:,} bytes follow the last tensor", source.name, _REMEDY)
    return Header(tuple(walked.tensors), walked.metadata, header_bytes, expected, max(missing, 0))
