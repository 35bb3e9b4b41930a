"""What a report of a plan holds, as texts and numbers: the same for the page, the document and the short Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SEGMENT_KINDS, SegmentKind
from kvplanner.errors import PlannerError
from kvplanner.estimate import BASES, BASIS_MEANING, Basis
from kvplanner.printable import printable
from kvplanner.record import NamedTuple
from kvplanner.report.bar import bar_cells
from kvplanner.report.explain import Explanation, explanation
from kvplanner.report.facts import Row, about_lines, cache_facts, engine_title, fold, free_line, option_facts, rows
from kvplanner.report.launch import Form, snippet
from kvplanner.report.private import applied, hider, public_name
from kvplanner.report.remedies import flags_of, heading, outcome
from kvplanner.report.remedies import title as title_of
from kvplanner.report.segments import heading_of
from kvplanner.report.verdict import Verdict, verdict
from kvplanner.report.words import Unit
from kvplanner.sized_text import show_both, show_size
from kvplanner.solve.remedies import Remedy

_FORMS: Final[tuple[Form, ...]] = ("shell", "docker")
_MOST_REMEDIES: Final = 6
# Of a bar's width: fine enough for any page.
_CELLS: Final = 2000


class Part(NamedTuple):
    """A stretch of a bar. kind: None for what is missing. share: of the bar's whole width, 0 to 1."""

    kind: SegmentKind | None
    share: float
    text: str


class Bracket(NamedTuple):
    """The budget over a bar, as shares of its width."""

    start: float
    width: float
    text: str


class Group(NamedTuple):
    """Like devices as one. ends: the share of the bar's width at which the memory ends; explained: each part."""

    title: str
    gpu: str
    size: str
    roles: str
    free: str
    bar: tuple[Part, ...]
    ends: float
    bracket: Bracket | None
    rows: tuple[Row, ...]
    explained: tuple[Explanation, ...]


class Way(NamedTuple):
    """A remedy in words."""

    title: str
    outcome: str
    costs: str
    flags: str


class Sheet(NamedTuple):
    """A report. options: only what the user set; defaults: the other everyday ones. bases: those that occur, meant."""

    title: str
    verdict: Verdict
    about: tuple[str, ...]
    groups: tuple[Group, ...]
    figures: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    defaults: tuple[tuple[str, str], ...]
    assumed: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    ways_title: str
    ways: tuple[Way, ...]
    bases: tuple[tuple[str, str], ...]
    unit: Unit
    foot: str


def sheet(
    plan: Plan, remedies: Sequence[Remedy] = (), *, unit: Unit = "GiB", path: str = "", private: bool = False
) -> Sheet:
    """The report of a plan. path: where its model lies on this machine.

    private: names and paths of this machine are kept; without, they are left out or told as what they are.
    """
    from kvplanner import __version__

    request = plan.request
    name = request.model.id.rpartition("/")[2]
    title = f"{name} on {request.machine.describe()}, {engine_title(plan)} {plan.engine_version}"
    facts = list(option_facts(plan))
    made = Sheet(
        title,
        verdict(plan, unit),
        about_lines(plan),
        tuple(_groups(plan, unit)),
        tuple(cache_facts(plan, unit)),
        tuple((name, text.removesuffix(" (set)")) for name, text in facts if text.endswith(" (set)")),
        tuple((name, text) for name, text in facts if not text.endswith(" (set)")),
        tuple(_assumed(plan, unit)),
        tuple(_commands(plan, path if private else "")),
        heading(plan),
        tuple(
            Way(title_of(r), ", ".join(outcome(r, unit)), "; ".join(r.costs), flags_of(r).removeprefix("-- "))
            for r in remedies[:_MOST_REMEDIES]
        ),
        _bases(plan),
        unit,
        f"kvplanner {__version__}. Ranges are 90 % bands; GiB = 2³⁰ bytes, GB = 10⁹ bytes.",
    )
    if private:
        return made
    hide = hider(request.model, request.draft)
    shown = applied(hide, made)
    return shown._replace(commands=tuple((form, _named(plan, text)) for form, text in shown.commands))


def _named(plan: Plan, command: str) -> str:
    """A command whose model is one of this machine: the name stands where the path would."""
    public = public_name(plan.request.model)
    return command if public == plan.request.model.id or "/" in public else command.replace(public, "MODEL")


def _groups(plan: Plan, unit: Unit) -> Iterator[Group]:
    for group in fold(plan):
        device, at = group.first, group.position
        cells = bar_cells(plan, at, _CELLS) if device.segments else ()
        wide = sum(cell.width for cell in cells) or 1
        spanned = max(device.total_bytes, device.lack.end if device.lack else 0)
        parts = []
        for cell in cells:
            segment = device.segment(cell.kind) if cell.kind else None
            size = (
                show_size(segment.bytes, unit) if segment else show_size(device.lack.bytes, unit) if device.lack else ""
            )
            name = heading_of(cell.kind) if cell.kind else "Missing"
            parts.append(Part(cell.kind, cell.width / wide, f"{name} {size}".strip()))
        told = (explanation(plan, at, s.kind, unit) for s in device.segments if s.estimate.high or s.bytes)
        yield Group(
            group.title, device.device.gpu.name, show_both(device.total_bytes), group.roles, free_line(plan, at, unit),
            tuple(parts), device.total_bytes / spanned if spanned else 1.0, _bracket(plan, at, spanned, unit),
            tuple(rows(plan, at, unit)), tuple(found for found in told if found is not None),
        )  # fmt: skip


def _bracket(plan: Plan, position: int, spanned: int, unit: Unit) -> Bracket | None:
    device = plan.devices[position]
    if device.budget is None or plan.cache_given or not spanned:
        return None
    start = 0
    for segment in device.in_use:
        if segment.in_budget:
            break
        start += segment.bytes
    width = min(device.budget.value, max(spanned - start, 0))
    return Bracket(start / spanned, width / spanned, f"budget {show_size(device.budget.value, unit)}")


def _assumed(plan: Plan, unit: Unit) -> Iterator[str]:
    """What was taken for granted: by the plan as a whole, and where nothing better is known."""
    yield from verdict(plan, unit).notes
    seen: set[SegmentKind] = set()
    for device in plan.devices:
        for segment in device.segments:
            if segment.estimate.basis == "assumed" and segment.kind not in seen:
                seen.add(segment.kind)
                yield f"{heading_of(segment.kind)}: {BASIS_MEANING['assumed']}"
    yield from dict.fromkeys(
        f"{item.name}: {item.source}"
        for device in plan.devices
        for segment in device.segments
        for item in segment.estimate.inputs
        if "assumed" in item.source
    )


def _commands(plan: Plan, path: str) -> Iterator[tuple[str, str]]:
    for form in _FORMS:
        try:
            text = snippet(form, plan, path).rstrip("\n")
            yield form, "\n".join(map(printable, text.split("\n")))  # a path may hold what turns a line round
        except PlannerError:
            continue


def _bases(plan: Plan) -> tuple[tuple[str, str], ...]:
    found: set[Basis] = {s.estimate.basis for device in plan.devices for s in device.segments}
    return tuple((basis, BASIS_MEANING[basis]) for basis in BASES if basis in found)


def kinds_in(made: Sheet) -> tuple[SegmentKind, ...]:
    """The kinds of segments that its bars show, in drawing order."""
    found = {part.kind for group in made.groups for part in group.bar}
    return tuple(kind for kind in SEGMENT_KINDS if kind in found)
