"""Models of the catalogue whose tensor names are spelled out here, independently of the application's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.source.checkpoints_dense import gemma2, gemma3_text, llama, mixtral, phi3, qwen2_5_vl, qwen3_moe, starcoder2
from tests.source.checkpoints_sparse import deepseek_v3, glm4_moe, gpt_oss, kimi_k2_5, llama4, nemotron_h, qwen3_next
from tests.source.make_models import Linear, Tensors, awq, gptq


def quantised(linear: Linear, *, bias: bool) -> Callable[[Mapping[str, Any]], Tensors]:
    def made(config: Mapping[str, Any]) -> Tensors:
        half = llama(config, linear=linear, bias=bias, qk_norm=config["model_type"] == "qwen3")
        return {name: ("F16" if dtype == "BF16" else dtype, shape) for name, (dtype, shape) in half.items()}

    return made


# Catalogue id → the tensors of its repository, for sixteen architectures and layouts.
MODELS: Final[dict[str, Callable[[Mapping[str, Any]], Tensors]]] = {
    "meta-llama/Llama-3.1-8B-Instruct": llama,
    "Qwen/Qwen2.5-7B-Instruct": lambda config: llama(config, bias=True),
    "Qwen/Qwen3-8B": lambda config: llama(config, qk_norm=True),
    "Qwen/Qwen3-30B-A3B": qwen3_moe,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": mixtral,
    "google/gemma-2-9b-it": gemma2,
    "google/gemma-3-1b-it": gemma3_text,
    "microsoft/phi-4": phi3,
    "bigcode/starcoder2-15b": starcoder2,
    "deepseek-ai/DeepSeek-V3": deepseek_v3,
    "zai-org/GLM-4.5-Air": glm4_moe,
    "openai/gpt-oss-20b": gpt_oss,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": qwen3_next,
    "Qwen/Qwen2.5-VL-7B-Instruct": qwen2_5_vl,
    "nvidia/Nemotron-H-8B-Base-8K": nemotron_h,
    "Qwen/Qwen2.5-7B-Instruct-AWQ": quantised(awq, bias=True),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": quantised(gptq, bias=True),
}


# Language models inside a wrapper, whose towers are not written here.
WRAPPED: Final[dict[str, Callable[[Mapping[str, Any]], Tensors]]] = {
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": llama4,
    "moonshotai/Kimi-K2.5": kimi_k2_5,
}


def sub_model(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The config with fewer layers, for tests that need no size."""
    return {**config, "num_hidden_layers": layers}


def configs() -> dict[str, dict[str, Any]]:
    """The configs of all models here, from the bundled catalogue."""
    from kvplanner.catalog import models

    return {id_: models.record(id_)["config"] for id_ in (*MODELS, *WRAPPED)}
