"""Writes GGUF files byte by byte, in every version and byte order, right ones and wrong ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES: Final = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    I64: "q",
    F64: "d",
}

# id → (elements, bytes) of a block, for the types used here.
BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    8: (32, 34),
    12: (256, 144),
    14: (256, 210),
    30: (1, 2),
    39: (32, 17),
}
F32_TYPE, F16_TYPE, Q8_0, Q4_K, Q6_K, BF16_TYPE, MXFP4 = 0, 1, 8, 12, 14, 30, 39

# key, value type (or (ARRAY, element type)), value
Pair = tuple[str, Any, Any]
# name, shape with the fastest dimension first, type
TensorRow = tuple[str, Sequence[int], int]


class Encoder:
    def __init__(self, version: int = 3, big: bool = False) -> None:
        self.version = version
        self.sign = ">" if big else "<"

    def pack(self, code: str, *values: Any) -> bytes:
        return struct.pack(self.sign + code, *values)

    def count(self, value: int) -> bytes:
        return self.pack("Q" if self.version > 1 else "I", value)

    def string(self, text: str | bytes) -> bytes:
        data = text if isinstance(text, bytes) else text.encode()
        return self.count(len(data)) + data

    def value(self, kind: Any, value: Any) -> bytes:
        if isinstance(kind, tuple):
            element = kind[1]
            return self.pack("I", element) + self.count(len(value)) + b"".join(self.bare(element, v) for v in value)
        return self.bare(kind, value)

    def bare(self, kind: int, value: Any) -> bytes:
        return self.string(value) if kind == STRING else self.pack(_CODES[kind], value)

    def pair(self, pair: Pair) -> bytes:
        key, kind, value = pair
        number = ARRAY if isinstance(kind, tuple) else kind
        return self.string(key) + self.pack("I", number) + self.value(kind, value)

    def head(self, tensors: int, pairs: int) -> bytes:
        return b"GGUF" + self.pack("I", self.version) + self.count(tensors) + self.count(pairs)

    def tensor(self, row: TensorRow, offset: int) -> bytes:
        name, shape, kind = row
        sizes = b"".join(self.count(size) for size in shape)
        return self.string(name) + self.pack("I", len(shape)) + sizes + self.pack("IQ", kind, offset)


def bytes_of(row: TensorRow) -> int:
    elements = 1
    for size in row[1]:
        elements *= size
    block, bytes_ = BLOCKS[row[2]]
    return elements // block * bytes_


def header(
    pairs: Sequence[Pair], tensors: Sequence[TensorRow], *, version: int = 3, big: bool = False, alignment: int = 32
) -> tuple[bytes, int]:
    """The header, padded to the data, and the data's bytes."""
    encoder = Encoder(version, big)
    parts = [encoder.head(len(tensors), len(pairs)), *(encoder.pair(pair) for pair in pairs)]
    offset = 0
    for row in tensors:
        parts.append(encoder.tensor(row, offset))
        offset += -(-bytes_of(row) // alignment) * alignment
    data = b"".join(parts)
    return data + bytes(-len(data) % alignment), offset


def write(path: Path, pairs: Sequence[Pair], tensors: Sequence[TensorRow], **more: Any) -> Path:
    """A file whose data is a hole."""
    head, size = header(pairs, tensors, **more)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


def llama_pairs(layers: int = 2, tokens: int = 100, merges: int = 0, arch: str = "llama", **more: Any) -> list[Pair]:
    """Metadata of a small Llama; `more` adds or replaces keys below the architecture, as (type, value)."""
    own: dict[str, tuple[Any, Any]] = {
        "block_count": (U32, layers), "context_length": (U32, 8192), "embedding_length": (U32, 512),
        "feed_forward_length": (U32, 1024), "attention.head_count": (U32, 8), "attention.head_count_kv": (U32, 2),
        "attention.layer_norm_rms_epsilon": (F32, 1e-5), "rope.dimension_count": (U32, 64), "vocab_size": (U32, tokens),
    }  # fmt: skip
    own.update({key.replace("__", "."): value for key, value in more.items()})
    pairs: list[Pair] = [
        ("general.architecture", STRING, arch), ("general.name", STRING, "Small"), ("general.file_type", U32, 7),
    ]  # fmt: skip
    pairs += [(f"{arch}.{key}", kind, value) for key, (kind, value) in own.items()]
    pairs += [
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.tokens", (ARRAY, STRING), [f"tok{number}" for number in range(tokens)]),
        ("tokenizer.ggml.token_type", (ARRAY, I32), [1] * tokens),
    ]  # fmt: skip
    if merges:
        pairs.append(("tokenizer.ggml.merges", (ARRAY, STRING), [f"a{number} b{number}" for number in range(merges)]))
    return pairs


def llama_tensors(
    layers: int = 2, tokens: int = 100, kind: int = Q8_0, hidden: int = 512, tied: bool = False
) -> list[TensorRow]:
    rows: list[TensorRow] = [("token_embd.weight", (hidden, tokens), kind)]
    for layer in range(layers):
        base = f"blk.{layer}"
        rows += [
            (f"{base}.attn_norm.weight", (hidden,), F32_TYPE),
            (f"{base}.attn_q.weight", (hidden, 512), kind),
            (f"{base}.attn_k.weight", (hidden, 128), kind),
            (f"{base}.attn_v.weight", (hidden, 128), kind),
            (f"{base}.attn_output.weight", (512, hidden), kind),
            (f"{base}.ffn_norm.weight", (hidden,), F32_TYPE),
            (f"{base}.ffn_gate.weight", (hidden, 1024), kind),
            (f"{base}.ffn_up.weight", (hidden, 1024), kind),
            (f"{base}.ffn_down.weight", (1024, hidden), kind),
        ]
    rows.append(("output_norm.weight", (hidden,), F32_TYPE))
    if not tied:
        rows.append(("output.weight", (hidden, tokens), kind))
    return rows


def llama_file(layers: int = 2, tokens: int = 100, **more: Any) -> bytes:
    """A whole small model, data included."""
    head, size = header(llama_pairs(layers, tokens), llama_tensors(layers, tokens), **more)
    return head + bytes(size)


def write_split(folder: Path, stem: str, pairs: Sequence[Pair], tensors: Sequence[TensorRow], parts: int) -> list[Path]:
    """A model in parts; the first holds all metadata, the others the split keys alone."""
    paths = []
    for number in range(parts):
        split: list[Pair] = [
            ("split.no", U16, number), ("split.count", U16, parts), ("split.tensors.count", I32, len(tensors)),
        ]  # fmt: skip
        mine = tensors[number * len(tensors) // parts : (number + 1) * len(tensors) // parts]
        path = folder / f"{stem}-{number + 1:05d}-of-{parts:05d}.gguf"
        paths.append(write(path, [*(pairs if number == 0 else []), *split], mine))
    return paths
