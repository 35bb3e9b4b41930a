"""Float weights that the config describes as a whole: FP8 of every layout, MXFP4, MXFP8, FP-Quant.

Sources: the configs of public repositories; what vLLM 0.33 reads of them (model_executor/layers/quantization: fp8.py,
fbgemm_fp8.py, mxfp4.py, fp_quant.py; "mxfp8" is read as ModelOpt's).
"""

from __future__ import annotations

from typing import Final

from kvplanner.model import formats
from kvplanner.model.config.fields import Fields
from kvplanner.model.quantisation import modelopt
from kvplanner.model.quantisation.scheme import EXPERT_KINDS, Rule, Scheme, kv_cache, name_rules, skips
from kvplanner.model.spec import PARTS_SKIPPED

# Encoders that a skip list may name as a whole instead of matrix by matrix.
_PARTS: Final = ("vision_tower", "multi_modal_projector", "vision_model", "audio_tower", "visual", "vision_encoder")


def fp8(config: Fields) -> Scheme:
    """FP8 in blocks, or with one scale per matrix; V4 exports also map single modules to NVFP4."""
    blocks = config.ints("weight_block_size", low=1, high=1 << 16)
    config.noted("weight_block_size")
    config.noted("activation_scheme")
    static = config.text("activation_scheme", allowed=("dynamic", "static")) == "static"
    if blocks is not None and len(blocks) != 2:
        raise config.bad("weight_block_size", "two block sizes")
    default = formats.fp8_block(*blocks) if blocks else formats.fp8_tensor(static)
    mapped = modelopt.mapped(config)
    if mapped:
        config.skip("modules_to_not_convert", "ignored_layers", "ignore")
        modelopt.skip_repetition(config)
    rules = mapped or skips(config, "modules_to_not_convert", "ignored_layers")
    named = (*(config.texts("modules_to_not_convert") or ()), *(config.texts("ignored_layers") or ()))
    whole = any(name.rpartition(".")[2] in _PARTS for name in named)
    return Scheme("fp8", default, rules=rules, kv_cache=kv_cache(config), traits=(PARTS_SKIPPED,) if whole else ())


def fbgemm(config: Fields) -> Scheme:
    """FBGEMM's FP8: a scale for each row."""
    return Scheme("fbgemm_fp8", formats.fp8_channel(4), rules=skips(config, "modules_to_not_convert"))


def mxfp4(config: Fields) -> Scheme:
    """gpt-oss: experts only."""
    return Scheme("mxfp4", formats.MXFP4, EXPERT_KINDS, skips(config, "modules_to_not_convert", "ignored_layers"))


def mxfp8(config: Fields) -> Scheme:
    """FP8 with a one-byte exponent for 32 weights, as MiniMax spells it."""
    blocks = config.ints("weight_block_size", low=1, high=1 << 16)
    if blocks is not None and blocks != (1, 32):
        raise config.bad("weight_block_size", "[1, 32]")
    rules = skips(config, "modules_to_not_convert", "ignored_layers")
    return Scheme("mxfp8", formats.MXFP8, rules=rules, kv_cache=kv_cache(config))


def fp_quant(config: Fields) -> Scheme:
    """FP-Quant: MXFP4 or NVFP4, with two rotation matrices of 16 bits and two scalars for each matrix.

    A name of its skip list covers what ends with it.
    """
    form = config.text("forward_dtype", allowed=("mxfp4", "nvfp4")) or "mxfp4"
    side = config.maybe("hadamard_group_size", low=1, high=1 << 16) or 32
    base = formats.MXFP4 if form == "mxfp4" else formats.NVFP4
    packed = base._replace(extra_bytes=8 + 2 * 2 * side * side)
    return Scheme("fp_quant", packed, rules=_endings(config, "modules_to_not_convert"))


def _endings(config: Fields, name: str) -> tuple[Rule, ...]:
    names = config.texts(name) or ()
    return name_rules((n if "." not in n else f"*{n}" for n in names), None, config.named(name))


def ptpc_fp8(config: Fields) -> Scheme:
    """vLLM's own: a 16-bit checkpoint that the engine quantises by rows as it loads it, on AMD GPUs."""
    config.expect("activation_scheme", "dynamic")
    return Scheme("ptpc_fp8", None, rules=skips(config, "ignored_layers", "modules_to_not_convert"))


def experts_int8(config: Fields) -> Scheme:
    """vLLM's own: a 16-bit checkpoint whose experts the engine quantises as it loads them."""
    return Scheme("experts_int8", None, rules=skips(config, "modules_to_not_convert"))
