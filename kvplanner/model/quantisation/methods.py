"""The reader of each quantisation method, by the names that configs give it.

Byte layouts as in `kvplanner.model.formats`, checked against published byte totals where there are any (gpt-oss in
mxfp4 and Kimi-K2.5 in int4 groups of 32: exact).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.quantisation import compressed, elsewhere, floats, foreign, integers, modelopt, quark, torchao
from kvplanner.model.quantisation.scheme import Scheme


def side_file(side: Mapping[str, object], top: Fields, harmless: frozenset[str]) -> Scheme:
    """The scheme of an hf_quant_config.json, which older ModelOpt exports have instead of a config entry."""
    fields = Fields(side, f"{top.where} (hf_quant_config.json)", defaulted=top.defaulted)
    scheme = modelopt.side_file(fields)
    fields.close_settings(harmless)
    return scheme


def close_without_method(config: Fields, harmless: frozenset[str]) -> None:
    """Closes an entry without a method, of which the side file is the complete form."""
    config.raw("quant_method")
    config.skip("ignore", "exclude_modules", "kv_cache_scheme", "quantized_layers")
    modelopt.skip_repetition(config)
    config.close_settings(harmless)


def read_scheme(config: Fields) -> Scheme:
    """The scheme of a quantisation config; methods are spelled in any case, as engines take them."""
    spelled = config.text("quant_method")
    if spelled is None:
        return _without_method(config)
    method = spelled.lower().replace("compressed_tensors", "compressed-tensors")
    if method in elsewhere.LOADED_ELSEWHERE and method not in _METHODS:
        raise foreign.unknown(method, config)
    reader = _METHODS.get(method)
    if reader is None and method in _NO_LAYOUT:
        raise NotModelled(f"is {shown(spelled)}, {_NO_LAYOUT[method]}", config.named("quant_method"),
                          "Plan from the file headers: they show what is stored")  # fmt: skip
    if reader is None:
        raise NotModelled(
            f"is {shown(spelled)}, known are {', '.join(sorted(_METHODS))}", config.named("quant_method"),
            "Plan from the file headers, or name a known method",
        )  # fmt: skip
    return reader(config)


def _without_method(config: Fields) -> Scheme:
    """ModelOpt's algorithm alone; MLX ({bits, group_size}) and original AutoAWQ ({w_bit, q_group_size}) spell none."""
    if config.has("quant_algo"):
        return modelopt.modelopt(config)
    if config.has("load_in_4bit") or config.has("load_in_8bit"):
        return integers.bitsandbytes(config)
    if config.has("w_bit"):
        return integers.awq(config)
    if config.has("bits") and config.has("group_size"):
        return foreign.mlx(config)
    raise config.missing("quant_method")


# Methods of vLLM's registries, now or once, whose files no reader here describes.
_EARLIER: Final = "which older vLLM releases load and whose layout is not known here"
_NO_LAYOUT: Final[dict[str, str]] = {
    **dict.fromkeys(("marlin", "qqq", "bitblas", "deepspeedfp", "squeezellm", "gptq_marlin_24", "rtn"), _EARLIER),
    "gguf": "whose weights stand in a .gguf file: open that one",
    "petit_nvfp4": "which vLLM runs on AMD GPUs only", "ipex": "which vLLM runs on Intel hardware only",
    "tpu_int8": "which vLLM runs on TPUs only", "neuron_quant": "which vLLM runs on AWS Neuron only",
    "w8a8_int8": "which SGLang alone loads and whose layout is not known here",
    "w8a8_fp8": "which SGLang alone loads and whose layout is not known here",
    "humming": "whose packing is not known here",
}  # fmt: skip

_METHODS: Final[dict[str, Callable[[Fields], Scheme]]] = {
    "fp8": floats.fp8, "fbgemm_fp8": floats.fbgemm, "mxfp4": floats.mxfp4, "gpt_oss_mxfp4": floats.mxfp4,
    "mxfp8": floats.mxfp8, "fp_quant": floats.fp_quant, "experts_int8": floats.experts_int8,
    "ptpc_fp8": floats.ptpc_fp8, "moe_wna16": integers.moe_wna16, "gptq_bitblas": integers.gptq,
    "awq": integers.awq, "awq_marlin": integers.awq, "gptq": integers.gptq, "gptq_marlin": integers.gptq,
    "auto-round": integers.auto_round, "intel/auto-round": integers.auto_round, "inc": integers.auto_round,
    "bitsandbytes": integers.bitsandbytes, "compressed-tensors": compressed.compressed_tensors,
    "modelopt": modelopt.modelopt, "modelopt_fp4": modelopt.modelopt, "modelopt_mixed": modelopt.modelopt,
    "modelopt_mxfp8": modelopt.modelopt, "quark": quark.quark, "torchao": torchao.torchao,
    "exl2": foreign.exllama, "exl3": foreign.exllama, "mlx": foreign.mlx,
}  # fmt: skip
