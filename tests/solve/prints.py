"""Remedies as lines of text: `python -m tests.solve.prints COUNT [SEED] > FILE`, on two states of the code, for `diff`.

What makes a search faster must change nothing of what it finds: every remedy of the benchmark's spread and of COUNT
requests as `tests.solve.wide` draws them stands on one line, with a digest of all that its plan says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256

from kvplanner.catalog import gpus, models
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.solve.others import others
from kvplanner.solve.remedies import remedies
from tests.bench.bench_solve import SPREAD
from tests.solve.wide import requests


def said(value: object) -> Iterator[str]:
    """All of a plan but the request, whose parts are told beside it; what is worked out when read is read."""
    if isinstance(value, PlanRequest):
        return
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        yield type(value).__name__
        for name in value._fields:
            yield name
            yield from said(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield repr(key)
            yield from said(held)
    elif isinstance(value, tuple | list):
        yield f"{len(value)} of"
        for held in value:
            yield from said(held)
    elif isinstance(value, frozenset | set):
        yield repr(sorted(value))
    else:
        yield repr(value)


def digest(plan: Plan) -> str:
    """Of all that a plan says."""
    return sha256("\n".join(said(plan)).encode()).hexdigest()[:16]


def of_spread() -> Iterator[PlanRequest]:
    """The benchmark's requests."""
    for name, spread in SPREAD.items():
        for model, gpu, options, release, load in spread:
            yield PlanRequest(models.load(model), gpus.machine(gpu), name, release, options, load)


def main() -> None:
    """One line for each request and each of its remedies."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for request in (*of_spread(), *requests(count, seed)):
        plan = engine(request.engine).plan(request)
        found = remedies(request, plan, others)
        print(request.engine, request.version, request.model.id, gpus.machine_words(request.machine),
              dict(request.options), request.load, request.weight_format, digest(plan), flush=True)  # fmt: skip
        for remedy in found:
            print("   ", *remedy.names, [tuple(change) for change in remedy.changes], remedy.costs, remedy.losses,
                  remedy.aim, remedy.stage_before, remedy.sure, digest(remedy.plan))  # fmt: skip


if __name__ == "__main__":
    main()
