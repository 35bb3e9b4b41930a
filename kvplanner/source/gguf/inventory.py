"""The exact inventory of a GGUF model: every tensor's own type, arranged by layer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from typing import Final

from kvplanner.model.formats import WeightFormat
from kvplanner.model.ggml import GgmlType
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.model.tensors import Inventory, Place, Shard, TensorGroup, TensorKind
from kvplanner.source.gguf.header import GgufTensor

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.(.+)")
_TOWERS: Final = ("v.", "mm.", "a.", "r.")

# Kind, split and joined matrix by the name below "blk.N.", without ".weight" and ".bias".
_RULES: Final[tuple[tuple[str, TensorKind, Shard, str], ...]] = (
    (r".*norm.*", "norm", "replicated", ""),
    (r"ffn_gate_inp.*|exp_probs_b.*|ffn_exp_probs.*", "router", "replicated", ""),
    (r"ffn_(gate|up|gate_up)_(ch)?exps", "experts", "expert_column", "w13"),
    (r"ffn_down_(ch)?exps", "experts", "expert_row", "w2"),
    (r"ffn_(gate|up|gate_up)(_shexp)?", "mlp", "column", "gate_up_proj"),
    (r"ffn_down(_shexp)?", "mlp", "row", ""),
    (r"ssm_out|shortconv\.out_proj", "state", "row", ""),
    (r"(ssm|shortconv|kda|time_mix|channel_mix)\w*(\.\w+)*", "state", "column", ""),
    (r"attn_gate", "attention", "column", ""),
    (r"attn_q", "attention", "column", "qkv_proj"),
    (r"attn_[kv]", "attention", "kv", "qkv_proj"),
    (r"attn_output", "attention", "row", ""),
    (r"attn_(q_b|kv_b|k_b|v_b)", "attention", "column", ""),
    (r"attn_qkv", "attention", "column", "qkv_proj"),
    (r"attn_sinks", "attention", "column", ""),
    (r"(attn|cross_attn|indexer)\w*(\.\w+)*", "attention", "replicated", ""),
    (r"(ffn|inp_gate|proj|laurel|altup|per_layer)\w*(\.\w+)*", "mlp", "replicated", ""),
)  # fmt: skip


def build(tensors: tuple[GgufTensor, ...], spec: ModelSpec) -> Inventory:
    """The inventory; formats are the files' own types, so its bytes are those of the tensors."""
    layers: defaultdict[int, list[TensorGroup]] = defaultdict(list)
    outside: list[TensorGroup] = []
    # Layers are much alike: what a tensor counts as is found once for all of one name, shape and type.
    known: dict[tuple[object, ...], list[TensorGroup]] = {}
    for tensor in tensors:
        match = _BLOCK.fullmatch(tensor.name)
        if match is None:
            outside.append(_outside(tensor, spec.tied_embeddings))
        elif (layer := int(match[1])) >= spec.num_layers:
            outside.append(_group(tensor, match[2].removesuffix(".weight"), "mtp", "replicated", "", "mtp"))
        else:
            key = match[2], tensor.shape, tensor.type, spec.layer_of[layer]
            groups = known.get(key)
            if groups is None:
                groups = known[key] = _in_layer(tensor, match[2], spec, layer)
            layers[layer] += groups
    blocks: dict[tuple[TensorGroup, ...], int] = {}
    alike: dict[tuple[int, ...], int] = {}  # by the groups themselves, before they are compared
    block_of = []
    for layer in range(spec.num_layers):
        own = layers.get(layer, [])
        same = tuple(map(id, own))
        if same not in alike:
            alike[same] = blocks.setdefault(tuple(own), len(blocks))
        block_of.append(alike[same])
    return Inventory(tuple(blocks), tuple(block_of), _counted(outside), exact=True)


def format_of(type_: GgmlType) -> WeightFormat:
    """A ggml type as a weight format; the scales of block types lie inside their blocks."""
    plain = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
    if type_.block == 1:
        return WeightFormat(plain.get(type_.name, type_.name), type_.bits)
    return WeightFormat(type_.name, type_.bits, "block", block_rows=1, block_columns=type_.block)


def _group(
    tensor: GgufTensor, path: str, kind: TensorKind, shard: Shard, fused: str, place: Place, unit: int = 1
) -> TensorGroup:
    shape = tuple(reversed(tensor.shape))
    count = 1
    if kind == "experts" and len(shape) > 1 and not path.endswith(".bias"):
        count, shape = shape[0], shape[1:]
    return TensorGroup(path, kind, shape, count, shard, format_of(tensor.type), unit, fused, place)


def _in_layer(tensor: GgufTensor, name: str, spec: ModelSpec, layer: int) -> list[TensorGroup]:
    path = name.removesuffix(".weight")
    bias = path.endswith(".bias")
    kind, shard, fused = _rule(path.removesuffix(".bias"))
    if bias and shard in ("row", "expert_row"):
        shard = "replicated"
    attention = next((m for m in spec.layers[spec.layer_of[layer]].mixers if isinstance(m, Attention)), None)
    if path.removesuffix(".bias") == "attn_qkv" and attention is not None:
        split = _split_qkv(tensor, path, attention)
        if split:
            return split
    unit = 1
    if attention is not None and kind == "attention":
        unit = attention.head_size_v if path.startswith("attn_v") else attention.head_size if fused else 1
    return [_group(tensor, path, kind, shard, fused, "layer", unit)]


@lru_cache(maxsize=4096)
def _rule(path: str) -> tuple[TensorKind, Shard, str]:
    for pattern, kind, shard, fused in _RULES:
        if re.fullmatch(pattern, path):
            return kind, shard, fused
    return "other", "replicated", ""


def _split_qkv(tensor: GgufTensor, path: str, attention: Attention) -> list[TensorGroup]:
    """A joined projection as its three parts, which split differently; empty where the rows do not add up."""
    shape = tuple(reversed(tensor.shape))
    rows = (
        attention.heads * attention.head_size,
        attention.kv_heads * attention.head_size,
        attention.kv_heads * attention.head_size_v,
    )
    if sum(rows) != shape[0]:
        return []
    splits: tuple[Shard, Shard, Shard] = ("column", "kv", "kv")
    units = (attention.head_size, attention.head_size, attention.head_size_v)
    format_ = format_of(tensor.type)
    return [
        TensorGroup(path, "attention", (part, *shape[1:]), 1, shard, format_, unit, "qkv_proj")
        for part, shard, unit in zip(rows, splits, units, strict=True)
    ]


def _outside(tensor: GgufTensor, tied: bool) -> TensorGroup:
    path = tensor.name.removesuffix(".weight")
    if path.startswith(_TOWERS):
        return _group(tensor, "tower", "tower", "replicated", "", "tower")
    if path == "token_embd":
        return _group(tensor, path, "embedding", "vocab", "", "first+last" if tied else "first")
    if path in ("output", "output.bias"):
        return _group(tensor, path, "head", "vocab", "", "last")
    if "norm" in path:
        return _group(tensor, path, "norm", "replicated", "", "first" if path.startswith("token_embd") else "last")
    if "embd" in path or path.startswith("per_layer"):
        return _group(
            tensor, path, "embedding", "vocab" if path == "per_layer_token_embd" else "replicated", "", "first"
        )
    if path.startswith("cls"):
        return _group(tensor, path, "head", "replicated", "", "last")
    return _group(tensor, path, "other", "replicated", "", "every" if path.startswith("rope") else "last")


def _counted(groups: list[TensorGroup]) -> tuple[TensorGroup, ...]:
    """Equal groups as one with their number."""
    counted: Counter[TensorGroup] = Counter(groups)
    return tuple(
        group if number == 1 else TensorGroup(
            group.path, group.kind, group.shape, group.count * number, group.shard, group.format, group.unit,
            group.fused, group.place,
        )
        for group, number in counted.items()
    )  # fmt: skip
