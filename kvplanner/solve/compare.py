"""Plans side by side: rows of what they were asked, what they say, and what every part of the memory takes.

Plans may be of different engines and releases: options are matched by what they mean where engines have the same role,
and an option that only one of them has counts where the user set it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from kvplanner.catalog.gpus import machine_words
from kvplanner.engine.option import Option, OptionValue
from kvplanner.engine.plan import DevicePlan, KvCache, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.segment import SEGMENT_KINDS, Segment, SegmentKind
from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple
from kvplanner.units import whole

MOST: Final = 4
Section = Literal["request", "option", "verdict", "figure", "segment"]
Value = bool | int | float | str | None


class Side(NamedTuple):
    """One plan of a comparison. name: what it is called there. refused: why there is no plan, "" where there is one."""

    name: str
    plan: Plan | None
    refused: str = ""


class Cell(NamedTuple):
    """A value of one plan; low and high where it has a band; origin of an option's; None where the plan has none.

    state: of a segment: "in_use", or that it is not reached or released by then at the stage where the plan fails.
    """

    value: Value
    low: int | None = None
    high: int | None = None
    origin: str = ""
    state: str = ""

    @property
    def band(self) -> tuple[Value, int | None, int | None, str]:
        """What two plans must share to be alike."""
        return self.value, self.low, self.high, self.state


class Because(NamedTuple):
    """An input of a part's arithmetic that differs: its values, None where a plan's has none of that name."""

    name: str
    unit: str
    values: tuple[Value, ...]


class Row(NamedTuple):
    """One line. unit: "B" for bytes, "tokens", "users" or "". cells: one for each plan.

    differs: whether the plans do. formulas: of a segment, each plan's, where they are not the same; because: which
    inputs differ.
    """

    section: Section
    name: str
    unit: str
    cells: tuple[Cell, ...]
    differs: bool
    formulas: tuple[str, ...] = ()
    because: tuple[Because, ...] = ()

    @property
    def deltas(self) -> tuple[int | float | None, ...]:
        """How far each plan's number is from the first one's; None where either has none."""
        return tuple(_less(cell.value, self.cells[0].value) for cell in self.cells)


def _less(value: Value, base: Value) -> int | float | None:
    if isinstance(value, bool | str) or isinstance(base, bool | str) or value is None or base is None:
        return None
    return value - base


def compare(sides: Sequence[Side]) -> tuple[Row, ...]:
    """Every row, those that do not differ among them. Raises BadInput for fewer than two plans and more than MOST."""
    if not 2 <= len(sides) <= MOST:
        raise BadInput(f"{len(sides)} plans cannot be compared", "compare", f"Give 2 to {MOST}")
    return (*_request(sides), *_options(sides), *_verdict(sides), *_figures(sides), *_segments(sides))


def _row(section: Section, name: str, unit: str, cells: Sequence[Cell]) -> Row:
    return Row(section, name, unit, tuple(cells), any(cell.band != cells[0].band for cell in cells))


# What was asked ------------------------------------------------------------------------------------------------------


def _request(sides: Sequence[Side]) -> Iterator[Row]:
    for name, unit, values in zip(*zip(*_ASKED, strict=True), zip(*map(_asked, sides), strict=True), strict=True):
        yield _row("request", name, unit, [Cell(value) for value in values])


_ASKED: Final = (
    ("engine", ""), ("engine_version", ""), ("rules", ""), ("model", ""), ("weight_format", ""), ("draft", ""),
    ("machine", ""), ("free_bytes", "B"), ("users", "users"), ("prompt_tokens", "tokens"), ("output_tokens", "tokens"),
    ("measured", ""), ("replicas", ""),
)  # fmt: skip


def _asked(side: Side) -> tuple[Value, ...]:
    plan = side.plan
    if plan is None:
        return (None,) * len(_ASKED)
    request, load = plan.request, plan.request.load
    free = [device.free_bytes for device in request.machine.devices if device.free_bytes is not None]
    measured = ", ".join(f"{kind}={size}" for kind, size in sorted(request.measured.items()))
    return (
        request.engine, plan.engine_version, plan.rules, request.model.id,
        request.weight_format or request.model.weight_format, request.draft.id if request.draft else None,
        machine_words(request.machine), min(free, default=None), load.users if load else None,
        load.prompt_tokens if load else None, load.output_tokens if load else None, measured or None, plan.replicas,
    )  # fmt: skip


def _options(sides: Sequence[Side]) -> Iterator[Row]:
    """Options in the order of the first plan's engine; of several engines, those of one role as one."""
    keyed = [_by_meaning(side.plan) for side in sides]
    for key in dict.fromkeys(key for found in keyed for key in found):
        found = [options.get(key) for options in keyed]
        there = [cell for cell in found if cell is not None]
        # A release or an engine that lacks the option says nothing by that, unless the user set it elsewhere.
        everywhere = len(there) == sum(side.plan is not None for side in sides)
        if everywhere or any(cell.origin == "user" for cell in there):
            yield _row("option", key, "", [cell or Cell(None) for cell in found])


def _by_meaning(plan: Plan | None) -> dict[str, Cell]:
    """A plan's options by their role where they have one of their own, else by their name."""
    if plan is None:
        return {}
    declared: dict[str, Option] = {o.name: o for o in engine(plan.request.engine).options(plan.request.version)}
    shared = Counter(option.role for option in declared.values())
    found: dict[str, Cell] = {}
    for name, resolved in plan.options.items():
        role = declared[name].role if name in declared else ""
        key = role if role and role != "caller" and shared[role] == 1 else name
        found.setdefault(key, Cell(_plain(resolved.value), origin=resolved.origin))
    return found


def _plain(value: OptionValue | None) -> Value:
    return value


# What the plans say --------------------------------------------------------------------------------------------------


def _verdict(sides: Sequence[Side]) -> Iterator[Row]:
    plans = [side.plan for side in sides]
    rows: tuple[tuple[str, str, list[Value]], ...] = (
        ("state", "", [p.verdict.state if p else None for p in plans]),
        ("certainty", "", [p.verdict.certainty if p else None for p in plans]),
        ("stage", "", [p.stage if p else None for p in plans]),
        ("doubtful_stage", "", [p.verdict.doubt.stage if p and p.verdict.doubt else None for p in plans]),
        ("missing_bytes", "B", [p.missing_bytes or None if p else None for p in plans]),
        ("refused", "", [side.refused or None for side in sides]),
    )
    for name, unit, values in rows:
        yield _row("verdict", name, unit, [Cell(value) for value in values])


def _figures(sides: Sequence[Side]) -> Iterator[Row]:
    plans = [side.plan for side in sides]
    caches = [plan.kv_cache if plan else None for plan in plans]
    limits = [plan.limits if plan else None for plan in plans]
    loads = [plan is not None and plan.request.load is not None for plan in plans]
    yield _row("figure", "tokens", "tokens",
               [Cell(c.tokens, c.tokens_low, c.tokens_high) if c else Cell(None) for c in caches])  # fmt: skip
    yield _row("figure", "available_bytes", "B",
               [Cell(*c.available[:3]) if c else Cell(None) for c in caches])  # fmt: skip
    yield _row("figure", "bytes_per_token", "B", [Cell(_per_token(c)) for c in caches])
    yield _row("figure", "context_length", "tokens", [Cell(c.context_length if c else None) for c in caches])
    yield _row("figure", "max_concurrency", "", [Cell(c.max_concurrency if c else None) for c in caches])
    for name, unit in (
        ("max_context_length", "tokens"), ("sure_max_context_length", "tokens"), ("max_concurrent_requests", ""),
        ("max_requests", ""), ("users_by_memory", "users"), ("serves_users", "users"), ("sure_serves_users", "users"),
    ):  # fmt: skip
        yield _row("figure", name, unit, [
            Cell(getattr(found, name) if found and (loaded or "users" not in name) else None)
            for found, loaded in zip(limits, loads, strict=True)
        ])  # fmt: skip
    devices = [plan.gpus if plan else () for plan in plans]
    yield _row("figure", "gpus", "", [Cell(len(found) or None) for found in devices])
    yield _row("figure", "total_bytes", "B", [Cell(sum(d.total_bytes for d in found) or None) for found in devices])


def _per_token(cache: KvCache | None) -> Value:
    return whole(cache.bytes_per_token) if cache and cache.bytes_per_token is not None else None


def _segments(sides: Sequence[Side]) -> Iterator[Row]:
    """What each part takes on the device that decides, and the same over all devices."""
    tightest = [_tightest(side.plan) for side in sides]
    for kind in SEGMENT_KINDS:
        found = [device.segment(kind) if device else None for device in tightest]
        if any(found):
            cells = [Cell(*s.estimate[:3], state=s.state) if s else Cell(None) for s in found]
            row = _row("segment", kind, "B", cells)
            yield row._replace(formulas=_formulas(found), because=tuple(_because(found))) if row.differs else row
    yield _row("segment", "all_weights", "B", [Cell(_over_all(side.plan, "weights")) for side in sides])
    yield _row("segment", "all_kv_cache", "B", [Cell(_over_all(side.plan, "kv_cache")) for side in sides])


def _tightest(plan: Plan | None) -> DevicePlan | None:
    return plan.devices[plan.tightest] if plan is not None and plan.devices else None


def _over_all(plan: Plan | None, kind: SegmentKind) -> int | None:
    found = [s.bytes for device in plan.devices if (s := device.segment(kind)) is not None] if plan else []
    return sum(found) if found else None


def _formulas(found: Sequence[Segment | None]) -> tuple[str, ...]:
    words = tuple(segment.estimate.in_words() if segment else "" for segment in found)
    return words if len(set(words)) > 1 else ()


def _because(found: Sequence[Segment | None]) -> Iterator[Because]:
    """Inputs that differ, of all that the parts are made of."""
    inputs = [{i.name: i for i in segment.estimate.inputs} if segment else {} for segment in found]
    for name in dict.fromkeys(name for named in inputs for name in named):
        values = tuple(named[name].value if name in named else None for named in inputs)
        if len(set(values)) > 1:
            unit = next(named[name].unit for named in inputs if name in named)
            yield Because(name, unit, values)
