"""Ollama's options that move memory: variables of its service, and parameters of a Modelfile or a request.

Names and defaults: envconfig/config.go, api/types.go of Ollama 0.30 (2026).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from kvplanner.engine.option import FlagRule, Option, OptionType

_SERVICE: Final = "Service"
_MODEL: Final = "Model parameters"
_HOST: Final = "Host memory"


def _option(name: str, kind: OptionType, section: str, help_text: str, default: str, **more: Any) -> Option:
    return Option(name, ("--" + name.replace("_", "-"),), kind, section, help_text, default, **more)


@cache
def declared() -> tuple[Option, ...]:
    """Every option, in the order of the form."""
    return (
        _option(
            "num_ctx", "tokens", _SERVICE, "Tokens of context of each request",
            "by the memory of all GPUs: 4096, 32768 or 262144", env="OLLAMA_CONTEXT_LENGTH",
            moves=("kv_cache", "compute", "weights"), everyday=True, low=1, role="context", label="Context length",
        ),
        _option(
            "num_parallel", "int", _SERVICE, "Requests that are answered at once, each with a context of its own", "1",
            env="OLLAMA_NUM_PARALLEL", moves=("kv_cache", "output", "compute"), everyday=True, low=1, high=256,
            role="max_requests", label="Parallel requests",
        ),
        _option(
            "kv_cache_type", "choice", _SERVICE, "How keys and values are stored", "f16", env="OLLAMA_KV_CACHE_TYPE",
            choices=("f16", "q8_0", "q4_0"), moves=("kv_cache", "compute"), everyday=True, role="kv_dtype",
            label="Cache type",
        ),
        _option(
            "flash_attention", "bool", _SERVICE, "Flash attention", "where the GPU has it",
            env="OLLAMA_FLASH_ATTENTION", moves=("compute", "kv_cache"), everyday=True, label="Flash attention",
        ),
        _option(
            "num_gpu", "int", _MODEL, "Layers on the GPUs; without it, as many as fit", "as many as fit",
            moves=("weights", "kv_cache", "compute"), everyday=True, low=0, role="caller", label="GPU layers",
        ),
        _option(
            "num_batch", "tokens", _MODEL, "Tokens of a batch, and of a micro-batch",
            "512, 1024 or 2048 by context and memory", moves=("compute",), everyday=True, low=1, role="caller",
            label="Batch",
        ),
        _option(
            "max_loaded_models", "int", _SERVICE, "Models that are loaded at once; 0: three for each GPU",
            "3 for each GPU",
            env="OLLAMA_MAX_LOADED_MODELS", low=0, label="Models at once",
        ),
        _option(
            "sched_spread", "bool", _SERVICE, "Use all GPUs, even where one would do", "off",
            env="OLLAMA_SCHED_SPREAD", moves=("weights", "kv_cache", "compute"), label="Spread over GPUs",
        ),
        _option(
            "gpu_overhead", "bytes", _SERVICE, "Taken off each GPU where the default context is chosen; not enforced",
            "0", env="OLLAMA_GPU_OVERHEAD", moves=("kv_cache",), label="GPU overhead",
        ),
        _option(
            "fit_target", "text", _SERVICE, "MiB that stay free on each GPU", "1024", env="LLAMA_ARG_FIT_TARGET",
            moves=("weights", "kv_cache"), label="Fit margin (MiB)",
        ),
        _option(
            "fit", "choice", _SERVICE, "Move layers to the host until everything fits", "on", env="LLAMA_ARG_FIT",
            choices=("on", "off"), synonyms=(("1", "on"), ("0", "off"), ("true", "on"), ("false", "off")),
            moves=("weights", "kv_cache", "compute"), label="Fit",
        ),
        _option(
            "mmproj_size", "bytes", _MODEL, "Size of the model's projector", "none", moves=("weights",), role="caller",
            label="Projector size",
        ),
        _option(
            "lora_size", "bytes", _MODEL, "Size of the adapter that is loaded with the model", "none",
            moves=("weights",), role="caller", label="LoRA size",
        ),
        _option(
            "wddm", "bool", _HOST, "The GPUs run under Windows, which keeps a part of each and moves excess to RAM",
            "off: Linux", role="caller", label="Windows driver (WDDM)",
        ),
        _option(
            "sysmem_fallback", "bool", _HOST,
            "Under Windows: what a GPU cannot hold goes to RAM, slowly; off: it fails (CUDA - Sysmem Fallback Policy)",
            "on, as the driver's", negation="--no-sysmem-fallback", role="caller", label="Spill to RAM (WDDM)",
        ),
        _option(
            "host_memory", "bytes", _HOST, "RAM of the machine: what stays on the host is held against it",
            "this machine's, where it is planned for", moves=("weights",), role="caller", label="Host memory",
        ),
    )  # fmt: skip


# As a model file's ADAPTER and its further FROM are read.
_NOT_HERE: Final = "the file is not on this machine"
IGNORED_FLAGS: Final[dict[str, FlagRule]] = {
    "--adapter": FlagRule("1", _NOT_HERE, "Give its size in its place: --lora-size 200MiB", sizes="lora_size"),
    "--projector": FlagRule(
        "1", _NOT_HERE, "Give its size in its place: --mmproj-size 880MiB", sizes="mmproj_size", encoders=True
    ),
    **dict.fromkeys(("--verbose", "--nowordwrap", "--hidethinking", "--insecure", "--experimental"), FlagRule("")),
    **dict.fromkeys(("--format", "--keepalive", "--think", "--port"), FlagRule("1")),
    **dict.fromkeys(
        ("OLLAMA_HOST", "OLLAMA_MODELS", "OLLAMA_KEEP_ALIVE", "OLLAMA_DEBUG", "OLLAMA_ORIGINS", "OLLAMA_NOHISTORY",
         "OLLAMA_NOPRUNE", "OLLAMA_LOAD_TIMEOUT", "OLLAMA_MAX_QUEUE"),
        FlagRule("1"),
    ),
}  # fmt: skip
