"""GpuSpec, Device and Machine: the hardware side of a plan.

total is what NVML reports; cuda_total is what CUDA (and so PyTorch) sees: total minus what the driver keeps.
"""

from __future__ import annotations

from typing import Literal

from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple

Vendor = Literal["nvidia", "amd", "apple", "intel", "custom"]
DeviceKind = Literal["gpu", "host"]


class GpuSpec(NamedTuple):
    """A GPU model.

    compute_capability: (major, minor) or None; total and cuda_total carry their basis and source, and are None
    where not even the memory size is known. nvlink: whether GPUs of this model can be joined by NVLink.
    """

    id: str
    name: str
    vendor: Vendor
    total: Estimate | None
    cuda_total: Estimate | None
    compute_capability: tuple[int, int] | None = None
    arch: str = ""
    memory_type: str = ""
    gpu_class: str = ""
    unified_memory: bool = False
    nvlink: bool = False
    ecc_default: bool | None = None
    bandwidth_gbs: float | None = None
    aliases: tuple[str, ...] = ()


class Device(NamedTuple):
    """One GPU (or the host) of a machine.

    free_bytes: what is free before the engine starts, None when nothing was said (then nothing else runs there).
    free_source: "--free", "NVML, 12:03" ... uuid, pci, marks and driver (its version): of a real device.
    """

    index: int  # type: ignore[assignment]  # hides a tuple's method, which nobody asks a value for
    gpu: GpuSpec
    free_bytes: int | None = None
    free_source: str = ""
    uuid: str = ""
    pci: str = ""
    marks: tuple[str, ...] = ()
    kind: DeviceKind = "gpu"
    driver: str = ""


class Machine(NamedTuple):
    """The devices that a plan may use, in the engine's order; source: "catalogue", "this machine", "custom".

    assumed: what was chosen where the words left it open, as sentences.
    """

    devices: tuple[Device, ...]
    source: str = "catalogue"
    assumed: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Its GPUs, without the host."""
        return tuple(device for device in self.devices if device.kind == "gpu")

    @property
    def total_bytes(self) -> int:
        """Memory of all its GPUs, of those whose size is known."""
        return sum(device.gpu.total.value for device in self.devices if device.gpu.total)

    def describe(self) -> str:
        """Text such as "2 × NVIDIA GeForce RTX 4090" or "RTX 4090 + RTX 3090"."""
        names: dict[str, int] = {}
        for device in self.devices:
            names[device.gpu.name] = names.get(device.gpu.name, 0) + 1
        return " + ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())


class GpuEntry(NamedTuple):
    """One line of the GPU index. memory_gb: nominal, None when not even that is known."""

    id: str
    name: str
    aliases: tuple[str, ...]
    vendor: str
    gpu_class: str
    memory_gb: float | None
    modified: bool
