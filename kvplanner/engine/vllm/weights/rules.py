"""Where vLLM's own model classes depart from the general rules of sharding, placing and dtype: by their quirks."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.quirks import quirks
from kvplanner.model.spec import PARTS_SKIPPED, ModelSpec, State
from kvplanner.model.tensors import Inventory, TensorGroup

# Tensors that model classes declare in fp32 (fused_moe, deepseek_v4.py, lfm2_moe.py, hunyuan_v3.py).
_FP32_PATHS: Final = ("e_score_correction_bias", "expert_bias", "ffn.gate.bias", "attn_sink")
_FP32_OF_KDA: Final = ("q_conv1d", "k_conv1d", "v_conv1d", "dt_bias")


def by_the_book(spec: ModelSpec) -> bool:
    """Whether the class splits and builds every tensor by the general rules, so that no single one need be asked for.

    Then `split_like_words`, `split_by_rows` and `whole_on_ranks` are never so, and `built` is a group's own count.
    """
    rules = quirks(spec.architecture)
    return not (
        rules.split_like_words or rules.split_by_rows or rules.whole_norms or rules.whole_tower or rules.not_built
        or rules.second_to_last
    )  # fmt: skip


def fp32_router(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the engine widens this router to fp32."""
    return group.kind == "router" and len(group.shape) == 2 and quirks(spec.architecture).fp32_router


def fp32_part(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the class declares this tensor in fp32, so that loading does not cast it.

    Routers' correction biases, attention sinks and hyper-connections that the file holds in fp32; decay rates of
    states, KDA's convolutions and time biases; the key norm of a sparse indexer.
    """
    if group.kind == "norm":
        return "indexer" in group.path
    if group.path.endswith("A_log"):
        return not quirks(spec.architecture).plain_decays
    if group.format.name != "float32" or group.format.layout != "dense":
        return False
    leaf = group.path.rpartition(".")[2]
    if group.path.endswith(_FP32_PATHS) or leaf.startswith("hc_"):
        return True
    kda = any(isinstance(m, State) and m.kind == "kda" for layer in spec.layers for m in layer.mixers)
    return kda and group.kind == "state" and leaf in _FP32_OF_KDA


def whole_on_ranks(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a tensor that could be split is held whole on every rank."""
    rules = quirks(spec.architecture)
    if group.kind == "norm":
        return rules.whole_norms
    if group.place != "tower" or not rules.whole_tower:
        return False
    attention = ".attn." in group.path or ".attention." in group.path
    return rules.whole_tower == "all" or attention == (rules.whole_tower == "attention")


def split_like_words(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a small embedding is padded and split like the vocabulary: positions and token types of encoders."""
    return group.path.endswith(quirks(spec.architecture).split_like_words)


def built(group: TensorGroup, spec: ModelSpec) -> int:
    """How many tensors the engine builds of a group.

    LLaVA reads its encoder's last layer but one; Gemma 4 gives layers whose value is the key a value projection of
    their own, and keeps a few constants as buffers; encoders that embed have no pooler; the head that Falcon's tied
    files store is not built, that of its untied ones is (11B; models/falcon.py).
    """
    rules, path = quirks(spec.architecture), group.path
    own_head = group.kind == "head" and not spec.tied_embeddings
    if any(part in path for part in rules.not_built) and not own_head:
        return 0
    if group.place != "tower" or not rules.second_to_last:
        return group.count
    if "post_layernorm" in path:
        return 0
    return group.count - 1 if "encoder.layers" in path else group.count


def additions(body: tuple[TensorGroup, ...], inventory: Inventory, spec: ModelSpec) -> tuple[TensorGroup, ...]:
    """Tensors that the engine builds in a layer although the file has none.

    Gemma 4 gives every layer keys and values: where the value is the key a copy of its projection, and in layers
    that reuse an earlier cache those of a layer with the same head size, which stay unused.
    """
    if not quirks(spec.architecture).own_values:
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
    return group.path.endswith(quirks(spec.architecture).split_by_rows)


def unused_head(spec: ModelSpec) -> bool:
    """Whether an embedding model without a head is built with one: classes made from their generating twins."""
    return spec.task == "embed" and quirks(spec.architecture).unused_head and not spec.tied_embeddings


def skips_in_vain(spec: ModelSpec) -> bool:
    """Whether an FP8 checkpoint's skip list names an encoder as a whole, and the engine builds it in 8 bits.

    vLLM compares the list with the names of single layers, which "model.vision_tower" is none of (layers/quantization/
    fp8.py and utils/quant_utils.py, is_layer_skipped).
    """
    return PARTS_SKIPPED in spec.quantization_traits and quirks(spec.architecture).tower_quantised


def skipped_in_vain(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a matrix of such an encoder, or of its projector, is built in 8 bits."""
    split = group.shard in ("column", "row") and len(group.shape) == 2
    return group.place == "tower" and split and skips_in_vain(spec)


def on_every_stage(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a tensor of the first or last pipeline stage is built on all of them."""
    return group.kind in quirks(spec.architecture).every_stage
