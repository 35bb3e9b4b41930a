"""This machine's GPUs as a Machine to plan for, from what was seen on them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kvplanner.catalog import gpus
from kvplanner.estimate import Estimate, Input, banded, measured
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.observe.snapshot import GpuSample, Snapshot
from kvplanner.observe.visible import visible
from kvplanner.units import MIB

# Below this a difference from the catalogue's total is rounding, not another card.
_SAME_TOTAL: Final = 2 * MIB
# Linux: NVML total less reserved equals the CUDA total within this much on every card that was compared.
_CUDA_DOUBT: Final = 30 * MIB


SHARED_INSTANCE: Final = "shares its memory with another compute instance"


def local_machine(snapshot: Snapshot, environ: dict[str, str] | None = None) -> Machine | None:
    """The GPUs that an engine started here would see, None when there is none to plan for.

    Totals are measured and win over the catalogue's; what is free now is the devices' free memory. A GPU with MIG
    on is replaced by its instances. CUDA_VISIBLE_DEVICES of `environ` (this process' own when None) is respected.
    """
    variables = dict(os.environ) if environ is None else environ
    usable = tuple(g for g in snapshot.gpus if plannable(g))
    chosen = visible(usable, variables.get("CUDA_VISIBLE_DEVICES"), variables.get("CUDA_DEVICE_ORDER", ""))
    devices = tuple(device_of(g, snapshot.wall, i) for i, g in enumerate(chosen.gpus))
    devices = tuple(
        d._replace(marks=(*d.marks, SHARED_INSTANCE)) if len(g.twins(usable)) > 1 else d
        for d, g in zip(devices, chosen.gpus, strict=True)
    )
    return with_driver(devices, snapshot) if devices else None


def with_driver(devices: Iterable[Device], snapshot: Snapshot) -> Machine:
    """This machine of some devices, each with the driver that answered."""
    return Machine(tuple(device._replace(driver=snapshot.driver) for device in devices), "this machine")


def plannable(gpu: GpuSample) -> bool:
    """Whether an engine could be planned on this device: its memory is known and it is no split-up parent."""
    return gpu.total.value is not None and not gpu.mig and gpu.status in ("ok", "asleep")


@lru_cache(maxsize=256)
def known_spec(name: str, total_bytes: int | None) -> GpuSpec | None:
    """The catalogue's record for the name that NVML gives, None when it has none."""
    return gpus.by_nvml_name(name, total_bytes)


def device_of(gpu: GpuSample, wall: float, index: int | None = None) -> Device:
    """One seen device as a device of a plan."""
    spec = spec_of(gpu)
    marks = gpu.marks
    known = known_spec(gpu.name, gpu.total.value) if gpu.kind == "gpu" else None
    if known and known.total and known.total.basis == "exact" and _differs(gpu, known):
        marks += (f"total differs from the card's usual {known.total.value // MIB:,} MiB",)
    return Device(
        gpu.number if index is None else index,
        spec,
        gpu.free.value,
        f"NVML, {time.strftime('%H:%M:%S', time.localtime(wall))}" if gpu.free.value is not None else "",
        gpu.uuid,
        gpu.pci,
        marks,
    )


def spec_of(gpu: GpuSample) -> GpuSpec:
    """The catalogue's record of this device with its measured totals, or a record made from what was seen."""
    total = gpu.total.value or 0
    parent_name = gpu.name.split(" MIG ")[0]
    known = known_spec(parent_name, total if gpu.kind == "gpu" else None)
    base = known or GpuSpec(f"seen-{gpu.name.lower().replace(' ', '-')}", gpu.name, "nvidia", None, None)
    seen_total = measured(total, "NVML")
    if gpu.shared:
        return base._replace(name=gpu.name, total=seen_total, cuda_total=seen_total, unified_memory=True)
    return base._replace(
        name=gpu.name,
        total=seen_total,
        cuda_total=_cuda_total(gpu, total),
        compute_capability=gpu.compute_capability or base.compute_capability,
        nvlink=base.nvlink and gpu.kind == "gpu",
    )


def _cuda_total(gpu: GpuSample, total: int) -> Estimate:
    """What CUDA will call the total: NVML's less the driver's part on Linux, all of it under the Windows driver."""
    seen = Input("NVML total", total, "B", "NVML")
    reserved = gpu.reserved.value
    if gpu.wddm or gpu.kind == "mig":
        return banded(total, total - _SAME_TOTAL, total, "measured", "{NVML total}", seen)
    if reserved is None:
        # Drivers before R510 leave their own part out of the total.
        return banded(total, total - 300 * MIB, total, "assumed", "{NVML total}", seen)
    kept = Input("driver reserved", reserved, "B", "NVML")
    value = total - reserved
    return banded(
        value, value - _CUDA_DOUBT, value + _CUDA_DOUBT, "measured", "{NVML total} − {driver reserved}", seen, kept
    )


def _differs(gpu: GpuSample, known: GpuSpec) -> bool:
    if known.total is None or gpu.total.value is None:
        return False
    usual = known.total.value
    with_ecc = usual * 15 // 16  # error correction on GDDR takes one sixteenth
    return min(abs(gpu.total.value - usual), abs(gpu.total.value - with_ecc)) > max(_SAME_TOTAL, usual // 2000)
