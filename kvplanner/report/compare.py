"""Plans side by side in words, and as JSON: schema kvplanner.compare/1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from kvplanner.engine.registry import engine
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.estimate import Input, show_value
from kvplanner.report.facts import machine_line
from kvplanner.report.options import option_label
from kvplanner.report.segments import heading_of
from kvplanner.report.sentences import summary
from kvplanner.report.table import table
from kvplanner.sized_text import MINUS, sizes_in
from kvplanner.solve.compare import Cell, Row, Side, Value
from kvplanner.solve.tokens import BUDGET, REST, TokensApart, tokens_apart
from kvplanner.units import ByteUnit, format_count, round_band

SCHEMA: Final = "kvplanner.compare/1"
SECTIONS: Final = {
    "request": "What was asked", "option": "Options", "verdict": "Verdict", "figure": "What it holds and serves",
    "segment": "Memory of the GPU that decides",
}  # fmt: skip
_NAMES: Final = {
    "engine": "engine", "engine_version": "release", "rules": "rules", "model": "model",
    "weight_format": "weights stored as", "draft": "draft model", "machine": "machine", "free_bytes": "free at start",
    "users": "users asked for", "prompt_tokens": "prompt", "output_tokens": "answer", "measured": "measured",
    "replicas": "replicas", "state": "verdict", "certainty": "how sure", "stage": "fails at",
    "doubtful_stage": "may fail at", "missing_bytes": "missing there", "refused": "refused",
    "tokens": "KV cache tokens", "available_bytes": "KV cache memory", "bytes_per_token": "a token takes",
    "context_length": "context length", "max_concurrency": "full-length requests at once",
    "max_context_length": "longest context", "sure_max_context_length": "longest context, surely",
    "max_concurrent_requests": "requests at once", "max_requests": "requests the engine runs at once",
    "users_by_memory": "users the cache would hold", "serves_users": "users served",
    "sure_serves_users": "users served, surely", "gpus": "GPUs used", "total_bytes": "memory of all GPUs",
    "all_weights": "weights on all devices", "all_kv_cache": "KV cache on all devices",
}  # fmt: skip
_WORDS: Final = {"fits": "fits", "does_not_fit": "does not fit", "cannot_tell": "cannot be told"}
# Segments that a failing plan does not hold at the stage where it fails.
_ASIDE: Final = {"not_reached": "not reached", "released": "released"}
_STAGES: Final = ("stage", "doubtful_stage")
_NONE: Final = "–"
_LONGEST: Final = 40
_MOST_INPUTS: Final = 6
_ALIKE: Final = 0.002  # of a token's share: rounding to units
_TOLD_FROM: Final = 50 << 20  # smaller causes are left to the table


def letters(sides: Sequence[Side]) -> str:
    """A letter for each plan."""
    return "ABCD"[: len(sides)]


def lines(
    sides: Sequence[Side], rows: Sequence[Row], *, unit: ByteUnit = "GiB", everything: bool = False, why: bool = False
) -> list[str]:
    """What each plan is, then the rows that differ by subject, changes against the first plan in brackets.

    everything: rows that do not differ too. why: what differs in the arithmetic of a part.
    """
    told = [line for letter, side in zip(letters(sides), sides, strict=True) for line in _about(letter, side, unit)]
    shown = [row for row in rows if everything or row.differs]
    for section, title in SECTIONS.items():
        here = [row for row in shown if row.section == section]
        if not here:
            continue
        cells = [(title, *letters(sides))]
        cells += [(name_of(row, sides), *texts(row, sides, unit)) for row in here]
        told += ["", *table(cells, "<" + ">" * len(sides))]
    for letter, after, found in rule_changes(sides):
        told += ["", f"Rules that changed between {letter} and {after}", *(f"  {text}" for text in found)]
    if why:
        told += [line for row in shown if row.formulas or row.because for line in why_lines(row, unit)]
    told += [line for apart in tokens_apart(sides) for line in ("", tokens_why(apart, unit))]
    if not any(row.differs for row in rows):
        told += ["", "Nothing differs"]
    return told


def rule_changes(sides: Sequence[Side]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What of an engine's rules changed from one side's release to the next one's: their letters, and what changed."""
    named = [(letter, side.plan) for letter, side in zip(letters(sides), sides, strict=True) if side.plan is not None]
    for (letter, plan), (after, other) in pairwise(named):
        if plan.request.engine == other.request.engine:
            found = engine(plan.request.engine).rules_between(plan.engine_version, other.engine_version)
            if found:
                yield letter, after, found


def _about(letter: str, side: Side, unit: ByteUnit) -> Iterator[str]:
    yield f"{letter}  {side.name}"
    plan = side.plan
    if plan is None:
        yield f"   No plan: {side.refused}"
        return
    yield f"   {plan.request.model.id} · {machine_line(plan)}"
    yield f"   {sizes_in(summary(plan), unit)}"


def name_of(row: Row, sides: Sequence[Side]) -> str:
    """What a row is called."""
    if row.section == "option":
        return _option_name(row.name, sides)
    if row.section == "segment" and row.name in SEGMENT_KINDS:
        return _heading(row.name)
    return _NAMES.get(row.name, row.name)


def _heading(name: str) -> str:
    """The heading of a kind of segment."""
    return next(heading_of(kind) for kind in SEGMENT_KINDS if kind == name)


def _option_name(key: str, sides: Sequence[Side]) -> str:
    """The label that the first engine with the option gives it."""
    for side in sides:
        if side.plan is not None:
            request = side.plan.request
            for option in engine(request.engine).options(request.version):
                if key in (option.role, option.name):
                    return option_label(option)
    return key


def texts(row: Row, sides: Sequence[Side], unit: ByteUnit) -> list[str]:
    """Each plan's value; behind it what it has more or less than the first."""
    found = []
    for cell, delta, side in zip(row.cells, row.deltas, sides, strict=True):
        text = _shown(row, cell, side, unit)
        if cell.state in _ASIDE:
            found.append(f"{text} ({_ASIDE[cell.state]})")
            continue
        if row.name == "tokens" and delta is not None:
            delta = _near(cell) - _near(row.cells[0])  # no more digits than the bands allow
        change = row.section in ("figure", "segment") and delta
        found.append(f"{text} ({_signed(delta, row.unit, unit)})" if change and delta is not None else text)
    return found


def _near(cell: Cell) -> int:
    value = cell.value if isinstance(cell.value, int) else 0
    return value if cell.low is None or cell.high is None else round_band(value, cell.low, cell.high)[0]


def _shown(row: Row, cell: Cell, side: Side, unit: ByteUnit) -> str:
    value = cell.value
    if value is None:
        return _NONE
    if row.name == "tokens":
        return format_count(_near(cell))
    text = _doing(str(value), side) if row.name in _STAGES else _text(value, row.unit, unit)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _doing(stage: str, side: Side) -> str:
    """A failing stage as what start-up of the side's own engine does there."""
    rules = engine(side.plan.request.engine).stages if side.plan is not None else ()
    return next((rule.doing for rule in rules if rule.stage == stage), stage)


def _text(value: Value, unit: str, byte_unit: ByteUnit) -> str:
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if unit == "B":
        return show_value(Input("", value, "B"), byte_unit)
    return format_count(value) if isinstance(value, int) else f"{value:,.4g}"


def _signed(value: float, unit: str, byte_unit: ByteUnit) -> str:
    size = abs(value)
    text = format_count(size) if isinstance(size, int) else f"{size:,.3g}"
    if unit == "B":
        text = show_value(Input("", size, "B"), byte_unit)
    return f"{MINUS if value < 0 else '+'}{text}"


def tokens_why(apart: TokensApart, unit: ByteUnit) -> str:
    """Why a plan's cache holds more or fewer tokens than the first one's, in a sentence whose figures add up."""
    before, now = apart.per_token
    if before is not None and now is not None and abs(now - before) > before * _ALIKE:
        size = f"each token has {_text(now, 'B', unit)} of it instead of {_text(before, 'B', unit)}"
    else:
        size = "a token takes as much"
    cache = f"{_text(abs(apart.cache_bytes), 'B', unit)} {'more' if apart.cache_bytes > 0 else 'less'} KV cache"
    causes = [f"{_cause(name)} {_signed(more, 'B', unit)}" for name, more in apart.causes if abs(more) >= _TOLD_FROM]
    because = f" ({', '.join(causes)})" if causes else ""
    more = "more" if apart.tokens > 0 else "fewer"
    return f"{'ABCD'[apart.place]} has {more} tokens than A: {cache}{because}, and {size}"


def _cause(name: str) -> str:
    if name in (BUDGET, REST):
        return {BUDGET: "budget", REST: "given or rounded"}[name]
    heading = _heading(name)
    return f"for {heading if heading.startswith('CUDA') else heading.lower()}"


def why_lines(row: Row, unit: ByteUnit) -> Iterator[str]:
    """The arithmetic of a part where it differs."""
    yield ""
    yield f"{name_of(row, ())}: why it differs"
    for letter, formula in zip("ABCD", row.formulas, strict=False):
        yield f"  {letter}  = {formula or _NONE}"
    for found in row.because[:_MOST_INPUTS]:
        values = ", ".join(
            f"{letter} {_text(value, found.unit, unit)}" for letter, value in zip("ABCD", found.values, strict=False)
        )
        yield f"  {found.name}: {values}"
    if len(row.because) > _MOST_INPUTS:
        yield f"  and {len(row.because) - _MOST_INPUTS} more"


def to_json(sides: Sequence[Side], rows: Sequence[Row]) -> dict[str, object]:
    """The document: every row, whether it differs or not."""
    return {
        "schema": SCHEMA,
        "plans": [
            {
                "name": side.name,
                "model": side.plan.request.model.id if side.plan else None,
                "fits": side.plan.fits if side.plan else None,
                "sure": side.plan.sure if side.plan else False,
                "summary": summary(side.plan) if side.plan else None,
                "refused": side.refused or None,
            }
            for side in sides
        ],
        "rows": [_row_to_json(row) for row in rows],
        "rules_changed": [
            {"between": [letter, after], "changes": list(found)} for letter, after, found in rule_changes(sides)
        ],
        "tokens": [
            {
                "plan": apart.place,
                "more_tokens": apart.tokens,
                "more_cache_bytes": apart.cache_bytes,
                "causes": [{"name": name, "more_bytes": more} for name, more in apart.causes],
                "bytes_per_token": list(apart.per_token),
            }
            for apart in tokens_apart(sides)
        ],
    }


def _row_to_json(row: Row) -> dict[str, object]:
    return {
        "section": row.section,
        "name": row.name,
        "unit": row.unit or None,
        "differs": row.differs,
        "values": [cell.value for cell in row.cells],
        "lows": [cell.low for cell in row.cells],
        "highs": [cell.high for cell in row.cells],
        "states": [cell.state or None for cell in row.cells],
        "origins": [cell.origin or None for cell in row.cells],
        "deltas": list(row.deltas),
        "formulas": list(row.formulas),
        "because": [{"name": b.name, "unit": b.unit, "values": list(b.values)} for b in row.because],
    }
