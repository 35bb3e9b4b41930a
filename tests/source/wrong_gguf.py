"""GGUF headers that are refused, each with words of its message."""

from __future__ import annotations

from typing import Any

from tests.source.make_gguf import (
    ARRAY,
    F32_TYPE,
    Q8_0,
    STRING,
    U8,
    U32,
    U64,
    Encoder,
)


def tensors(*rows: tuple[str, list[int], int, int], pairs: Any = ()) -> bytes:
    """A header with offsets of the caller's own."""
    encoder = Encoder()
    data = encoder.head(len(rows), len(pairs)) + b"".join(encoder.pair(pair) for pair in pairs)
    for name, shape, kind, offset in rows:
        data += encoder.tensor((name, shape, kind), offset)
    return data + bytes(-len(data) % 32 + 4096)


def counts(tensors: int, pairs: int) -> bytes:
    return Encoder().head(tensors, pairs) + bytes(1000)


def value(kind: int, tail: bytes) -> bytes:
    encoder = Encoder()
    return encoder.head(0, 1) + encoder.string("key") + encoder.pack("I", kind) + tail


E = Encoder()


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "not GGUF": (b"PK\x03\x04" + bytes(100), "does not start with GGUF"),
    "old format": (b"tjgg" + bytes(100), "old GGJT file"),
    "version 0": (b"GGUF" + bytes(100), "version 0"),
    "version 4": (b"GGUF\x04\0\0\0" + bytes(100), "version 4"),
    "version of another order": (b"GGUF\0\0\0\x07" + bytes(100), "version 7"),
    "10^7 tensors": (counts(10**7, 1), "announces 10,000,000 tensors"),
    "tensors near 2^64": (counts(2**64 - 1, 1), "announces 18,446,744,073,709,551,615 tensors"),
    "keys near 2^64": (counts(1, 2**64 - 1), "metadata keys; at most"),
    "more than the file holds": (counts(150_000, 1), "more than its"),
    "key length near 2^63": (E.head(0, 1) + E.pack("Q", 2**63 - 1) + bytes(100), "at most 1,024"),
    "text length near 2^63": (value(STRING, E.pack("Q", 2**63 - 1) + bytes(100)), "at most 16,777,216"),
    "text beyond the end": (value(STRING, E.pack("Q", 1 << 20) + bytes(100)), "the file ends"),
    "array length near 2^64": (value(ARRAY, E.pack("IQ", U64, 2**64 - 1)), "elements"),
    "array beyond the end": (value(ARRAY, E.pack("IQ", U64, 1 << 20) + bytes(64)), "the file ends"),
    "strings near 2^64": (value(ARRAY, E.pack("IQ", STRING, 2**64 - 1)), "elements"),
    "strings beyond the end": (value(ARRAY, E.pack("IQ", STRING, 100_000) + bytes(64)), "the file ends"),
    "string in array near 2^64": (
        value(ARRAY, E.pack("IQ", STRING, 5000) + E.pack("Q", 2**64 - 1) + bytes(40_000)),
        "should take|the file ends",
    ),
    "array of arrays": (value(ARRAY, E.pack("IQ", ARRAY, 1) + bytes(64)), "arrays of arrays"),
    "array of unknown": (value(ARRAY, E.pack("IQ", 77, 1) + bytes(64)), "unknown type 77"),
    "unknown value type": (value(13, bytes(64)), "unknown type 13"),
    "empty key": (E.head(0, 1) + E.string("") + bytes(64), "key is empty"),
    "key twice": (E.head(0, 2) + E.pair(("a", U8, 1)) + E.pair(("a", U8, 1)) + bytes(64), "stands twice"),
    "invalid UTF-8 in a key": (E.head(0, 1) + E.string(b"\xff\xfe") + bytes(64), "not valid UTF-8"),
    "invalid UTF-8 in a value": (value(STRING, E.string(b"\xc3")), "not valid UTF-8"),
    "alignment 0": (tensors(pairs=[("general.alignment", U32, 0)]), "power of two"),
    "alignment 48": (tensors(pairs=[("general.alignment", U32, 48)]), "power of two"),
    "alignment 2^63": (tensors(pairs=[("general.alignment", U64, 2**63)]), "power of two"),
    "alignment as text": (tensors(pairs=[("general.alignment", STRING, "32")]), "power of two"),
    "five dimensions": (tensors(("a", [1] * 5, F32_TYPE, 0)), "at most 4"),
    "dimensions near 2^32": (E.head(1, 0) + E.string("a") + E.pack("I", 2**32 - 1) + bytes(99), "at most 4"),
    "size near 2^63": (tensors(("a", [2**63 - 1, 2**63 - 1], F32_TYPE, 0)), "2\\^63 elements"),
    "size above 2^63": (tensors(("a", [2**63, 0], F32_TYPE, 0)), "2\\^63 elements"),
    "half a block": (tensors(("a", [48], Q8_0, 0)), "not a multiple"),
    "tensor twice": (tensors(("a", [8], F32_TYPE, 0), ("a", [8], F32_TYPE, 32)), "stands twice"),
    "overlap": (tensors(("a", [16], F32_TYPE, 0), ("b", [8], F32_TYPE, 32)), "overlaps"),
    "gap": (tensors(("a", [8], F32_TYPE, 0), ("b", [8], F32_TYPE, 64)), "gap"),
    "offset near 2^64": (tensors(("a", [8], F32_TYPE, 2**64 - 1)), "gap"),
    "name of 2^60 bytes": (E.head(1, 0) + E.pack("Q", 2**60) + bytes(99), "at most 1,024"),
    "data too short": (tensors(("a", [100_000], F32_TYPE, 0)), "bytes before"),
}  # fmt: skip
