"""What every report says about a plan, in words and rows: shared by the text, the Markdown and other listings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.option import Resolved
from kvplanner.engine.plan import DevicePlan, KvCache, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple
from kvplanner.report.devices import Part, group_title, number, parts, per_device, percent, roles, short, span
from kvplanner.report.options import range_words
from kvplanner.report.segments import name_of
from kvplanner.report.sentences import of_replicas
from kvplanner.units import ByteUnit, counted, format_both, format_bytes, format_count, round_band

_LONGEST_VALUE: Final = 60


class Fold(NamedTuple):
    """Like devices as one. positions: in plan.devices; title, roles: "GPUs 0–7, same", "tp0–7"."""

    first: DevicePlan
    positions: tuple[int, ...]
    title: str
    roles: str

    @property
    def position(self) -> int:
        """Of the device that stands for all."""
        return self.positions[0]


def fold(plan: Plan) -> tuple[Fold, ...]:
    """The plan's devices, those alike as one, in the order of their first one."""
    return tuple(
        Fold(plan.devices[positions[0]], positions, group_title(plan, positions), roles(plan, positions))
        for positions in plan.groups
    )


class Row(NamedTuple):
    """One line of a device's table, as text; `span` is empty for what is exact. kind: None for a sum."""

    kind: SegmentKind | None
    title: str
    size: str
    span: str
    share: str
    basis: str
    formula: str


def rows(plan: Plan, position: int, unit: ByteUnit = "GiB") -> Iterator[Row]:
    """The lines of a device, without segments that are surely nothing, and without a sum that is all of the device."""
    total = plan.devices[position].total_bytes
    for part in parts(plan, position):
        if part.estimate is None:
            if part.state != "total" or part.bytes != total:
                yield _sum_row(part, total, unit)
            continue
        if part.estimate.high == part.bytes == 0:
            continue
        share = percent(part.bytes, total) if part.state == "in use" else ""
        title = name_of(part.kind) if part.kind else ""
        how = part.estimate.in_words()
        yield Row(part.kind, title, number(part.bytes, unit), span(part.estimate, unit), share, part.basis, how)


def _sum_row(part: Part, total_bytes: int, unit: ByteUnit) -> Row:
    how = short(part.bytes, part.in_all, unit) if part.in_all else ""
    size = number(part.bytes, unit) if part.bytes else "not known"
    share = percent(part.bytes, total_bytes) if part.state != "not planned" else ""
    return Row(None, part.state, size, "", share, "", how)


def model_line(plan: Plan) -> str:
    """What is planned: name, parameters, format, size in both units, where it was read."""
    model = plan.request.model
    parts = [model.id]
    if model.parameters:
        parts.append(f"{model.parameters / 1e9:,.2f} B parameters")
    parts.append(weights_text(plan))
    if model.stored:
        parts.append(format_both(model.stored.value) + ("" if plan.request.weight_format else " stored"))
    return " · ".join(part for part in parts if part)


def weights_text(plan: Plan) -> str:
    """The format of the weights: "bfloat16", or "as if stored in FP8" where that is a what-if."""
    wished = plan.request.weight_format
    return f"as if stored in {wished}" if wished else plan.request.model.weight_format


def draft_line(plan: Plan) -> str:
    """The model that drafts tokens for the one that is planned, "" for none."""
    draft = plan.request.draft
    if draft is None:
        return ""
    size = f"{format_both(draft.stored.value)} stored" if draft.stored else ""
    return f"Draft model: {' · '.join(part for part in (draft.id, draft.weight_format, size) if part)}"


def about_lines(plan: Plan) -> tuple[str, ...]:
    """What is planned, where its facts were read, what drafts for it, and where it runs."""
    lines = model_line(plan), source_line(plan), draft_line(plan), machine_line(plan)
    return tuple(line for line in lines if line)


def source_line(plan: Plan) -> str:
    """Where the model's facts were read."""
    return f"Source: {plan.request.model.source_detail or plan.request.model.source_kind}"


def engine_title(plan: Plan) -> str:
    """The engine's name for people."""
    from kvplanner.engine.registry import engine

    return engine(plan.request.engine).title


def machine_line(plan: Plan) -> str:
    """Where it runs: GPUs, engine, version and the rules that were used."""
    machine = plan.request.machine
    parts = [machine.describe()]
    if machine.source != "catalogue":
        parts[0] += f" ({machine.source})"
    parts.append(f"{engine_title(plan)} {plan.engine_version}")
    if plan.rules and plan.rules != plan.engine_version:
        parts.append(f"rules {plan.rules}")
    if plan.replicas > 1:
        parts.append(f"{plan.replicas} replicas")
    return " · ".join(parts)


def free_line(plan: Plan, position: int, unit: ByteUnit = "GiB") -> str:
    """How much of what a device has free is left at start, "" where all of it is or nothing was given."""
    device = plan.devices[position]
    free, outside = device.device.free_bytes, device.segment("runtime_outside")
    if free is None or outside is None or not outside.bytes:
        return ""
    source = device.device.free_source
    given = f"{format_bytes(free, unit)} free{f' ({source})' if source else ''}"
    takes = f"{format_bytes(outside.bytes, unit)} of runtime outside the budget"
    if free < outside.bytes:
        return f"{given}: too little for {takes}"
    return f"{given} less {takes} = {format_bytes(free - outside.bytes, unit)} at start"


def token_text(cache: KvCache) -> str:
    """Tokens with no more digits than the band allows: "≈ 212,000 tokens (204,000–216,000)"."""
    low, high = cache.tokens_low, cache.tokens_high
    if low == high == cache.tokens:
        return counted(cache.tokens, "token", "tokens")
    shown, shown_low, shown_high = round_band(cache.tokens, low, high)
    return f"≈ {format_count(shown)} tokens ({format_count(shown_low)}–{format_count(shown_high)})"


def _allocated(plan: Plan, cache: KvCache) -> Estimate:
    """The cache as the table tells it, in whole blocks; what is available where nothing is allocated."""
    segment = plan.devices[plan.tightest].segment("kv_cache")
    whole = segment is not None and segment.bytes == cache.units * cache.bytes_per_unit
    return segment.estimate if segment is not None and whole else cache.available


def _unit(cache: KvCache, count: int) -> str:
    return cache.unit.removesuffix("s") if count == 1 else cache.unit


def _units(cache: KvCache) -> str:
    """How the engine counts its cache: "28,220 blocks of 16 tokens", "32,768 cells"."""
    counted_units = f"{format_count(cache.units)} {_unit(cache, cache.units)}"
    return counted_units + (f" of {counted(cache.unit_tokens, 'token', 'tokens')}" if cache.unit_tokens > 1 else "")


def cache_facts(plan: Plan, unit: ByteUnit = "GiB") -> Iterator[tuple[str, str]]:
    """What the KV cache holds, or a step of a model without one, as (name, text) pairs."""
    cache = plan.kv_cache
    if cache is None:
        yield from _step_facts(plan)
        return
    available = _allocated(plan, cache)
    per, whole = per_device(plan, cache), plan.bytes_of("kv_cache")
    shared = cache.shared_out and bool(per)
    band = span(available, unit)
    yield (
        "KV cache",
        (
            (f"{format_bytes(whole, unit)}{per}; at most " if shared else "")
            + f"{format_bytes(available.value, unit)}{' on one' if shared else per}"
            + (f" ({band})" if band else "")
            + f" = {_units(cache)},"
            + f" {format_count(cache.bytes_per_unit)} bytes"
        ),
    )
    tokens = token_text(cache)
    if cache.bytes_per_token:
        tokens += f", {cache.bytes_per_token:,.10g} bytes each{per}"
    yield "Tokens", tokens + of_replicas(plan)
    yield (
        "Requests",
        (
            f"{cache.max_concurrency:,.2f} of the full {format_count(cache.context_length)} tokens at once"
            + ("" if cache.max_concurrency >= 1 else ": less than one")
        ),
    )
    load, limits = plan.request.load, plan.limits
    if load is not None:
        from kvplanner.report.loads import tokens_each

        blocks = (
            f", {format_count(limits.units_per_user)} {_unit(cache, limits.units_per_user)} "
            f"{'each' if not load.mix else 'each on average'}"
            if limits.units_per_user
            else ""
        )
        served = "not served" if limits.serves_users is None else f"serves {format_count(limits.serves_users)}"
        yield (
            "Load",
            (f"{served} of {counted(load.users, 'user', 'users')} at once, {tokens_each(load)}{blocks}"),
        )
    if longest := longest_text(plan):
        yield "Longest", longest


def _step_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a step takes of a model without a cache."""
    step, load = plan.step, plan.request.load
    if step is None or plan.fits is False:
        return
    yield "KV cache", "none: a sequence is computed whole in one step, and nothing of it stays"
    full = counted(step.holds(step.length), "sequence", "sequences")
    most = f", {format_count(step.sequences)} at most" if step.sequences > step.holds(step.length) else ""
    yield "Step", f"{format_count(step.tokens)} tokens: {full} of {format_count(step.length)}{most}"
    if load is not None:
        from kvplanner.report.loads import prompts

        of = f"{format_count(plan.limits.serves_users or 0)} of {counted(load.users, 'sequence', 'sequences')}"
        yield "Load", f"{of} of {prompts(load)} in one step"


def longest_text(plan: Plan) -> str:
    """The longest context: what surely works, and what may; "" where none is known."""
    longest, sure = plan.limits.max_context_length, plan.limits.sure_max_context_length
    if not longest:
        return ""
    if sure is None:
        return f"{counted(longest, 'token', 'tokens')} of context may work"
    surely = f"{counted(sure, 'token', 'tokens')} of context would still work"
    return surely if longest <= sure else f"{surely}, {format_count(longest)} may"


def option_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """What the user set, then the engine's everyday options, as (flag name, text) pairs with the reason of each."""
    from kvplanner.engine.registry import engine

    chosen = engine(plan.request.engine)
    declared = {option.name: option for option in chosen.options(plan.request.version)}
    everyday = [name for name, option in declared.items() if option.everyday]
    set_by_user = [name for name, resolved in plan.options.items() if resolved.origin == "user"]
    ranges = {found.option: range_words(found) for found in plan.ranges}
    for name in dict.fromkeys((*set_by_user, *everyday)):
        if name in plan.options:
            works = f". {ranges[name]}" if name in ranges else ""
            known = declared.get(name)  # None: set, and of a later release
            size = known is not None and known.type == "bytes"
            yield name, _option_text(plan.options[name], size=size) + works


def _option_text(resolved: Resolved, *, size: bool) -> str:
    value = resolved.value
    number = isinstance(value, int) and not isinstance(value, bool)
    shown = str(value)
    if isinstance(value, int) and number:
        shown = format_bytes(value) if size and value >= 0 else format_count(value)
    shown = "not set" if value is None else shown if len(shown) <= _LONGEST_VALUE else shown[: _LONGEST_VALUE - 1] + "…"
    if resolved.origin == "user":
        return f"{shown} (set)"
    reason = resolved.reason
    return f"{shown} ({resolved.origin}: {reason})" if reason not in ("", resolved.origin) else f"{shown} (default)"
