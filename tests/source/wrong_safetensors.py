"""Headers of safetensors files that are refused, each with words of its message."""

from __future__ import annotations

import json
from typing import Any


def encode(table: Any, data: int = 0, length: int | None = None) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data)


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


GOOD = {"a": entry(0, 4, "F32", [1]), "b": entry(4, 12, "U8", [2, 4])}


WRONG: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "too few"),
    "seven bytes": (b"1234567", "too few"),
    "length near 2^63": ((2**63 - 1).to_bytes(8, "little") + b"{}", "announce a header"),
    "length near 2^64": ((2**64 - 1).to_bytes(8, "little") + b"{}", "announce a header"),
    "longer than the file": (encode({}, length=99_999), "99,999 bytes, but the file ends"),
    "no object": (encode(b"[]"), "start with"),
    "leading space": (encode(b" {}"), "start with"),
    "no end": (encode(b"{"), "quoted name expected"),
    "text after the end": (encode(b"{} {}"), "after the end"),
    "invalid UTF-8": (encode(b'{"\xff\xfe":1}'), "invalid UTF-8"),
    "number as entry": (encode({"a": 1}), "is not an object"),
    "list as entry": (encode({"a": [1, 2]}), "is not an object"),
    "nested entry": (encode({"a": {"dtype": {}, "shape": [], "data_offsets": [0, 0]}}), "not JSON|dtype, shape"),
    "deep nesting": (encode(b'{"a":' + b"[" * 100_000), "not an object"),
    "deep nesting inside": (encode(b'{"a":{"dtype":' + b"[" * 4000 + b"}}"), "not JSON"),
    "missing field": (encode({"a": {"dtype": "U8", "shape": [1]}}), "each once"),
    "extra field": (encode({"a": {**entry(0, 1), "x": 1}}, 1), "each once"),
    "field twice": (encode(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1), "each once"),
    "tensor twice": (encode(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2), "stands twice"),
    "metadata twice": (encode(b'{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}}'), "stands twice"),
    "metadata key twice": (encode(b'{"__metadata__":{"a":"b","a":"c"}}'), "stands twice"),
    "metadata number": (encode({"__metadata__": {"a": 1}}), "quoted name expected"),
    "metadata list": (encode({"__metadata__": []}), "expected"),
    "unknown dtype": (encode({"a": entry(0, 1, "Q8")}, 1), "dtype 'Q8'"),
    "NaN as offset": (encode(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[NaN,1]}}', 1), "not a name, sizes"),
    "float shape": (encode(b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', 1), "not a name, sizes"),
    "true as shape": (encode(b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', 1), "not a name, sizes"),
    "negative offset": (encode(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}'), "not a name, sizes"),
    "three offsets": (encode({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, 1), "two offsets"),
    "empty size": (encode(b'{"a":{"dtype":"U8","shape":[,],"data_offsets":[0,0]}}'), "not at most 32 sizes"),
    "shape near 2^63": (encode({"a": entry(0, 0, "U8", [2**63 - 1, 2**63 - 1])}), "2\\^63 bytes"),
    "shape times zero": (encode({"a": entry(0, 1, "U8", [2**63 - 1, 0])}, 1), "needs 0 bytes"),
    "33 dimensions": (encode({"a": entry(0, 1, "U8", [1] * 33)}, 1), "at most 32"),
    "half a byte": (encode({"a": entry(0, 1, "F4", [1])}, 1), "needs 0.5 bytes"),
    "wrong size": (encode({"a": entry(0, 3, "F32", [1])}, 3), "needs 4 bytes"),
    "end before begin": (encode({"a": entry(4, 0, "U8", [0])}, 4), "hold -4"),
    "overlap": (encode({"a": entry(0, 4), "b": entry(2, 6)}, 6), "overlaps"),
    "gap": (encode({"a": entry(0, 4), "b": entry(5, 6)}, 6), "gap"),
    "not from zero": (encode({"a": entry(1, 4)}, 4), "gap"),
    "offset near 2^63": (encode({"a": entry(2**63 - 1, 2**63)}, 4), "gap"),
    "data too short": (encode(GOOD, 11), "1 bytes before"),
    "data too long": (encode(GOOD, 13), "1 bytes follow"),
    "no comma": (encode(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]} "b":1}'), "',' or"),
    "control character": (encode(b'{"a\n":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "broken string"),
    "broken escape": (encode(b'{"\\x":1}'), "broken string"),
    "huge number": (encode(b'{"a":{"dtype":"U8","shape":[' + b"9" * 900 + b'],"data_offsets":[0,0]}}'), "not a|2\\^63"),
}  # fmt: skip
