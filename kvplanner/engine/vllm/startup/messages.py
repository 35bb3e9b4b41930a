"""What vLLM itself says at each stage where start-up can fail, with a plan's numbers in place.

Wordings: v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py and torch's allocator, 0.33.
"""

from __future__ import annotations

from typing import Final

from kvplanner.units import GIB, MIB, round_up

_TORCH_2_8: Final = (10, 2)


def _gib(value: float) -> str:
    return f"{round(value / GIB, 2)}"


def free_memory_check(index: int, free: int, total: int, utilization: float, requested: int) -> str:
    """The ValueError of the first check."""
    return (
        f"Free memory on device cuda:{index} ({_gib(free)}/{_gib(total)} GiB) on startup is less than desired GPU "
        f"memory utilization ({float(utilization)}, {_gib(requested)} GiB). Decrease GPU memory utilization or reduce "
        "GPU memory used by other processes."
    )


def no_context(version: tuple[int, int]) -> str:
    """The CUDA runtime's error where not even a context finds room; torch gave it a type of its own in 2.8."""
    kind = "torch.AcceleratorError" if version >= _TORCH_2_8 else "RuntimeError"
    return f"{kind}: CUDA error: out of memory"


def out_of_memory(index: int, total: int, wanted: int | None = None) -> str:
    """torch.OutOfMemoryError of c10/cuda/CUDACachingAllocator.cpp, 2.9.

    wanted: the tensor that finds no room, None where that is not a plan's to know; nor is what is free by then, so
    brackets stand for both.
    """
    tried = "[a tensor]" if wanted is None else _allocated(wanted)
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU {index} has a total capacity of "
        f"{total / GIB:.2f} GiB of which [less than that] is free."
    )


def _allocated(size: int) -> str:
    """A size as torch prints it: large tensors take whole steps of 2 MiB."""
    rounded = round_up(size, 2 * MIB) if size >= 10 * MIB else size
    return f"{rounded / GIB:.2f} GiB" if rounded >= GIB else f"{rounded / MIB:.2f} MiB"
