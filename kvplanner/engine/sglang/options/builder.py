"""The sections of the form and the one way to write an option down."""

from __future__ import annotations

from typing import Any, Final

from kvplanner.engine.option import Option, OptionType, Role

MEMORY: Final = "Memory"
PARALLEL: Final = "Parallelism"
CONTEXT: Final = "Context and load"
CACHE: Final = "KV cache"
GRAPHS: Final = "CUDA graphs"
STATE: Final = "State layers"
WEIGHTS: Final = "Weights"
ATTENTION: Final = "Attention back ends"
MULTIMODAL: Final = "Multimodal"
SPECULATIVE: Final = "Speculative decoding"
LORA: Final = "LoRA"

ROLES: Final[dict[str, Role]] = {
    "context_length": "context", "max_running_requests": "max_requests", "chunked_prefill_size": "step_tokens",
    "tp_size": "tensor_parallel", "pp_size": "pipeline_parallel", "dp_size": "data_parallel",
    "ep_size": "expert_parallel",
    "mem_fraction_static": "budget_share", "kv_cache_dtype": "kv_dtype", "disable_cuda_graph": "eager",
    "speculative_draft_model_path": "draft", "speculative_algorithm": "draft_method",
}  # fmt: skip


def option(
    name: str, kind: OptionType, section: str, label: str, help_text: str, default: str, **more: Any
) -> Option:  # fmt: skip
    """An option whose flag is its name with dashes."""
    aliases: tuple[str, ...] = more.pop("aliases", ())
    flags = ("--" + name.replace("_", "-"), *aliases)
    return Option(name, flags, kind, section, help_text, default, label=label, role=ROLES.get(name, ""), **more)
