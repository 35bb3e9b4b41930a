"""The kernels that run experts, which decide how wide they are padded (arg_groups, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.model.spec import ModelSpec, Moe

TRTLLM: Final = "flashinfer_trtllm"
# Architectures whose experts run on the TRT-LLM kernels of compute capability 10.x, with the methods that do.
_PLAIN_FP8_FP4: Final = (None, "fp8", "modelopt_fp4", "modelopt_mixed")
_DEEPSEEK: Final = (*_PLAIN_FP8_FP4, "modelopt", "modelopt_fp8", "compressed-tensors")
_ON_BLACKWELL: Final[dict[str, tuple[str | None, ...]]] = {
    **dict.fromkeys(("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration", "Qwen3NextForCausalLM",
                     "Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration"), _PLAIN_FP8_FP4),
    **dict.fromkeys(("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "KimiK25ForConditionalGeneration",
                     "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM"), _DEEPSEEK),
    "Glm4MoeForCausalLM": (None, "modelopt_fp4"),
    "NemotronHForCausalLM": (None, "modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed"),
    "MiMoV2ForCausalLM": ("fp8",), "MiMoV2FlashForCausalLM": ("fp8",),
}  # fmt: skip


def moe_runner(spec: ModelSpec, arch: tuple[int, int], wanted: str, a2a: str) -> str:
    """The kernels' name, "" for a model without experts; "auto" where each weight format has its own."""
    if not any(isinstance(m, Moe) for layer in spec.layers for m in layer.mlps):
        return ""
    if wanted and wanted != "auto":
        return wanted
    if spec.architecture == "GptOssForCausalLM":
        return "flashinfer_mxfp4" if arch[0] in (10, 12) and spec.quantization == "mxfp4" else "triton_kernel"
    if spec.architecture == "DeepseekV4ForCausalLM":
        return "flashinfer_mxfp4" if arch[0] in (9, 10, 12) and a2a == "none" else "auto"
    if arch[0] == 10 and a2a == "none" and spec.quantization in _ON_BLACKWELL.get(spec.architecture, ()):
        return TRTLLM
    if spec.architecture.startswith("NemotronH"):
        return "flashinfer_cutlass"
    return "auto"
