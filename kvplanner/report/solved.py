"""The answer of a solver in words."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.report.remedies import flags
from kvplanner.solve.solver import Asked, Solved
from kvplanner.units import format_count

_WHAT: Final[dict[Asked, tuple[str, str]]] = {
    "context": ("Longest context", "tokens"), "users": ("Most users at once", ""),
    "utilisation": ("Smallest share of the GPU", ""), "gpus": ("Fewest GPUs of this kind", ""),
    "tp": ("Best split", ""), "format": ("Largest weight format", ""),
}  # fmt: skip
_BOUND: Final = {
    "model": "the model allows no more", "kv_cache": "the KV cache holds no more", "machine": "all GPUs are used",
    "max_requests": "no more requests run at once", "context": "a request is longer than the context length",
    "load": "the load", "engine": "the engine refuses more", "gpus": "no number of them up to 16 does",
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
    lines = [f"{title}: {answer} ({_why(plan, solved)})"]
    if solved.parts:
        kinds = (f"{format_count(n)} of {format_count(p)}+{format_count(o)} tokens" for n, p, o in solved.parts)
        lines.append(f"  {', '.join(kinds)}")
    words = flags(solved.request, solved.changes) if solved.request is not None else ""
    return [*lines, f"  {words.removeprefix('-- ')}"] if words else lines


def _shown(value: OptionValue | None, unit: str) -> str:
    text = format_count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{text} {unit}".strip()


def _why(plan: Plan, solved: Solved) -> str:
    """What is in the way of more."""
    if solved.bound_by in _BOUND:
        return _BOUND[solved.bound_by]
    rules = engine(plan.request.engine).stages
    rule = next((rule for rule in rules if rule.stage == solved.bound_by), None)
    return f"beyond it start-up fails or may fail {rule.when}" if rule else "nothing else binds"
