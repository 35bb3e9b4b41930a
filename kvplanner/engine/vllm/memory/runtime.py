"""Memory that no tensor shows: CUDA context, cuBLAS, NCCL, custom all-reduce, symmetric memory, kernel images.

What exists before vLLM's first snapshot is not charged to its budget (`outside`); what appears between the snapshot
and the end of the profile run is (`inside`). Which is which changed between versions: in 0.7 to 0.16 the snapshot
came before NCCL, in 0.17 to 0.20 collectives grew on both sides, since 0.21 most of it lies before.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm.constants import Constant, lookup
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, least_sure
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB, MIB

# Custom all-reduce: two shared buffers and 8 MiB of pointers (custom_all_reduce.py, all_reduce_utils.py, 0.33).
_ALL_REDUCE_POINTERS: Final = 8 * MIB
_ALL_REDUCE_LARGEST: Final = 8 * MIB
# Shared with symmetric memory, by compute capability and ranks (bytes).
_ALL_REDUCE_WITH_SYMM: Final = {
    (9, 0): {2: 64 * MIB, 4: 32 * MIB, 6: MIB // 2, 8: MIB // 4},
    (10, 0): {2: 2 * MIB, 4: 2 * MIB, 6: MIB, 8: MIB},
    (10, 3): {2: 4 * MIB, 4: 4 * MIB, 6: 8 * MIB, 8: 4 * MIB},
}
# torch symmetric memory buffer, same keys (0.33 default on).
_SYMMETRIC: Final = {
    (9, 0): {2: 64 * MIB, 4: 32 * MIB, 6: 64 * MIB, 8: 64 * MIB},
    (10, 0): {2: 8 * MIB, 4: 32 * MIB, 6: 128 * MIB, 8: 128 * MIB},
    (10, 3): {2: 4 * MIB, 4: 32 * MIB, 6: 32 * MIB, 8: 64 * MIB},
}
_SYMMETRIC_SINCE: Final = (10, 2)
_LARGEST_FOR_CONTEXT: Final = 96 * GIB
# Where host and GPU share a small memory, what the host holds is no more than these parts of it (assumed).
_HOST_LEAST: Final = 8
_HOST_MOST: Final = 4
# NCCL's channels for all-to-all between data-parallel replicas' experts (NCCL's own reports: 1.06 to 4.34 GB).
_EXCHANGE: Final = GIB
_EXCHANGE_MOST: Final = 4 * GIB


def outside(settings: Settings, gpu: Gpu) -> Estimate:
    """Bytes on the device before the snapshot: the context, and collectives where the era makes them first."""
    return _outside(gpu, settings)


def inside(settings: Settings, gpu: Gpu, stage: int, *, states: bool = False) -> Estimate:
    """Bytes outside PyTorch that the engine's measurement finds in its budget: late libraries, kernels, collectives.

    states: whether layers keep recurrent states, whose kernels are compiled late.
    """
    return _inside(gpu, settings, stage, states)


def _moving(gpu: Gpu, settings: Settings, stage: int = 0, states: bool = False) -> tuple[object, ...]:
    """Everything of the settings that these depend on: what the constants are chosen by, and the ranks."""
    return settings.version, settings.era, settings.parallel, settings.graphs.mode, stage, states


@by_identity(64, _moving)
def _outside(gpu: Gpu, settings: Settings) -> Estimate:
    terms = [_context(settings, gpu)]
    terms += _collectives(settings, gpu)
    return _sum(terms)


@by_identity(64, _moving)
def _inside(gpu: Gpu, settings: Settings, stage: int, states: bool) -> Estimate:
    late = lookup("late_bytes", settings, gpu, stage, states=states)
    terms = [_term("late libraries and kernels", late, late.scaled(1))]
    if settings.parallel.expert_parallel and settings.parallel.dp > 1:
        source = SizedText(f"1 to {size_mark(_EXCHANGE_MOST, 0)} are reported on NVLink machines")
        exchange = banded(_EXCHANGE, 0, _EXCHANGE_MOST, "assumed")
        terms.append((Input("expert exchange between replicas", _EXCHANGE, "B", source), exchange))
    return _sum(terms)


def _context(settings: Settings, gpu: Gpu) -> tuple[Input, Estimate]:
    """The CUDA context grows with the GPU: a base and a share of its memory, up to the size of the largest boards."""
    base, share = lookup("context_base_bytes", settings, gpu), lookup("context_share", settings, gpu)
    size = min(gpu.total_bytes, _LARGEST_FOR_CONTEXT)
    value, low, high = (round(b + s * size) for b, s in zip(base.band, share.band, strict=True))
    how = size_mark(round(base.value), 2)
    if share.value:
        how += f" + {100 * share.value:.5g} % of {size_mark(size)}"
    if share.value and size < gpu.total_bytes:
        how += f", beyond which it grows no further (CUDA sees {size_mark(gpu.total_bytes)})"
    if gpu.kind == "unified" and value > size // _HOST_LEAST:
        value, high = size // _HOST_LEAST, min(high, size // _HOST_MOST)
        how = f"an eighth of {size_mark(size)}"
    return Input("context", value, "B", SizedText(f"{how}; {base.source}")), banded(value, low, high, base.basis)


def _collectives(settings: Settings, gpu: Gpu) -> list[tuple[Input, Estimate]]:
    """NCCL for each group of ranks, vLLM's own all-reduce and torch's symmetric memory, made before the snapshot."""
    terms: list[tuple[Input, Estimate]] = []
    nccl = lookup("nccl_outside_bytes", settings, gpu)
    if settings.parallel.world == 1 or not nccl.high:
        return terms
    terms.append(_term("NCCL", nccl, nccl.scaled(1)))
    if settings.parallel.tp > 1:
        own = all_reduce_bytes(settings, gpu)
        if own:
            terms.append(_all_reduce(own, gpu))
    return terms


def _all_reduce(own: int, gpu: Gpu) -> tuple[Input, Estimate]:
    known = gpu.kind_is_known
    source = "vLLM's table for this GPU" if known else "vLLM's table for a Hopper; the GPU's kind is not known"
    band = banded(own, own if known else 0, own, "analytic" if known else "assumed")
    return Input("all-reduce buffers", own, "B", source), band


def all_reduce_bytes(settings: Settings, gpu: Gpu) -> int:
    """Buffers of the custom all-reduce and of symmetric memory on one rank, by vLLM's tables."""
    if settings.parallel.tp == 1 or settings.parallel.tp > 8 or (gpu.kind == "pcie" and settings.parallel.tp > 2):
        return 0
    arch = gpu.runs_as
    symmetric = _SYMMETRIC.get(arch, {}).get(settings.parallel.tp, 0) if settings.version >= _SYMMETRIC_SINCE else 0
    shared = _ALL_REDUCE_WITH_SYMM.get(arch, {}).get(settings.parallel.tp) if symmetric else None
    if not settings.parallel.custom_all_reduce:
        return symmetric
    return 2 * min(_ALL_REDUCE_LARGEST, shared or _ALL_REDUCE_LARGEST) + _ALL_REDUCE_POINTERS + symmetric


def _term(name: str, constant: Constant, scaled: tuple[int, int, int]) -> tuple[Input, Estimate]:
    value, low, high = scaled
    return Input(name, value, "B", constant.source), banded(value, low, high, constant.basis)


def _sum(terms: list[tuple[Input, Estimate]]) -> Estimate:
    value = sum(e.value for _, e in terms)
    below, above = band_of_sum(e for _, e in terms)
    formula = " + ".join(f"{{{i.name}}}" for i, _ in terms)
    return banded(value, value - below, value + above, least_sure(e for _, e in terms), formula, *(i for i, _ in terms))
