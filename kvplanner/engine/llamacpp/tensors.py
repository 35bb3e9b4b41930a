"""A model's tensors as llama.cpp loads them: whole, by their GGUF names, with what each device rounds them up to.

Rules: llama-model.cpp and ggml-cuda.cu of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

from kvplanner.model.gguf_names import gguf_name, outside_name
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import round_up

# CUDA kernels read quantised rows in steps of 512 elements; buffers start tensors at multiples of 128 bytes.
_ROW_STEP: Final = 512
_CUDA_ALIGNMENT: Final = 128
_HOST_ALIGNMENT: Final = 32
_REPACKED: Final = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4", "mxfp4"})
_REPACKED_ROWS: Final = 8

Role = Literal["input", "output", "table", "first", "skipped"]


class Tensor(NamedTuple):
    """One tensor of a model file.

    name: below "blk.N." for a layer's, else whole ("token_embd.weight"). device_bytes, host_bytes: what it takes in a
    CUDA buffer and in a host buffer; bytes: in the file. expert: a routed expert's matrix or bias. block: elements of a
    quantised block, 1 for others. type: its ggml type or format.
    """

    name: str
    kind: str
    columns: int
    rows: int
    bytes: int
    device_bytes: int
    host_bytes: int
    quantised: bool
    expert: bool = False
    block: int = 1
    type: str = ""

    @property
    def repacked(self) -> bool:
        """Whether a processor without a GPU keeps it in an order of its own: on x86 with AVX2, eight rows at a time.

        ggml_repack_get_optimal_repack_type of ggml-cpu/repack.cpp, ggml 0.25.3. ARM repacks more types.
        """
        stacked = self.name in ("attn_k_b.weight", "attn_v_b.weight")
        return self.type in _REPACKED and self.rows % _REPACKED_ROWS == 0 and not stacked

    def part(self, *, columns: int, rows: int) -> int:
        """Bytes that a part of the tensor takes in a CUDA buffer; 0 for none of it."""
        whole = max(self.columns * self.rows, 1)
        held = self.bytes * columns * rows // whole
        if held and self.quantised and columns % _ROW_STEP:
            held += self.bytes * (_ROW_STEP - columns % _ROW_STEP) // whole
        return round_up(held, _CUDA_ALIGNMENT)


class Tensors(NamedTuple):
    """layers[i]: the tensors of layer i; equal layers share one tuple.

    inputs: looked up on the host; outputs: beside the last layer; tables: rotary factors, copied to each device that
    holds a layer; first: beside the first layer. tied: the embedding when the output layer uses it too.
    windowed[i]: layer i sees a window only.
    """

    layers: tuple[tuple[Tensor, ...], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tables: tuple[Tensor, ...]
    first: tuple[Tensor, ...]
    tied: Tensor | None
    windowed: tuple[bool, ...] = ()

    def table_devices(self, devices: tuple[int, ...], architecture: str) -> tuple[int, ...]:
        """The devices of the layers that use the rotary tables: in Gemma 4 those with full attention alone."""
        if architecture == "gemma4" and self.windowed:
            return tuple(device for device, window in zip(devices, self.windowed, strict=True) if not window)
        return devices


# Architectures whose files call the norm after the last layer one of the embedding.
_NORM_OF_TABLE: Final = frozenset({"lfm2", "lfm2moe"})
# BERT and its kin: no logits and so no second use of the embedding, whose norm lies with the first layer.
BERTS: Final = frozenset({"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3"})
# Those whose logits are of the embedding where it is, which is loaded once.
_READS_TABLE: Final = frozenset({"bitnet"})
# Where llama.cpp keeps what lies outside the layers (LLM_TENSOR_INFOS).
_INPUT: Final = re.compile(r"(token_embd|token_types|position_embd|per_layer_\w+)(_norm)?(\.\w+)?")


def tensors_of(model: Model) -> Tensors:
    """The tensors of a model whose inventory is known. Linear in its distinct layers."""
    inventory = model.inventory
    assert inventory is not None
    blocks = tuple(_block(block) for block in inventory.blocks)
    tied = _is_tied(inventory) and model.spec.model_type not in BERTS | _READS_TABLE
    found: dict[Role, list[Tensor]] = {"input": [], "output": [], "table": [], "first": [], "skipped": []}
    embedding: Tensor | None = None
    for group in inventory.outside:
        role = _role(group, model.spec.model_type)
        tensor = _tensor([group], "")
        found[role].append(tensor)
        if tied and role == "input" and tensor.name == "token_embd.weight":
            embedding = tensor
    return Tensors(
        tuple(blocks[at] for at in inventory.block_of), tuple(found["input"]), tuple(found["output"]),
        tuple(found["table"]), tuple(found["first"]), embedding, _windowed(model.spec),
    )  # fmt: skip


def _windowed(spec: ModelSpec) -> tuple[bool, ...]:
    kinds = [any(isinstance(m, Attention) and m.window for m in layer.mixers) for layer in spec.layers]
    return tuple(kinds[index] for index in spec.layer_of)


def _is_tied(inventory: Inventory) -> bool:
    return not any(group.kind == "head" and group.path in ("output", "lm_head") for group in inventory.outside)


def _role(group: TensorGroup, architecture: str) -> Role:
    if architecture in _NORM_OF_TABLE and group.path == "token_embd_norm":
        return "output"
    if group.place in ("mtp", "tower"):
        return "skipped"
    if architecture in BERTS and outside_name(group).startswith("token_embd_norm"):
        return "first"
    if group.path.startswith("rope_"):
        return "table"
    if outside_name(group).startswith("altup_"):
        return "output"
    if outside_name(group) in ("per_layer_model_proj.weight", "per_layer_proj_norm.weight"):
        return "first"
    return "input" if group.kind == "embedding" or group.place == "first" or _INPUT.fullmatch(group.path) else "output"


@lru_cache(maxsize=1024)
def _block(block: tuple[TensorGroup, ...]) -> tuple[Tensor, ...]:
    tensors = _whole(block, "blk")
    # Checkpoints may join the experts' gate and up matrices; GGUF files of the same models keep them apart.
    halves = [at for at, tensor in enumerate(tensors) if tensor.name == "ffn_gate_up_exps.weight"]
    if len(halves) == 2:
        for at, name in zip(halves, ("ffn_gate_exps.weight", "ffn_up_exps.weight"), strict=True):
            tensors[at] = tensors[at]._replace(name=name)
    biases = [at for at, tensor in enumerate(tensors) if tensor.name == "ffn_gate_up_exps.bias"]
    if len(biases) == 2:
        for at, name in zip(biases, ("ffn_gate_exps.bias", "ffn_up_exps.bias"), strict=True):
            tensors[at] = tensors[at]._replace(name=name)
    return tuple(tensors)


def _whole(groups: Iterable[TensorGroup], prefix: str) -> list[Tensor]:
    """Groups as whole tensors: the parts of a joined projection put together again, experts stacked."""
    found: list[Tensor] = []
    joined: list[TensorGroup] = []
    for group in groups:
        if joined and (group.path != joined[0].path or group.format != joined[0].format):
            found.append(_tensor(joined, prefix))
            joined = []
        if ("qkv" in group.path and len(group.shape) > 1) or (joined and group.path == joined[0].path):
            joined.append(group)
            continue
        found.append(_tensor([group], prefix))
    if joined:
        found.append(_tensor(joined, prefix))
    return found


def _tensor(parts: list[TensorGroup], prefix: str) -> Tensor:
    group = parts[0]
    shape = group.shape or (1,)
    columns = shape[-1]
    rows = 0
    for part in parts:
        count = part.count
        for size in part.shape[:-1]:
            count *= size
        rows += count
    bytes_ = sum(part.stored_bytes for part in parts)
    quantised = group.format.block_columns > 1 and len(shape) > 1
    padded = bytes_
    if quantised and columns % _ROW_STEP:
        padded += int((_ROW_STEP - columns % _ROW_STEP) * group.format.bits) // 8
    name = gguf_name(group.path) if prefix else outside_name(group)
    return Tensor(
        name, group.kind, columns, rows, bytes_, round_up(padded, _CUDA_ALIGNMENT), round_up(bytes_, _HOST_ALIGNMENT),
        quantised, "exps" in name, group.format.block_columns if quantised else 1,
        group.format.name,
    )  # fmt: skip
