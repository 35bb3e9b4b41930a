"""Which allocation fails, on which device and by how much; and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplanner.engine.llamacpp import spill, words
from kvplanner.engine.llamacpp.figures import OnGpu, OnHost
from kvplanner.engine.verdict import Certainty, Shortfall, Verdict
from kvplanner.estimate import Estimate, band_of_sum
from kvplanner.record import NamedTuple


class Check(NamedTuple):
    """One buffer on one GPU: what is asked, and by how much it does not fit (negative: room to spare)."""

    stage: str
    gpu: int
    asked: int
    free: int
    least: int
    most: int

    @property
    def missing(self) -> int:
        """At the values."""
        return self.asked - self.free


def checks(gpus: Sequence[OnGpu]) -> Iterator[Check]:
    """Every allocation, in the order in which llama.cpp makes them: each stage over all GPUs."""
    for stage in ("weights", "kv_cache_allocation", "compute", "runtime"):
        for index, gpu in enumerate(gpus):
            before = list(_before(gpu, stage))
            own = _own(gpu, stage)
            free = gpu.total - gpu.base - sum(term.value for term in before)
            # Fits exactly where the sum does; what was there first is as doubtful as the rest.
            terms = (gpu.context, *before, own)
            below, above = band_of_sum(terms)
            missing = own.value - free
            yield Check(stage, index, own.value, free, missing - below, missing + above)


def _before(gpu: OnGpu, stage: str) -> Iterator[Estimate]:
    if stage == "weights":
        return
    yield gpu.weights
    if stage == "kv_cache_allocation":
        return
    yield gpu.kv
    if stage == "compute":
        return
    yield gpu.compute
    if gpu.workspace is not None:
        yield gpu.workspace


def _own(gpu: OnGpu, stage: str) -> Estimate:
    if stage == "compute":
        return gpu.compute  # asked for by nothing earlier: finding it takes long
    return {"weights": gpu.weights, "kv_cache_allocation": gpu.kv, "runtime": gpu.late}[stage]


def first_failing(gpus: Sequence[OnGpu]) -> Check | None:
    """The first allocation that does not fit at the values; what asks for nothing cannot fail."""
    return next((check for check in checks(gpus) if check.missing > 0 and check.asked > 0), None)


def spare(gpus: Sequence[OnGpu]) -> tuple[int, int]:
    """What is left where least is: by the values, and at the unfavourable end of every band; negative: lacking."""
    asked = [check for check in checks(gpus) if check.asked > 0]
    return min((-check.missing for check in asked), default=0), min((-check.most for check in asked), default=0)


def verdict(gpus: Sequence[OnGpu], host: OnHost, host_total: int | None, *, spills: bool = False) -> Verdict:
    """The answer. host_total: bytes of RAM, None where nothing is known of it; spills: as in `Settled`."""
    failing = first_failing(gpus)
    if failing is not None and spills and spill.lent(gpus, host, host_total):
        certainty: Certainty = "certain" if host_total is not None else "probable"
        return Verdict("fits", certainty, doubt=_shortfall(gpus, failing), spilled=spill.reason(gpus))
    if failing is not None:
        return Verdict(
            "does_not_fit", _shortfall(gpus, failing).certainty, _shortfall(gpus, failing), _earlier(gpus, failing)
        )
    if host_total is not None and host.kept > host_total:
        return _host_fails(len(gpus), host, host_total)
    doubtful = [check for check in checks(gpus) if check.most > 0 and check.asked > 0]
    doubt = _shortfall(gpus, max(doubtful, key=lambda check: check.most)) if doubtful else None
    return Verdict("fits", doubt.certainty if doubt else "certain", doubt=doubt)


def _shortfall(gpus: Sequence[OnGpu], check: Check) -> Shortfall:
    index = gpus[check.gpu].device.index
    return Shortfall(
        check.stage, check.gpu, check.missing, check.least, check.most,
        words.shortage(check.stage, index, check.asked, check.free, check.missing),
        words.message(check.stage, check.gpu, check.asked) if check.missing > 0 else "",
    )  # fmt: skip


def _earlier(gpus: Sequence[OnGpu], failing: Check) -> Shortfall | None:
    """A stage before the failing one that may fail already."""
    for check in checks(gpus):
        if (check.stage, check.gpu) == (failing.stage, failing.gpu):
            return None
        if check.most > 0 and check.asked > 0:
            return _shortfall(gpus, check)
    return None


def _host_fails(position: int, host: OnHost, total: int) -> Verdict:
    missing = host.kept - total
    reason = words.host_shortage(host.kept, total)
    failing = Shortfall("weights", position, missing, missing, missing, reason)
    return Verdict("does_not_fit", "certain", failing)
