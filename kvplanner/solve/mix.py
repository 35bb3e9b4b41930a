"""A mix of requests with shares: how many users of all kinds together a plan serves, each kind with its own length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import floor
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput, PlannerError
from kvplanner.record import NamedTuple
from kvplanner.solve.change import Change
from kvplanner.solve.solver import Solved, bound, largest
from kvplanner.units import parse_count

_EXAMPLE: Final = "Write for example --mix 70%:1500+500,30%:8k+1k"
_PART: Final = re.compile(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*%?\s*:\s*([\w.]+)\s*\+\s*([\w.]+)\s*")
_MOST_PARTS: Final = 16
_MOST_USERS: Final = 1 << 16
_MOST_SLOTS: Final = 256


class Part(NamedTuple):
    """Requests of one kind. share: of all users, the shares of a mix being 1 together."""

    share: float
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """What one of them holds in the end."""
        return self.prompt_tokens + self.output_tokens


def parse_mix(text: str) -> tuple[Part, ...]:
    """Parts from "70%:1500+500,30%:8k+1k"; shares count against their sum. Raises BadInput."""
    found: list[Part] = []
    for word in text.split(","):
        match = _PART.fullmatch(word)
        try:
            share = float(match[1]) if match else 0.0
            prompt, output = (parse_count(match[2]), parse_count(match[3])) if match else (0, 0)
        except ValueError as error:
            raise BadInput(str(error), "--mix", _EXAMPLE) from error
        if share <= 0 or prompt + output < 1:
            raise BadInput(f"{word[:60]!r} is no part of a mix", "--mix", _EXAMPLE)
        found.append(Part(share, prompt, output))
    if len(found) > _MOST_PARTS:
        raise BadInput(f"{len(found)} kinds of requests are too many", "--mix", f"Give {_MOST_PARTS} at most")
    whole = sum(part.share for part in found)
    return tuple(part._replace(share=part.share / whole) for part in found)


def counts(users: int, mix: Sequence[Part]) -> tuple[int, ...]:
    """How many of so many users are of each kind: whole numbers that sum to them, nearest to the shares."""
    exact = [users * part.share for part in mix]
    made = [floor(part) for part in exact]
    for at in sorted(range(len(mix)), key=lambda at: made[at] - exact[at])[: users - sum(made)]:
        made[at] += 1
    return tuple(made)


def users_of_mix(request: PlanRequest, mix: Sequence[Part]) -> Solved:
    """The most users of a mix that are served at once, surely and by the values.

    Where none surely are with the model's own context length and the user set none, it is that of the longest kind.
    """
    found = _users_of_mix(request, mix)
    option = role_option(engine(request.engine), request.version, "context")
    if found.sure_value is not None or option is None or option.name in request.options:
        return found
    length = max(part.tokens for part in mix)
    again = _users_of_mix(request._replace(options={**request.options, option.name: length}), mix)
    better = again.sure_value is not None or (found.value is None and again.value is not None)
    return again._replace(changes=(Change(option.name, length), *again.changes)) if better else found


def _users_of_mix(request: PlanRequest, mix: Sequence[Part]) -> Solved:
    """The same as the request is.

    A number of users works where the plan does, its requests at once reach them, every kind is within the context
    length, and the units of the cache that all of them hold in the end are there. Where the user did not set how many
    requests run at once, that grows with the users.
    """
    chosen = engine(request.engine)
    slots = role_option(chosen, request.version, "max_requests")
    made: dict[tuple[int, int], Plan | None] = {}

    def asked(users: int) -> tuple[PlanRequest, tuple[Change, ...]]:
        base = planned(0, 0)
        now = base.limits.max_requests if base is not None else None
        if slots is None or slots.name in request.options or base is None or now is None or users <= now:
            return request, ()
        each = -(-users // max(base.replicas, 1))
        return request._replace(options={**request.options, slots.name: each}), (Change(slots.name, each),)

    def planned(users: int, kind: int) -> Plan | None:
        changed = request if not users else asked(users)[0]
        load = Load(1, mix[kind].prompt_tokens, mix[kind].output_tokens)
        key = int(changed.options.get(slots.name, 0)) if slots is not None else 0, kind
        if key not in made:
            try:
                made[key] = chosen.plan(changed._replace(load=load))
            except PlannerError:
                made[key] = None
        return made[key]

    def does(users: int, surely: bool) -> bool:
        return _holds([planned(users, kind) for kind in range(len(mix))], counts(users, mix), surely=surely)

    base = planned(0, 0)
    kinds = [plan for kind in range(len(mix)) if (plan := planned(0, kind)) is not None]
    most = max((plan.limits.users_by_memory or 0 for plan in kinds), default=0)
    free = slots is not None and slots.name not in request.options
    if free and most == (base.limits.max_requests if base is not None else None):
        most = _MOST_SLOTS  # each request has a part of the cache of its own: more of them make it larger
    most = min(max(most, 1), _MOST_USERS)
    value, sure = (largest(1, most, lambda users, surely=surely: does(users, surely)) for surely in (False, True))  # type: ignore[misc]
    answer = sure if sure is not None else value
    if answer is None:
        short = next((plan for plan in kinds if plan.limits.limited_by == "context"), base)
        return Solved("users", None, None, bound(short, surely=False) or bound(base, surely=True) or "kv_cache")
    changed, changes = asked(answer)
    at_once = base.limits.max_requests if base is not None else None
    why = "max_requests" if not free and at_once is not None and answer >= at_once else "kv_cache"
    parts = tuple((n, part.prompt_tokens, part.output_tokens) for n, part in zip(counts(answer, mix), mix, strict=True))
    return Solved("users", value, sure, why, changes, changed, planned(answer, 0), parts)


def _holds(plans: Sequence[Plan | None], users: Sequence[int], *, surely: bool) -> bool:
    """Whether the users of each kind fit together; plans: one with each kind's load."""
    first = plans[0]
    if first is None or first.kv_cache is None or not first.fits or (surely and not first.sure):
        return False
    cache, replicas = first.kv_cache, max(first.replicas, 1)
    units = cache.units * cache.tokens_low // max(cache.tokens, 1) if surely else cache.units
    most, held, at_once = first.limits.max_requests, 0, 0
    for plan, number in zip(plans, users, strict=True):
        each = -(-number // replicas)  # of the fullest replica
        if plan is None or not plan.limits.units_per_user:
            return False  # longer than the context length
        held += each * (plan.limits.units_per_user or 0)
        at_once += each
    # One unit is never a request's in engines that keep a null block.
    return held <= units - 1 and (most is None or at_once <= -(-most // replicas))
