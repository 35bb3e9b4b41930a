"""The sentences of a plan: every one is made here, from values, and none is ever read back.

A sentence with sizes is a `SizedText`: it reads in GiB, and `sizes_in` reads it in GB.
"""

from __future__ import annotations

from kvplanner.engine.plan import Limits, Plan, Step
from kvplanner.engine.stage import StageRule
from kvplanner.engine.verdict import NO_KERNELS, Bytes, Reason, Shortfall
from kvplanner.report.options import label_in_sentence
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import counted, format_count, round_to_band


def clause(reason: Reason) -> str:
    """A reason with its figures, sizes as marks: for the inside of a `SizedText`."""
    return reason.template.format_map({name: _figure(value) for name, value in reason.figures.items()})


def _figure(value: Bytes | int | float | str) -> str:
    if isinstance(value, Bytes):
        return size_mark(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return format_count(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def summary(plan: Plan) -> str:
    """One sentence with the number that matters."""
    blocked = plan.verdict.blocked
    if not blocked:
        return SizedText(_found(plan))
    why = clause(blocked[0])
    if blocked[0].code != NO_KERNELS:
        return SizedText(f"Cannot tell: {why}")
    if len(blocked) > 1:  # nor could it be told of a build that has them
        return SizedText(f"Cannot tell: {why}")
    head = "Does not fit" if plan.fits is False else "Cannot tell"
    found = _found(plan)
    return SizedText(f"{head}: {why}; a build of your own that has them {found[0].lower()}{found[1:]}")


def reason(plan: Plan) -> str:
    """Why a plan does not fit or cannot be told, without saying again that it does not; "" where it fits."""
    verdict = plan.verdict
    if verdict.blocked:
        return SizedText(clause(verdict.blocked[0]))
    return SizedText(clause(verdict.failing.reason)) if verdict.failing else ""


def engine_message(plan: Plan) -> str:
    """What the engine would print where start-up fails, "" where it does not."""
    failing = plan.verdict.failing
    return failing.message if failing else ""


def _fits(plan: Plan) -> str:
    """The first words of a plan that works: with what lies in RAM, where the engine or its driver put it there."""
    spilled = plan.verdict.spilled
    if spilled is not None:
        return f"Runs slowly, {clause(spilled)}"
    return f"Fits with {size_mark(plan.moved_bytes)} of the weights in RAM" if plan.moved_bytes else "Fits"


def _found(plan: Plan) -> str:
    """What was found by the values and their bands, whatever keeps the engine from running."""
    verdict = plan.verdict
    if verdict.failing is not None:
        why = clause(verdict.failing.reason)
        if verdict.certainty == "certain":
            return f"Does not fit: {why}"
        return f"Probably does not fit: {why}; at the best end of its range it would fit"
    if plan.step is not None:
        return _stepwise(plan, plan.step)
    if plan.kv_cache is None:
        return _guarded(plan, "this model keeps no KV cache")
    room, load, limits = _room(plan), plan.request.load, plan.limits
    unsure = f", {clause(verdict.doubt.reason)}" if verdict.doubt and of_cache(plan, verdict.doubt) else ""
    if load is None or limits.serves_users is None:
        room = f"{room}, {_at_once(plan)}{unsure}"
        return f"May not fit: {room}" if unsure else _guarded(plan, room)
    served, users = limits.serves_users, load.users
    of = f"{format_count(served)} of {counted(users, 'user', 'users')}"
    room += unsure
    why = room if served >= users else _why(plan, room)
    if unsure or early_doubt(plan):
        return f"{_may_not(plan) or 'May not fit'}; if it starts, it serves {of}: {why}"
    return f"{_fits(plan)}, {_serves(served, users, of)}: {why}"


def _stepwise(plan: Plan, step: Step) -> str:
    """What a model without a cache computes in one step."""
    load, limits = plan.request.load, plan.limits
    if load is None or limits.serves_users is None:
        return _guarded(plan, f"{step_text(plan, step, step.length)}, without a KV cache")
    served, users = limits.serves_users, load.users
    of = f"{format_count(served)} of {counted(users, 'user', 'users')}"
    why = step_text(plan, step, load.longest_prompt)
    if limits.limited_by == "context":
        why = f"a sequence has {format_count(load.longest_prompt)} tokens and the longest may have "
        why += format_count(step.length)
    elif served < users:
        why += "; the others wait for the next"
    if early_doubt(plan):
        return f"{_may_not(plan)}; if it starts, a step serves {of}: {why}"
    return f"{_fits(plan)}, {_serves(served, users, of)}{' in one step' if served < users else ''}: {why}"


def step_text(plan: Plan, step: Step, length: int) -> str:
    """ "a step takes 4 sequences of 512 tokens", over all replicas."""
    per = " of each replica" if plan.replicas > 1 else ""
    what = counted(step.holds(length), "sequence", "sequences")
    return f"a step{per} takes {what} of {counted(length, 'token', 'tokens')}"


def _guarded(plan: Plan, room: str) -> str:
    """What a plan has room for, after the check that it may fail at."""
    return f"{_may_not(plan)}; if it starts, {room}" if early_doubt(plan) else f"{_fits(plan)}: {room}"


def _may_not(plan: Plan) -> str:
    doubt = early_doubt(plan)
    return f"May not fit: {clause(doubt.reason)}" if doubt else ""


def early_doubt(plan: Plan) -> Shortfall | None:
    """The check that a start may fail at, other than the cache's room."""
    doubt = plan.verdict.doubt
    rule = _rule(plan, doubt) if doubt else None
    return doubt if rule is not None and (rule.early or rule.starting or rule.against == "free") else None


def of_cache(plan: Plan, doubt: Shortfall) -> bool:
    """Whether what may be lacking is room in the cache."""
    rule = _rule(plan, doubt)
    return rule is not None and rule.against == "request"


def _rule(plan: Plan, shortfall: Shortfall) -> StageRule | None:
    from kvplanner.engine.registry import engine

    return next((rule for rule in engine(plan.request.engine).stages if rule.stage == shortfall.stage), None)


def failing_words(plan: Plan) -> str:
    """When start-up fails, after "fails": "while loading the weights"; "" where it does not fail."""
    rule = failing_rule(plan)
    return rule.when if rule else ""


def failing_rule(plan: Plan) -> StageRule | None:
    """The engine's rule of the failing stage, None where none fails."""
    failing = plan.verdict.failing
    return _rule(plan, failing) if failing and plan.stage else None


def says_requests(plan: Plan) -> bool:
    """Whether the summary tells how many requests of full length are held at once."""
    told = plan.kv_cache is not None and plan.verdict.failing is None
    return told and (plan.request.load is None or plan.limits.serves_users is None)


def says_tokens(plan: Plan) -> bool:
    """Whether the summary tells the cache's tokens: not where something else keeps users from being served."""
    if plan.kv_cache is None or plan.verdict.failing is not None:
        return False
    return says_requests(plan) or plan.limits.limited_by in ("", "kv_cache")


def _room(plan: Plan) -> str:
    cache = plan.kv_cache
    assert cache is not None
    about = "" if cache.tokens_low == cache.tokens_high else "≈ "
    tokens = round_to_band(cache.tokens, cache.tokens_low, cache.tokens_high)
    return f"KV cache for {about}{format_count(tokens)} tokens{of_replicas(plan, ' ')}"


def of_replicas(plan: Plan, before: str = ", ") -> str:
    """Whose tokens those are, where several replicas have a cache each: " in each of 4 replicas"; "" for one."""
    if plan.replicas < 2:
        return ""
    caches: dict[int, list[int]] = {}
    for device in plan.devices:
        segment = device.segment("kv_cache")
        caches.setdefault(device.replica, []).append(segment.bytes if segment else 0)
    alike = len({tuple(sizes) for sizes in caches.values()}) == 1
    return f"{before}in {'each' if alike else 'the smallest'} of {plan.replicas} replicas"


def _at_once(plan: Plan) -> str:
    cache, most = plan.kv_cache, plan.limits.max_requests
    assert cache is not None
    length = format_count(cache.context_length)
    if most is not None and cache.max_concurrency > most / plan.replicas:
        requests = counted(most // plan.replicas, "request", "requests")
        return f"{requests} of {length} tokens at once ({label_in_sentence(plan, 'max_requests')})"
    if cache.max_concurrency == 1:
        return f"one request of {length} tokens at once"
    return f"{cache.max_concurrency:,.1f} requests of {length} tokens at once"


def _serves(served: int, users: int, of: str) -> str:
    if served >= users:
        return f"and serves {of}"
    return f"but serves only {of}" if served else f"but serves none of {counted(users, 'user', 'users')}"


def _why(plan: Plan, room: str) -> str:
    """Why not all users are served."""
    limits: Limits = plan.limits
    load, cache = plan.request.load, plan.kv_cache
    if limits.limited_by == "context" and load is not None and cache is not None:
        tokens, length = format_count(load.tokens_per_user), format_count(cache.context_length)
        return f"one needs {tokens} tokens and the context length is {length}"
    if limits.limited_by == "max_requests" and limits.max_requests is not None:
        what, most = label_in_sentence(plan, "max_requests"), format_count(limits.max_requests)
        return f"{what} allows {most}, the KV cache would hold {format_count(limits.users_by_memory or 0)}"
    return room


def notes(plan: Plan) -> tuple[str, ...]:
    """What the reader should know beside the numbers: what may break the plan first."""
    doubt = doubt_note(plan)
    return (doubt, *plan.warnings) if doubt else plan.warnings


def doubt_note(plan: Plan) -> str:
    """The stage that the plan may fail at within its bands, "" where there is none."""
    verdict = plan.verdict
    doubt = verdict.doubt
    rule = _rule(plan, doubt) if doubt else None
    if doubt is None or rule is None or verdict.spilled is not None:
        return ""  # what is spilled, the summary says
    gpu = f"{'Host' if plan.devices[doubt.device].device.kind == 'host' else 'GPU'} {_index(plan, doubt.device)}"
    most = size_mark(doubt.most_bytes)
    if verdict.failing is not None:
        lacks = f"{rule.doing} lacks {most} on {gpu}"
        return SizedText(f"May already fail earlier: at the upper end of its range {lacks}")
    if rule.against == "request":
        return SizedText(f"May not fit: at the lower end of its range the engine would say: {doubt.message}")
    share = label_in_sentence(plan, "budget_share")
    remedy = f"; a lower {share} leaves room" if share else ""
    if rule.early or rule.starting or rule.against == "free":
        lacks = f"{rule.doing} lacks {most} on {gpu}{'' if rule.early else remedy}"
        return SizedText(f"May not fit: at the upper end of its range {lacks}")
    return SizedText(f"A narrow fit: at the upper end of its range {rule.doing} may lack {most} on {gpu}{remedy}")


def _index(plan: Plan, position: int) -> int:
    return plan.devices[position].device.index
