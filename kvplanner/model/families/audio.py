"""Models that hear: Whisper, Voxtral, Qwen-Audio, Qwen-Omni, Qwen3-ASR, Ultravox and others of their kind.

Sources: modelling classes of transformers 5.24 and of vLLM 0.33.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.reading import Body, Draft, Reader, Reading
from kvplanner.model.families.vision import Found, two_linear, with_encoder
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.kinds import encoder_in, omni_audio, whisper_encoder
from kvplanner.model.towers.qwen import qwen2_5_vl, qwen3_vl
from kvplanner.model.towers.vision import norm, table

_PROJECTOR: Final = "multi_modal_projector"


def _whisper(reading: Reading) -> Draft:
    """Whisper: an encoder once per 30 seconds, and a decoder that attends to itself and to the encoder."""
    text, parts = reading.text, reading.parts
    text.skip("classifier_proj_size", "num_hidden_layers", "is_decoder", "use_weighted_layer_sum", "max_length",
              "lang_ids", "median_filter_width")  # fmt: skip
    hidden, vocab = text.need("d_model", high=1 << 24), reading.vocab()
    layers = text.need("decoder_layers", high=1 << 12)
    heads, width = text.need("decoder_attention_heads", high=1 << 16), text.need("decoder_ffn_dim")
    seen = whisper_encoder(text, parts.at("tower"), "model.encoder")
    positions = text.need("max_target_positions", high=1 << 24)
    size = hidden // heads
    if hidden % heads:
        raise text.bad("decoder_attention_heads", f"a divisor of d_model = {hidden}")
    own, cross = Attention(heads, heads, size, size), Attention(heads, heads, size, size, cross=True)
    groups: list[TensorGroup] = []
    for path in ("self_attn", "encoder_attn"):
        made = parts.qkv(path, hidden, heads, heads, size, bias=True)
        groups += [g for g in made if not g.path.endswith("k_proj.bias")]
        groups += parts.linear(f"{path}.out_proj", "attention", hidden, hidden, "row", bias=True, unit=size)
        groups += parts.norm(f"{path}_layer_norm", hidden, bias=True)
    groups += parts.linear("fc1", "mlp", width, hidden, "column", bias=True)
    groups += parts.linear("fc2", "mlp", hidden, width, "row", bias=True)
    groups += parts.norm("final_layer_norm", hidden, bias=True)
    body = Body(LayerSpec((own, cross), (Mlp(width, 2),)), tuple(groups))
    tied = reading.tied(True)
    outside = reading.vocabulary(vocab, hidden, tied, embed="model.decoder.embed_tokens",
    norm="model.decoder.layer_norm",
                                 norm_bias=True, head="proj_out")  # fmt: skip
    outside.append(parts.at("first").tensor("model.decoder.embed_positions", "embedding", (positions, hidden)))
    towers, encoder = seen.tower([], seen.patches, "audio")
    return Draft(hidden, vocab, (body,), (0,) * layers, [*outside, *encoder], tied, tuple(towers))


def _qwen2_audio(reading: Reading, hidden: int) -> Found:
    """Qwen2-Audio: Whisper's encoder, halved in time, and one matrix."""
    seen = encoder_in(reading, "audio_tower", name="audio_config", default="qwen2_audio_encoder")
    proj = reading.parts.at("tower").linear(f"{_PROJECTOR}.linear", "tower", hidden, seen.size, bias=True)
    return seen.tower(proj, seen.patches // 2 if seen.patches else None, "audio")


def _voxtral(reading: Reading, hidden: int) -> Found:
    """Voxtral: Whisper's encoder, four frames joined, two layers without biases."""
    reading.top.skip("hidden_size", "projector_hidden_act", "downsample_factor")
    fields = reading.top.sub("audio_config")
    joined = 4 if fields is None else fields.get("downsample_factor", default=4, high=64)
    seen = encoder_in(reading, "audio_tower", name="audio_config", default="voxtral_encoder")
    proj = two_linear(reading.parts.at("tower"), _PROJECTOR, seen.size * joined, hidden, bias=False)
    return seen.tower(proj, seen.patches // joined if seen.patches else None, "audio")


def _omni2_audio(reading: Reading, hidden: int) -> Found:
    """Qwen2.5-Omni: Whisper's encoder with positions by rule, a projection, words for begin and end."""
    fields, parts = reading.top.sub("audio_config"), reading.parts.at("tower")
    if fields is None:
        raise reading.top.missing("audio_config")
    fields.skip("n_window", "output_dim")
    seen = whisper_encoder(fields, parts, "audio_tower")
    fields.close()
    kept = [g for g in seen.groups if not g.path.endswith("embed_positions")]
    proj = parts.linear("audio_tower.proj", "tower", hidden, seen.size, bias=True)
    proj.append(table(parts, "audio_tower.audio_bos_eos_token", 2, hidden))
    return seen._replace(groups=kept).tower(proj, kind="audio")


def _omni2_vision(reading: Reading, hidden: int) -> Found:
    return qwen2_5_vl(reading, hidden)


def _omni3_audio(reading: Reading, hidden: int) -> Found:
    """Qwen3-Omni and Qwen3-ASR: two layers behind the encoder, inside it or beside it."""
    fields, parts = reading.top.sub("audio_config"), reading.parts.at("tower")
    if fields is None:
        raise reading.top.missing("audio_config")
    out = fields.get("output_dim", default=hidden, high=1 << 24)
    seen = omni_audio(fields, parts, "audio_tower")
    fields.close()
    proj = parts.linear("audio_tower.proj1", "tower", seen.size, seen.size, bias=True)
    return seen.tower(proj + parts.linear("audio_tower.proj2", "tower", out, seen.size, bias=True), kind="audio")


def _ultravox(reading: Reading, hidden: int) -> Found:
    """Ultravox: Whisper's encoder, frames stacked, a gated projector with norms without bias."""
    top, parts = reading.top, reading.parts.at("tower")
    stack, inner = top.get("stack_factor", default=8, high=64), top.get("hidden_size", default=4096, high=1 << 20)
    middle = top.flag("projector_ln_mid", default=False)
    top.skip("audio_model_id", "text_model_id", "projector_act", "audio_latency_block_size", "text_model_lora_config",
             "audio_model_lora_config", "norm_init", "num_projector_layers")  # fmt: skip
    seen = encoder_in(reading, "audio_tower", name="audio_config", default="whisper")
    wide, gated = seen.size * stack, (inner // 2 if top.values.get("projector_act", "swiglu") == "swiglu" else inner)
    proj = norm(parts, f"{_PROJECTOR}.ln_pre", wide, bias=False)
    proj += parts.linear(f"{_PROJECTOR}.linear_1", "tower", inner, wide)
    proj += parts.linear(f"{_PROJECTOR}.linear_2", "tower", hidden, gated)
    proj += norm(parts, f"{_PROJECTOR}.ln_mid" if middle else f"{_PROJECTOR}.ln_post", gated if middle else hidden,
                 bias=False)  # fmt: skip
    return seen.tower(proj, kind="audio")


def _flamingo(reading: Reading, hidden: int) -> Found:
    """Audio Flamingo 3: Whisper's encoder, two layers with biases."""
    top = reading.top
    top.skip("projector_hidden_act", "projector_bias")
    seen = encoder_in(reading, "audio_tower", name="audio_config", default="whisper")
    bias = top.flag("projector_bias", default=True)
    return seen.tower(two_linear(reading.parts.at("tower"), _PROJECTOR, seen.size, hidden, bias=bias), kind="audio")


READERS: Final[dict[str, Reader]] = {
    "WhisperForConditionalGeneration": _whisper,
    "Qwen2AudioForConditionalGeneration": with_encoder(_qwen2_audio),
    **dict.fromkeys(("VoxtralForConditionalGeneration", "VoxtralRealtimeGeneration"), with_encoder(_voxtral)),
    "Qwen2_5OmniForConditionalGeneration": with_encoder(_omni2_vision, _omni2_audio),
    "Qwen3OmniMoeForConditionalGeneration": with_encoder(qwen3_vl, _omni3_audio),
    "Qwen3ASRForConditionalGeneration": with_encoder(_omni3_audio),
    "UltravoxModel": with_encoder(_ultravox),
    "AudioFlamingo3ForConditionalGeneration": with_encoder(_flamingo),
}  # fmt: skip
