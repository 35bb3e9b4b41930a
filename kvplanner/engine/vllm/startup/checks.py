"""Where start-up would fail, if it does: the stages in the engine's own order, first failure wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isqrt
from operator import attrgetter

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm.kv.sizing import NO_AUTO_FIT, NO_BLOCKS, KvSizing
from kvplanner.engine.vllm.startup import messages
from kvplanner.engine.vllm.startup.rank import Rank
from kvplanner.estimate import Estimate, band_of_sum
from kvplanner.record import NamedTuple


class Failure(NamedTuple):
    """rank: index of the rank that fails; missing_bytes: how much it lacks; message: the engine's words."""

    stage: str
    rank: int
    missing_bytes: int
    message: str


class Check(NamedTuple):
    """What one rank, on a device with that number, lacks at a stage.

    missing: bytes, none where it is not above 0; least, most: at the ends of the ranges of what it compares.
    """

    stage: str
    rank: int
    device: int
    missing: int
    least: int
    most: int


def before_cache(ranks: Sequence[Rank]) -> Failure | None:
    """A failure before the KV cache is sized: the free-memory check, the load, the profile run."""
    for worst in _worst(checks_before_cache(ranks)):
        if worst.missing > 0:
            return Failure(worst.stage, worst.rank, worst.missing, _message(worst.stage, ranks[worst.rank], worst.rank))
    return None


def checks_before_cache(ranks: Sequence[Rank]) -> Iterator[tuple[Check, ...]]:
    """What every rank lacks at each stage before the KV cache is sized, in the engine's order.

    A stage is looked at when it is asked for: whoever fails before it works out nothing of what it needs.
    """
    for stage in (_free_memory, _weights, _profile):
        yield _at_stage(ranks, stage)


@by_identity(16, lambda _, stage: stage)
def _at_stage(ranks: Sequence[Rank], stage: Callable[[Rank, int], Check | None]) -> tuple[Check, ...]:
    return tuple(found for i, rank in _distinct(ranks) if (found := stage(rank, i)) is not None)


def _distinct(ranks: Sequence[Rank]) -> list[tuple[int, Rank]]:
    """The first of ranks that are alike, which are one object, with its index."""
    first: dict[int, tuple[int, Rank]] = {}
    for index, rank in enumerate(ranks):
        first.setdefault(id(rank), (index, rank))
    return list(first.values())


def doubt(stages: Iterable[Sequence[Check]]) -> Check | None:
    """The first stage that the ranges do not let every rank pass, None when they do."""
    return next((worst for worst in _worst(stages, "most") if worst.most > 0), None)


def surely_lacks(stages: Iterable[Sequence[Check]]) -> bool:
    """Whether some rank lacks memory even at the best ends of the ranges."""
    return any(check.least > 0 for checks in stages for check in checks)


def _worst(stages: Iterable[Sequence[Check]], end: str = "missing") -> Iterator[Check]:
    """The rank that lacks most at each stage, in the order of the stages; end: by which reading."""
    for checks in stages:
        if checks:
            yield max(checks, key=attrgetter(end))


def _check(
    stage: str, index: int, rank: Rank, missing: int, needs: Sequence[Estimate], has: Sequence[Estimate] = (),
    likely: int = 0,
) -> Check:  # fmt: skip
    """likely: bytes by which the needs grow at their upper end, beside their bands."""
    (needs_less, needs_more), (has_less, has_more) = band_of_sum(needs), band_of_sum(has)
    return Check(
        stage, index, rank.device.index, missing, missing - isqrt(needs_less**2 + has_more**2),
        missing + isqrt(needs_more**2 + has_less**2) + likely,
    )  # fmt: skip


def _total(rank: Rank, share: float = 1.0) -> tuple[Estimate, ...]:
    """A share of the doubt about CUDA's total; a given free memory leaves none."""
    if rank.device.free_bytes is not None:
        return ()
    total = rank.cuda_total
    scaled = (round(total.value * share), round(total.low * share), round(total.high * share))
    return (Estimate(*scaled, total.basis, total.formula, total.inputs, total.notes),)


def _free_memory(rank: Rank, index: int) -> Check | None:
    if not rank.settings.era.free_memory_check:
        return None
    missing = rank.budget.value - rank.free_at_start_bytes
    if rank.device.free_bytes is not None:
        return _check("free_memory_check", index, rank, missing, (rank.outside, rank.budget))
    # Budget and free memory grow with the total alike, but for the share that the budget leaves.
    return _check(
        "free_memory_check", index, rank, missing, (rank.outside,), _total(rank, 1 - rank.settings.cache.utilization)
    )


def _weights(rank: Rank, index: int) -> Check:
    # Only what staging certainly needs counts as a failure; its likely peak is drawn and warned about.
    missing = rank.weights.value + rank.staging.low - rank.free_at_start_bytes
    likely = rank.staging.value - rank.staging.low
    return _check("weights", index, rank, missing, (rank.weights, rank.outside), _total(rank), likely)


def _profile(rank: Rank, index: int) -> Check:
    missing = rank.resident_bytes + rank.activations.value - rank.cuda_total.value
    needs = (rank.outside, rank.runtime, rank.weights, rank.workspace, rank.activations)
    return _check("profile", index, rank, missing, needs, _total(rank))


def _message(stage: str, rank: Rank, index: int) -> str:
    settings, number, total = rank.settings, rank.device.index, rank.cuda_total.value
    if rank.free_at_start_bytes < 0:
        return "" if rank.context_fits else messages.no_context(settings.version)
    if stage == "free_memory_check":
        free, requested = rank.free_at_start_bytes, rank.budget.value
        return messages.free_memory_check(number, free, total, settings.cache.utilization, requested)
    return messages.out_of_memory(number, total)


def at_sizing(ranks: Sequence[Rank], sizing: KvSizing, known: bool = True) -> Failure | None:
    """No room for one block, not enough for one request of the context length, or too few blocks for the states.

    known: the cache is modelled exactly; without that only having nothing left is certain.
    """
    of_stage = [i for i, rank in enumerate(ranks) if rank.stage == sizing.stage]
    tightest = min(of_stage, key=lambda i: ranks[i].available.value)
    available, per_block = ranks[tightest].available.value, sizing.bytes_per_block[sizing.stage]
    if not known:
        left = available > 0
        return None if left else Failure("kv_cache_sizing", tightest, max(-available, 1), NO_BLOCKS)
    if sizing.capture_error is not None:
        lacking = ranks[tightest].settings.scheduler.max_num_seqs - sizing.num_blocks
        return Failure("kv_cache_too_small", tightest, max(lacking, 1) * per_block, sizing.capture_error)
    if sizing.error is None:
        return None
    if sizing.error in (NO_BLOCKS, NO_AUTO_FIT):
        missing = -available if available < 0 else per_block
        return Failure("kv_cache_sizing", tightest, max(missing, 1), sizing.error)
    return Failure("kv_cache_too_small", tightest, max(sizing.needed_bytes - sizing.usable_bytes, 1), sizing.error)


def after_sizing(ranks: Sequence[Rank], kv_bytes: tuple[int, ...], tensor_bytes: int | None = None) -> Failure | None:
    """A failure that the measurement does not see: the allocation, graph capture, serving.

    kv_bytes: KV cache allocated on each rank; tensor_bytes: each of its tensors, None where they differ.
    """
    for worst in _worst(checks_after_sizing(ranks, kv_bytes)):
        if worst.missing > 0:
            rank = ranks[worst.rank]
            wanted = tensor_bytes if worst.stage == "kv_cache_allocation" else None
            text = messages.out_of_memory(rank.device.index, rank.cuda_total.value, wanted)
            return Failure(worst.stage, worst.rank, worst.missing, text)
    return None


@by_identity(16, lambda _, kv_bytes: kv_bytes)
def checks_after_sizing(ranks: Sequence[Rank], kv_bytes: tuple[int, ...]) -> tuple[tuple[Check, ...], ...]:
    """What every rank lacks at each stage once the KV cache is allocated, in the engine's order."""
    of_ranks = [_after(rank, index, kv_bytes[index]) for index, rank in _distinct(ranks)]
    return tuple(zip(*of_ranks, strict=True))


def _after(rank: Rank, index: int, kv: int) -> tuple[Check, Check, Check]:
    """What is in the budget moves the cache, not the sum; a given cache is not moved."""
    given = rank.given_kv is not None
    needs = [rank.outside, *((rank.runtime, rank.weights, rank.workspace) if given else ())]
    has = _total(rank, 1.0 if given else 1 - rank.settings.cache.utilization)
    lacking = rank.resident_bytes + kv - rank.cuda_total.value
    allocated = _check("kv_cache_allocation", index, rank, lacking, needs, has)
    needs += [rank.graphs, rank.after, rank.fragmentation]
    lacking += rank.graphs.value + rank.after.value + rank.fragmentation.value
    captured = _check("graph_capture", index, rank, lacking, needs, has)
    needs += [rank.serving] if given else []
    served = _check("runtime", index, rank, lacking + rank.serving.value, needs, has)
    # A full batch comes late if at all: what its range leaves open is a doubt, no failure.
    return allocated, captured, served._replace(missing=min(served.missing, served.least))
