"""Writes model folders with the tensor names, shapes and dtypes that public checkpoints have, as sparse files.

The names are spelled out here by architecture, independently of the application's own rules: what the application
reads from such a folder is compared with what it counts from the same model's config.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

# name → (dtype, shape)
Tensors = dict[str, tuple[str, tuple[int, ...]]]
BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8, "I8": 1, "U32": 4}


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    total = BYTES[dtype]
    for size in shape:
        total *= size
    return total


def total_bytes(tensors: Tensors) -> int:
    return sum(size_of(*tensor) for tensor in tensors.values())


def header_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A header as the reference writer lays it out: length, then JSON padded to eight bytes."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + size_of(dtype, shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_file(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file whose data is a hole."""
    header = header_bytes(tensors, metadata or {"format": "pt"})
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + total_bytes(tensors))


def write_folder(path: Path, config: Mapping[str, Any] | None, tensors: Tensors, shards: int = 1) -> Path:
    """A model folder; with more than one shard also the index."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_file(path / "model.safetensors", tensors)
        return path
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        mine = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        write_file(path / file, {name: tensors[name] for name in mine})
        weight_map.update(dict.fromkeys(mine, file))
    index = {"metadata": {"total_size": total_bytes(tensors)}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


Linear = Callable[[Tensors, str, int, int], None]


def dense(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("BF16", (out, inp))


def fp8_block(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("F8_E4M3", (out, inp))
    tensors[f"{name}.weight_scale_inv"] = ("F32", (-(-out // 128), -(-inp // 128)))


def awq(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.qweight"] = ("I32", (inp, out // 8))
    tensors[f"{name}.qzeros"] = ("I32", (inp // 128, out // 8))
    tensors[f"{name}.scales"] = ("F16", (inp // 128, out))


def gptq(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.qweight"] = ("I32", (inp // 8, out))
    tensors[f"{name}.qzeros"] = ("I32", (inp // 128, out // 8))
    tensors[f"{name}.scales"] = ("F16", (inp // 128, out))
    tensors[f"{name}.g_idx"] = ("I32", (inp,))


def packed_int4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    """compressed-tensors pack-quantized, groups of 32."""
    tensors[f"{name}.weight_packed"] = ("I32", (out, inp // 8))
    tensors[f"{name}.weight_scale"] = ("BF16", (out, inp // 32))
    tensors[f"{name}.weight_shape"] = ("I32", (2,))


def nvfp4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("U8", (out, inp // 2))
    tensors[f"{name}.weight_scale"] = ("F8_E4M3", (out, inp // 16))
    tensors[f"{name}.weight_scale_2"] = ("F32", ())
    tensors[f"{name}.input_scale"] = ("F32", ())


def fp8_tensor(tensors: Tensors, name: str, out: int, inp: int) -> None:
    """One scale for the weight and one for the input."""
    tensors[f"{name}.weight"] = ("F8_E4M3", (out, inp))
    tensors[f"{name}.weight_scale"] = ("F32", ())
    tensors[f"{name}.input_scale"] = ("F32", ())


def fp8_channel(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("F8_E4M3", (out, inp))
    tensors[f"{name}.weight_scale"] = ("BF16", (out, 1))


def int8_channel(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("I8", (out, inp))
    tensors[f"{name}.weight_scale"] = ("BF16", (out, 1))


def packed_nvfp4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    """compressed-tensors nvfp4-pack-quantized."""
    tensors[f"{name}.weight_packed"] = ("U8", (out, inp // 2))
    tensors[f"{name}.weight_scale"] = ("F8_E4M3", (out, inp // 16))
    tensors[f"{name}.weight_global_scale"] = ("F32", (1,))
    tensors[f"{name}.input_global_scale"] = ("F32", (1,))


def bnb4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    """bitsandbytes nf4 with double quantisation."""
    tensors[f"{name}.weight"] = ("U8", (out * inp // 2, 1))
    tensors[f"{name}.weight.absmax"] = ("U8", (out * inp // 64,))
    tensors[f"{name}.weight.nested_absmax"] = ("F32", (out * inp // 64 // 256,))
    tensors[f"{name}.weight.nested_quant_map"] = ("F32", (256,))
    tensors[f"{name}.weight.quant_map"] = ("F32", (16,))
    tensors[f"{name}.weight.quant_state.bitsandbytes__nf4"] = ("U8", (86,))


def bnb8(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("I8", (out, inp))
    tensors[f"{name}.SCB"] = ("F32", (out,))
    tensors[f"{name}.weight_format"] = ("U8", ())


def mlx4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("U32", (out, inp // 8))
    tensors[f"{name}.scales"] = ("BF16", (out, inp // 64))
    tensors[f"{name}.biases"] = ("BF16", (out, inp // 64))
