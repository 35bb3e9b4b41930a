"""Levers that every engine has by the roles of its options: budget share, context, requests, steps, graphs, GPUs.

An engine adds those of its own. Values follow from the figures of the plan at hand, so that a first try mostly works;
whether it does, the plan of the changed request decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kvplanner.engine.lever import Aim, Lever, Loss, Step
from kvplanner.engine.option import Option, OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.stage import StageRule
from kvplanner.engine.verdict import Shortfall
from kvplanner.model.model import Model
from kvplanner.model.spec import Moe
from kvplanner.record import NamedTuple

_STEP_TOKENS: Final = (16_384, 8192, 4096, 2048, 1024, 512)
_LEAST_CONTEXT: Final = 2048
_LEAST_REQUESTS: Final = 4
_MOST_SHARE: Final = 0.98
_LEAST_SHARE: Final = 0.05


class Seen(NamedTuple):
    """A plan as levers see it. short: where it fails or may fail, None where it surely works; rule: of that stage.

    options: those of the release. allowed: the values of a whole-number option that a model allows.
    """

    request: PlanRequest
    plan: Plan
    options: Mapping[str, Option]
    by_role: Mapping[Role, Option]
    allowed: Callable[[str, Model], tuple[int, ...]]
    short: Shortfall | None
    rule: StageRule | None

    def now(self, role: Role) -> OptionValue | None:
        """The value that an option has in the plan, None where the engine has none of that role."""
        option = self.by_role.get(role)
        resolved = self.plan.options.get(option.name) if option else None
        return resolved.value if resolved else None

    def count(self, role: Role) -> int:
        """A whole number that an option has, 1 where it has none."""
        value = self.now(role)
        return value if isinstance(value, int) else 1

    def step(self, role: Role, value: OptionValue | None) -> Step:
        """A step that sets the option of a role."""
        return {self.by_role[role].name: value}

    @property
    def parts(self) -> int:
        """Of an engine whose slots share its context out, how many: a request has one of them."""
        now, cache = self.count("context"), self.plan.kv_cache
        return -(-now // cache.context_length) if cache is not None and 0 < cache.context_length < now else 1

    @property
    def shorter(self) -> str:
        """What a shorter context costs."""
        if self.parts > 1:
            return "all slots together have {value} tokens, prompts and answers"
        return "requests may be no longer than {value} tokens, prompt and answer together"

    @property
    def lacks(self) -> int:
        """Bytes that are missing at the unfavourable end of the band, 0 where nothing is."""
        return max(self.short.most_bytes, 0) if self.short else 0

    @property
    def users(self) -> int:
        """Users of the load that one replica has to carry, 0 without a load."""
        load = self.request.load
        return math.ceil(load.users / max(self.plan.replicas, 1)) if load else 0


def see(
    request: PlanRequest,
    plan: Plan,
    *,
    options: Sequence[Option],
    stages: Sequence[StageRule],
    allowed: Callable[[str, Model], tuple[int, ...]],
) -> Seen:
    """What levers need to know of a plan; options, stages and allowed are the engine's."""
    short = plan.verdict.failing or plan.verdict.doubt
    rule = next((rule for rule in stages if short is not None and rule.stage == short.stage), None)
    by_name = {option.name: option for option in options}
    return Seen(request, plan, by_name, {o.role: o for o in options if o.role}, allowed, short, rule)


def by_role(seen: Seen) -> tuple[Lever, ...]:
    """The levers of the roles that an engine's options play."""
    return tuple(lever for make in _MAKERS for lever in make(seen) if lever.steps)


def _shares(seen: Seen, share: float, steps: tuple[int, ...]) -> tuple[Step, ...]:
    """Steps to a share in hundredths, and some hundredths beyond."""
    found = (round((round(share * 100) + more) / 100, 2) for more in steps)
    return tuple(seen.step("budget_share", value) for value in found if _LEAST_SHARE <= value <= _MOST_SHARE)


def _budget_share(seen: Seen) -> Iterator[Lever]:
    rule = seen.rule
    of_weights = rule is not None and rule.against == "card" and rule.early  # no share makes a card larger
    if "budget_share" not in seen.by_role or of_weights or (rule is None and seen.short is not None):
        return
    device = seen.plan.devices[seen.plan.tightest]
    now = device.budget_share
    if now is None or not device.cuda_total_bytes:
        return
    part = seen.lacks / device.cuda_total_bytes
    if seen.short is None:
        yield from _safe_shares(seen, now)
    elif rule is None or (seen.plan.cache_given and rule.against != "free"):
        return
    elif rule.against in ("budget", "request"):
        up = _shares(seen, math.ceil((now + part) * 100) / 100, (0, 1, 2, 4))
        yield Lever("budget_share", up, "no other program may need that memory", "nothing", ordered=True)
    elif rule.against == "free" or not rule.early:
        down = _shares(seen, math.floor((now - part) * 100) / 100, (0, -1, -2, -4))
        yield Lever("budget_share", down, "the KV cache gets smaller", "nothing", ordered=True)


def _safe_shares(seen: Seen, now: float) -> Iterator[Lever]:
    """Of a plan that works: the largest share that is safe, and the smallest that still carries the load."""
    if seen.plan.cache_given:
        return
    spare = [(d.segment("headroom"), d.cuda_total_bytes) for d in seen.plan.devices]
    room = min((s.estimate.low / total for s, total in spare if s is not None and total), default=0.0)
    most = math.floor((now + room) * 100) / 100
    up = tuple(s for s in _shares(seen, most, (0, -1, -2, -3)) if any(float(v or 0) > now for v in s.values()))
    yield Lever("budget_share", up, "no other program may need that memory", "nothing", ("more",))
    cache, limits = seen.plan.kv_cache, seen.plan.limits
    if cache is None or not cache.units or not seen.users or not limits.bytes_per_user:
        return
    device = seen.plan.devices[seen.plan.tightest]
    needed = max(limits.bytes_per_user * seen.users, cache.request_bytes) + 2 * cache.bytes_per_unit
    spare_bytes = cache.available.low - needed
    least = math.ceil((now - spare_bytes / device.cuda_total_bytes) * 100) / 100
    down = tuple(s for s in _shares(seen, least, (0, 1, 2)) if all(float(v or 0) < now for v in s.values()))
    yield Lever("smaller_budget", down, "room for this load and no more", "nothing", ("less",))


def _requests(seen: Seen) -> Iterator[Lever]:
    now, floor = seen.count("max_requests"), max(seen.users, 1)
    if "max_requests" not in seen.by_role:
        return
    if seen.short is None:
        if seen.plan.limits.limited_by == "max_requests":
            yield Lever("max_requests", (seen.step("max_requests", floor),), "more memory", "nothing", ("more",))
        return
    if seen.rule is None or seen.rule.against == "free" or seen.short.stage == "weights":
        return
    steps: list[int] = []
    value = now // 2
    while value > max(floor, _LEAST_REQUESTS):
        steps.append(value)
        value //= 2
    steps += [value for value in (floor if seen.users else _LEAST_REQUESTS,) if value < now]
    of_state = seen.short.reason.figures.get("blocks") if seen.rule.against == "request" else None
    cache = seen.plan.kv_cache
    if isinstance(of_state, int) and cache is not None:
        surely = of_state * cache.tokens_low // max(cache.tokens, 1) // 8 * 8
        steps = [value for value in (surely, *steps) if floor <= value <= surely]
    cost = "no more than {value} requests run at once, others wait"
    loss: Loss = "nothing" if seen.users and all(value >= seen.users for value in steps) else "speed"
    cost = "nothing for this load: at most {value} requests run at once" if loss == "nothing" else cost
    made = tuple(seen.step("max_requests", value) for value in dict.fromkeys(steps))
    yield Lever("max_requests", made, cost, loss, monotone=True)


def _step_tokens(seen: Seen) -> Iterator[Lever]:
    now = seen.count("step_tokens")
    if "step_tokens" not in seen.by_role or (seen.rule is not None and seen.rule.against == "free"):
        return
    if seen.short is not None and seen.short.stage == "weights":
        return
    steps = tuple(seen.step("step_tokens", tokens) for tokens in _STEP_TOKENS if tokens < now)
    aim: Aim = "fit" if seen.short else "more"
    if aim == "more":
        steps = tuple(reversed(steps))[2:3]  # 2,048: below that prompts take long
    cost = "prompts are read {value} tokens at a time: first tokens of long ones come later"
    yield Lever("step_tokens", steps, cost, "speed", (aim,), monotone=aim == "fit")


def _context(seen: Seen) -> Iterator[Lever]:
    now, load, cost = seen.count("context"), seen.request.load, seen.shorter
    floor = load.tokens_per_user * seen.parts if load else _LEAST_CONTEXT // 2
    if "context" not in seen.by_role or seen.short is None or seen.rule is None:
        return
    # Longest contexts take long to find: they are read where a step follows from them alone.
    if seen.rule.against == "free" or seen.short.stage == "weights":
        return
    if seen.rule.against == "request" and (sure := seen.plan.limits.sure_max_context_length):
        yield Lever("context", (seen.step("context", sure),) if floor <= sure < now else (), cost, "length")
        return
    value = 1 << max(now - 1, 1).bit_length() - 1
    steps: list[Step] = []
    while value >= max(floor, _LEAST_CONTEXT):
        steps.append(seen.step("context", value))
        value //= 2
    if load and (steps or floor >= _LEAST_CONTEXT) and floor < now:
        steps.append(seen.step("context", floor))
    yield Lever("context", tuple(steps), cost, "length", monotone=True)


def _eager(seen: Seen) -> Iterator[Lever]:
    if "eager" in seen.by_role and not seen.now("eager") and (seen.rule is None or seen.rule.against != "free"):
        cost = "every token is decoded more slowly, most of all with few users"
        yield Lever("eager", (seen.step("eager", True),), cost, "speed", ("fit" if seen.short else "more",))


def _draft(seen: Seen) -> Iterator[Lever]:
    method = seen.by_role.get("draft_method") or seen.by_role.get("draft")
    if method is None:
        return
    section = [option.name for option in seen.options.values() if option.section == method.section]
    drop: Step = {name: None for name in section if name in seen.request.options}
    if drop:
        yield Lever("no_draft", (drop,), "no drafted tokens: each answer comes more slowly", "speed", ("fit", "more"))


def _spread(seen: Seen) -> Iterator[Lever]:
    """GPUs of the machine that the plan leaves idle, or that it uses in another way."""
    roles: tuple[Role, ...] = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    if any(role not in seen.by_role for role in roles):
        return
    gpus = len(seen.request.machine.gpus)
    tp, pp, dp = (seen.count(role) for role in roles)
    if gpus < 2:
        return

    def step(*sizes: int) -> Step:
        return {seen.by_role[role].name: size for role, size in zip(roles, sizes, strict=True)}

    sizes = seen.allowed(seen.by_role["tensor_parallel"].name, seen.request.model)
    stages = seen.allowed(seen.by_role["pipeline_parallel"].name, seen.request.model)
    wider = [t for t in sizes if tp < t <= gpus]
    deeper = [(t, gpus // t) for t in reversed(sizes) if t <= tp and gpus // t > pp and gpus // t in stages]
    idle = gpus > tp * pp * dp
    cost = "the GPUs that are idle are taken" if idle else "one replica instead of several" if dp > 1 else ""
    if seen.short is not None and seen.rule is not None and seen.rule.against != "free":
        yield Lever("tensor_parallel", tuple(step(t, 1, 1) for t in wider), cost or "more traffic between the GPUs",
                    "nothing" if idle else "speed")  # fmt: skip
        steps = tuple(step(t, p, 1) for t, p in deeper if t * p > tp * pp or t != tp)
        yield Lever("pipeline_parallel", steps[:3], "requests pass the GPUs one after the other: slower for one user",
                    "nothing" if idle else "speed")  # fmt: skip
    elif seen.short is None and idle:
        copies = gpus // (tp * pp)
        more = (step(tp, pp, copies),) if copies > dp else ()
        yield Lever("data_parallel", more, "the idle GPUs hold further copies", "nothing", ("more",))
        yield Lever("tensor_parallel", tuple(step(t, 1, 1) for t in reversed(wider)), cost, "nothing", ("more",))
    yield from _experts(seen, tp * dp)


def _experts(seen: Seen, ranks: int) -> Iterator[Lever]:
    has_experts = any(isinstance(mlp, Moe) for layer in seen.request.model.spec.layers for mlp in layer.mlps)
    option = seen.by_role.get("expert_parallel")
    tensor = seen.count("tensor_parallel")
    if option is None or not has_experts or seen.now("expert_parallel") not in (None, False, 1):
        return
    if (ranks if option.type == "bool" else tensor) < 2:  # a number of ranks is of one copy
        return
    if seen.rule is None or seen.rule.against != "free":
        cost = "whole experts lie on each GPU: busy ones may wait"
        yield Lever("expert_parallel", ({option.name: option.over(tensor)},), cost, "speed", ("fit", "more"))


def _pinned_cache(seen: Seen) -> Iterator[Lever]:
    """A cache of a given size for the load alone: what is left stays free for others."""
    limits, cache = seen.plan.limits, seen.plan.kv_cache
    if "kv_bytes" not in seen.by_role or seen.short is not None or cache is None or not limits.bytes_per_user:
        return
    needed = max(limits.bytes_per_user * seen.users, cache.request_bytes) + 2 * cache.bytes_per_unit
    if seen.plan.cache_given or not seen.users or needed >= cache.available.low:
        return
    size = math.ceil(needed / 2**20) * 2**20
    yield Lever("kv_bytes", (seen.step("kv_bytes", size),), "a cache for this load and no more", "nothing", ("less",))


_MAKERS: Final[tuple[Callable[[Seen], Iterator[Lever]], ...]] = (
    _budget_share, _requests, _step_tokens, _context, _eager, _draft, _spread, _pinned_cache,
)  # fmt: skip
