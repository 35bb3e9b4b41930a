"""Language models with towers beside them, and Llama's own multimodal decoders.

Sources: configuration and modelling classes of transformers 5.24, element counts of public files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.model.config.decoder import Decoder
from kvplanner.model.config.fields import Fields, need_length
from kvplanner.model.config.moe import Experts
from kvplanner.model.config.patterns import CHUNKED, FULL, every
from kvplanner.model.config.reading import Body, Draft, Heads, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.families.dense import FOUR_NORMS, GEMMA3, GLM4V, MINISTRAL3, MISTRAL, PHI3, QWEN2, QWEN3
from kvplanner.model.families.gated import QWEN3_5, QWEN3_5_MOE
from kvplanner.model.families.kda import kimi_linear
from kvplanner.model.families.latent import DEEPSEEK_V3, MISTRAL4, dense_mlp, layer_norms
from kvplanner.model.families.sparse import GLM4V_MOE, QWEN3_MOE
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers import more as towers_more
from kvplanner.model.towers import qwen as towers_qwen
from kvplanner.model.towers import vision as towers
from kvplanner.model.towers.vision import with_towers

_MUSE: Final = Decoder(
    qkv_bias=False, o_bias=False, gate_name="gate_proj", norms=FOUR_NORMS, pattern=every(4),
    only={"attention_bias": False},
)  # fmt: skip


def _internvl_text(reading: Reading) -> Draft:
    """InternVL wraps Qwen2, Qwen3 or Qwen3-MoE, and says which."""
    readers: dict[str, Reader] = {"qwen2": QWEN2, "qwen3": QWEN3, "qwen3_moe": QWEN3_MOE}
    return _by_model_type(reading, readers)


def _llava_text(reading: Reading) -> Draft:
    """LLaVA wraps Llama (whose sizes may be class defaults) or Mistral."""
    llama = Decoder(mlp_bias=("mlp_bias", False), hidden=4096, layers=32, heads=32, width_default=11008)
    return _by_model_type(reading, {"llama": llama, "mistral": MISTRAL})


def _llava(reading: Reading) -> Draft:
    """LLaVA of CLIP or Pixtral before Llama or Mistral, or of any other encoder and decoder that its config names."""
    vision = reading.top.values.get("vision_config")
    kind = vision.get("model_type") if isinstance(vision, Mapping) else None
    usual = reading.text.values.get("model_type", "llama") in ("llama", "mistral")
    if usual and kind in (None, "clip_vision_model", "pixtral"):
        return with_towers(_llava_text, towers.llava)(reading)
    from kvplanner.model.families.vision import llava, with_encoder

    return with_encoder(llava)(reading)


def _mistral3_text(reading: Reading) -> Draft:
    """Mistral 3 wraps Mistral, Ministral 3, or Mistral 4 with latent attention."""
    readers: dict[str, Reader] = {"mistral": MISTRAL, "ministral3": MINISTRAL3, "mistral4": MISTRAL4}
    return _by_model_type(reading, readers)


def _by_model_type(reading: Reading, readers: dict[str, Reader]) -> Draft:
    kind = reading.text.text("model_type", allowed=readers)
    if kind is None or reading.text is reading.top:
        raise reading.text.missing("model_type")
    return readers[kind](reading)


def _llama4_text(reading: Reading) -> Draft:
    """Llama 4: chunked attention in rope layers, experts interleaved, one shared expert of the experts' width."""
    text = reading.text
    text.skip(
        "for_llm_compressor", "nope_layer_interval", "no_rope_layer_interval", "use_qk_norm", "attention_chunk_size_mlp"
    )
    text.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    chunk = text.get("attention_chunk_size", default=8192)
    experts = Experts(("num_local_experts",), width=("intermediate_size",), path="feed_forward", router="router",
                      shared_width=("intermediate_size",), shared="shared_expert")  # fmt: skip
    norms = layer_norms(reading, hidden)

    def make(key: tuple[str, bool]) -> Body:
        mixer = _gqa(reading, hidden, heads, chunk if key[0] == CHUNKED else None)
        if key[1]:
            return body(mixer, experts(reading, hidden), norms)
        width = text.need("intermediate_size_mlp")
        return body(mixer, MlpPart(Mlp(width), reading.parts.mlp("feed_forward", hidden, width)), norms)

    sparse = _llama4_experts(text, layers)
    if all(sparse):
        text.skip("intermediate_size_mlp")
    bodies, body_of = stack(zip(_llama4_kinds(text, layers), sparse, strict=True), make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _llama4_kinds(text: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, or `no_rope_layers` (1: rope, so chunked), or every fourth layer full."""
    given = text.texts("layer_types", allowed=(FULL, CHUNKED))
    ropes = text.ints("no_rope_layers", high=1)
    if given is not None:
        need_length(text, "layer_types", given, layers)
        return given
    if ropes:
        need_length(text, "no_rope_layers", ropes, layers)
        return tuple(CHUNKED if rope else FULL for rope in ropes)
    step = text.get("no_rope_layer_interval", "nope_layer_interval", default=4, high=1 << 16)
    return tuple(FULL if (i + 1) % step == 0 else CHUNKED for i in range(layers))


def _llama4_experts(text: Fields, layers: int) -> tuple[bool, ...]:
    """`moe_layers`, or each `interleave_moe_layer_step`-th layer."""
    listed = text.ints("moe_layers", high=layers)
    step = text.get("interleave_moe_layer_step", default=1, high=1 << 16)
    if listed:
        return tuple(i in listed for i in range(layers))
    return tuple((i + 1) % step == 0 for i in range(layers))


def _gqa(reading: Reading, hidden: int, heads: Heads, chunk: int | None = None, cross: bool = False) -> MixerPart:
    n, kv, size = heads
    path = "cross_attn" if cross else "self_attn"
    groups = reading.parts.qkv(path, hidden, n, kv, size)
    groups += reading.parts.linear(f"{path}.o_proj", "attention", hidden, n * size, "row", unit=size)
    if cross:
        groups += reading.parts.norm(f"{path}.q_norm", size) + reading.parts.norm(f"{path}.k_norm", size)
    return MixerPart(Attention(n, kv, size, size, chunk=chunk, cross=cross), groups)


def _mllama_text(reading: Reading) -> Draft:
    """Llama 3.2 Vision: some layers attend to the image alone; the embedding has eight rows more than the head."""
    text = reading.text
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    crossing = text.ints("cross_attention_layers", high=layers - 1)
    if crossing is None:
        raise text.missing("cross_attention_layers")
    norms = layer_norms(reading, hidden)

    def make(cross: bool) -> Body:
        mixer, mlp = _gqa(reading, hidden, heads, cross=cross), dense_mlp(reading, hidden)
        gates: list[TensorGroup] = []
        if cross:
            gates = [reading.parts.tensor(n, "other", (1,)) for n in ("cross_attn_attn_gate", "cross_attn_mlp_gate")]
        return Body(LayerSpec((mixer.mixer,), (mlp.mlp,)), (*mixer.tensors, *mlp.tensors, *norms, *gates))

    bodies, body_of = stack([i in crossing for i in range(layers)], make)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied)
    embed = reading.parts.at("first").tensor("model.embed_tokens", "embedding", (vocab + 8, hidden), "vocab")
    outside = [embed if g.kind == "embedding" else g for g in outside]
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


def _kimi_k25_text(reading: Reading) -> Draft:
    """Kimi-K2.5: DeepSeek-V3's decoder."""
    reading.top.skip("use_unified_vision_chunk")
    return DEEPSEEK_V3(reading)


def _kimi_k3_text(reading: Reading) -> Draft:
    """Kimi-K3: Kimi-Linear with latent experts and residuals over blocks of layers."""
    reading.text.skip("attn_res_block_size")
    return kimi_linear(reading)


READERS: Final[dict[str, Reader]] = {
    "Gemma3ForConditionalGeneration": with_towers(GEMMA3, towers.siglip),
    "LlavaForConditionalGeneration": _llava,
    "Mistral3ForConditionalGeneration": with_towers(_mistral3_text, towers.mistral3),
    "InternVLForConditionalGeneration": with_towers(_internvl_text, towers.internvl),
    "Qwen2VLForConditionalGeneration": with_towers(QWEN2, towers_qwen.qwen2_vl),
    "Qwen2_5_VLForConditionalGeneration": with_towers(QWEN2, towers_qwen.qwen2_5_vl),
    "Qwen3VLForConditionalGeneration": with_towers(QWEN3, towers_qwen.qwen3_vl),
    "Qwen3VLMoeForConditionalGeneration": with_towers(QWEN3_MOE, towers_qwen.qwen3_vl),
    "Qwen3_5ForConditionalGeneration": with_towers(QWEN3_5, towers_qwen.optional_qwen3_vl),
    "Qwen3_5MoeForConditionalGeneration": with_towers(QWEN3_5_MOE, towers_qwen.optional_qwen3_vl),
    "Glm4vForConditionalGeneration": with_towers(GLM4V, towers_qwen.glm4v),
    "Glm4vMoeForConditionalGeneration": with_towers(GLM4V_MOE, towers_qwen.glm4v),
    "Llama4ForCausalLM": _llama4_text,
    "Llama4ForConditionalGeneration": with_towers(_llama4_text, towers_more.llama4),
    "MllamaForConditionalGeneration": with_towers(_mllama_text, towers_more.mllama),
    "KimiK25ForConditionalGeneration": with_towers(_kimi_k25_text, towers_more.moonvit),
    "KimiK3ForConditionalGeneration": with_towers(_kimi_k3_text, towers_more.moonvit2),
    "MuseGlimmerForCausalLM": _MUSE,
    "MuseGlimmerForConditionalGeneration": with_towers(_MUSE, towers_more.muse),
    "Phi3VForCausalLM": with_towers(PHI3, towers_more.phi3_vision),
}
