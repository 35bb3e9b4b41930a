"""A plan as text to read, as Markdown to paste, and the arithmetic behind each of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.estimate import Estimate, Input, show_value
from kvplanner.printable import printable
from kvplanner.report.bar import bar_lines
from kvplanner.report.devices import shortages, where
from kvplanner.report.facts import (
    Fold,
    Row,
    about_lines,
    cache_facts,
    engine_title,
    fold,
    free_line,
    option_facts,
    rows,
)
from kvplanner.report.segments import MISSING_LETTER, name_of, words_of
from kvplanner.report.sentences import engine_message, failing_words, notes, summary
from kvplanner.sized_text import show_both, sizes_in
from kvplanner.units import MB, ByteUnit, format_both, format_bytes

WIDTH = 100
_SHARE: Final = 4
_LEAST_HOW: Final = 10


def text(plan: Plan, *, unit: ByteUnit = "GiB", width: int = WIDTH) -> str:
    """The verdict first, then a bar and a table for each distinct device, the KV cache, options and warnings."""
    lines = [sizes_in(summary(plan), unit)]
    if plan.stage:
        missing = _missing(plan)
        lines += _wrapped(f"Start-up fails {failing_words(plan)}{': ' if missing else ''}{missing}", width)
    message = engine_message(plan)
    lines += [f"{engine_title(plan)} says: {line}" for line in message.splitlines()]
    lines.append("")
    for line in about_lines(plan):
        lines += _wrapped(line, width)
    for group in fold(plan):
        lines += ["", *_device(plan, group, unit, width)]
    facts = list(cache_facts(plan, unit))
    if facts:
        lines += ["", *_pairs(facts, width)]
    options = list(option_facts(plan))
    if options:
        lines += ["", "Options", *("  " + line for line in _pairs(options, width - 2))]
    warnings = notes(plan)
    if warnings:
        lines += [
            "",
            *(line for warning in warnings for line in _wrapped(f"Note: {sizes_in(warning, unit)}", width)),
        ]
    return "\n".join(map(printable, lines)) + "\n"


def _wrapped(line: str, width: int) -> list[str]:
    return wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _missing(plan: Plan) -> str:
    """What is missing at the failing stage, on each device that lacks some; "" where nothing is."""
    told = [(show_both(lack.bytes), where(plan, lack.positions)) for lack in shortages(plan)]
    if len(plan.devices) == 1 or not told:
        return f"{told[0][0]} missing" if told else ""
    return ", ".join(f"{size}{'' if place else ' missing'} on {gpu}" for place, (size, gpu) in enumerate(told))


def _device(plan: Plan, group: Fold, unit: ByteUnit, width: int) -> Iterator[str]:
    head = f"{group.title}  {group.first.device.gpu.name}  {group.roles}"
    size = format_both(group.first.total_bytes)
    if len(head) + 2 + len(size) <= width:
        yield head + size.rjust(width - len(head))
    else:
        yield from (*_wrapped(head, width), size.rjust(width))
    free = free_line(plan, group.position, unit)
    if free:
        yield from _wrapped(free, width)
    yield from bar_lines(plan, group.position, width - 2, unit)
    table = [
        (letter_of(r), r.title, r.size, r.span, r.share, r.basis, r.formula) for r in rows(plan, group.position, unit)
    ]
    if table:
        heads = ("", "", unit, "range", "share", "basis", "how")
        yield from _table(*_narrowed([heads, *table], "<<>>><<", width), width)


def letter_of(row: Row) -> str:
    """The bar's letter for a line: a sum has none, nor has what is not in the bar."""
    if row.kind is None:
        return MISSING_LETTER if row.title == "missing" else ""
    return words_of(row.kind).letter if row.share else ""


def _narrowed(cells: Sequence[Sequence[str]], align: str, width: int) -> tuple[list[list[str]], str]:
    """The columns that a width has room for: "how" falls away where next to nothing of it is seen, then the share."""
    wide = [max(len(row[i]) for row in cells) for i in range(len(align))]
    wide[-1] = min(wide[-1], _LEAST_HOW)
    gone: set[int] = set()
    for spare in (len(align) - 1, _SHARE):
        if sum(wide[i] + 2 for i in range(len(align)) if i not in gone) - 3 > width:
            gone.add(spare)
    kept = [i for i in range(len(align)) if i not in gone]
    return [[row[i] for i in kept] for row in cells], "".join(align[i] for i in kept)


def _table(cells: Sequence[Sequence[str]], align: str, width: int) -> Iterator[str]:
    """Columns as wide as their widest cell; the last one is cut at the width."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(align))]
    for row in cells:
        padded = [f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)]
        line = (padded[0] + " " + "  ".join(padded[1:])).rstrip()
        yield line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _pairs(facts: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    wide = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        yield from wrap(f"{name:<{wide}}{value}", width, subsequent_indent=" " * wide, break_on_hyphens=False)


def explain(plan: Plan, kinds: Sequence[SegmentKind] = (), *, unit: ByteUnit = "GiB") -> str:
    """The arithmetic of each number: formula in words, in numbers, inputs with their sources, remarks, and questions.

    kinds: the segments to explain, all when empty.
    """
    lines: list[str] = []
    for group in fold(plan):
        lines += [f"{group.title}  {group.first.device.gpu.name}", ""]
        if group.first.budget and not kinds:
            lines += [*_arithmetic("budget", group.first.budget, unit), *_answers(plan, group, None, unit), ""]
        for segment in group.first.segments:
            if not kinds or segment.kind in kinds:
                lines += _arithmetic(name_of(segment.kind), _with_cache_notes(plan, segment), unit)
                lines += [*_answers(plan, group, segment.kind, unit), ""]
    stored = plan.request.model.stored
    if stored and (not kinds or "weights" in kinds):
        lines += [*_arithmetic("model as stored", stored, unit), ""]
    return "\n".join(map(printable, lines)).rstrip() + "\n"


def _answers(plan: Plan, group: Fold, kind: SegmentKind | None, unit: ByteUnit) -> Iterator[str]:
    """The questions that a part raises, answered with this plan's numbers: those of the window."""
    from kvplanner.report.questions import answers

    for answer in answers(plan, group.position, kind, "GB" if unit == "GB" else "GiB"):
        yield f"  {answer.question}"
        yield from wrap(answer.text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _with_cache_notes(plan: Plan, segment: Segment) -> Estimate:
    """A segment's estimate; the KV cache's also with what the plan says of the cache as a whole."""
    estimate = segment.estimate
    if segment.kind != "kv_cache" or plan.kv_cache is None:
        return estimate
    return estimate.with_notes(*(n for n in plan.kv_cache.available.notes if n not in estimate.notes))


def _arithmetic(title: str, estimate: Estimate, unit: ByteUnit) -> Iterator[str]:
    band = ""
    if estimate.low != estimate.high:
        band = f" ({format_bytes(estimate.low, unit)} to {format_bytes(estimate.high, unit)})"
    yield f"{title}: {format_bytes(estimate.value, unit)} = {estimate.value:,} bytes{band}, {estimate.basis}"
    if estimate.formula:
        yield f"  = {estimate.in_words()}"
        yield f"  = {estimate.in_numbers(unit)}"
    cells = [(i.name, show_value(i, unit), _beside(i, unit), sizes_in(i.source, unit)) for i in estimate.inputs]
    if cells:
        yield from ("    " + line for line in _table(cells, "<><<", 10_000))
    for note in estimate.notes:
        yield f"  {sizes_in(note, unit)}"


def _beside(item: Input, unit: ByteUnit) -> str:
    """The unit of a plain number; of bytes, the reading in the other unit."""
    if item.unit != "B" or isinstance(item.value, str):
        return item.unit
    return f"= {show_value(item, 'GB' if unit == 'GiB' else 'GiB')}" if abs(item.value) >= MB else ""


def markdown(plan: Plan, *, unit: ByteUnit = "GiB") -> str:
    """The report as Markdown with tables, for an issue or a page."""
    lines = [f"**{_escape(sizes_in(summary(plan), unit))}**", ""]
    if plan.stage:
        missing = _missing(plan)
        lines += [f"Start-up fails {failing_words(plan)}{'; ' if missing else ''}{missing}.", ""]
    if message := engine_message(plan):
        lines += ["```", message, "```", ""]
    lines += [f"- {_escape(line)}" for line in about_lines(plan)] + [""]
    for group in fold(plan):
        device = group.first
        lines += [f"### {group.title}: {_escape(device.device.gpu.name)}, {format_both(device.total_bytes)}", ""]
        free = free_line(plan, group.position, unit)
        lines += [_escape(free), ""] if free else []
        lines += [f"| part | {unit} | range | share | basis | how |", "|---|---:|---:|---:|---|---|"]
        lines += [
            f"| {r.title} | {r.size} | {r.span} | {r.share} | {r.basis} | {_escape(r.formula)} |"
            for r in rows(plan, group.position, unit)
        ]
        lines.append("")
    pairs = [*cache_facts(plan, unit), *((f"`{name}`", value) for name, value in option_facts(plan))]
    lines += [f"- {name}: {_escape(value)}" for name, value in pairs]
    lines += [f"- Note: {_escape(sizes_in(warning, unit))}" for warning in notes(plan)]
    return "\n".join(lines).rstrip() + "\n"


def _escape(words: str) -> str:
    """Keeps Markdown from reading names and formulas as markup."""
    return "".join("\\" + c if c in "\\`*_|<>[]" else c for c in printable(words))
