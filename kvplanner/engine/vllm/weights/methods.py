"""Which --quantization values a checkpoint can be served with, and what each makes of 16-bit weights.

A value names the checkpoint's own method, or asks the engine to quantise a 16-bit checkpoint while it loads
(model_executor/layers/quantization, config/model.py: 0.10 and 0.33). Everything else the engine refuses.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.formats import WeightFormat, bnb4, fp8_block, fp8_channel, fp8_tensor
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import TensorKind
from kvplanner.record import NamedTuple

FLAG: Final = "--quantization"
_LINEAR: Final[tuple[TensorKind, ...]] = ("attention", "state", "mlp", "experts")
_MODELOPT: Final = ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8")
# The names under which the engine serves a checkpoint whose config states a method.
_OWN_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "awq": ("awq", "auto_awq", "awq_marlin", "moe_wna16"),
    "gptq": ("gptq", "auto_gptq", "gptq_marlin", "moe_wna16"),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4"),
    "auto-round": ("auto-round", "inc"),
    "fp8": ("fp8", "deepseek_v4_fp8"),
    "modelopt": _MODELOPT, "modelopt_fp4": _MODELOPT, "modelopt_mixed": _MODELOPT,
}  # fmt: skip
# Other names of the engine's registries from 0.6 to 0.33: known, and refused here for a reason of their own.
_OTHER_NAMES: Final = frozenset({
    "aqlm", "awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas",
    "bitblas", "marlin", "compressed-tensors", "fbgemm_fp8", "mxfp4", "gpt_oss_mxfp4", "auto-round", "inc", "gguf",
    "quark", "moe_wna16", "hqq", "qqq", "deepspeedfp", "deepgemm_fp8", "petit_nvfp4", "deepseek_v4_fp8", *_MODELOPT,
})  # fmt: skip
# Names that convert 16-bit weights by rules that are not known here, and why.
_UNKNOWN_SIZES: Final[dict[str, str]] = {
    "torchao": "its sizes depend on the torchao configuration in the checkpoint",
    "humming": "how it packs weights is not known",
    "ptpc_fp8": "it runs on AMD GPUs only", "ipex": "it runs on Intel hardware only",
    "tpu_int8": "it runs on TPUs only", "neuron_quant": "it runs on AWS Neuron only",
}  # fmt: skip


class Online(NamedTuple):
    """What quantising while loading makes of the matrices of some kinds.

    first, last: versions that have it; late: these load all of it in 16 bits before _LAYERWISE_SINCE.
    checked: held against what the engine allocates.
    """

    format: WeightFormat
    kinds: tuple[TensorKind, ...] = _LINEAR
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (99, 99)
    late: bool = True
    checked: bool = True


# The named variants came with the frontend of vllm-project/vllm#38138; the release may be off by one.
_NAMED_SINCE: Final = (18, 0)
# 0.28's registry does not list it any more, 0.27's does (layers/quantization/__init__.py of both).
_BITSANDBYTES_LAST: Final = (27, 99)
# Since when --quantization on a 16-bit checkpoint quantises layer by layer instead of loading all of it first.
_LAYERWISE_SINCE: Final = (17, 0)
ONLINE: Final[dict[str, Online]] = {
    "fp8": Online(fp8_tensor(False)),
    "fp8_per_tensor": Online(fp8_tensor(False), first=_NAMED_SINCE),
    "fp8_per_channel": Online(fp8_channel(4), first=_NAMED_SINCE),
    "fp8_per_block": Online(fp8_block(128, 128), first=_NAMED_SINCE),
    "int8_per_channel_weight_only": Online(WeightFormat("int8", 8, "channel", 4), first=_NAMED_SINCE),
    "mxfp8": Online(WeightFormat("mxfp8", 8, "group", 1, group=32), first=_NAMED_SINCE, checked=False),
    "nvfp4_per_token": Online(
        WeightFormat("nvfp4", 4, "group", 1, group=16, extra_bytes=8), first=_NAMED_SINCE, checked=False
    ),
    # Integers with an fp32 scale per row, written as they are loaded (layers/quantization/experts_int8.py).
    "experts_int8": Online(WeightFormat("int8", 8, "channel", 4), ("experts",), late=False, checked=False),
    # Half a byte and an fp32 absmax for 64 weights, quantised as they are read (model_loader/bitsandbytes_loader.py).
    "bitsandbytes": Online(bnb4(False), last=_BITSANDBYTES_LAST, late=False, checked=False),
}


def asked(settings: Settings) -> str:
    """The method that is asked for, "" for none."""
    return (settings.model.quantization or "").lower()


def online(spec: ModelSpec, settings: Settings) -> Online | None:
    """What quantising while loading does to this model; None where the file's own formats stay.

    A config may ask for it too: experts_int8 stands beside 16-bit weights.
    """
    if spec.quantization == "experts_int8":
        return ONLINE[spec.quantization]
    return ONLINE.get(asked(settings)) if spec.quantization is None else None


def unquantised_first(spec: ModelSpec, settings: Settings) -> bool:
    """Whether the engine loads 16-bit weights in full before it quantises them."""
    found = online(spec, settings)
    return found is not None and found.late and settings.version < _LAYERWISE_SINCE


def check(spec: ModelSpec, settings: Settings) -> None:
    """Raises BadInput for a method that this version refuses for this checkpoint, NotModelled for one of unknown size.

    The sentences are near the engine's own (config/model.py, model_loader/weight_utils.py).
    """
    method = asked(settings)
    own = spec.quantization
    if not method or method in _OWN_NAMES.get(own or "", (own,)):
        return
    if method in _UNKNOWN_SIZES:
        raise NotModelled(f"{method}: {_UNKNOWN_SIZES[method]}", FLAG, "Give the measured weights, or leave it out")
    if method not in ONLINE and method not in _OTHER_NAMES:
        raise BadInput(
            f"Unknown quantization method: {method}", FLAG,
            f"Quantise while loading with one of {', '.join(_available(settings))}, or leave it out",
        )  # fmt: skip
    if own is not None:
        raise BadInput(
            f"Quantization method specified in the model config ({own}) does not match the quantization method "
            f"specified in the `quantization` argument ({method})", FLAG, "Leave it out: the checkpoint says it",
        )  # fmt: skip
    found = ONLINE.get(method)
    if found is None:
        raise BadInput(
            f"Cannot find the config file for {method}: the checkpoint holds {spec.dtype} weights", FLAG,
            f"Open a checkpoint in that format, or quantise while loading with one of "
            f"{', '.join(_available(settings))}",
        )  # fmt: skip
    _check_version(method, found, settings)


def _check_version(method: str, found: Online, settings: Settings) -> None:
    here = spelled(settings.version)
    if not found.first <= settings.version <= found.last:
        raise BadInput(
            f"Unknown quantization method: {method}. vLLM {here} does not have it", FLAG,
            f"Use one of {', '.join(_available(settings))}",
        )  # fmt: skip


def _available(settings: Settings) -> list[str]:
    return [name for name, entry in ONLINE.items() if entry.first <= settings.version <= entry.last]
