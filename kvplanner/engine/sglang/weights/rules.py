"""Where SGLang's model classes depart from the general rules of sharding, placing and dtype (models/*.py, 0.5.23)."""

from __future__ import annotations

from functools import cache
from typing import Final

from kvplanner.engine.sglang.settings import Parallel, Settings
from kvplanner.engine.sglang.settle.moe import TRTLLM
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.spec import Compressed, Mla, ModelSpec, State
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import round_up


class Rules(NamedTuple):
    """What a class has of its own.

    fp32_router: routers are widened; plain_bias: the router's correction bias keeps the model's dtype. whole: parts of
    paths of tensors that every rank holds whole; as_words: embeddings of positions that are padded and split like the
    vocabulary. tower_width: multiple to which the width of the encoder's feed-forward layers is padded. own_head: a
    head beside a tied embedding. head_everywhere: built on all pipeline stages. fp8_head: quantised with the rest of an
    8-bit checkpoint. own_values: each layer has projections of its own for keys and values. fused_shared: the shared
    expert is one more routed expert, which each expert-parallel rank holds.
    """

    fp32_router: bool = False
    plain_bias: bool = False
    whole: tuple[str, ...] = ()
    as_words: tuple[str, ...] = ()
    tower_width: int = 1
    own_head: bool = False
    head_everywhere: bool = False
    fp8_head: bool = False
    own_values: bool = False
    fused_shared: bool = False


_NONE: Final = Rules()
_HEADS: Final = Rules(head_everywhere=True)
_OWN_HEAD: Final = Rules(own_head=True)
_GEMMA4: Final = Rules(whole=("embed_tokens",), own_values=True)
_QWEN_VISION: Final = Rules(as_words=("pos_embed",))
_QWEN35: Final = Rules(as_words=("pos_embed",), fused_shared=True)
_NORMS: Final = Rules(whole=("q_norm", "k_norm"))
# By architecture, or with a star by the beginning of several; the longest that fits.
_ROWS: Final[dict[str, Rules]] = {
    "Gemma3*": Rules(whole=("embed_tokens",), as_words=("position_embedding",)),
    "Gemma4*": _GEMMA4,
    "Glm4Moe*": Rules(fp32_router=True, head_everywhere=True),
    "GptOss*": _HEADS,
    "GraniteMoeHybrid*": _HEADS,
    "KimiK25*": Rules(whole=(".mlp.fc",)),
    "KimiLinear*": Rules(plain_bias=True),
    "Lfm2*": _OWN_HEAD,
    "FalconH1*": _OWN_HEAD,
    "LlamaForCausalLM": _HEADS,
    "MiniMaxM2*": Rules(fp32_router=True),
    "Mistral3*": Rules(whole=("multi_modal_projector.linear",)),
    "MixtralForCausalLM": _HEADS,
    "NemotronH*": Rules(fp8_head=True),
    "Olmo2*": _NORMS,
    "Olmo3*": _NORMS,
    "Qwen2_5_VL*": Rules(tower_width=8),
    "Qwen2MoeForCausalLM": _HEADS,
    "Qwen3MoeForCausalLM": _HEADS,
    "Qwen3Next*": Rules(head_everywhere=True, fused_shared=True),
    "Qwen3VL*": _QWEN_VISION,
    "Qwen3_5*": _QWEN35,
}
_FP32_PATHS: Final = ("e_score_correction_bias", "expert_bias", "ffn.gate.bias", "attn_sink", "compressor.ape")
_FP32_OF_KDA: Final = ("q_conv1d", "k_conv1d", "v_conv1d", "dt_bias")
# Matrices that are built in 16 bits whatever the file holds.
_UNQUANTISED: Final = ("indexer.wk", "compressor.wkv", "compressor.wgate")
_TRTLLM_WIDTH: Final = 128
_SM100: Final = 10
_PADDED: Final = ("bfloat16", "float16", "float32", "fp8")


@cache
def rules(architecture: str) -> Rules:
    """The row of an architecture; without one, rules that change nothing."""
    fitting = [key for key in _ROWS if key == architecture or (key[-1] == "*" and architecture.startswith(key[:-1]))]
    return _ROWS[max(fitting, key=len)] if fitting else _NONE


def whole(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a rank holds a tensor whole that could be split."""
    return any(part in group.path for part in rules(spec.architecture).whole)


def as_split(group: TensorGroup, spec: ModelSpec) -> TensorGroup:
    """The group with the shard and the width that the model's class gives it."""
    row = rules(spec.architecture)
    if group.place == "tower" and group.path.endswith(row.as_words):
        return group._replace(shard="vocab")
    if group.place == "tower" and row.tower_width > 1 and ".mlp." in group.path:
        side = 0 if group.shard == "column" else 1 if len(group.shape) > 1 else None
        if side is not None:
            shape = list(group.shape)
            shape[side] = round_up(shape[side], row.tower_width)
            return group._replace(shape=tuple(shape))
    return group


def joined_rows(group: TensorGroup, spec: ModelSpec, settings: Settings) -> int:
    """Rows by which the latent's down projection grows, joined to the query's: to whole 8-bit blocks on 10.x."""
    if not group.path.endswith("kv_a_proj_with_mqa") or group.format.layout != "block" or settings.arch[0] != _SM100:
        return 0
    mixer = next((m for layer in spec.layers for m in layer.mixers if isinstance(m, Mla)), None)
    if mixer is None or mixer.q_lora_rank is None:
        return 0
    rows = mixer.q_lora_rank + group.shape[0]
    return round_up(rows, group.format.block_rows) - rows


def additions(body: tuple[TensorGroup, ...], inventory: Inventory, spec: ModelSpec) -> tuple[TensorGroup, ...]:
    """Tensors that the class builds in a layer although the file has none: values where the value is the key."""
    if not rules(spec.architecture).own_values:
        return ()
    own = {group.path: group for group in body}
    query, key = own.get("self_attn.q_proj"), own.get("self_attn.k_proj")
    if query is None or "self_attn.v_proj" in own:
        return ()
    if key is not None:
        return (key._replace(path="self_attn.v_proj"),)
    for other in inventory.blocks:
        twin = {group.path: group for group in other}
        key, norm = twin.get("self_attn.k_proj"), twin.get("self_attn.k_norm")
        if key is not None and norm is not None and key.unit == query.unit:
            return key, key._replace(path="self_attn.v_proj"), norm
    return ()


def own_head(inventory: Inventory, spec: ModelSpec) -> tuple[TensorGroup, ...]:
    """The head that a class builds beside a tied embedding."""
    if not rules(spec.architecture).own_head or any(g.kind == "head" for g in inventory.outside):
        return ()
    words = (g for g in inventory.outside if g.kind == "embedding" and g.shard == "vocab")
    return tuple(g._replace(kind="head", place="last") for g in words)


def pad_expert(group: TensorGroup, settings: Settings) -> TensorGroup:
    """An expert's tensor with its width padded as the kernels want a rank's share: TRT-LLM to 128, MXFP4's to 64."""
    if group.shard not in ("expert_column", "expert_row"):
        return group
    if group.format.name == "mxfp4" or (settings.quantization == "mxfp4" and len(group.shape) == 1):
        return _padded(group, settings.parallel, 64)
    if settings.moe_runner == TRTLLM and len(group.shape) > 1 and group.format.name in _PADDED:
        return _padded(group, settings.parallel, _TRTLLM_WIDTH)
    return group


def _padded(group: TensorGroup, parallel: Parallel, multiple: int) -> TensorGroup:
    ranks = max(1, parallel.tp // parallel.ep)
    side = len(group.shape) - 1 if group.shard == "expert_row" else max(len(group.shape) - 2, 0)
    shape = list(group.shape)
    shape[side] = round_up(-(-shape[side] // ranks), multiple) * ranks
    return group._replace(shape=tuple(shape))


def fused_shared(group: TensorGroup, spec: ModelSpec, settings: Settings) -> bool:
    """Whether a shared expert is one of the routed ones."""
    if not rules(spec.architecture).fused_shared or settings.moe_runner == TRTLLM:
        return False
    return group.kind == "mlp" and ".shared_expert." in f".{group.path}."


def unquantised(group: TensorGroup) -> bool:
    """Whether the class builds a quantised matrix in 16 bits."""
    return group.format.layout != "dense" and group.path.endswith(_UNQUANTISED)


def fp8_head(group: TensorGroup, spec: ModelSpec, settings: Settings) -> bool:
    """Whether the head of an 8-bit checkpoint is quantised too."""
    eight = settings.quantization in ("modelopt", "modelopt_fp8")
    return group.kind == "head" and eight and rules(spec.architecture).fp8_head


def element_bytes(group: TensorGroup, spec: ModelSpec, settings: Settings) -> int:
    """Bytes per element of an unquantised tensor: cast to the engine's dtype, but for what the class keeps in fp32."""
    if group.kind == "router" and len(group.shape) == 2 and rules(spec.architecture).fp32_router:
        return DTYPE_BYTES["float32"]
    if group.format.name.startswith("int"):
        return DTYPE_BYTES["float32"]
    return DTYPE_BYTES["float32" if _fp32(group, spec) else settings.dtype]


def _fp32(group: TensorGroup, spec: ModelSpec) -> bool:
    if group.path.endswith("compressor.ape"):
        return True
    if group.kind == "norm":
        compressed = any(isinstance(m, Compressed) for layer in spec.layers for m in layer.mixers)
        return "indexer" in group.path or (compressed and "compressor" in group.path)
    if group.path.endswith("A_log"):
        return True
    if group.format.name != "float32" or group.format.layout != "dense":
        return False
    if group.path.endswith("e_score_correction_bias") and rules(spec.architecture).plain_bias:
        return False
    leaf = group.path.rpartition(".")[2]
    if group.path.endswith(_FP32_PATHS) or leaf.startswith("hc_"):
        return True
    kda = any(isinstance(m, State) and m.kind == "kda" for layer in spec.layers for m in layer.mixers)
    return kda and group.kind == "state" and leaf in _FP32_OF_KDA
