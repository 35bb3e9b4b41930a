"""What of a GPU the engine's rules read: its name, its compute capability, and the memory that CUDA sees."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

from kvplanner.engine.shared.identity import by_identity
from kvplanner.gpu.spec import GpuSpec
from kvplanner.record import NamedTuple

# hbm: data-centre boards that NVSwitch or NVLink joins; unified: GPU and CPU share the memory; pcie: the others.
GpuKind = Literal["hbm", "pcie", "unified"]
_UNIFIED_NAMES: Final = ("gb10", "orin", "thor", "jetson", "spark")
_PCIE_NAMES: Final = ("rtx", "pcie", "geforce", "quadro")
_HBM_ARCHES: Final = ((7, 0), (8, 0), (9, 0), (10, 0), (10, 3))
_HBM_LEAST_BYTES: Final = 30 << 30
# Totals that differ by less are one: prints round to a hundredth of a GiB, and drivers to a MiB.
_SAME: Final = 16 << 20
# What a GPU of unknown compute capability is taken for: the common recent server GPU.
_ASSUMED_ARCH: Final = (9, 0)


class Gpu(NamedTuple):
    """name: as NVML gives it. arch: compute capability, None where it is not known. total_bytes: what CUDA sees.

    windows: driven by Windows, WSL2 included, where CUDA sees all that NVML counts.
    """

    name: str
    arch: tuple[int, int] | None
    total_bytes: int
    windows: bool = False

    @property
    def runs_as(self) -> tuple[int, int]:
        """The compute capability whose kernels are planned: its own, or what an unknown GPU is taken for."""
        return self.arch or _ASSUMED_ARCH

    @property
    def kind(self) -> GpuKind:
        """What separates GPUs here: how they are joined, and whether the memory is the host's too."""
        return _kind(self)

    @property
    def kind_is_known(self) -> bool:
        """Whether its name or its compute capability says of what kind it is."""
        name = self.name.lower()
        return self.arch is not None or any(word in name for word in (*_UNIFIED_NAMES, *_PCIE_NAMES))


@by_identity(64, lambda _: ())
def gpu_of(spec: GpuSpec) -> Gpu:
    """The GPU as the rules read it; 0 bytes where not even its memory is known."""
    total = spec.cuda_total or spec.total
    return Gpu(spec.name, spec.compute_capability, total.value if total is not None else 0, _on_windows(spec))


def _on_windows(spec: GpuSpec) -> bool:
    """Whether CUDA sees all of a card for desktops: Linux keeps a part of it, and so it is Windows that drives it."""
    if spec.total is None or spec.cuda_total is None or spec.compute_capability is None:
        return False
    desktop = any(word in spec.name.lower() for word in _PCIE_NAMES) and " MIG " not in spec.name
    return desktop and spec.total.value - spec.cuda_total.value <= _SAME


@cache
def _kind(gpu: Gpu) -> GpuKind:
    name = gpu.name.lower()
    if any(word in name for word in _UNIFIED_NAMES):
        return "unified"
    joined = gpu.runs_as in _HBM_ARCHES and gpu.total_bytes >= _HBM_LEAST_BYTES
    return "hbm" if joined and not any(word in name for word in _PCIE_NAMES) else "pcie"
