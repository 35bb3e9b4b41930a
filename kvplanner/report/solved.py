"""The answer of a solver in words."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.report.loads import tokens_of
from kvplanner.report.remedies import flags
from kvplanner.solve.host import moved_to_host
from kvplanner.solve.solver import Asked, Solved
from kvplanner.units import counted, format_bytes, format_count

_WHAT: Final[dict[Asked, tuple[str, str]]] = {
    "context": ("Longest context", "tokens"), "users": ("Most users at once", ""),
    "utilisation": ("Smallest share of the GPU", ""), "gpus": ("Fewest GPUs of this kind", ""),
    "tp": ("Best split", ""), "format": ("Largest weight format", ""),
}  # fmt: skip
_BOUND: Final = {
    "model": "the model allows no more", "kv_cache": "the KV cache holds no more", "machine": "all GPUs are used",
    "max_requests": "no more requests run at once", "context": "a request is longer than the context length",
    "load": "the load", "engine": "the engine refuses more", "gpus": "neither up to 8 of them nor 16 do",
}  # fmt: skip

# Where an answer ends, and what binds where less is asked for, or nothing works.
_PLACE: Final[dict[Asked, str]] = {
    "context": "beyond it", "users": "with more", "utilisation": "below it", "gpus": "with fewer", "tp": "elsewhere",
    "format": "with a larger one",
}  # fmt: skip
_LEAST: Final[tuple[Asked, ...]] = ("utilisation", "gpus", "format")
_TOO_LITTLE: Final = {
    "kv_cache": "the KV cache holds too little", "max_requests": "too few requests run at once",
    "context": "a request is longer than the context length",
}  # fmt: skip
_OF_ONE: Final[dict[tuple[Asked, str], str]] = {
    ("format", "model"): "the weights as they are stored", ("gpus", "machine"): "none are fewer",
    ("tp", "machine"): "the whole load is carried", ("utilisation", "kv_cache"): "the KV cache holds too little",
}  # fmt: skip


def solved_lines(plan: Plan, solved: Solved) -> list[str]:
    """The answer, what binds it, and the flags."""
    title, unit = _WHAT[solved.asked]
    if solved.value is None:
        return [f"{title}: none works; {_why(plan, solved)}"]
    surely, may = _shown(solved.sure_value, unit), _shown(solved.value, unit)
    answer = surely if solved.sure_value is not None else "none surely"
    if solved.value != solved.sure_value:
        answer += f"; {may} may work"
    if solved.asked == "gpus" and solved.request is not None:
        answer += f"; {format_bytes(solved.request.machine.total_bytes)} in all"
    words = flags(solved.request, solved.changes) if solved.request is not None else ""
    lines = [f"{title}: {answer} ({_why(plan, solved)})", *(f"  {text}" for text in asides(plan, solved))]
    return [*lines, f"  {words.removeprefix('-- ')}"] if words else lines


def asides(plan: Plan, solved: Solved) -> list[str]:
    """What belongs to an answer: the context it is for, what it takes of the host, how many users are of each kind."""
    kinds = (f"{format_count(number)} of {tokens_of(part)} tokens" for number, part in solved.parts)
    moved = moved_to_host(plan, solved.plan) if solved.plan is not None else ""
    return [text for text in (_at_length(solved), moved, ", ".join(kinds)) if text]


def _at_length(solved: Solved) -> str:
    """What context the answer is for where nobody set one, and the longest with which fewer GPUs do."""
    cache = solved.plan.kv_cache if solved.plan is not None else None
    if solved.shorter is None or solved.plan is None or cache is None:
        return ""
    own = solved.plan.request.model.spec.context_length == cache.context_length
    whose = "the model's own context" if own else "a context"
    shorter = f"with {format_count(solved.shorter.context_length)}: {counted(solved.shorter.value, 'GPU', 'GPUs')}"
    return f"at {whose} of {format_count(cache.context_length)}; {shorter}"


def _shown(value: OptionValue | None, unit: str) -> str:
    text = format_count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{text} {unit}".strip()


def _why(plan: Plan, solved: Solved) -> str:
    """What is in the way of more, or of less where that is asked for; of a sure answer, or of any."""
    none = solved.value is None
    place = "" if none or solved.sure_value is None else _PLACE[solved.asked]
    if (none or place) and solved.bound_by in _TOO_LITTLE and (none or solved.asked in _LEAST):
        return f"{place} {_TOO_LITTLE[solved.bound_by]}".strip()
    if solved.bound_by in _BOUND:
        return _OF_ONE.get((solved.asked, solved.bound_by), _BOUND[solved.bound_by])
    rules = engine(plan.request.engine).stages
    rule = next((rule for rule in rules if rule.stage == solved.bound_by), None)
    fails = "fails" if none else "fails or may fail" if place else "may fail"
    return f"{place} start-up {fails} {rule.when}".strip() if rule else "nothing else binds"
