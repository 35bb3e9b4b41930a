"""Memory that is taken before SGLang's baseline: CUDA context, NCCL, custom all-reduce, symmetric memory.

Figures: CUDA total less "Load weight begin. avail mem" of public start-up logs of 2025 and 2026, by kind of machine.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Settings
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.gpu.spec import GpuSpec
from kvplanner.record import NamedTuple
from kvplanner.units import GIB

_SYMMETRIC: Final = 4 * GIB  # --enable-symm-mem preallocates it (arg_groups/memory_hook.py)
_LARGE_CARD: Final = 60 * GIB
_SMALL_CARD: Final = 34 * GIB


class Figure(NamedTuple):
    """GiB: value, low and high."""

    value: float
    low: float
    high: float

    def bytes(self) -> tuple[int, int, int]:
        """The same in bytes."""
        return round(self.value * GIB), round(self.low * GIB), round(self.high * GIB)


_ONE: Final = Figure(0.65, 0.35, 0.85)
_ONE_SMALL: Final = Figure(0.42, 0.25, 0.65)
_PCIE_SMALL: Final = Figure(0.44, 0.35, 0.70)
_PCIE_LARGE: Final = Figure(1.20, 0.80, 1.60)
_NVLINK_FEW: Final = Figure(1.20, 0.70, 1.90)
_NVLINK_MANY: Final = Figure(1.90, 1.20, 2.30)
_BLACKWELL: Final = Figure(2.30, 1.20, 3.10)
_UNIFIED: Final = Figure(8.00, 6.00, 10.0)  # available memory of the whole system, not a figure of CUDA


def outside(gpu: GpuSpec, settings: Settings) -> Estimate:
    """Bytes on the device before the baseline."""
    figure, what = _figure(gpu, settings)
    value, low, high = figure.bytes()
    source = f"{what}: public start-up logs say {figure.low:g} to {figure.high:g} GiB"
    return banded(value, low, high, "calibrated", "{context and communicators}",
                  Input("context and communicators", value, "B", source))  # fmt: skip


def _figure(gpu: GpuSpec, settings: Settings) -> tuple[Figure, str]:
    size = gpu.total.value if gpu.total else _LARGE_CARD
    if gpu.unified_memory:
        return _UNIFIED, "memory shared with the host"
    small = size < _SMALL_CARD
    if settings.parallel.world == 1:
        return (_ONE_SMALL, "one small card") if small else (_ONE, "one data-centre card")
    if settings.arch[0] == 10:
        return _BLACKWELL, "several Blackwell ranks"
    if not gpu.nvlink:
        return (_PCIE_SMALL, "several small cards") if small else (_PCIE_LARGE, "several large cards on PCIe")
    if settings.parallel.world >= 8:
        return _NVLINK_MANY, "eight ranks on NVLink"
    return _NVLINK_FEW, "several ranks on NVLink"
