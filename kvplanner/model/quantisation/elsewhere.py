"""Quantisation methods that no planned engine loads, and what does; a plan asks for no more of them than this."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# Methods by name, and what loads them. Those without a reader in `foreign` have no layout here.
LOADED_ELSEWHERE: Final = MappingProxyType({
    "ptpc_fp8": "FP8 by rows and tokens, which vLLM makes on AMD GPUs alone",
    "onnx": "ONNX's format, which ONNX Runtime loads", "openvino": "OpenVINO's format, which OpenVINO loads",
    "mlx": "MLX's format, which Apple's MLX loads", "exl2": "ExLlamaV2's format, which TabbyAPI loads",
    "exl3": "ExLlamaV3's format, which TabbyAPI loads", "hqq": "HQQ's format, which transformers loads",
    "aqlm": "AQLM's format, which transformers loads", "eetq": "EETQ's format, which transformers loads",
    "quanto": "Quanto's format, which transformers loads", "higgs": "HIGGS's format, which transformers loads",
    "vptq": "VPTQ's format, which transformers loads", "spqr": "SpQR's format, which transformers loads",
    "bitnet": "BitNet's format, which transformers loads", "sinq": "SINQ's format, which transformers loads",
})  # fmt: skip


def why_not(method: str) -> str:
    """Why no engine here loads a method, "" for one that is not foreign."""
    what = LOADED_ELSEWHERE.get(method)
    return f"{what}: no engine here does" if what else ""
