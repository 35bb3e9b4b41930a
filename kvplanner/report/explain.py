"""What Explain says about a segment, as text without Qt: the same for the view and for "copy as text"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from kvplanner.engine.plan import CacheGroup, DevicePlan, KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import BASIS_MEANING, Estimate, Input, show_value
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.devices import per_device
from kvplanner.report.facts import engine_title
from kvplanner.report.questions import Answer, answers
from kvplanner.report.segments import name_of, words_of
from kvplanner.report.words import Unit
from kvplanner.sized_text import MINUS, SMALL, show_size, sizes_in
from kvplanner.units import GB, GIB, MB, MIB, ByteUnit, format_bytes

CACHE_KINDS: Final = {
    "full": "full attention", "sliding": "sliding window", "chunked": "chunked attention", "mla": "shared latent",
    "sliding_mla": "shared latent, sliding window", "index": "selector keys", "cross": "cross attention",
    "state": "recurrent state", "compressor": "compressed cache",
}  # fmt: skip
_BUDGET: Final = "The engine asks for a share of the memory and counts what it adds from where it first looked."


# Sources that say more to those who keep the catalogues than to those who plan.
_PUBLIC: Final = "public print"
_IN_LOGS: Final = "total seen in public logs"


class Formula(NamedTuple):
    """A formula in words and in numbers; of: what it is of, "" for the segment itself."""

    of: str
    in_words: str
    in_numbers: str

    def lines(self) -> tuple[str, ...]:
        """One line, or two where the numbers say more than the words."""
        head = f"{self.of} = {self.in_words}" if self.of else f"= {self.in_words}"
        return (head,) if self.in_numbers in ("", self.in_words) else (head, f"= {self.in_numbers}")


class InputRow(NamedTuple):
    """One input of a formula: its value, the other reading (GB beside GiB), its source; tip: the source unshortened."""

    name: str
    value: str
    other: str
    source: str
    tip: str = ""


class Explanation(NamedTuple):
    """A segment (or, with no kind, the budget) explained."""

    title: str
    where: str
    meaning: str
    value: str
    formulas: tuple[Formula, ...]
    band: str
    inputs: tuple[InputRow, ...]
    notes: tuple[str, ...]
    answers: tuple[Answer, ...]
    rules: str


def explanation(plan: Plan, position: int, kind: SegmentKind | None, unit: Unit) -> Explanation | None:
    """The explanation of a device's segment; of its budget where kind is None; None where there is neither."""
    device = plan.devices[position]
    segment = device.segment(kind) if kind else None
    if plan.fits is None and device.segment("weights") is None and kind:
        return _absent(plan, position, kind, unit)
    estimate = segment.estimate if segment else device.budget if kind is None else None
    if estimate is None:
        return _absent(plan, position, kind, unit) if kind else None
    others: list[tuple[str, Estimate]] = []
    if kind == "weights" and plan.request.model.stored is not None:
        others.append(("as stored", plan.request.model.stored))
    if kind == "kv_cache":
        others += _before_the_cache(plan, position, estimate)
    sources = (estimate, *(other for _, other in others))
    return Explanation(
        _title(plan, kind),
        _where(plan, position),
        _meaning(plan, device, kind),
        _value(estimate, unit),
        tuple(_formula(of, e, unit) for of, e in (("", estimate), *others) if e.formula),
        _band(estimate, unit),
        _inputs(sources, unit),
        _notes(plan, device, kind, unit, sources),
        answers(plan, position, kind, unit),
        _rules(plan),
    )


def _title(plan: Plan, kind: SegmentKind | None) -> str:
    if kind is None:
        return "Budget: what the engine allows itself"
    given = kind == "kv_cache" and plan.cache_given
    return "KV cache: of the size that was given" if given else words_of(kind, plan.request.engine).title


def _notes(
    plan: Plan, device: DevicePlan, kind: SegmentKind | None, unit: Unit, sources: Sequence[Estimate]
) -> tuple[str, ...]:
    """Remarks, each once; the rule of thumb is what the last question is about."""
    notes = (*_cache_notes(plan, device, kind, unit), *(note for e in sources for note in e.notes))
    return tuple(sizes_in(note, unit) for note in dict.fromkeys(notes) if not note.startswith("The rule of thumb"))


def _before_the_cache(plan: Plan, position: int, cache: Estimate) -> list[tuple[str, Estimate]]:
    """What the cache's size follows from: what was available, and the budget; nothing where the size is given."""
    device = plan.devices[position]
    found: list[tuple[str, Estimate]] = []
    available = plan.kv_cache.available if plan.kv_cache else None
    if available and available.formula != cache.formula and position in plan.group_of(plan.tightest):
        found.append(("available", available))
    if device.budget is not None and not plan.cache_given:
        found.append(("budget", device.budget))
    return found


def _meaning(plan: Plan, device: DevicePlan, kind: SegmentKind | None) -> str:
    if kind is None:
        return _BUDGET
    segment = device.segment(kind)
    detail = words_of(kind, plan.request.engine).detail
    return f"{detail} Here: {segment.meaning}." if segment and segment.meaning else detail


def _where(plan: Plan, position: int) -> str:
    return f"{words.device_name(plan, plan.group_of(position))}, {plan.devices[position].device.gpu.name}"


def _rules(plan: Plan) -> str:
    return f"{engine_title(plan)} {plan.engine_version}, rules {plan.rules}"


def _formula(of: str, estimate: Estimate, unit: Unit) -> Formula:
    name = f"{of} {words.size(estimate.value, unit)}" if of else ""
    numbers = in_numbers(estimate, unit) if len(estimate.inputs) > 1 or not of else ""
    return Formula(name, estimate.in_words(), numbers)


def _absent(plan: Plan, position: int, kind: SegmentKind, unit: Unit) -> Explanation:
    """Why a segment is not there."""
    why = "The plan has none on this device."
    formulas: tuple[Formula, ...] = ()
    if plan.fits is None:
        why = "Not planned."
    elif kind == "kv_cache" and plan.fits is False:
        given = plan.cache_given
        why = "Start-up fails before it." if given else "Nothing is left of the budget for it."
        formulas = () if given else _nothing_left(plan, plan.devices[position], unit)
    elif kind == "headroom" and plan.fits is False:
        why = "The plan does not fit, so nothing is left alone."
    asked = answers(plan, position, kind, unit)
    where = _where(plan, position)
    return Explanation(
        _title(plan, kind),
        where,
        words_of(kind, plan.request.engine).detail,
        why,
        formulas,
        "",
        (),
        (),
        asked,
        _rules(plan),
    )


def _nothing_left(plan: Plan, device: DevicePlan, unit: Unit) -> tuple[Formula, ...]:
    if device.budget is None:
        return ()
    parts = [s for s in device.segments if s.in_budget and s.bytes]
    left = device.budget.value - sum(s.bytes for s in parts)
    names = " − ".join(["budget", *(name_of(s.kind) for s in parts)])
    sizes = [device.budget.value, *(s.bytes for s in parts)]
    scale = scale_of([*sizes, left], unit)
    numbers = " − ".join(scale.text(size) for size in sizes)
    return (Formula("", names, f"{numbers} = {scale.text(left)}"),)


def _value(estimate: Estimate, unit: Unit) -> str:
    other: Unit = "GB" if unit == "GiB" else "GiB"
    sizes = f"{words.size(estimate.value, unit)} = {words.size(estimate.value, other)}"
    return f"{sizes} = {estimate.value:,} bytes"


def _band(estimate: Estimate, unit: Unit) -> str:
    basis = f"{estimate.basis}: {BASIS_MEANING[estimate.basis]}"
    if estimate.low == estimate.high:
        return basis
    ends = _ends(estimate, unit)
    return f"{ends} (90 % band), {basis}" if ends else basis


def _ends(estimate: Estimate, unit: Unit) -> str:
    """The band as the table has it; of small sizes in their own unit, as exactly as it takes to tell the ends apart."""
    reach = words.span(estimate, unit)
    if reach and estimate.high >= SMALL:
        return f"{reach} {unit}"
    ends = words.low_end(estimate), estimate.high
    pairs = (tuple(show_size(end, unit, digits) for end in ends) for digits in (0, 1, 2, 3))
    return next((" to ".join(pair) for pair in pairs if pair[0] != pair[1]), "")


class Scale(NamedTuple):
    """One unit for a whole formula, so that it can be added up by eye; digits: decimals."""

    unit: ByteUnit | Literal["B"]
    digits: int

    def text(self, value: int | float) -> str:
        """A size in this unit; one too small for it stands in its own."""
        if self.unit == "B":
            return f"{value:,.0f} B".replace("-", MINUS)
        if not value:
            return f"0 {self.unit}"
        text = format_bytes(value, self.unit, self.digits)
        if not text.strip("-0. GMBi"):
            return _natural(value, decimal=self.unit in ("GB", "MB"))
        return text.replace("-", MINUS)


def scale_of(sizes: Sequence[int | float], unit: Unit) -> Scale:
    """The unit that suits the largest size, with as many decimals (2 to 4) as the smallest needs."""
    present = [abs(size) for size in sizes if size]
    giga, mega = (GIB, MIB) if unit == "GiB" else (GB, MB)
    largest = max(present, default=giga)
    if largest < mega:
        return Scale("B", 0)
    name: ByteUnit = unit if largest >= giga // 10 else "MiB" if unit == "GiB" else "MB"
    per = giga if name == unit else mega
    least = min(present, default=per) / per
    return Scale(name, next((d for d in (2, 3) if least >= 10.0**-d), 4))


def _natural(value: int | float, *, decimal: bool) -> str:
    mega = MB if decimal else MIB
    if abs(value) >= mega // 10:
        return format_bytes(value, "MB" if decimal else "MiB").replace("-", MINUS)
    return f"{value:,.0f} B".replace("-", MINUS)


def _scale(estimate: Estimate, unit: Unit) -> Scale:
    """Of the sizes that are added up; small ones that are multiplied stand in bytes."""
    each = _each(estimate)
    sizes = [i.value for i in estimate.inputs if i.unit == "B" and not isinstance(i.value, str) and i.name not in each]
    return scale_of(sizes, unit)


def _each(estimate: Estimate) -> frozenset[str]:
    """The inputs that are bytes of one of something: less than a megabyte, times a number."""
    small = {i.name for i in estimate.inputs if i.unit == "B" and not isinstance(i.value, str) and abs(i.value) < MB}
    return frozenset(small.intersection(_FACTOR.findall(estimate.formula)))


_FACTOR: Final = re.compile(r"× \{([^{}]+)\}")


def show_input(item: Input, scale: Scale, each: frozenset[str] = frozenset()) -> str:
    """An input's value, a size in the formula's unit. each: names of those that stand in bytes."""
    if item.unit != "B" or isinstance(item.value, str):
        return show_value(item)
    return (Scale("B", 0) if item.name in each else scale).text(item.value)


def in_numbers(estimate: Estimate, unit: Unit) -> str:
    """The formula with this plan's numbers, its sizes in one unit."""
    scale, each = _scale(estimate, unit), _each(estimate)
    return estimate.formula.format_map({i.name: show_input(i, scale, each) for i in estimate.inputs})


def _inputs(estimates: tuple[Estimate, ...], unit: Unit) -> tuple[InputRow, ...]:
    other: Unit = "GB" if unit == "GiB" else "GiB"
    items: dict[Input, tuple[Scale, Scale]] = {}
    for estimate in estimates:
        scales, each = (_scale(estimate, unit), _scale(estimate, other)), _each(estimate)
        for item in estimate.inputs:
            items.setdefault(item, (Scale("B", 0),) * 2 if item.name in each else scales)
    return tuple(_input_row(item._replace(source=sizes_in(item.source, unit)), *s) for item, s in items.items())


def _input_row(item: Input, scale: Scale, other: Scale) -> InputRow:
    large = item.unit == "B" and not isinstance(item.value, str) and abs(item.value) >= 10**6
    value = show_input(item, scale)
    source = _IN_LOGS if item.source.startswith(_PUBLIC) else item.source
    return InputRow(
        item.name.replace("_", " "),
        f"{value} {item.unit}" if item.unit not in ("", "B") else value,
        f"= {show_input(item, other)}" if large else "",
        source,
        item.source if source != item.source else "",
    )


def _cache_notes(plan: Plan, device: DevicePlan, kind: SegmentKind | None, unit: Unit) -> tuple[str, ...]:
    """How bytes become blocks, tokens and requests."""
    cache = plan.kv_cache
    if kind != "kv_cache" or cache is None:
        return ()
    notes = [_group_note(cache, group) for group in cache.groups]
    segment = device.segment("kv_cache")
    if segment and device.bytes_per_unit:
        apart = any(group.kind == "state" and not group.units_per_request for group in cache.groups)
        # Of what a driver keeps elsewhere, the cells are those of both places.
        kept = cache.units * device.bytes_per_unit if plan.verdict.spilled is not None else segment.bytes
        hold = f"{words.size(kept, unit)} hold {'recurrent states and ' if apart else ''}"
        notes.append(
            f"{hold}{cache.units:,} {cache.unit} of {device.bytes_per_unit:,} bytes: "
            f"{words.tokens(cache.tokens, cache.tokens_low, cache.tokens_high)}, "
            f"{cache.max_concurrency:,.2f} requests of {cache.context_length:,} tokens at once"
        )
    if cache.bytes_per_token:
        where = per_device(plan, cache) if cache.shared_out else " on each GPU"
        notes.append(f"{cache.bytes_per_token:,.0f} bytes of KV cache per token{where}")
    return tuple(notes)


def _group_note(cache: KvCache, group: CacheGroup) -> str:
    one = cache.unit.removesuffix("s")
    of = f" of {group.unit_tokens:,} tokens" if group.unit_tokens > 1 else ""
    if group.kind == "state" and not group.units_per_request:
        one, of = "slot", ""
    note = f"{group.layers} layers ({CACHE_KINDS.get(group.kind, group.kind)}): {group.page_bytes:,} bytes a {one}{of} "
    note += "in each layer"
    if not group.units_per_request or (cache.unit == "tokens" and group.units_per_request == cache.context_length):
        return note
    return f"{note}; a request of {cache.context_length:,} tokens takes {group.units_per_request:,} {cache.unit}"


def as_text(explanation: Explanation) -> str:
    """The explanation as lines of text, for the clipboard."""
    lines = [explanation.title, explanation.where, explanation.meaning, explanation.value, explanation.band]
    for formula in explanation.formulas:
        lines += formula.lines()
    if explanation.inputs:
        wide = [max(len(row[i]) for row in explanation.inputs) for i in range(3)]
        lines += [
            "",
            *(f"{r[0]:<{wide[0]}}  {r[1]:>{wide[1]}}  {r[2]:<{wide[2]}}  {r[3]}".rstrip() for r in explanation.inputs),
        ]
    if explanation.notes:
        lines += ["", *explanation.notes]
    for answer in explanation.answers:
        lines += ["", answer.question, answer.text]
    return "\n".join([*lines, "", explanation.rules]) + "\n"
