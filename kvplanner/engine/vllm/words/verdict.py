"""The verdict of a plan: where start-up fails, or may fail within its bands, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.verdict import Certainty, Shortfall, Verdict
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.startup.checks import Check
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.engine.vllm.startup.stages import ORDER
from kvplanner.engine.vllm.words import reasons
from kvplanner.record import later


def verdict(replicas: Sequence[Replica], worst: int, no_kernels: str) -> Verdict:
    """worst: the replica that fails first or holds least. no_kernels: why a release does not run on a GPU, or ""."""
    replica = replicas[worst]
    blocked = (reasons.no_kernels(no_kernels),) if no_kernels else ()
    if replica.failure is not None:
        failing = _failing(replica, worst, message=not no_kernels)
        doubt = _earlier(replica, worst)
        return Verdict("does_not_fit", later(lambda: _certainty(replica, failing)), failing, doubt, blocked)
    if not replica.layout.exact:
        return Verdict("cannot_tell", blocked=(*blocked, reasons.not_confirmed(replica)))
    found = _doubt(replicas)
    return Verdict(
        "cannot_tell" if blocked else "fits", found.certainty if found else "certain", doubt=found, blocked=blocked
    )


def _certainty(replica: Replica, failing: Shortfall) -> Certainty:
    """How sure a failure is."""
    if not replica.hopeful:
        return "certain"
    return "doubtful" if failing.certainty == "doubtful" else "probable"


def _failing(replica: Replica, number: int, *, message: bool) -> Shortfall:
    found = replica.failure
    assert found is not None
    rank = replica.ranks[found.rank]
    return Shortfall(
        stage=found.stage,
        device=number * len(replica.ranks) + found.rank,
        missing_bytes=found.missing_bytes,
        least_bytes=later(lambda: found.missing_bytes - (rank.available.high - rank.available.value)),
        most_bytes=later(lambda: found.missing_bytes + rank.available.value - rank.available.low),
        reason=later(lambda: reasons.failure(replica, found)),
        message=found.message if message else "",
    )


def _earlier(replica: Replica, number: int) -> Shortfall | None:
    """A stage before the failing one that may fail already."""
    found, check = replica.failure, replica.doubt
    if found is None or check is None or ORDER.index(check.stage) >= ORDER.index(found.stage):
        return None
    return _shortfall(replica, number, check)


def _doubt(replicas: Sequence[Replica]) -> Shortfall | None:
    """The first stage that the bands do not let every replica pass: before the cache, at its sizing, after it."""
    for number, replica in enumerate(replicas):
        if (check := replica.doubt) is not None:
            return _shortfall(replica, number, check)
    for number, replica in enumerate(replicas):
        if replica.cache_doubt:
            return _cache(replica, number)
    late = [(check, number) for number, replica in enumerate(replicas) if (check := replica.late_doubt) is not None]
    if not late:
        return None
    check, number = min(late, key=lambda pair: (ORDER.index(pair[0].stage), -pair[0].most))
    return _shortfall(replicas[number], number, check)


def _shortfall(replica: Replica, number: int, check: Check) -> Shortfall:
    return Shortfall(
        stage=check.stage,
        device=number * len(replica.ranks) + check.rank,
        missing_bytes=check.missing,
        least_bytes=check.least,
        most_bytes=check.most,
        reason=later(lambda: reasons.doubt(replica.ranks[check.rank], check)),
    )


def _cache(replica: Replica, number: int) -> Shortfall:
    """The cache may be too small for one request, or for the states of all sequences."""
    lacking, least, most = (_cache_lacks(replica, sizing) for sizing in (replica.sizing, replica.high, replica.low))
    return Shortfall(
        stage="kv_cache_too_small",
        device=number * len(replica.ranks) + replica.deciding,
        missing_bytes=min(lacking, 0),
        least_bytes=min(least, lacking, 0),
        most_bytes=max(most, 1),
        reason=later(lambda: reasons.cache_at_low_end(replica)),
        message=replica.cache_doubt,
    )


def _cache_lacks(replica: Replica, sizing: KvSizing) -> int:
    """Bytes by which a cache is too small; negative by as much as it has to spare."""
    if replica.low.capture_error and not replica.low.error:
        per_block = sizing.bytes_per_block[sizing.stage]
        return (replica.ranks[0].settings.scheduler.max_num_seqs - sizing.num_blocks) * per_block
    return replica.low.needed_bytes - sizing.usable_bytes
