"""What vLLM itself says at each stage where start-up can fail, with a plan's numbers in place.

Wordings: v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py and torch's allocator, 0.33.
"""

from __future__ import annotations

from kvplanner.engine.base import Stage
from kvplanner.units import GIB

STAGE_WORDS: dict[Stage, str] = {
    "free_memory_check": "at the free memory check, before loading",
    "weights": "while the weights load",
    "profile": "in the profile run",
    "kv_cache_sizing": "when the KV cache is sized",
    "kv_cache_too_small": "when one request is checked against the KV cache",
    "kv_cache_allocation": "when the KV cache is allocated",
    "graph_capture": "while CUDA graphs are captured",
    "runtime": "under load, after start-up",
}


def _gib(value: float) -> str:
    return f"{round(value / GIB, 2)}"


def free_memory_check(index: int, free: int, total: int, utilization: float, requested: int) -> str:
    """The ValueError of the first check."""
    return (
        f"Free memory on device cuda:{index} ({_gib(free)}/{_gib(total)} GiB) on startup is less than desired GPU "
        f"memory utilization ({utilization:g}, {_gib(requested)} GiB). Decrease GPU memory utilization or reduce GPU "
        "memory used by other processes."
    )


def out_of_memory(index: int, total: int, free: int, wanted: int) -> str:
    """torch.OutOfMemoryError, shortened to what a plan knows."""
    return (
        f"CUDA out of memory. Tried to allocate {_gib(wanted)} GiB. GPU {index} has a total capacity of "
        f"{_gib(total)} GiB of which {_gib(max(free, 0))} GiB is free."
    )
