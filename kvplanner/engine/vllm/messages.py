"""What vLLM itself says at each stage where start-up can fail, with a plan's numbers in place.

Wordings: v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py and torch's allocator, 0.33.
"""

from __future__ import annotations

from kvplanner.units import GIB


def _gib(value: float) -> str:
    return f"{round(value / GIB, 2)}"


def free_memory_check(index: int, free: int, total: int, utilization: float, requested: int) -> str:
    """The ValueError of the first check."""
    return (
        f"Free memory on device cuda:{index} ({_gib(free)}/{_gib(total)} GiB) on startup is less than desired GPU "
        f"memory utilization ({utilization:g}, {_gib(requested)} GiB). Decrease GPU memory utilization or reduce GPU "
        "memory used by other processes."
    )


def out_of_memory(index: int, total: int) -> str:
    """torch.OutOfMemoryError; the sizes of the last allocation are not a plan's to know."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate … GPU {index} has a total capacity of "
        f"{_gib(total)} GiB of which … is free."
    )
