"""Quantisation configs that several tests read."""

from __future__ import annotations

from typing import Any

INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
NV4 = [{"dtype": "fp4", "qscheme": "per_group", "group_size": 16}, {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}]
E4M3 = {"dtype": "fp8_e4m3"}
ROUND4 = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}


def grouped(weights: dict[str, Any], name: str = "") -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors", "format": name, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": {}}},
    }  # fmt: skip


def quark(weight: Any, **more: Any) -> dict[str, Any]:
    whole = {"weight": weight} | more
    return {"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": whole, "layer_quant_config": {},
            "layer_type_quant_config": {}}  # fmt: skip


def torchao(kind: str, **data: Any) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": data}}}
