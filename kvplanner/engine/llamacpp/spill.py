"""What Windows' driver moves to RAM where a GPU is too small, instead of refusing an allocation (shared GPU memory).

Since NVIDIA's driver 536.40 (June 2023) CUDA allocations go on in RAM; from 546.01 on, "CUDA - Sysmem Fallback Policy"
in its control panel turns that off, and they fail as under Linux. Windows lends a GPU no more than half of the RAM
("Calculating graphics memory" of the Windows driver kit). Speed: ggml-org/llama.cpp issue 4498, ollama issue 9167.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kvplanner.engine.llamacpp.figures import OnGpu, OnHost
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.verdict import Bytes, Reason, Verdict
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB

BEYOND: Final = "a buffer that Windows moves to RAM"
# What PCI Express 4.0 carries over 16 lanes, at the very best.
_LINK_PER_SECOND: Final = 25 * GIB
# The last that is allocated is the first that finds no room.
_LAST_FIRST: Final[tuple[SegmentKind, ...]] = ("runtime", "workspace", "compute", "kv_cache", "weights")
# Where the host shows it: as what it has of its own.
_AS: Final[dict[SegmentKind, SegmentKind]] = {"runtime": "compute", "workspace": "compute"}
_LESS: Final = "{asked} − {in RAM}"
_MORE: Final = "{own} + {lent}"


def excess(gpu: OnGpu) -> int:
    """Bytes beyond a GPU's memory with everything allocated, 0 where it holds all.

    No more than is asked for: what other programs hold beyond it is theirs to move.
    """
    asked = gpu.weights.value + gpu.kv.value + gpu.compute.value + gpu.late.value
    asked += gpu.workspace.value if gpu.workspace is not None else 0
    return min(max(gpu.base + asked - gpu.total, 0), asked)


def lent(gpus: Sequence[OnGpu], host: OnHost, host_total: int | None) -> bool:
    """Whether the machine has the RAM for all that does not fit; what is not known of is taken to be there."""
    moved = sum(map(excess, gpus))
    return host_total is None or (moved <= host_total // 2 and moved + host.kept <= host_total)


def reason(gpus: Sequence[OnGpu]) -> Reason:
    """What lies in RAM, as a clause after "runs slowly"."""
    over = {gpu.device.index: excess(gpu) for gpu in gpus if excess(gpu)}
    names = ("GPU " if len(over) == 1 else "GPUs ") + ", ".join(map(str, over))
    return Reason("spills_to_ram", "with {moved} of {gpus} in RAM", {"moved": Bytes(sum(over.values())), "gpus": names})


def notes(gpus: Sequence[OnGpu], answer: Verdict, host_total: int | None) -> tuple[str, ...]:
    """What a reader should know of it."""
    if answer.spilled is not None:
        return (_cost(gpus),)
    on_gpu = answer.failing is not None and answer.failing.device < len(gpus)
    return (_refused(host_total),) if on_gpu and host_total is not None else ()


def _cost(gpus: Sequence[OnGpu]) -> str:
    """What it costs, and what to do."""
    moved = sum(map(excess, gpus))
    each = 1000 * moved / _LINK_PER_SECOND
    return SizedText(
        f"Windows' driver keeps {size_mark(moved)} of the buffers in RAM, as shared GPU memory: read over PCI Express "
        f"for every token, which takes {each:,.0f} ms or more at 25 GiB/s; fewer layers on the GPUs are faster. "
        "--no-sysmem-fallback, as the driver's setting of that name, fails instead"
    )


def _refused(host_total: int) -> str:
    """Why it fails all the same."""
    return SizedText(
        f"Windows' driver would move to RAM what the GPUs cannot hold, but lends at most {size_mark(host_total // 2)}, "
        "half of the machine's, and the rest must hold what stays on the host"
    )


def longest(held: Callable[[], tuple[int | None, int | None]], at_hand: int) -> tuple[int | None, int | None]:
    """The longest context of a slot that may work, and that surely does: what the GPUs hold without any in RAM."""
    value, sure = held()
    return max(value or 0, at_hand), sure


def own_bytes(segment: Segment) -> int:
    """What a part is to the engine, wherever it lies."""
    of = {term.name: term.value for term in segment.estimate.inputs if segment.estimate.formula in (_LESS, _MORE)}
    return int(of.get("asked", of.get("own", segment.bytes)))


def within(segments: Sequence[Segment], over: int) -> tuple[list[Segment], dict[SegmentKind, int]]:
    """The segments that a GPU holds, and what of which it does not."""
    held = {segment.kind: segment for segment in segments}
    moved: dict[SegmentKind, int] = {}
    for kind in _LAST_FIRST:
        segment = held.get(kind)
        part = min(over, segment.bytes) if segment is not None else 0
        if segment is not None and part:
            over -= part
            moved[kind] = part
            held[kind] = segment._replace(estimate=_less(segment.estimate, part))
    return list(held.values()), moved


def without(segments: Sequence[Segment], over: int) -> list[Segment]:
    """The segments of a GPU whose other programs make room for so much, or for all that they hold."""
    return [
        segment._replace(estimate=_less(segment.estimate, min(over, segment.bytes)))
        if segment.kind == "other"
        else segment
        for segment in segments
    ]


def _less(estimate: Estimate, part: int) -> Estimate:
    value = estimate.value - part
    asked = Input("asked", estimate.value, "B", "as allocated")
    away = Input("in RAM", part, "B", "what the GPU has no room for, by Windows' driver")
    return banded(
        value, min(max(estimate.low - part, 0), value), max(estimate.high - part, value), estimate.basis,
        _LESS, asked, away,
    )  # fmt: skip


def with_lent(kind: SegmentKind, estimate: Estimate, moved: Mapping[SegmentKind, int]) -> Estimate:
    """What the host holds of a kind, with what it lends the GPUs for theirs."""
    more = sum(size for other, size in moved.items() if _AS.get(other, other) == kind)
    if not more:
        return estimate
    own = Input("own", estimate.value, "B", estimate.formula)
    return banded(
        estimate.value + more, estimate.low + more, estimate.high + more, estimate.basis, _MORE, own,
        Input("lent", more, "B", "to the GPUs, by Windows' driver"),
    ).with_notes(*estimate.notes)  # fmt: skip
