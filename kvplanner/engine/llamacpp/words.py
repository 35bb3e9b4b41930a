"""Why a stage of llama.cpp's start-up fails, as clauses and in its own words; and what a plan should say besides."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.verdict import Bytes, Reason
from kvplanner.units import MIB

_ALLOCATING: Final = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib:.2f} MiB on device {device}: "
    "cudaMalloc failed: out of memory"
)
_AFTER: Final[dict[str, tuple[str, ...]]] = {
    "weights": (
        "alloc_tensor_range: failed to allocate CUDA{device} buffer of size {bytes}",
        "llama_model_load: error loading model: unable to allocate CUDA{device} buffer",
    ),
    "kv_cache_allocation": (
        "alloc_tensor_range: failed to allocate CUDA{device} buffer of size {bytes}",
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    ),
    "compute": (
        "ggml_gallocr_reserve_n_impl: failed to allocate CUDA{device} buffer of size {bytes}",
        "graph_reserve: failed to allocate compute buffers",
    ),
    "runtime": ("CUDA error: out of memory",),
}
_WHAT: Final[dict[str, str]] = {
    "weights": "the weights",
    "kv_cache_allocation": "the KV cache",
    "compute": "the compute buffer",
    "runtime": "what serving adds",
}


def message(stage: str, device: int, asked: int) -> str:
    """What llama.cpp prints where an allocation fails."""
    lines = _AFTER[stage] if stage == "runtime" else (_ALLOCATING, *_AFTER[stage])
    return "\n".join(line.format(mib=asked / MIB, device=device, bytes=asked) for line in lines)


def shortage(stage: str, gpu: int, asked: int, free: int, missing: int) -> Reason:
    """A buffer that does not fit into what is left of a GPU."""
    text = f"{_WHAT[stage]} {{verb}} {{asked}} on {{gpu}} and {{free}} is free"
    verb = "needs" if stage in ("kv_cache_allocation", "compute") else "need" if stage == "weights" else "needs"
    return Reason(stage, text, {"verb": verb, "asked": Bytes(asked), "gpu": f"GPU {gpu}", "free": Bytes(max(free, 0)),
                                "missing": Bytes(missing)})  # fmt: skip


def host_shortage(needed: int, total: int) -> Reason:
    """More memory than the machine has."""
    text = "the host needs {needed} and the machine has {total}"
    return Reason("host_memory", text, {"needed": Bytes(needed), "total": Bytes(total)})
