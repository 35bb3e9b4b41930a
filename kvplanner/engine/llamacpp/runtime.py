"""Device memory that llama.cpp does not print: the driver's context and kernels, libraries and pools.

Sources: idle and exit figures of public start-up reports (P100: 264 MiB after load, 372 after the first requests;
RTX 3090: 279 to 291 idle; RTX 4090: 392 idle, 451 to 456 at exit; RTX 5090: 506 idle; RTX PRO 6000: 749 at exit;
8 GB laptop GPUs: 140; Vulkan on NVIDIA: 10 to 14 after load, 23 to 165 at its peak).
"""

from __future__ import annotations

from typing import Final

from kvplanner.estimate import Estimate, Input, banded
from kvplanner.gpu.spec import GpuSpec
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, MIB

# A context grows with the GPU: a base and a share of each GiB, up to a largest.
_BASE: Final = 14 * MIB
_LARGEST: Final = 560 * MIB


class _Class(NamedTuple):
    per_gib: float  # MiB
    low: float  # as shares of the value
    high: float


_CLASSES: Final[tuple[tuple[tuple[int, int], _Class], ...]] = (
    ((8, 9), _Class(16.0, 0.75, 1.25)),
    ((8, 0), _Class(11.5, 0.8, 1.4)),
    ((0, 0), _Class(15.5, 0.7, 1.4)),
)
_LATE: Final = {"old": (100, 15, 260), "new": (62, 20, 230)}


def context(gpu: GpuSpec, total_bytes: int) -> Estimate:
    """The driver's context and kernels: there before the first buffer, and so not in what is printed as free."""
    if gpu.vendor not in ("nvidia", "custom"):
        value = 15 * MIB
        source = "Vulkan and ROCm reports: 10 to 165 MiB"
        return banded(value, 5 * MIB, 400 * MIB, "assumed", "{context}", Input("context", value, "B", source))
    capability = gpu.compute_capability or (8, 9)
    found = next(cls for least, cls in _CLASSES if capability >= least)
    value = min(_BASE + round(found.per_gib * MIB * total_bytes / GIB), _LARGEST)
    source = f"14 MiB + {found.per_gib:g} MiB for each GiB, no more than 560 MiB: idle GPUs of public reports"
    return banded(
        value, round(value * found.low), round(value * found.high), "calibrated", "{context}",
        Input("context", value, "B", source),
    )  # fmt: skip


def late(gpu: GpuSpec) -> Estimate:
    """cuBLAS workspaces, the CUDA pool and graphs: taken with the first requests, and never given back."""
    if gpu.vendor not in ("nvidia", "custom"):
        value = 40 * MIB
        return banded(value, 0, 400 * MIB, "assumed", "{pools}", Input("pools", value, "B", "Vulkan: 13 to 150 MiB"))
    value, low, high = (size * MIB for size in _LATE["old" if (gpu.compute_capability or (8, 9)) < (7, 5) else "new"])
    source = "what exit tables call unaccounted, less the context"
    return banded(value, low, high, "calibrated", "{pools}", Input("pools", value, "B", source))
