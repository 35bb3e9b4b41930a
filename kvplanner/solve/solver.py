"""How far one setting goes: longest context, most users, smallest utilisation, fewest GPUs, best split, best format.

Each is searched by real plans, twice: where the values work, and where every band's unfavourable end does. Memory does
not always grow with a setting (chunked prefill that an old release turns on by length, states by block, graph sizes),
so that a search by halves is checked against a scan of the whole range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, Literal

from kvplanner.catalog import gpus
from kvplanner.engine.command import role_option
from kvplanner.engine.mix import counts
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Part, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.model.spec import Moe
from kvplanner.record import NamedTuple
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT, Change
from kvplanner.solve.others import more_gpus
from kvplanner.solve.splits import GPU_COUNTS, preferred, sizes_text, splits
from kvplanner.solve.trials import Trial, Trials, bound, largest, starts

Asked = Literal["context", "users", "utilisation", "gpus", "tp", "format"]
ASKED: Final[tuple[Asked, ...]] = ("context", "users", "utilisation", "gpus", "tp", "format")

_MOST_USERS: Final = 1 << 16
_MOST_SLOTS: Final = 256
# Where no length and no number of requests is at fault.
_EARLY: Final = ("free_memory_check", "weights")
_OF_THE_CACHE: Final[tuple[Asked, ...]] = ("context", "users", "utilisation")
_SHARES: Final = range(5, 100)  # hundredths
_USUAL_CONTEXT: Final = 8192  # that most conversations stay within
_WHOLE: Final = 1024


class AtLength(NamedTuple):
    """What an answer is for where no context length is set: a length, and the value that is surely enough there."""

    context_length: int
    value: int


class Solved(NamedTuple):
    """value: what works by the values; sure_value: what surely works; None where nothing does.

    bound_by: what is in the way of more: a stage of start-up, "kv_cache", "max_requests", "model", "machine" or "load".
    changes, request, plan: of the sure answer, else of the other; plan None where there is none. shorter: of the fewest
    GPUs, where the context is the engine's choice: the longest context with which fewer do, None where none does.
    """

    asked: Asked
    value: OptionValue | None
    sure_value: OptionValue | None
    bound_by: str
    changes: tuple[Change, ...] = ()
    request: PlanRequest | None = None
    plan: Plan | None = None
    shorter: AtLength | None = None

    @property
    def parts(self) -> tuple[tuple[int, Part], ...]:
        """How many users are of each kind, where the load has several."""
        load = self.request.load if self.request is not None else None
        return tuple(zip(counts(load.users, load.mix), load.mix, strict=True)) if load is not None else ()


def solve(asked: Asked, request: PlanRequest, check: Callable[[], None] | None = None) -> Solved:
    """The answer. Raises BadInput where the engine has no such setting, or the question needs a load.

    Where nothing surely works and the user set neither, the context length is the load's, then as many requests run at
    once as it has users, then both. check: called between plans; what it raises ends the search.
    """
    found = _SOLVERS[asked](Trials(request, check))
    for changes in _of_load(asked, request):
        if found.sure_value is not None or (asked in _OF_THE_CACHE and found.bound_by in _EARLY):
            break
        changed = request._replace(options={**request.options, **{c.option: c.value for c in changes if c.value}})
        again = _SOLVERS[asked](Trials(changed, check))
        if again.sure_value is not None or (found.value is None and again.value is not None):
            found = again._replace(changes=(*changes, *again.changes))
    return found


def _of_load(asked: Asked, request: PlanRequest) -> Iterator[tuple[Change, ...]]:
    """What of a load may be set for it where the engine's own defaults are made for more, or fewer."""
    load, chosen = request.load, engine(request.engine)
    if load is None:
        return
    wanted: tuple[tuple[Role, Asked, int], ...] = (
        ("context", "context", load.tokens_per_user), ("max_requests", "users", load.users)
    )  # fmt: skip
    found: list[Change] = []
    for role, of, value in wanted:
        option = role_option(chosen, request.version, role)
        if option is not None and asked != of and option.name not in request.options:
            found.append(Change(option.name, value))
    yield from ((change,) for change in found)
    if len(found) > 1:
        yield tuple(found)


# context -------------------------------------------------------------------------------------------------------------


def _context(trials: Trials) -> Solved:
    option = trials.option("context", "context")
    request = trials.request
    limit = request.model.spec.context_length or 0
    load = request.load

    def at(length: int) -> Trial:
        return trials.with_options(length, {option.name: length})

    start = trials.plan(at, min(limit, 4096) or 4096)[1]
    if not limit:
        limit = (start.limits.max_context_length if start else None) or 0
    low = load.tokens_per_user if load else 1

    def answer(surely: bool) -> int | None:
        found = start.limits if start else None
        hints = [h for h in (found.max_context_length, found.sure_max_context_length) if h] if found else []
        return largest(low, limit, lambda n: starts(trials.plan(at, n)[1], surely=surely), hints)

    return _finish(
        trials, "context", at, (answer(False), answer(True)), lambda n: n + 1 if n < limit else None, "model"
    )


# users ---------------------------------------------------------------------------------------------------------------


def _users(trials: Trials) -> Solved:
    load = trials.request.load
    if load is None:
        raise BadInput("a request's tokens are needed", "--solve users", "Say them with --load 1@1500+500")
    slots = role_option(trials.engine, trials.request.version, "max_requests")
    fixed = slots is None or slots.name in trials.request.options

    def at(users: int) -> Trial:
        changed = load._replace(users=users)
        plain = trials.with_options(users, {}, load=changed)
        if fixed or slots is None:
            return plain
        base = trials.plan(as_is)[1]
        slots_now = base.limits.max_requests if base else None
        replicas = base.replicas if base else 1
        needed = -(-users // replicas)
        if base is not None and base.sure and slots_now is not None and users <= slots_now:
            return plain
        return trials.with_options(users, {slots.name: needed}, load=changed)

    def as_is() -> Trial:
        return trials.with_options(1, {}, load=load._replace(users=1))

    first = trials.plan(as_is)[1]
    by_memory = (first.limits.users_by_memory if first else None) or 0
    at_once = (first.limits.max_requests if first else None) or 0
    most = min(max(by_memory, at_once, 1), _MOST_USERS)
    if not fixed and (by_memory <= at_once or first is None or not first.sure):
        most = max(most, _MOST_SLOTS)  # each has a part of the cache of its own, or a state: fewer or more fit

    def answer(surely: bool) -> int | None:
        return largest(1, most, lambda n: trials.works(at, n, surely=surely), [by_memory])

    return _finish(trials, "users", at, (answer(False), answer(True)), lambda n: n + 1, "kv_cache")


# utilisation ---------------------------------------------------------------------------------------------------------


def _utilisation(trials: Trials) -> Solved:
    option = trials.option("budget_share", "utilisation")

    def at(hundredths: int) -> Trial:
        return trials.with_options(hundredths / 100, {option.name: hundredths / 100})

    def answer(surely: bool) -> int | None:
        return next((n for n in _SHARES if trials.works(at, n, surely=surely)), None)

    found = answer(False), answer(True)
    ends = (True, False) if found == (None, None) else ()
    started = (n for end in ends for n in reversed(_SHARES) if starts(trials.plan(at, n)[1], surely=end))
    easiest = next(started, _SHARES[-1])
    return _finish(trials, "utilisation", at, found, lambda n: n - 1, "kv_cache", easiest=easiest)


# GPUs, split, format -------------------------------------------------------------------------------------------------


def _gpus(trials: Trials) -> Solved:
    """The fewest GPUs of the machine's kind, as they stand in machines: a few in one, more as whole nodes."""
    devices = trials.request.machine.devices
    if not devices or any(device.gpu.id != devices[0].gpu.id for device in devices):
        raise BadInput("the GPUs are not alike", "--solve gpus", "Name one kind with --gpu")

    @cache
    def splits_at(count: int) -> tuple[dict[str, OptionValue], ...]:
        return tuple(splits(trials.request, count, whole=True))

    def at(count: int, place: int, more: tuple[tuple[str, OptionValue], ...] = ()) -> Trial:
        machine = more_gpus(trials.request.machine, count)
        trial = trials.with_options(count, {**splits_at(count)[place], **dict(more)}, machine=machine)
        return trial._replace(changes=(Change(GPUS, gpus.machine_words(machine)), *trial.changes))

    def answer(surely: bool, *more: tuple[str, OptionValue]) -> tuple[int, int] | None:
        every = ((count, place) for count in GPU_COUNTS for place in range(len(splits_at(count))))
        return next((one for one in every if trials.works(at, *one, more, surely=surely)), None)

    value, sure = answer(False), answer(True)
    chosen = sure or value
    if chosen is None:
        return Solved("gpus", None, None, "gpus")
    trial, plan = trials.plan(at, *chosen, ())
    before = max((count for count in GPU_COUNTS if count < chosen[0]), default=0)
    fewer = next(
        (p for i in range(len(splits_at(before)) if before else 0) if (p := trials.plan(at, before, i, ())[1])), None
    )
    why = bound(fewer, surely=sure is not None) if fewer is not None else "machine"
    return Solved(
        "gpus", value[0] if value else None, sure[0] if sure else None, why, trial.changes, trial.request, plan,
        None if plan is None or sure is None else _with_less(trials, plan, sure[0], at, answer),
    )  # fmt: skip


def _with_less(
    trials: Trials, plan: Plan, count: int, at: Callable[..., Trial], answer: Callable[..., tuple[int, int] | None]
) -> AtLength | None:
    """Fewer GPUs with a usual context in place of one that nobody set, and the longest that they surely have."""
    option, load = role_option(trials.engine, trials.request.version, "context"), trials.request.load
    now = plan.kv_cache.context_length if plan.kv_cache is not None else 0
    usual = max(_USUAL_CONTEXT, load.tokens_per_user if load else 0)
    if option is None or option.name in trials.request.options or usual >= now:
        return None
    found = answer(True, (option.name, usual))
    if found is None or found[0] >= count:
        return None
    held = trials.plan(at, *found, ((option.name, usual),))[1]
    most = (held.limits.sure_max_context_length if held is not None else None) or usual
    longest = max(min(most, now) // _WHOLE * _WHOLE, usual)
    do = trials.works(at, *found, ((option.name, longest),), surely=True)
    return AtLength(longest if do else usual, found[0])


def _carried(plan: Plan, *, surely: bool) -> int:
    """What a plan could serve at once, for comparing splits."""
    limits = plan.limits
    if plan.request.load is None:
        return (limits.sure_max_concurrent_requests if surely else limits.max_concurrent_requests) or 0
    if not limits.units_per_user or plan.kv_cache is None:
        return (limits.sure_serves_users if surely else limits.serves_users) or 0
    by_memory = limits.users_by_memory or 0
    if surely and plan.kv_cache.tokens:
        by_memory = by_memory * plan.kv_cache.tokens_low // plan.kv_cache.tokens
    return min(by_memory, limits.max_requests or by_memory)


def _split(trials: Trials) -> Solved:
    """The split of the machine's GPUs that carries most of the load, or most of all where none is given.

    Of equal ones that with the fewest stages, then the least traffic, then most copies: as vLLM's guide to parallelism
    has it (one GPU where the model fits, tensor parallel within a node, stages beyond).
    """
    trials.option("tensor_parallel", "tp")
    count = len(trials.request.machine.gpus)
    experts = role_option(trials.engine, trials.request.version, "expert_parallel")
    made = list(splits(trials.request, count))
    layers = trials.request.model.spec.layers
    if experts is not None and any(isinstance(mlp, Moe) for layer in layers for mlp in layer.mlps):
        tensors = [(sizes, int(next(iter(sizes.values())))) for sizes in made]
        made += [{**sizes, experts.name: experts.over(tensor)} for sizes, tensor in tensors
                 if tensor > 1 or experts.type == "bool"]  # fmt: skip

    def at(place: int) -> Trial:
        return trials.with_options(sizes_text(made[place]), made[place])

    def answer(surely: bool) -> int | None:
        best: tuple[tuple[int, ...], int] | None = None
        for place in range(len(made)):
            plan = trials.plan(at, place)[1]
            if plan is None or not plan.fits or (surely and not plan.sure):
                continue
            carried = _carried(plan, surely=surely)
            load = plan.request.load
            key = carried if load is None else min(carried, load.users), *preferred(made[place])
            if best is None or key > best[0]:
                best = key, place
        return None if best is None else best[1]

    value, sure = answer(False), answer(True)
    chosen = sure if sure is not None else value
    if chosen is None:
        worst = next((p for i in range(len(made)) if (p := trials.plan(at, i)[1]) is not None), None)
        return Solved("tp", None, None, bound(worst, surely=False))
    trial, plan = trials.plan(at, chosen)
    return Solved(
        "tp", None if value is None else sizes_text(made[value]), None if sure is None else sizes_text(made[sure]),
        bound(plan, surely=sure is not None) or "machine", trial.changes, trial.request, plan,
    )  # fmt: skip


def _format(trials: Trials) -> Solved:
    """The format that keeps most of the weights and still works: by what it stores, the largest first."""
    from kvplanner.engine.whatif import as_format, is_converted, refused
    from kvplanner.model.whatif import WHATIF_FORMATS

    model = trials.request.model
    why_not = refused(model, trials.engine, trials.request.version, trials.request.machine)
    own = model.stored.value if model.stored else 0
    converted = is_converted(model, why_not)
    sized: list[tuple[int, str | None]] = [] if converted else [(own, None)]
    for name in WHATIF_FORMATS:
        if name not in why_not and name != model.weight_format and model.inventory is not None:
            stored = as_format(model, name).stored
            if stored is not None and (converted or stored.value < own):
                sized.append((stored.value, name))
    names = [name for _, name in sorted(sized, key=lambda pair: -pair[0])]

    def at(place: int) -> Trial:
        name = names[place]
        changes = () if name is None else (Change(WEIGHT_FORMAT, name),)
        trial = trials.with_options(name or model.weight_format, {}, weight_format=name)
        return trial._replace(changes=changes)

    def answer(surely: bool) -> int | None:
        return next((i for i in range(len(names)) if trials.works(at, i, surely=surely)), None)

    return _finish(trials, "format", at, (answer(False), answer(True)), lambda n: n - 1 if n else None, "model",
                   easiest=len(names) - 1)  # fmt: skip


def _finish(
    trials: Trials, asked: Asked, at: Callable[[int], Trial], found: tuple[int | None, int | None],
    beyond: Callable[[int], int | None], at_end: str, *, easiest: int = 1,
) -> Solved:  # fmt: skip
    """beyond: the next value, which does not work any more, None where the range ends: then at_end binds.

    easiest: the value that says what is in the way where none works.
    """
    value, sure = found
    chosen = sure if sure is not None else value
    if chosen is None:
        tried = next(iter(p for _, p in [trials.plan(at, easiest)] if p is not None), None)
        return Solved(asked, None, None, bound(tried, surely=True) or at_end)
    trial, plan = trials.plan(at, chosen)
    following = beyond(chosen)
    if sure is None:
        following = chosen  # what keeps even that from being sure
    why = at_end if following is None else bound(trials.plan(at, following)[1], surely=True) or at_end
    values = [None if place is None else trials.plan(at, place)[0].value for place in found]
    return Solved(asked, values[0], values[1], why, trial.changes, trial.request, plan)


_SOLVERS: Final[dict[Asked, Callable[[Trials], Solved]]] = {
    "context": _context, "users": _users, "utilisation": _utilisation, "gpus": _gpus, "tp": _split, "format": _format,
}  # fmt: skip
