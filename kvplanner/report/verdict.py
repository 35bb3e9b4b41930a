"""What the verdict says of a plan, as text without Qt: one sentence, and the few figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kvplanner.engine.plan import DevicePlan, KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.stage import Against
from kvplanner.engine.verdict import Bytes
from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.devices import per_device, shortages, where
from kvplanner.report.sentences import (
    engine_message,
    failing_rule,
    failing_words,
    notes,
    says_requests,
    says_tokens,
    summary,
)
from kvplanner.report.words import Unit
from kvplanner.sized_text import SMALL, sizes_in
from kvplanner.units import ceil_div, counted, in_unit, round_band, round_to_band

State = Literal["fits", "narrow", "partly", "fails", "unknown", "stale", "empty"]
EMPTY: Final = "Choose a model and GPUs"


class Verdict(NamedTuple):
    """What the verdict says. details: short facts, in order; tightest: a position in plan.devices, or None."""

    state: State
    headline: str
    details: tuple[str, ...] = ()
    tightest: int | None = None
    tightest_text: str = ""
    engine_message: str = ""
    notes: tuple[str, ...] = ()


def verdict(plan: Plan | None, unit: Unit) -> Verdict:
    """The verdict of a plan in words: sizes as in the tables, counts with no more digits than their band allows."""
    if plan is None:
        return Verdict("empty", EMPTY)
    headline = sizes_in(summary(plan), unit)
    beside = tuple(sizes_in(note, unit) for note in notes(plan))
    if plan.fits is None:
        return Verdict("unknown", headline, _fitting(plan, unit), notes=beside)
    if plan.fits:
        details, tightest = _fitting(plan, unit), _tightest_text(plan, unit)
    else:
        details, tightest = _failing(plan, unit), ""
    return Verdict(_state(plan), headline, details, plan.tightest, tightest, engine_message(plan), beside)


def doubtful(plan: Plan) -> bool:
    """Whether the verdict neither says that the plan works for sure nor that it fails."""
    return plan.fits is None or _state(plan) == "narrow"


def _state(plan: Plan) -> State:
    if not plan.fits:
        return "fails"
    if plan.verdict.doubt is not None:
        return "narrow"
    served, load = plan.limits.serves_users, plan.request.load
    return "partly" if load and served is not None and served < load.users else "fits"


def no_plan(why: str) -> str:
    """The headline where there is no plan."""
    first = why.split(" ")[0]
    plain = first.isalpha() and (first[1:].islower() or len(first) == 1)  # no name and no abbreviation
    return f"No plan: {why[:1].lower() if plain else why[:1]}{why[1:]}"


def refused(last: Verdict, why: str, remedy: str) -> Verdict:
    """What is said while an older plan is in sight, since there is none of what is set."""
    which = "could be made" if last.state in ("fails", "unknown") else "worked"
    shown = f"Shown: the last plan that {which} ({last.headline})"
    return Verdict("stale", no_plan(why), (remedy, shown) if remedy else (shown,))


def _fitting(plan: Plan, unit: Unit) -> tuple[str, ...]:
    cache = plan.kv_cache
    if cache is None:
        return _of_step(plan)
    # The cache as the bars and the table have it: whole blocks, on the GPU with the least.
    segment = plan.devices[plan.tightest].segment("kv_cache")
    available = segment.estimate if segment else cache.available
    if cache.shared_out:
        facts = [f"{words.size(plan.bytes_of('kv_cache'), unit)} of KV cache{per_device(plan, cache)}"]
    else:
        facts = [f"{_sized(available, unit)} of KV cache per GPU{', as given' if plan.cache_given else ''}"]
    per = " per replica" if plan.replicas > 1 else ""
    if not says_requests(plan):
        facts.append(f"{_requests(cache)}{per}")
    facts += [f"{text}{per}" for text in _tokens(cache, in_headline=says_tokens(plan))]
    if per and not says_tokens(plan):
        facts.append(f"{plan.replicas} replicas")
    load = plan.request.load
    if load and plan.limits.bytes_per_user:
        from kvplanner.report.loads import tokens_each

        need = plan.limits.bytes_per_user
        gpus = len(plan.gpus)
        users = ceil_div(load.users, plan.replicas)
        facts.append(
            f"{counted(load.users, 'user', 'users')} of {tokens_each(load)} "
            f"{'takes' if load.users == 1 else 'take'} "
            f"{words.size(need * users, unit)}{' per GPU' if gpus * plan.replicas > 1 else ''}"
        )
    return tuple(facts)


def _of_step(plan: Plan) -> tuple[str, ...]:
    """What a step of a model without a cache may hold, beside the headline."""
    step = plan.step
    if step is None:
        return ()
    most = f"{step.tokens:,} tokens in a step, at most {counted(step.sequences, 'sequence', 'sequences')}"
    return (most, f"sequences of up to {step.length:,} tokens")


def _tokens(cache: KvCache, *, in_headline: bool) -> list[str]:
    """The tokens, or only their range where the headline has them."""
    _, low, high = (f"{n:,}" for n in round_band(cache.tokens, cache.tokens_low, cache.tokens_high))
    if not in_headline:
        return [words.tokens(cache.tokens, cache.tokens_low, cache.tokens_high)]
    return [f"range {low}–{high} tokens"] if low != high else []


def _requests(cache: KvCache) -> str:
    """How many full-length requests are held at once, no finer than the tokens' band allows."""
    value = cache.max_concurrency
    spread = (cache.tokens_high - cache.tokens_low) / max(cache.context_length, 1)
    small = f"{'≈ ' if spread else ''}{value:,.{1 if spread < 2 else 0}f}"
    shown = f"≈ {_near(cache):,}" if value >= 100 else small
    return f"{shown} full-length requests of {cache.context_length:,} tokens"


def _near(cache: KvCache) -> int:
    per = max(cache.context_length, 1)
    low, high = cache.tokens_low // per, cache.tokens_high // per
    value = round(cache.max_concurrency)
    return round_to_band(value, min(low, value), max(high, value))


def _sized(estimate: Estimate, unit: Unit) -> str:
    reach = words.span(estimate, unit)
    return f"{words.number(estimate.value, unit)} {unit} ({reach})" if reach else words.size(estimate.value, unit)


def _tightest_text(plan: Plan, unit: Unit) -> str:
    """Where least is left: the device, and its headroom."""
    device = plan.devices[plan.tightest]
    name = words.device_name(plan, plan.group_of(plan.tightest))
    headroom = device.segment("headroom")
    if headroom is None:
        return f"tightest: {name}"
    return f"tightest: {name}, {words.size(headroom.bytes, unit)} headroom"


def _in_headline(plan: Plan, size: int, unit: Unit) -> bool:
    """Whether the headline has a size, as it is shown."""
    failing = plan.verdict.failing
    if failing is None:
        return False
    figures = (figure for name, figure in failing.reason.figures.items() if f"{{{name}}}" in failing.reason.template)
    return any(isinstance(figure, Bytes) and words.size(figure, unit) == words.size(size, unit) for figure in figures)


def _failing(plan: Plan, unit: Unit) -> tuple[str, ...]:
    """What is missing on each GPU, and the two figures that do not go together, as far as the headline does not say."""
    lacks = shortages(plan)
    facts: list[str] = []
    if not _in_headline(plan, plan.missing_bytes, unit):
        facts += [f"Fails {failing_words(plan)}"] if plan.stage else []
        facts += [_missing(plan, unit)] if lacks else []
    elif len(lacks) > 1:
        facts.append(_missing(plan, unit))
    elif len(lacks[0].positions) > 1:
        facts.append(f"alike on {where(plan, lacks[0].positions)}")
    facts += _against(plan, unit)
    facts += _longest(plan)
    return tuple(facts)


def _missing(plan: Plan, unit: Unit) -> str:
    """ "5.44 GiB missing on GPU 0, 5.40 on GPU 1"; GPUs whose figures read alike are told together."""
    alike: dict[str, tuple[int, ...]] = {}
    for lack in shortages(plan):
        size = words.size(lack.bytes, unit)
        alike[size] = (*alike.get(size, ()), *lack.positions)
    (first, positions), *others = alike.items()
    rest = (f"{size.removesuffix(f' {unit}')} on {where(plan, gpus)}" for size, gpus in others)
    return ", ".join([f"{first} missing on {where(plan, positions)}", *rest])


def _longest(plan: Plan) -> list[str]:
    """The longest context that would fit: the sure one, else what the values or the engine's own words say."""
    if _against_what(plan) != "request":
        return []
    sure, longest = plan.limits.sure_max_context_length, plan.limits.max_context_length
    if sure:
        return [f"a context of {sure:,} tokens would fit"]
    if longest is None and plan.kv_cache is not None:
        longest = plan.kv_cache.suggested_context_length
    return [f"a context of {longest:,} tokens may fit"] if longest else []


def _sum_of(have: int, missing: int, unit: Unit) -> str:
    """What is needed, so that it is the sum of the two figures that stand beside it, as they are rounded."""
    if missing < SMALL:
        return words.size(have + missing, unit)
    return f"{round(in_unit(have, unit), 2) + round(in_unit(missing, unit), 2):,.2f} {unit}"


def _against_what(plan: Plan) -> Against | None:
    rule = failing_rule(plan)
    return rule.against if rule else None


def _against(plan: Plan, unit: Unit) -> list[str]:
    device, rule = plan.devices[plan.tightest], failing_rule(plan)
    size = {s.kind: s.bytes for s in device.segments}
    if rule is None:
        return []

    def sized(value: float) -> str:
        return words.size(value, unit)

    if rule.against == "free" and device.budget:
        return _at_the_check(device, size, unit)
    if rule.against == "budget" and device.budget:
        if plan.cache_given:
            return []
        needed = _sum_of(device.budget.value, plan.missing_bytes, unit)
        return [f"{needed} are needed before any cache, the budget is {sized(device.budget.value)}"]
    if rule.against == "request" and plan.kv_cache:
        # What can be used of the cache stands in the headline, unless that is about other than bytes.
        left = sized(size.get("kv_cache", plan.kv_cache.available.value))
        failing = plan.verdict.failing
        in_bytes = failing is not None and "usable" in failing.reason.figures
        return [] if in_bytes else [f"{left} of KV cache per GPU"]
    sees = f"CUDA sees {sized(device.cuda_total_bytes)}"
    if rule.early:
        weights = size.get("weights", 0)
        return [sees if _in_headline(plan, weights, unit) else f"weights {sized(weights)} per GPU, {sees}"]
    needed = _sum_of(device.cuda_total_bytes, plan.missing_bytes, unit)
    cache = size.get("kv_cache", 0)
    given = " as given" if plan.cache_given else ""
    with_cache = "it" if _in_headline(plan, cache, unit) else f"the KV cache {sized(cache)}{given}"
    return [f"{needed} are needed with {with_cache}, {sees}"]


def _at_the_check(device: DevicePlan, size: Mapping[SegmentKind, int], unit: Unit) -> list[str]:
    """The free memory as a sum that can be followed, against the budget."""
    other, outside = size.get("other", 0), size.get("runtime_outside", 0)
    free = device.cuda_total_bytes - other
    number = words.number
    asks = f"the budget asks for {words.size(device.budget.value, unit)}" if device.budget else ""
    if free < outside:  # not even a context is made: nothing is left of what is free
        return [asks, *([f"other programs hold {words.size(other, unit)}"] if other else [])]
    less = f"{words.size(free, unit)} less {number(outside, unit)} CUDA context = {number(free - outside, unit)} free"
    return [f"{less}, {asks}", *([f"other programs hold {words.size(other, unit)}"] if other else [])]
