"""What a rank lacks at each stage of start-up, and by how much the bands move that.

Stages as start-up comes to them: loading, sizing the pools, allocating the request table and the pools, capturing
graphs, serving. There is no profile run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from kvplanner.engine.sglang.startup.rank import Rank
from kvplanner.estimate import Estimate, band_of_sum
from kvplanner.record import NamedTuple

WEIGHTS, SIZING, TOO_SMALL = "weights", "kv_cache_sizing", "kv_cache_too_small"
ALLOCATION, CAPTURE, RUNTIME = "kv_cache_allocation", "graph_capture", "runtime"
ORDER = (WEIGHTS, SIZING, TOO_SMALL, ALLOCATION, CAPTURE, RUNTIME)


class Check(NamedTuple):
    """What one rank lacks at a stage: bytes, none where not above 0; least, most: at the ends of the bands."""

    stage: str
    rank: int
    missing: int
    least: int
    most: int


class Late(NamedTuple):
    """What a rank takes after the pools are sized. exact: request table and free lists."""

    exact_bytes: int
    eager: Estimate


def loading(ranks: Sequence[Rank]) -> tuple[Check, ...]:
    """What every rank lacks while its weights are loaded."""
    out = []
    for index, rank in enumerate(ranks):
        missing = -rank.after.value
        below, above = rank.after.value - rank.after.low, rank.after.high - rank.after.value
        out.append(Check(WEIGHTS, index, missing, missing - above, missing + below))
    return tuple(out)


def after_sizing(rank: Rank, index: int, pools: int, late: Late, fraction: float) -> tuple[Check, ...]:
    """What a rank lacks from the allocation on.

    What is charged to the budget moves the pools, and not what is left beside them; the share of free memory that the
    slack is moves with it.
    """
    share = 1 - fraction if rank.given_kv is None else 1.0
    before = rank.before
    has = (before.value - before.low, before.high - before.value)
    has_less, has_more = (round(part * share) for part in has)
    free = rank.after.value - pools
    out: list[Check] = []
    needs: list[Estimate] = []
    lacking = late.exact_bytes - free
    for stage, terms in (
        (ALLOCATION, ()),
        (CAPTURE, (rank.workspace, rank.graphs)),
        (RUNTIME, (late.eager, rank.late)),
    ):
        needs += terms
        lacking += sum(term.value for term in terms)
        less, more = band_of_sum(needs)
        out.append(Check(stage, index, lacking, lacking - isqrt(less**2 + has_more**2),
                         lacking + isqrt(more**2 + has_less**2)))  # fmt: skip
    return tuple(out)


def worst(checks: Sequence[Check]) -> Check | None:
    """The rank that lacks most at the first stage where any does."""
    for stage in ORDER:
        lacking = [check for check in checks if check.stage == stage and check.missing > 0]
        if lacking:
            return max(lacking, key=lambda check: check.missing)
    return None


def doubtful(checks: Sequence[Check]) -> Check | None:
    """The check that may lack most within its band, None where none may."""
    found = max(checks, key=lambda check: check.most, default=None)
    return found if found is not None and found.most > 0 else None
