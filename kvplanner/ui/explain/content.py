"""What Explain says about a segment, as text without Qt: the same for the view and for "copy as text"."""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplanner.engine.base import DevicePlan, Plan, SegmentKind
from kvplanner.estimate import Estimate, Input, show_value
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import group_of
from kvplanner.ui.bars.words import Unit
from kvplanner.ui.explain.questions import Answer, answers
from kvplanner.units import format_bytes

TITLES: Final[dict[SegmentKind, str]] = {
    "driver_reserved": "Driver reserved: memory that CUDA never sees",
    "other": "Other programs: taken before the engine starts",
    "runtime_outside": "Runtime outside the budget: context and communication",
    "runtime": "Runtime: late libraries and kernels",
    "weights": "Weights: this rank's share of the tensors",
    "workspace": "Workspace: buffers that stay",
    "activations": "Activations: the peak of the profile run",
    "cuda_graphs": "CUDA graphs: recorded kernels and their pools",
    "kv_cache": "KV cache: what is left of the budget",
    "headroom": "Headroom: what the engine leaves alone",
}


class InputRow(NamedTuple):
    """One input of a formula: its value, the other reading (GB beside GiB), and where it came from."""

    name: str
    value: str
    other: str
    source: str


class Explanation(NamedTuple):
    """A segment (or, with no kind, the budget) explained. formulas: (in words, in numbers)."""

    title: str
    where: str
    meaning: str
    value: str
    formulas: tuple[tuple[str, str], ...]
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
        return _absent(plan, position, kind)
    estimate = segment.estimate if segment else device.budget if kind is None else None
    if estimate is None:
        return _absent(plan, position, kind) if kind else None
    title = TITLES[kind] if kind else "Budget: what the engine allows itself"
    meaning = words.MEANING[kind] if kind else "a share of what CUDA sees, counted from what was there before it looked"
    extra: tuple[Estimate, ...] = ()
    if kind == "weights" and plan.request.model.stored is not None:
        extra = (plan.request.model.stored,)
    if kind == "kv_cache" and device.budget is not None:
        extra = (device.budget,)
    sources = (estimate, *extra)
    return Explanation(
        title,
        f"{words.device_name(plan, group_of(plan, position))}, {device.device.gpu.name}",
        _sentence(meaning),
        _value(estimate, unit),
        tuple((e.in_words(), in_numbers(e, unit)) for e in sources if e.formula),
        _band(estimate, unit),
        _inputs(sources, unit),
        tuple(dict.fromkeys((*_cache_notes(plan, device, kind, unit), *(n for e in sources for n in e.notes)))),
        answers(plan, position, kind, unit),
        f"{plan.request.engine} {plan.engine_version}, rules {plan.rules}",
    )


def _absent(plan: Plan, position: int, kind: SegmentKind) -> Explanation:
    device = plan.devices[position]
    why = "The plan has none on this device."
    if plan.fits is None:
        why = "Not planned."
    elif kind == "kv_cache" and plan.fits is False:
        why = "Nothing is left of the budget for it."
    elif kind == "headroom" and plan.fits is False:
        why = "The plan does not fit, so nothing is left alone."
    where = f"{words.device_name(plan, group_of(plan, position))}, {device.device.gpu.name}"
    rules = f"{plan.request.engine} {plan.engine_version}, rules {plan.rules}"
    meaning = _sentence(words.MEANING[kind])
    return Explanation(TITLES[kind], where, meaning, why, (), "", (), (), answers(plan, position, kind, "GiB"), rules)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _value(estimate: Estimate, unit: Unit) -> str:
    other: Unit = "GB" if unit == "GiB" else "GiB"
    sizes = f"{words.size(estimate.value, unit)} = {words.size(estimate.value, other)}"
    return f"{sizes} = {estimate.value:,} bytes"


def _band(estimate: Estimate, unit: Unit) -> str:
    basis = f"{estimate.basis}: {words.BASIS[estimate.basis]}"
    if estimate.low == estimate.high:
        return basis
    return f"{words.size(estimate.low, unit)} to {words.size(estimate.high, unit)} (90 % band), {basis}"


def show_input(item: Input, unit: Unit) -> str:
    """An input's value in the chosen unit."""
    if item.unit != "B" or isinstance(item.value, str):
        return show_value(item)
    if unit == "GiB":
        return show_value(item)
    if abs(item.value) >= 10**9:
        return format_bytes(item.value, "GB")
    return format_bytes(item.value, "MB") if abs(item.value) >= 10**6 else f"{item.value:,} B"


def in_numbers(estimate: Estimate, unit: Unit) -> str:
    """The formula with this plan's numbers in the chosen unit."""
    return estimate.formula.format_map({i.name: show_input(i, unit) for i in estimate.inputs})


def _inputs(estimates: tuple[Estimate, ...], unit: Unit) -> tuple[InputRow, ...]:
    other: Unit = "GB" if unit == "GiB" else "GiB"
    items = dict.fromkeys(i for e in estimates for i in e.inputs)
    rows: list[InputRow] = []
    for item in items:
        large = item.unit == "B" and not isinstance(item.value, str) and abs(item.value) >= 10**6
        value = show_input(item, unit)
        named = item.unit not in ("", "B")
        rows.append(
            InputRow(
                item.name.replace("_", " "),
                f"{value} {item.unit}" if named else value,
                f"= {show_input(item, other)}" if large else "",
                item.source,
            )
        )
    return tuple(rows)


def _cache_notes(plan: Plan, device: DevicePlan, kind: SegmentKind | None, unit: Unit) -> tuple[str, ...]:
    """How bytes become blocks, tokens and requests."""
    cache = plan.kv_cache
    if kind != "kv_cache" or cache is None:
        return ()
    said = [
        f"{group.layers} layers ({group.kind}): {group.page_bytes:,} bytes a block of {group.block_size} tokens in "
        f"each layer; a request of {cache.context_length:,} tokens takes {group.blocks_per_request:,} blocks"
        for group in cache.groups
    ]
    per_block = device.bytes_per_block or cache.bytes_per_block
    if per_block:
        said.append(
            f"{words.size(cache.available.value, unit)} ÷ {per_block:,} bytes a block = {cache.num_blocks:,} blocks; "
            f"{words.tokens(cache.tokens, cache.tokens_low, cache.tokens_high)}; "
            f"{cache.max_concurrency:,.2f} requests of {cache.context_length:,} tokens at once"
        )
    if cache.bytes_per_token:
        said.append(f"{cache.bytes_per_token:,.0f} bytes of KV cache per token on each GPU")
    return tuple(said)


def as_text(told: Explanation) -> str:
    """The explanation as lines of text, for the clipboard."""
    lines = [told.title, told.where, told.meaning, told.value, told.band]
    for in_words, numbers in told.formulas:
        lines += [f"= {in_words}"] + ([f"= {numbers}"] if numbers != in_words else [])
    if told.inputs:
        wide = [max(len(row[i]) for row in told.inputs) for i in range(3)]
        lines += [
            "",
            *(f"{r[0]:<{wide[0]}}  {r[1]:>{wide[1]}}  {r[2]:<{wide[2]}}  {r[3]}".rstrip() for r in told.inputs),
        ]
    if told.notes:
        lines += ["", *told.notes]
    for answer in told.answers:
        lines += ["", answer.question, answer.text]
    return "\n".join([*lines, "", told.rules]) + "\n"
