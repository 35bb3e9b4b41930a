"""Draft heads: EAGLE, EAGLE-3 and their kin, DFlash, Medusa, and the MTP blocks of a model read on their own.

Sources: the classes of vLLM 0.33 (llama_eagle.py, llama_eagle3.py, qwen3_dflash.py, medusa.py, *_mtp.py). A draft runs
beside its target only; its layers keep a cache of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Reader, Reading, stack
from kvplanner.model.families.latent import mla_part, mla_sizes
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup

BESIDE: Final = "a draft head: it runs beside its target only"


def as_draft(draft: Draft) -> Draft:
    """Marked as a head that nobody serves alone."""
    return draft._replace(task="draft", remarks=(*draft.remarks, BESIDE))


def eagle(text: Reader) -> Reader:
    """EAGLE: the target's layer, after a projection that joins the token's embedding and the target's state.

    The first layer has no input norm, and the head is the target's.
    """

    def read(reading: Reading) -> Draft:
        bias = reading.text.flag("bias", default=False)
        draft = text(reading)
        first = reading.parts.at("first")
        outside = [g for g in draft.outside if g.kind != "head" and g.place != "last"]
        outside += first.linear("model.fc", "other", draft.hidden, 2 * draft.hidden, bias=bias)
        bodies = tuple(
            b._replace(tensors=tuple(g for g in b.tensors if g.path != "input_layernorm")) for b in draft.bodies[:1]
        )
        return as_draft(draft._replace(bodies=bodies + draft.bodies[1:], outside=outside, tied=False))

    return read


def _layers_fused(text: Fields) -> int:
    """How many of the target's layers the head looks at: three, unless the config lists them."""
    inner = text.sub("eagle_config")
    listed = text.ints("eagle_aux_hidden_state_layer_ids")
    if inner is not None:
        listed = listed or inner.ints("eagle_aux_hidden_state_layer_ids")
        if inner.flag("use_aux_hidden_state", default=True) is False:
            return 0
    stated = text.maybe("num_aux_hidden_states", high=1 << 10)
    return stated or (len(listed) if listed else 3)


def _eagle3(reading: Reading) -> Draft:
    """EAGLE-3: attention over embedding and state side by side, a projection of several target layers, own head."""
    text, parts = reading.text, reading.parts
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count(default=1)
    text.skip("num_nextn_predict_layers", "max_window_layers", "sliding_window", "norm_before_residual", "norm_output",
              "use_sliding_window", "layer_types", "mlp_bias", "block_size", "target_layer_count")  # fmt: skip
    heads = reading.heads(hidden)
    bias, width = text.flag("attention_bias", default=False), text.need("intermediate_size")
    normed = reading.architecture in ("Eagle3Qwen3ForCausalLM", "PeagleQwen3ForCausalLM")
    fused, target = _layers_fused(text), text.get("target_hidden_size", default=hidden, high=1 << 24)
    draft_vocab = text.get("draft_vocab_size", default=vocab, high=1 << 26)

    def make(first: bool) -> Body:
        groups = parts.qkv("self_attn", 2 * hidden if first else hidden, *heads, bias=bias)
        groups += parts.linear("self_attn.o_proj", "attention", hidden, heads.heads * heads.head_size, "row",
                               unit=heads.head_size)  # fmt: skip
        if normed:
            groups += parts.norm("self_attn.q_norm", heads.head_size) + parts.norm("self_attn.k_norm", heads.head_size)
        groups += parts.mlp("mlp", hidden, width)
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            groups += parts.norm(name, hidden)
        attention = Attention(*heads, heads.head_size)
        return Body(LayerSpec((attention,), (Mlp(width),)), tuple(groups))

    bodies, body_of = stack([i == 0 for i in range(layers)], make)
    last = parts.at("last")
    outside = [parts.at("first").tensor("model.embed_tokens", "embedding", (vocab, hidden), "vocab")]
    outside += last.norm("model.norm", hidden)
    outside += last.linear("lm_head", "head", draft_vocab, hidden, "vocab")
    if fused:
        outside += last.linear("model.fc", "other", hidden, fused * target)
        if text.flag("norm_before_fc", default=False):
            outside += last.norm("model.input_norm", fused * target)
        if text.flag("fc_norm", default=False):
            outside += last.norm("model.fc_norm", target, count=fused)
    text.skip("tie_word_embeddings")
    return as_draft(Draft(hidden, vocab, bodies, body_of, outside, False))


def _eagle3_latent(reading: Reading) -> Draft:
    """EAGLE-3 for DeepSeek: the same around latent attention, and a dense feed-forward."""
    text, parts = reading.text, reading.parts
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count(default=1)
    text.skip("num_nextn_predict_layers", "norm_before_residual", "norm_output", "first_k_dense_replace",
              "moe_layer_freq", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
              "moe_intermediate_size", "tie_word_embeddings", "target_layer_count")  # fmt: skip
    sizes, width = mla_sizes(text, hidden, may_lack_q_rank=True), text.need("intermediate_size")
    fused, target = _layers_fused(text), text.get("target_hidden_size", default=hidden, high=1 << 24)
    draft_vocab = text.get("draft_vocab_size", default=vocab, high=1 << 26)

    def make(first: bool) -> Body:
        mixer = mla_part(reading, hidden, sizes)
        groups = [_twice(g, hidden) if first else g for g in mixer.tensors] + parts.mlp("mlp", hidden, width)
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            groups += parts.norm(name, hidden)
        return Body(LayerSpec((mixer.mixer,), (Mlp(width),)), tuple(groups))

    bodies, body_of = stack([i == 0 for i in range(layers)], make)
    last = parts.at("last")
    outside = [parts.at("first").tensor("model.embed_tokens", "embedding", (vocab, hidden), "vocab")]
    outside += last.norm("model.norm", hidden)
    outside += last.linear("lm_head", "head", draft_vocab, hidden, "vocab")
    outside += last.linear("model.fc", "other", hidden, fused * target) if fused else []
    if text.flag("fc_norm", default=False):
        outside += last.norm("model.fc_norm", target, count=fused)
    return as_draft(Draft(hidden, vocab, bodies, body_of, outside, False))


def _twice(group: TensorGroup, hidden: int) -> TensorGroup:
    """A projection of the first layer, which reads embedding and state side by side."""
    reads = group.path.endswith(("q_a_proj", "q_proj", "kv_a_proj_with_mqa")) and group.shape[-1] == hidden
    return group._replace(shape=(group.shape[0], 2 * hidden)) if reads else group


def _medusa(reading: Reading) -> Draft:
    """Medusa: residual blocks and a head for each token ahead; no attention and no cache."""
    text, parts = reading.text, reading.parts
    hidden, vocab = reading.hidden(), reading.vocab()
    ahead, blocks = text.get("num_heads", "medusa_num_heads", default=5), text.get(
        "num_hidden_layers", "medusa_num_layers", default=1, high=64)  # fmt: skip
    text.skip("base_model_name_or_path", "max_paths", "topk", "truncated_vocab_size")
    original = text.flag("original_lm_head", default=False)
    bias = text.flag("medusa_fc_bias", default=False)
    groups = parts.linear("blocks.layers", "mlp", hidden, hidden, bias=bias, count=ahead)
    body = Body(LayerSpec((), (Mlp(hidden, 1),)), tuple(groups))
    heads = 1 if original else ahead
    outside = [parts.at("last").tensor("lm_heads", "head", (vocab, hidden), "vocab", count=heads)]
    return as_draft(Draft(hidden, vocab, (body,), (0,) * blocks, outside, False))


def _dflash(reading: Reading) -> Draft:
    """DFlash: Qwen3 layers over a projection of several target layers; embedding and head are the target's."""
    text, parts = reading.text, reading.parts
    text.skip("max_window_layers", "sliding_window", "use_sliding_window", "layer_types", "block_size",
              "num_target_layers", "use_cache", "mask_token_id")  # fmt: skip
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    bias, width = text.flag("attention_bias", default=False), text.need("intermediate_size")
    inner = text.sub("dflash_config")
    listed = (inner.ints("target_layer_ids") if inner is not None else None) or text.ints("target_layer_ids") or \
        text.ints("eagle_aux_hidden_state_layer_ids") or text.ints("aux_hidden_state_layer_ids")  # fmt: skip
    if not listed:
        raise text.missing("dflash_config")
    text.skip("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids")
    target = text.get("target_hidden_size", default=hidden, high=1 << 24)
    groups = parts.qkv("self_attn", hidden, *heads, bias=bias)
    groups += parts.linear("self_attn.o_proj", "attention", hidden, heads.heads * heads.head_size, "row", bias=bias,
                           unit=heads.head_size)  # fmt: skip
    for name in ("q_norm", "k_norm"):
        groups += parts.norm(f"self_attn.{name}", heads.head_size)
    mixer = MixerPart(Attention(*heads, heads.head_size), groups)
    mlp = MlpPart(Mlp(width), parts.mlp("mlp", hidden, width))
    norms = parts.norm("input_layernorm", hidden) + parts.norm("post_attention_layernorm", hidden)
    body = Body(LayerSpec((mixer.mixer,), (mlp.mlp,)), (*mixer.tensors, *mlp.tensors, *norms))
    last = parts.at("last")
    outside = last.linear("fc", "other", hidden, len(listed) * target)
    outside += last.norm("hidden_norm", hidden) + last.norm("norm", hidden)
    text.skip("tie_word_embeddings")
    return as_draft(Draft(hidden, vocab, (body,), (0,) * layers, outside, False))


def mtp_of(text: Reader) -> Reader:
    """A model's MTP blocks as vLLM loads them for a draft: the blocks, the embedding and the head."""

    def read(reading: Reading) -> Draft:
        draft = text(reading)
        if draft.mtp is None:
            raise reading.text.missing("num_nextn_predict_layers")
        last = draft.bodies[draft.body_of[-1]]
        body = Body(last.spec, draft.mtp.body)
        outside: list[TensorGroup] = [g for g in draft.outside if g.kind in ("embedding", "head")]
        extra = tuple(g._replace(count=g.count * draft.mtp.blocks, place="last") for g in draft.mtp.extra)
        return as_draft(draft._replace(bodies=(body,), body_of=(0,) * draft.mtp.blocks, outside=[*outside, *extra],
                                       towers=(), mtp=None))  # fmt: skip

    return read


# The MTP architecture that vLLM makes of a model's own (config/speculative.py): name → whose blocks they are.
MTP_OF: Final[Mapping[str, str]] = {
    "DeepSeekMTPModel": "DeepseekV3ForCausalLM", "DeepseekV32MTPModel": "DeepseekV32ForCausalLM",
    "MiMoMTPModel": "MiMoForCausalLM", "MiMoV2MTPModel": "MiMoV2FlashForCausalLM",
    "Glm4MoeMTPModel": "Glm4MoeForCausalLM", "Glm4MoeLiteMTPModel": "Glm4MoeLiteForCausalLM",
    "Qwen3NextMTP": "Qwen3NextForCausalLM", "Qwen3_5MTP": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeMTP": "Qwen3_5MoeForCausalLM", "ErnieMTPModel": "Ernie4_5_MoeForCausalLM",
    "NemotronHMTPModel": "NemotronHForCausalLM", "HYV3MTPModel": "HYV3ForCausalLM",
    "DeepSeekV4MTPModel": "DeepseekV4ForCausalLM", "ExaoneMoeMTP": "ExaoneMoeForCausalLM",
    "LongCatFlashMTPModel": "LongcatFlashForCausalLM", "Step3p5MTP": "Step3p5ForCausalLM",
    "BailingMoeV3MTPModel": "BailingHybridForCausalLM", "BailingMoeV25MTPModel": "BailingMoeV2_5ForCausalLM",
    "OpenPanguMTPModel": "PanguUltraMoEForCausalLM", "GlmOcrMTPModel": "GlmOcrForConditionalGeneration",
    "MiniMaxM3MTP": "MiniMaxM3SparseForConditionalGeneration", "KimiK3MTPModel": "KimiK3ForConditionalGeneration",
}  # fmt: skip
# EAGLE heads made like another architecture's layer.
EAGLE_OF: Final[Mapping[str, str]] = {
    "EagleLlamaForCausalLM": "LlamaForCausalLM", "EagleMistralForCausalLM": "MistralForCausalLM",
    "EagleMiniCPMForCausalLM": "MiniCPMForCausalLM", "EagleLlama4ForCausalLM": "Llama4ForCausalLM",
    "EagleCohereForCausalLM": "CohereForCausalLM", "EagleDeepSeekMTPModel": "DeepseekV3ForCausalLM",
    "EagleMistralLarge3ForCausalLM": "MistralLarge3ForCausalLM", "EagleQwen2ForCausalLM": "Qwen2ForCausalLM",
    "EagleQwen3ForCausalLM": "Qwen3ForCausalLM",
}  # fmt: skip
_EAGLE3_NAMES: Final = (
    "Eagle3LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM",
    "Eagle3Qwen3ForCausalLM", "Eagle3MiniMaxM2ForCausalLM", "PEagleDraftModel", "PeagleLlamaForCausalLM",
    "PeagleQwen3ForCausalLM",
)  # fmt: skip

READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(_EAGLE3_NAMES, _eagle3),
    **dict.fromkeys(("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"), _eagle3_latent),
    "MedusaModel": _medusa,
    **dict.fromkeys(("DFlashDraftModel", "MuseGlimmerAssistantModel", "DFlashMuseGlimmerAssistantModel"), _dflash),
}  # fmt: skip
