"""Other forms in which a config comes: Mistral's params.json, speculators' and EAGLE's wrappers, a LoRA adapter's.

Each becomes the config.json that vLLM makes of it (transformers_utils/configs/mistral.py, eagle.py and speculators
of 0.33), so that one set of readers reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config import classes
from kvplanner.model.config.metadata import misspelt

Config = Mapping[str, object]
_MISTRAL: Final = {
    "dim": "hidden_size", "norm_eps": "rms_norm_eps", "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings", "activation": "hidden_act",
}  # fmt: skip
_MISTRAL_MOE: Final = {
    "route_every_n": "moe_layer_freq", "first_k_dense_replace": "first_k_dense_replace",
    "num_experts_per_tok": "num_experts_per_tok", "num_experts": "n_routed_experts",
    "expert_hidden_dim": "moe_intermediate_size", "num_shared_experts": "n_shared_experts",
}  # fmt: skip
# What vLLM takes a default for where it is absent (transformers_utils/configs/mistral.py, 0.33).
_MISTRAL_DEFAULTED: Final = ("max_position_embeddings", "max_seq_len", "tied_embeddings")
# What a params.json says of itself beside sizes.
_MISTRAL_IGNORED: Final = frozenset({
    "rope_theta", "max_seqlen", "max_batch_size", "use_biases", "causal", "attn_bias", "llama_4_scaling", "q_rescale",
    "ragged_attention", "use_cache", "yarn",
})  # fmt: skip
_MISTRAL_LENGTH: Final = 128_000


def as_config(config: Config, where: str) -> Config:
    """The config.json that a file of another form stands for; the file itself when it is one.

    Raises BadInput for a file of a kind that is no model, NotModelled for a form that vLLM does not know.
    """
    if "peft_type" in config:
        base = config.get("base_model_name_or_path")
        raise BadInput(
            f"describes a {config['peft_type']} adapter, not a model",
            where,
            f"Open its base model, {base}" if isinstance(base, str) and base else "Open its base model",
        )
    for belongs, make in _FORMS:
        if belongs(config):
            return make(config, where)
    return config


def architecture_of_type(kind: str) -> str:
    """What a config without `architectures` is taken for: the base model of its `model_type`; "" when not known."""
    return classes.base_model(kind)


def _is_mistral(config: Config) -> bool:
    return "architectures" not in config and {"dim", "n_layers", "n_heads"} <= set(config)


# vLLM calls the type DeepSeek's; none of the defaults of that class, such as an MTP block, are the format's.
_LATENT: Final[Config] = {
    "architectures": ["MistralLarge3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 0,
}  # fmt: skip


def _mistral(config: Config, where: str) -> Config:
    """params.json of Mistral's own format: other names, one file for text, vision and audio."""
    for name in ("moe", "yarn", "llama_4_scaling"):
        _check_settings(config.get(name), f"{where}: {name}")
    text = {_MISTRAL.get(name, name): value for name, value in config.items() if name not in _MISTRAL_IGNORED}
    if config.get("hidden_dim") is None:
        raise BadInput("is missing", f"{where}: hidden_dim", "Use the complete params.json of the repository")
    _check_spelling(config, where)
    text.setdefault("max_position_embeddings", config.get("max_seq_len", _MISTRAL_LENGTH))
    text.setdefault("tie_word_embeddings", False)
    for name in ("max_seq_len", "model_type"):
        text.pop(name, None)
    text.setdefault("sliding_window", None)
    result: dict[str, Any] = {}
    if quantised := text.pop("quantization", None):
        result["quantization_config"] = _mistral_quantisation(quantised, where)
    vision, audio = _mistral_media(text)
    moe = text.pop("moe", None)
    if isinstance(moe, Mapping) and moe.get("num_shared_experts"):
        text |= _mistral_experts(moe, where)
        kind = _LATENT
    elif isinstance(moe, Mapping):
        text |= {"num_local_experts": moe.get("num_experts"), "num_experts_per_tok": moe.get("num_experts_per_tok")}
        kind = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    elif "kv_lora_rank" in text:
        dense = {"n_routed_experts": 1, "n_shared_experts": 1, "num_experts_per_tok": 1,
                 "first_k_dense_replace": text.get("num_hidden_layers"),
                 "moe_intermediate_size": text.get("intermediate_size")}  # fmt: skip
        text |= dense
        kind = _LATENT
    else:
        kind = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    if vision is None and audio is None:
        return {**text, **kind, **result}
    name = "PixtralForConditionalGeneration" if vision is not None else "VoxtralForConditionalGeneration"
    if audio is not None and audio.get("is_causal"):
        name = "VoxtralRealtimeGeneration"
    media = {"vision_config": vision} if vision is not None else {"audio_config": audio}
    outer = {"architectures": [name], "model_type": "pixtral" if vision is not None else "voxtral"}
    return {**outer, "text_config": {**text, **kind}, **media, **result}


def _check_spelling(config: Config, where: str) -> None:
    """Raises NotModelled for a misspelling of an absent field that has a default in this format."""
    known = {*_MISTRAL_DEFAULTED, *_MISTRAL_IGNORED, *_MISTRAL}
    unknown = [str(name) for name in config if name not in known]
    for absent in _MISTRAL_DEFAULTED:
        name = next((n for n in unknown if absent not in config and misspelt(n, absent, True)), "")
        if name:
            raise NotModelled(f"is not understood, and may be meant for {absent}, which it resembles",
                              f"{where}: {name}", "Use the complete params.json of the repository")  # fmt: skip


def _check_settings(settings: object, where: str) -> None:
    """Raises NotModelled for an object or list within settings that hold numbers alone."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping | list | tuple):
            raise NotModelled("is not understood", f"{where}.{name}", "Plan from file headers")


def _mistral_experts(moe: Mapping[str, object], where: str) -> Config:
    """The experts' fields by the names of a config.json. Raises BadInput where one that has no default is missing."""
    for name in ("num_experts", "num_experts_per_tok", "expert_hidden_dim"):
        if moe.get(name) is None:
            raise BadInput("is missing", f"{where}: moe.{name}", "Use the complete params.json of the repository")
    return {new: moe[old] for old, new in _MISTRAL_MOE.items() if old in moe}


def _mistral_media(text: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The vision and audio encoders' dictionaries, taken out of `text`."""
    media = text.pop("multimodal", None)
    media = media if isinstance(media, Mapping) else {}
    vision = text.pop("vision_encoder", None) or media.get("vision_encoder_args")
    if isinstance(vision, Mapping):
        return {**vision, "model_type": "pixtral_params"}, None
    whisper = media.get("whisper_model_args")
    if not isinstance(whisper, Mapping) or not isinstance(whisper.get("encoder_args"), Mapping):
        return None, None
    encoder, down = whisper["encoder_args"], whisper.get("downsample_args")
    bins = encoder.get("audio_encoding_args")
    return None, {
        "model_type": "voxtral_encoder", "d_model": encoder.get("dim"), "encoder_layers": encoder.get("n_layers"),
        "encoder_ffn_dim": encoder.get("hidden_dim"), "encoder_attention_heads": encoder.get("n_heads"),
        "num_mel_bins": bins.get("num_mel_bins") if isinstance(bins, Mapping) else None,
        "max_source_positions": encoder.get("max_source_positions"), "is_causal": encoder.get("causal"),
        "downsample_factor": down.get("downsample_factor") if isinstance(down, Mapping) else None,
    }  # fmt: skip


def _mistral_quantisation(stated: object, where: str) -> dict[str, object]:
    given = dict(stated) if isinstance(stated, Mapping) else {}
    if given.get("qformat_weight") == "fp8_e4m3":
        _check_settings(given, f"{where}: quantization")
        dynamic = given.get("qscheme_act") == "NO_SCALES"
        return {"quant_method": "fp8", "activation_scheme": "dynamic" if dynamic else "static"}
    if str(given.get("quant_method", "")).lower().replace("_", "-") == "compressed-tensors":
        return {**given, "quant_method": "compressed-tensors"}
    raise NotModelled("is of a kind that vLLM does not load", f"{where}: quantization", "Plan from file headers")


# Which draft architecture a speculators config is, by its kind and by its layers' `model_type`.
_SPECULATORS: Final = {
    ("eagle3", "llama"): "Eagle3LlamaForCausalLM", ("eagle3", "qwen3"): "Eagle3Qwen3ForCausalLM",
    ("peagle", "llama"): "PeagleLlamaForCausalLM", ("peagle", "qwen3"): "PeagleQwen3ForCausalLM",
    ("dflash", ""): "DFlashDraftModel", ("dflash2", ""): "DFlash2DraftModel", ("dspark", ""): "Qwen3DSparkModel",
}  # fmt: skip


def _speculators(config: Config, where: str) -> Config:
    """A speculators config: the layer's own fields, and beside them what the draft adds."""
    kind, layer = str(config.get("speculators_model_type")), config.get("transformer_layer_config")
    if not isinstance(layer, Mapping):
        raise BadInput("is missing", f"{where}: transformer_layer_config", "Use the draft's complete config.json")
    of = str(layer.get("model_type", "llama"))
    name = _SPECULATORS.get((kind, of)) or _SPECULATORS.get((kind, ""))
    if name is None:
        raise NotModelled(f"is {kind!r} over {of!r} layers", f"{where}: speculators_model_type",
                          "vLLM loads eagle3, peagle, dflash and dspark")  # fmt: skip
    keep = ("draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm", "markov_rank", "tie_word_embeddings",
            "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "conv_kernel_size", "selector_rank",
            "enable_confidence_head", "block_size", "quantization_config", "torch_dtype", "dtype")  # fmt: skip
    extra = {key: config[key] for key in keep if config.get(key) is not None}
    return {**layer, **extra, "architectures": [name]}


def _eagle(config: Config, where: str) -> Config:
    """EAGLE's first form: the head's config inside `model`, named after the architecture that it is made like."""
    inner = config.get("model")
    if not isinstance(inner, Mapping):
        return config
    names = inner.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else "LlamaForCausalLM"
    name = first if first.startswith("Eagle") or first.endswith("Eagle3") else f"Eagle{first}"
    beside = {
        k: v for k, v in config.items() if k not in ("model", "model_type", "architectures", "truncated_vocab_size")
    }
    return {**inner, **beside, "architectures": [name]}


def _thinker(config: Config, where: str) -> Config:
    """Qwen-Omni and Qwen3-ASR: vLLM loads the thinker alone, not what turns its words into speech."""
    inner = config["thinker_config"]
    if not isinstance(inner, Mapping):
        raise BadInput("is no object", f"{where}: thinker_config", "Use the model's complete config.json")
    outer = ("architectures", "quantization_config", "torch_dtype", "dtype")
    return {**inner, **{name: config[name] for name in outer if config.get(name) is not None}}


_FORMS: Final[tuple[tuple[Callable[[Config], bool], Callable[[Config, str], Config]], ...]] = (
    (_is_mistral, _mistral),
    (lambda config: "speculators_model_type" in config, _speculators),
    (lambda config: config.get("model_type") == "eagle", _eagle),
    (lambda config: config.get("thinker_config") is not None, _thinker),
)
