"""The header of a safetensors file, read by our own strict parser: 8 bytes of length, then JSON.

Format: the safetensors README and its reference implementation (0.6): little-endian u64 length, a JSON object that
maps each name to dtype, shape and data_offsets (begin, end, from the end of the header), and "__metadata__".
Offsets must cover the data without gap or overlap; the header is at most 25 MB here (the reference allows 100 MB).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from kvplanner.errors import BadInput
from kvplanner.source.reading import ByteSource, open_file

HEADER_LIMIT_BYTES: Final = 25_000_000
TENSOR_LIMIT: Final = 200_000
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
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"invalid UTF-8 at byte {8 + error.start:,} of the header", source.name, _REMEDY) from error
    del data
    return _validated(source, _HeaderText(text, source.name), 8 + length, allow_truncated)


_REMEDY: Final = "It is incomplete or damaged: download it again"
_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Names and the usual spelling of an entry, in one step; any other spelling takes the slower way.
_ENTRY: Final = re.compile(
    r'[ \t\n\r]*"([^"\\\x00-\x1f]+)"[ \t\n\r]*:[ \t\n\r]*\{"dtype":"([A-Z0-9_]{1,16})","shape":\[([0-9,]{0,700})\],'
    r'"data_offsets":\[([0-9]{1,20}),([0-9]{1,20})\]\}[ \t\n\r]*([,}])'
)
_MAX_ENTRY_CHARACTERS: Final = 4096


class _HeaderText:
    """Walks the header's top level, so that no entry's cost exceeds its own few bytes."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.metadata: dict[str, str] = {}
        self.entries: list[tuple[Tensor, int, int]] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._names: set[str] = set()

    def walk(self) -> None:
        """Fills entries and metadata; raises BadInput."""
        position = self._skip(1)
        if self.text.startswith("}", position):
            self._expect_end(position + 1)
            return
        while True:
            match = _ENTRY.match(self.text, position)
            if match is not None and match[1] != "__metadata__":
                self._add(match[1], match[2], self._shape(match[3]), int(match[4]), int(match[5]))
                position, separator = match.end(), match[6]
            else:
                position, separator = self._slow_entry(position)
            if separator == "}":
                self._expect_end(position)
                return

    def _slow_entry(self, position: int) -> tuple[int, str]:
        """One entry in any valid spelling; returns the position after its separator, and the separator."""
        name, position = self._string(self._skip(position))
        position = self._expect(":", position)
        if name == "__metadata__":
            position = self._metadata(position)
        else:
            if not self.text.startswith("{", position):
                self._fail(f"the entry of {name[:100]!r} is not an object {{...}}")
            # An entry holds no nested object, so it ends at the next brace.
            end = self.text.find("}", position, position + _MAX_ENTRY_CHARACTERS) + 1
            if not end:
                self._fail(f"the entry of {name[:100]!r} does not end within {_MAX_ENTRY_CHARACTERS:,} characters")
            self._object_entry(name, self.text[position:end])
            position = end
        position = self._skip(position)
        separator = self.text[position : position + 1]
        if separator not in (",", "}") or not separator:
            self._fail(f"',' or '}}' expected after the entry of {name[:100]!r}")
        return position + 1, separator

    def _object_entry(self, name: str, text: str) -> None:
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
        self._add(name, dtype, self._shape(",".join(map(str, shape))), offsets[0], offsets[1])

    def _metadata(self, position: int) -> int:
        if self.metadata:
            self._fail("'__metadata__' stands twice")
        position = self._skip(self._expect("{", position))
        if self.text.startswith("}", position):
            return position + 1
        while True:
            key, position = self._string(self._skip(position))
            value, position = self._string(self._skip(self._expect(":", position)))
            if key in self.metadata:
                self._fail(f"the metadata field {key[:100]!r} stands twice")
            self.metadata[key] = value
            position = self._skip(position)
            separator = self.text[position : position + 1]
            position += 1
            if separator == "}":
                return position
            if separator != ",":
                self._fail("metadata must map names to strings")

    def _add(self, name: str, dtype: str, shape: tuple[int, ...], begin: int, end: int) -> None:
        bits = DTYPE_BITS.get(dtype)
        if bits is None:
            self._fail(f"the dtype {dtype[:32]!r} of {name[:100]!r} is none that safetensors defines")
        total = bits
        for size in shape:
            total *= size
        if total > 8 * MAX_BYTES:
            self._fail(f"{name[:100]!r} has a shape of more than 2^63 bytes")
        if total % 8 or begin > end or end - begin != total // 8:
            self._fail(
                f"{name[:100]!r} ({dtype}, {list(shape)}) needs {total / 8:,.10g} bytes, "
                f"but its offsets {begin:,} to {end:,} hold {end - begin:,}"
            )
        if name in self._names:
            self._fail(f"the tensor {name[:100]!r} stands twice")
        if len(self.entries) >= TENSOR_LIMIT:
            self._fail(f"more than {TENSOR_LIMIT:,} tensors")
        self._names.add(name)
        self.entries.append((Tensor(name, dtype, shape, end - begin), begin, end))

    def _shape(self, text: str) -> tuple[int, ...]:
        shape = self._shapes.get(text)
        if shape is None:
            parts = text.split(",") if text else []
            if len(parts) > MAX_DIMENSIONS or not all(part.isdigit() and len(part) <= 20 for part in parts):
                self._fail(f"[{text[:100]}] is not a shape of at most {MAX_DIMENSIONS} sizes")
            shape = self._shapes[text] = tuple(map(int, parts))
        return shape

    def _string(self, position: int) -> tuple[str, int]:
        if not self.text.startswith('"', position):
            self._fail(f"a quoted name expected at character {position + 8:,}")
        try:
            text, end = _DECODER.raw_decode(self.text, position)
        except ValueError as error:
            raise BadInput(f"a broken string at character {position + 8:,}", self.name, _REMEDY) from error
        return str(text), end

    def _skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def _expect(self, character: str, position: int) -> int:
        position = self._skip(position)
        if not self.text.startswith(character, position):
            self._fail(f"{character!r} expected at character {position + 8:,} of the header")
        return self._skip(position + 1)

    def _expect_end(self, position: int) -> None:
        if self._skip(position) != len(self.text):
            self._fail(f"text after the end of the header, at character {position + 8:,}")

    def _fail(self, what: str) -> NoReturn:
        raise BadInput(what, self.name, _REMEDY)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 64 for item in value)


def _validated(source: ByteSource, text: _HeaderText, header_bytes: int, allow_truncated: bool) -> Header:
    text.walk()
    expected = 0
    for tensor, begin, end in sorted(text.entries, key=lambda entry: entry[1:]):
        if begin != expected:
            trouble = "overlaps the tensor before it" if begin < expected else "leaves a gap before it"
            raise BadInput(
                f"{tensor.name[:100]!r} starts at {begin:,}, not {expected:,}: it {trouble}", source.name, _REMEDY
            )
        expected = end
    missing = header_bytes + expected - source.size
    if missing > 0 and not allow_truncated:
        raise BadInput(f"the data end {missing:,} bytes before what the header says", source.name, _REMEDY)
    if missing < 0:
        raise BadInput(f"{-missing:,} bytes follow the last tensor", source.name, _REMEDY)
    tensors = tuple(entry[0] for entry in text.entries)
    return Header(tensors, text.metadata, header_bytes, expected, max(missing, 0))
