"""The dtype that vLLM computes in: what `auto` comes to, and which dtypes it refuses (config/model.py of 0.33)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings, Version
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, ModelSpec

_BFLOAT16_FROM: Final = (8, 0)
# How a dtype is found was reworked after 0.9.0, by pull request 18751.
_REWORKED: Final = (9, 1)
# With pull request 17265 a GPU without bfloat16 falls back to float16; before, the worker refused (issue 14817).
_FALLS_BACK: Final = (8, 5)
_WIDEST_IN_FLOAT32: Final = 128
# Weight formats whose kernels take 16-bit activations only (get_supported_act_dtypes of each method).
_SIXTEEN_BIT: Final = frozenset({
    "awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin",
    "compressed-tensors", "fp8", "fbgemm_fp8", "modelopt", "modelopt_fp4",
    "modelopt_mixed", "mxfp4", "gpt_oss_mxfp4",
})  # fmt: skip


def auto_dtype(spec: ModelSpec, arch: Version | None, version: Version) -> tuple[str, str]:
    """What `auto` comes to on a GPU, and why: the checkpoint's dtype where GPU and model allow it.

    Where they do not, the first that both allow: bfloat16, float16, float32. arch: compute capability.
    """
    old = arch is not None and arch < _BFLOAT16_FROM
    if version < _REWORKED:
        if spec.dtype == "float32":
            return "float16", "a float32 checkpoint is served in 16 bits"
        falls = old and spec.dtype == "bfloat16" and version >= _FALLS_BACK
        return ("float16", "the GPU has no bfloat16") if falls else (spec.dtype, "from the config")
    refuses = _no_float16(spec, version)
    allowed = [*(() if old else ("bfloat16",)), *(() if refuses else ("float16",)), "float32"]
    preferred = "float16" if spec.task != "generate" and not refuses else allowed[0]
    if spec.dtype == "float32":
        why = "a float32 checkpoint is served in 16 bits"
        return preferred, f"the GPU has no bfloat16 and {refuses} takes no float16" if preferred == "float32" else why
    if spec.dtype in allowed:
        return spec.dtype, "from the config"
    if spec.dtype == "float16":
        return preferred, f"{refuses} takes no float16"
    return preferred, "the GPU has no bfloat16" + (f" and {refuses} takes no float16" if refuses else "")


def check(spec: ModelSpec, settings: Settings, gpu: Gpu) -> None:
    """Raises BadInput, in the engine's words, for a dtype that the GPU, the model or its weight format cannot do."""
    arch, dtype, refuses = gpu.arch, settings.model.dtype, _no_float16(spec, settings.version)
    if dtype == "bfloat16" and arch is not None and arch < _BFLOAT16_FROM:
        raise BadInput(
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your "
            f"{gpu.name} GPU has compute capability {arch[0]}.{arch[1]}", "--dtype",
            f"Use --dtype {'float32' if refuses else 'half'}",
        )  # fmt: skip
    if dtype == "float16" and refuses:
        bfloat16 = "" if arch is not None and arch < _BFLOAT16_FROM else "bfloat16 or "
        raise BadInput(
            f"The model type {refuses!r} does not support float16. Reason: Numerical instability. Please use bfloat16 "
            "or float32 instead", "--dtype", f"Use {bfloat16}float32",
        )  # fmt: skip
    if dtype == "float32" and settings.model.quantization in _SIXTEEN_BIT:
        raise BadInput(
            f"torch.float32 is not supported for quantization method {settings.model.quantization}", "--dtype",
            "Name a GPU with bfloat16, or a checkpoint without quantisation" if refuses else "Use bfloat16 or float16",
        )  # fmt: skip
    _check_cache(settings)


def warnings(spec: ModelSpec, settings: Settings) -> tuple[str, ...]:
    """What may break a plan in float32: public reports of Gemma 2 have the Triton kernel out of shared memory."""
    heads = {m.head_size for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)}
    widest = max(heads, default=0)
    if settings.model.dtype != "float32" or widest <= _WIDEST_IN_FLOAT32:
        return ()
    return (
        f"float32 attention with heads of {widest} may need more shared memory than the GPU has: starting may fail",
    )


def _check_cache(settings: Settings) -> None:
    cache, dtype = settings.cache.dtype, settings.model.dtype
    if cache != dtype and {cache, dtype} == {"float16", "bfloat16"}:
        raise BadInput(
            f"A 16-bit KV cache must have the model's dtype {dtype}, not {cache}",
            "--kv-cache-dtype",
            "Use auto",
        )


def _no_float16(spec: ModelSpec, version: Version) -> str:
    """The type by which the engine refuses float16 for a model, "" when it takes it."""
    refused = quirks(spec.architecture).no_float16
    return refused.config_type if refused is not None and version >= refused.since else ""
