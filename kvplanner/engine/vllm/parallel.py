"""Which device each rank runs on, and the parallel sizes that follow from the GPUs when none is set."""

from __future__ import annotations

from dataclasses import replace

from kvplanner.engine.base import PlanRequest, Resolved
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.spec import Attention, Mla, ModelSpec

_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def derive(request: PlanRequest) -> tuple[PlanRequest, dict[str, Resolved]]:
    """The request with a tensor-parallel size that uses its GPUs, when it sets no parallel size itself.

    vLLM's own default is 1; a plan for several GPUs is meant for all of them, and its command line says so.
    """
    count = len(request.machine.devices)
    if count <= 1 or any(name in request.options for name in _PARALLEL):
        return request, {}
    size = largest_tensor_parallel(request.model.spec, count)
    reason = f"{count} GPUs given: the largest size up to {count} that divides the attention heads"
    derived = replace(request, options={**request.options, "tensor_parallel_size": size})
    return derived, {"tensor_parallel_size": Resolved(size, "derived", reason)}


def largest_tensor_parallel(spec: ModelSpec, gpus: int) -> int:
    """The largest tensor-parallel size up to `gpus` that divides the heads (and is divided by the KV heads)."""
    return next((size for size in range(gpus, 1, -1) if _divides(spec, size)), 1)


def _divides(spec: ModelSpec, size: int) -> bool:
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention | Mla) and mixer.heads % size:
                return False
            if isinstance(mixer, Attention) and mixer.kv_heads % size and size % mixer.kv_heads:
                return False
    return True


def devices_of(machine: Machine, settings: Settings) -> tuple[tuple[tuple[Device, ...], ...], int]:
    """The devices of each pipeline stage of the first replica, and how many GPUs no rank uses.

    Ranks follow the engine's order: replicas, then stages, then tensor ranks. Raises BadInput when GPUs are missing.
    """
    world = settings.tp * settings.pp * settings.dp
    gpus = [d for d in machine.devices if d.kind == "gpu"]
    if world > len(gpus):
        product = " × ".join(str(n) for n in (settings.tp, settings.pp, settings.dp) if n > 1) or "1"
        raise BadInput(
            f"{world} GPUs are needed ({product}) and {len(gpus)} are given",
            "--tensor-parallel-size",
            "Add GPUs or lower the parallel sizes",
        )
    stages = tuple(tuple(gpus[s * settings.tp : (s + 1) * settings.tp]) for s in range(settings.pp))
    return stages, len(gpus) - world


def unplannable(machine: Machine) -> str:
    """Why vLLM's memory on these devices cannot be told, "" when it can."""
    for device in machine.devices:
        if device.gpu.vendor not in ("nvidia", "custom"):
            return f"{device.gpu.name} is not an NVIDIA GPU, and vLLM's memory rules are known for CUDA devices only"
        if device.gpu.total is None or device.gpu.cuda_total is None:
            return f"the memory of {device.gpu.name} is not known; give its size instead, for example --gpu 64GB"
    return ""
