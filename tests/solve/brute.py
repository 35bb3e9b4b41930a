"""What a solver answers, found by trying every value there is: `python -m tests.solve.brute COUNT [SEED]`.

Nothing of the solver's is used: splits are all whole numbers, shares all hundredths, formats all that there are, and
what an engine refuses is left to the engine.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from kvplanner.catalog import gpus
from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.whatif import is_converted, refused
from kvplanner.errors import BadInput, PlannerError
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.request.named import parse_load
from kvplanner.solve.change import GPUS
from kvplanner.solve.others import more_gpus
from kvplanner.solve.solver import ASKED, Asked, Solved, solve

Tried = Iterator[tuple[OptionValue, Plan | None]]
SPLITS: Final[tuple[Role, ...]] = ("tensor_parallel", "pipeline_parallel", "data_parallel")
LOADS: Final = ("6@3000+500", "8@60%:1500+500,40%:9k+1k", "40@800+200", "2@20k+1k")


def option_of(request: PlanRequest, role: Role) -> str:
    """The engine's option of a role, "" where it has none."""
    option = role_option(engine(request.engine), request.version, role)
    return option.name if option is not None else ""


def plan(request: PlanRequest) -> Plan | None:
    """The plan, None where there is none."""
    try:
        return engine(request.engine).plan(request)
    except PlannerError:
        return None


def of(request: PlanRequest, **options: OptionValue) -> PlanRequest:
    """The request with options set."""
    return request._replace(options={**request.options, **options})


def carries(found: Plan | None, *, surely: bool) -> bool:
    """Whether a plan starts and serves its load."""
    if found is None or not (found.sure if surely else found.fits):
        return False
    assert found.request.load is not None
    served = found.limits.sure_serves_users if surely else found.limits.serves_users
    return (served or 0) >= found.request.load.users


def by_gpus(request: PlanRequest) -> Tried:
    """One to eight GPUs, then two nodes of eight, each in every tensor and pipeline size."""
    tensor, pipeline, data = (option_of(request, role) for role in SPLITS)
    for count in (*range(1, 9), 16):
        machine = more_gpus(request.machine, count)
        sizes = [(tp, pp) for tp, pp in product(range(1, count + 1), repeat=2) if tp * pp == count] if tensor else [()]
        for each in sizes:
            options = dict(zip((tensor, pipeline), each, strict=True)) if each else {}
            options |= {data: 1} if data and each else {}
            yield count, plan(of(request, **options)._replace(machine=machine))


def by_format(request: PlanRequest) -> Tried:
    """As stored, then what stores less, the largest first; an engine that converts a model has none as stored."""
    own = request.model.weight_format
    why_not = refused(request.model, engine(request.engine), request.version, request.machine)
    converted = is_converted(request.model, why_not)
    names = (*(() if converted else (None,)), *(name for name in WHATIF_FORMATS if name != own))
    made = {name: plan(request._replace(weight_format=name)) for name in names}
    sizes = {
        name: found.request.model.stored.value
        for name, found in made.items() if found is not None and found.request.model.stored is not None
    }  # fmt: skip
    whole = request.model.stored.value if request.model.stored is not None else 0
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if name is None or converted or sizes[name] < whole:
            yield name or own, made[name]


def by_share(request: PlanRequest) -> Tried:
    """Every hundredth from below."""
    share = option_of(request, "budget_share")
    for part in range(5, 100):
        yield part / 100, plan(of(request, **{share: part / 100}))


def by_users(request: PlanRequest, most: int) -> Tried:
    """From many users to one."""
    assert request.load is not None
    for users in range(most, 0, -1):
        yield users, plan(request._replace(load=request.load._replace(users=users)))


def best_split(request: PlanRequest, *, surely: bool) -> tuple[int, int]:
    """Of all splits without whole experts the most users of the load, and of those the fewest stages, negative."""
    count, best = len(request.machine.devices), (0, 0)
    assert request.load is not None
    for sizes in product(range(1, count + 1), repeat=3):
        if sizes[0] * sizes[1] * sizes[2] <= count:
            made = plan(of(request, **{option_of(request, r): n for r, n in zip(SPLITS, sizes, strict=True)}))
            if made is not None and (made.sure if surely else made.fits):
                served = made.limits.sure_serves_users if surely else made.limits.serves_users
                best = max(best, (min(served or 0, request.load.users), -sizes[1]))
    return best


def differs(found: Solved, tried: Iterable[tuple[OptionValue, Plan | None]]) -> str:
    """How an answer differs from the first values that carry the load, "" where it does not."""
    every = list(tried)
    for surely, value in ((False, found.value), (True, found.sure_value)):
        expected = next((v for v, made in every if carries(made, surely=surely)), None)
        if value != expected:
            return f"{'sure_' if surely else ''}value is {value}, and {expected} by trying all"
    return unkept(found)


def unkept(found: Solved) -> str:
    """What the plan of an answer is not, "" where it is as it says."""
    if found.sure_value is None:
        return ""
    again = plan(found.request) if found.request is not None else None
    if again is None or found.plan is None or not again.sure:
        return "the answer does not surely work"
    if (again.verdict, again.limits, again.kv_cache) != (found.plan.verdict, found.plan.limits, found.plan.kv_cache):
        return "the answer gives another plan"
    return ""


def wrong(request: PlanRequest, question: Asked) -> str:
    """What is wrong of an answer, "" where nothing is, or the question is none for this request."""
    try:
        found = solve(question, request)
    except BadInput:
        return ""
    asked: tuple[Role, ...] = (*SPLITS, "expert_parallel", "budget_share")
    set_for_load = {change.option for change in found.changes} - {GPUS, *(option_of(request, r) for r in asked)}
    if question == "tp":
        if found.plan is None or set_for_load & {option_of(request, "context"), option_of(request, "max_requests")}:
            return ""
        surely = found.sure_value is not None
        served = (found.plan.limits.sure_serves_users if surely else found.plan.limits.serves_users) or 0
        best = best_split(request, surely=surely)
        return "" if served >= best[0] else f"serves {served}, and {best[0]} are by trying all"
    tries = {"gpus": by_gpus, "format": by_format, "utilisation": by_share}
    if question in tries:
        if found.request is not None:  # what the load made it set is part of the question
            kept = {n: v for n, v in found.request.options.items() if n in set_for_load}
            request = of(request, **kept)
        return differs(found, tries[question](request))
    return unkept(found)


def main() -> None:
    """Tell what is wrong, and how much was tried."""
    from tests.solve.wide import requests

    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    chosen, tried = random.Random(seed), Counter[str]()
    for request in requests(count, seed):
        if len(request.machine.devices) > 4:
            continue
        asked = request._replace(load=parse_load(chosen.choice(LOADS)))
        question = chosen.choice(ASKED)
        tried[f"{request.engine} {question}"] += 1
        if why := wrong(asked, question):
            tried["wrong"] += 1
            print(question, why, "|", asked.engine, asked.version, asked.model.id, gpus.machine_words(asked.machine),
                  [d.free_bytes for d in asked.machine.devices][:1], dict(asked.options), asked.load,
                  asked.weight_format, flush=True)  # fmt: skip
    print(*sorted(tried.items()), sep="\n")


if __name__ == "__main__":
    main()
