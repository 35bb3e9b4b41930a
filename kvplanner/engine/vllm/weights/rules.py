"""Where vLLM's own model classes depart from the general rules of sharding, placing and dtype.

Each entry was seen in what the engine (0.33) allocates for that class, or is read from its source
(model_executor/models/*.py). A class that is not listed follows the general rules.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.spec import ModelSpec, State
from kvplanner.model.tensors import Inventory, TensorGroup

# Routers kept in fp32 whatever the model's dtype.
_FP32_ROUTERS: Final = ("Glm4Moe", "Ernie4_5_Moe", "MiniMaxM2", "MiMoV2", "NemotronH")
# Classes whose decay rates stay in the model's dtype.
_PLAIN_DECAYS: Final = ("OlmoHybrid",)
# Tensors that model classes declare in fp32 (fused_moe, deepseek_v4.py, lfm2_moe.py, hunyuan_v3.py).
_FP32_PATHS: Final = ("e_score_correction_bias", "expert_bias", "ffn.gate.bias", "attn_sink")
_FP32_OF_KDA: Final = ("q_conv1d", "k_conv1d", "v_conv1d", "dt_bias")
# Query and key norms of full width, whole on every rank.
_WHOLE_NORMS: Final = ("Olmo2", "Olmo3", "OlmoHybrid")
# Encoders that are not split, or of which only the attention is split.
_WHOLE_TOWER_MLPS: Final = ("MuseGlimmer",)
_WHOLE_TOWERS: Final = ("Gemma4",)
_ENCODERS: Final = ("BertModel", "XLMRobertaModel", "RobertaModel")
_GEMMA4_BUFFERS: Final = ("std_bias", "std_scale", "layer_scalar")
_HEADS_UNUSED: Final = ("MistralModel", "LlamaModel", "Qwen2Model", "Qwen3Model")
# Models that take the encoder's output before its last layer, which is not built.
_SECOND_TO_LAST: Final = ("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration")
# Built on every pipeline stage although only the first or the last uses it.
_EMBEDDING_EVERYWHERE: Final = (
    "Qwen2Moe", "Qwen3Moe", "Qwen3Next", "Qwen3_5", "Gemma", "GptOss", "NemotronH", "GraniteMoeHybrid",
)  # fmt: skip
_HEAD_EVERYWHERE: Final = ("Qwen2Moe", "Qwen3Moe", "Qwen3Next", "GptOss", "NemotronH")
_NORM_EVERYWHERE: Final = ("Qwen2Moe", "Qwen3Moe", "Gemma", "GptOss", "GraniteMoeHybrid", "NemotronH")


def fp32_router(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the engine widens this router to fp32."""
    return group.kind == "router" and len(group.shape) == 2 and spec.architecture.startswith(_FP32_ROUTERS)


def fp32_part(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the class declares this tensor in fp32, so that loading does not cast it.

    Routers' correction biases, attention sinks and hyper-connections that the file holds in fp32; decay rates of
    states, KDA's convolutions and time biases; the key norm of a sparse indexer.
    """
    if group.kind == "norm":
        return "indexer" in group.path
    if group.path.endswith("A_log"):
        return not spec.architecture.startswith(_PLAIN_DECAYS)
    if group.format.name != "float32" or group.format.layout != "dense":
        return False
    leaf = group.path.rpartition(".")[2]
    if group.path.endswith(_FP32_PATHS) or leaf.startswith("hc_"):
        return True
    kda = any(isinstance(m, State) and m.kind == "kda" for layer in spec.layers for m in layer.mixers)
    return kda and group.kind == "state" and leaf in _FP32_OF_KDA


def state_rows(group: TensorGroup, spec: ModelSpec, tp: int) -> int:
    """Rows that each rank holds beyond its even share: a Mamba-2 layer's groups are copied where ranks outnumber them.

    The input projection and the convolution have two vectors of state_size per group
    (layers/mamba/mamba_utils.py extra_groups_for_head_shards).
    """
    if group.kind != "state" or not group.path.removesuffix(".bias").endswith(("in_proj", "conv1d")):
        return 0
    mixers = (m for layer in spec.layers for m in layer.mixers if isinstance(m, State) and m.kind == "mamba2")
    mixer = next(mixers, None)
    if mixer is None or not mixer.groups or mixer.groups % tp == 0:
        return 0
    return 2 * mixer.state_size * (tp - mixer.groups) // tp


def whole_on_ranks(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a tensor that could be split is held whole on every rank."""
    if group.kind == "norm":
        return spec.architecture.startswith(_WHOLE_NORMS)
    if group.place != "tower":
        return False
    whole_mlps = spec.architecture.startswith(_WHOLE_TOWER_MLPS) and ".attn." not in group.path
    return whole_mlps or spec.architecture.startswith(_WHOLE_TOWERS)


def split_like_words(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a small embedding is padded and split like the vocabulary: positions and token types of encoders."""
    small = group.path.endswith(("position_embeddings", "token_type_embeddings"))
    return small and spec.architecture.startswith(_ENCODERS)


def built(group: TensorGroup, spec: ModelSpec) -> int:
    """How many tensors the engine builds of a group.

    LLaVA reads its encoder's last layer but one; Gemma 4 gives layers whose value is the key a value projection of
    their own, and keeps a few constants as buffers; encoders that embed have no pooler.
    """
    name, path = spec.architecture, group.path
    if name.startswith("Gemma4"):
        return 0 if path.endswith(_GEMMA4_BUFFERS) else group.count
    if name.startswith(_ENCODERS):
        return 0 if path.startswith("pooler") else group.count
    if group.place != "tower" or not name.startswith(_SECOND_TO_LAST):
        return group.count
    if "post_layernorm" in path:
        return 0
    return group.count - 1 if "encoder.layers" in path else group.count


def additions(body: tuple[TensorGroup, ...], inventory: Inventory, spec: ModelSpec) -> tuple[TensorGroup, ...]:
    """Tensors that the engine builds in a layer although the file has none.

    Gemma 4 gives every layer keys and values: where the value is the key a copy of its projection, and in layers
    that reuse an earlier cache those of a layer with the same head size, which stay unused.
    """
    if not spec.architecture.startswith("Gemma4"):
        return ()
    own = {group.path: group for group in body}
    query = own.get("self_attn.q_proj")
    if query is None or "self_attn.v_proj" in own:
        return ()
    key = own.get("self_attn.k_proj")
    if key is not None:
        return (key._replace(path="self_attn.v_proj"),)
    for other in inventory.blocks:
        twin = {group.path: group for group in other}
        key, norm = twin.get("self_attn.k_proj"), twin.get("self_attn.k_norm")
        if key is not None and norm is not None and key.unit == query.unit:
            return key, key._replace(path="self_attn.v_proj"), norm
    return ()


def split_by_rows(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the engine splits a matrix that could be whole: the projection of Gemma 4's per-layer inputs."""
    return group.path.endswith("per_layer_model_projection") and spec.architecture.startswith("Gemma4")


def unused_head(spec: ModelSpec) -> bool:
    """Whether an embedding model without a head is built with one: classes made from their generating twins."""
    return spec.task == "embed" and spec.architecture in _HEADS_UNUSED and not spec.tied_embeddings


def on_every_stage(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a tensor of the first or last pipeline stage is built on all of them."""
    names = {"embedding": _EMBEDDING_EVERYWHERE, "head": _HEAD_EVERYWHERE, "norm": _NORM_EVERYWHERE}.get(group.kind)
    return names is not None and spec.architecture.startswith(names)
