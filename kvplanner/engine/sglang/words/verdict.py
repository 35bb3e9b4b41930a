"""The verdict of a plan: where start-up fails, or may fail within its bands, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplanner.engine.sglang.startup.replica import Failure, Replica
from kvplanner.engine.sglang.startup.window import FractionWindow
from kvplanner.engine.sglang.words import reasons
from kvplanner.engine.verdict import Shortfall, Verdict
from kvplanner.record import later


def verdict(replicas: Sequence[Replica], worst: int, window: Callable[[], FractionWindow]) -> Verdict:
    """worst: the replica that fails first or holds least."""
    made = replicas[worst]
    if made.failure is not None:
        failing = _failing(made, made.failure, worst, window)
        return Verdict("does_not_fit", failing.certainty, failing)
    found = next((doubt for number, each in enumerate(replicas) if (doubt := _doubt(each, number))), None)
    return Verdict("fits", found.certainty if found else "certain", doubt=found)


def _failing(made: Replica, found: Failure, number: int, window: Callable[[], FractionWindow]) -> Shortfall:
    return Shortfall(
        stage=found.stage,
        device=number * len(made.ranks) + found.rank,
        missing_bytes=found.missing_bytes,
        least_bytes=found.least_bytes,
        most_bytes=found.most_bytes,
        reason=later(lambda: reasons.failure(made, found, window)),
        message=found.message,
    )


def _doubt(made: Replica, number: int) -> Shortfall | None:
    if made.refused_low is not None:
        rank = made.ranks[made.tightest]
        spare = made.first.bytes
        below = rank.after.value - rank.after.low
        return Shortfall("kv_cache_sizing", number * len(made.ranks) + made.tightest, -spare, -2 * spare,
                         max(below - spare, 1), reasons.small_pools(made), made.refused_low.message)  # fmt: skip
    check = made.doubt
    if check is None:
        return None
    return Shortfall(
        stage=check.stage,
        device=number * len(made.ranks) + check.rank,
        missing_bytes=check.missing,
        least_bytes=check.least,
        most_bytes=check.most,
        reason=reasons.doubt(made.ranks[check.rank], check),
    )
