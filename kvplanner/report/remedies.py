"""Remedies in words: what to change, what comes of it, what it costs, and the flags to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from kvplanner.engine.lever import WEIGHT
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.gpu.names import short_name
from kvplanner.report.options import in_sentence, option_label
from kvplanner.sized_text import SizedText, size_mark, sizes_in
from kvplanner.solve.change import GPUS, MODEL, OWN_FLAGS, WEIGHT_FORMAT, Change, engine_flags, removed
from kvplanner.solve.remedies import Remedy, aim_of
from kvplanner.units import ByteUnit, counted, format_bytes, format_count, round_to_band

_INDENT: Final = "     "
_IN_GIB: Final = " (GiB)"
_LONG: Final = 40


def title(remedy: Remedy) -> str:
    """What changes, for a line: "Max sequences 632, context length 30,336"."""
    return _joined(_parts(remedy))


def whole_button(remedy: Remedy, name: str) -> str:
    """What changes as a wide button has room for it, all of it; name: of the model that is planned."""
    return _joined(_short_words(remedy, name))


def button(remedy: Remedy, name: str, beside: Sequence[Remedy] = ()) -> str:
    """What changes as a narrow button has room for it: "8 × RTX 3090 + 2 more"; name: of the model that is planned.

    beside: others that have a button there: what none of them changes so is what is named.
    """
    words = _short_words(remedy, name)
    if len(words) == 1:
        return words[0]
    elsewhere = {word for other in beside if other is not remedy for word in _short_words(other, name)}
    own = [place for place, word in enumerate(words) if word not in elsewhere] or [*range(len(words))]
    costs = [WEIGHT[loss] for loss in remedy.losses]
    # What users notice most; what another change leaves of its own is no answer to which of the ways it is.
    lead = max(own, key=lambda place: costs[place]) if len(costs) == len(words) else own[0]
    return f"{words[lead]} + {len(words) - 1} more"


def _short_words(remedy: Remedy, name: str) -> list[str]:
    """Its parts, without what the model's own name has."""
    stem = name.rpartition("/")[2]
    return [f"…{word.removeprefix(stem)}" if stem and word.startswith(f"{stem}-") else word for word in _parts(remedy)]


def _joined(words: Sequence[str]) -> str:
    return ", ".join(text if not place else in_sentence(text) for place, text in enumerate(words))


def _parts(remedy: Remedy) -> list[str]:
    options = {option.name: option for option in engine(remedy.request.engine).options(remedy.request.version)}
    words: list[str] = []
    for change in remedy.changes:
        option = options.get(change.option)
        label = option_label(option) if option else ""
        own = option is not None and option.role == "device_shares" and change.value is None
        words.append(f"{label} by free memory" if own else _changed(remedy, change, label))
    return [text for text in words if text]


def _changed(remedy: Remedy, change: Change, label: str) -> str:
    value = change.value
    if change.option == MODEL:
        return f"{str(value).rpartition('/')[2]} instead"
    if change.option == WEIGHT_FORMAT:
        return f"Weights in {value}"
    if change.option == GPUS:
        return short_name(remedy.request.machine.describe())
    if value is None:
        return f"No {in_sentence(label)}"
    if isinstance(value, bool):
        return label if value else f"No {in_sentence(label)}"
    if remedy.names == ("kv_bytes",):
        return f"{label} {format_bytes(int(value))}"
    if label.endswith(_IN_GIB):
        return f"{label.removesuffix(_IN_GIB)} {value:g} GiB"
    if isinstance(value, str) and len(value) > _LONG:
        return f"{label} as placed"  # what the engine placed by itself, written out: the flags have it
    return f"{label} {format_count(value) if isinstance(value, int) else value}"


def outcome(remedy: Remedy, unit: ByteUnit = "GiB") -> tuple[str, ...]:
    """What the plan then is, in short facts: how sure, tokens, users, what is left."""
    plan, cache, limits = remedy.plan, remedy.plan.kv_cache, remedy.plan.limits
    facts = ["fits" if remedy.sure else "may fit"]
    if remedy.aim == "faster":
        facts.append("all weights on the GPUs")
    if cache is not None and cache.tokens:
        facts.append(f"{_about(cache.tokens, cache.tokens_low, cache.tokens_high)} tokens")
    load = remedy.request.load
    if load is not None and limits.serves_users is not None:
        sure, may = limits.sure_serves_users or 0, limits.serves_users
        of = counted(load.users, "user", "users")
        # As the verdict counts them, so that the two are compared.
        facts.append(f"serves {format_count(may)} of {of}" + (f", {format_count(sure)} surely" if may > sure else ""))
        if remedy.aim == "more" and limits.users_by_memory:
            facts.append(f"room for {format_count(limits.users_by_memory)}")
    elif cache is not None:
        facts.append(f"{cache.max_concurrency:,.1f} requests of {format_count(cache.context_length)} tokens at once")
    left = headroom_bytes(plan)
    if left is not None:
        facts.append(f"{format_bytes(left, unit)} left")
    return tuple(facts)


def _about(value: int, low: int, high: int) -> str:
    return format_count(value) if low == high else f"≈ {format_count(round_to_band(value, low, high))}"


def headroom_bytes(plan: Plan) -> int | None:
    """What is left on the device with the least, None where nothing is planned to its end."""
    left = [s.bytes for device in plan.devices if (s := device.segment("headroom")) is not None]
    return min(left) if left and plan.kv_cache is not None else None


def flags_of(remedy: Remedy) -> str:
    """What to write behind the words of `kvplanner plan`: our own flags, then the engine's after "--"."""
    return flags(remedy.request, remedy.changes)


def flags(request: PlanRequest, changes: Sequence[Change]) -> str:
    """The flags that make changes, behind the words of `kvplanner plan`."""
    import shlex

    own = [f"{OWN_FLAGS[c.option]} {shlex.quote(str(c.value))}" for c in changes if c.option in OWN_FLAGS]
    models = [shlex.quote(str(c.value)) for c in changes if c.option == MODEL]
    engines = engine_flags(request, changes)
    return " ".join([*models, *own, *(["--", engines] if engines else [])])


def heading(plan: Plan) -> str:
    """What the list is called."""
    if plan.moved_bytes and aim_of(plan) != "fit":
        return "To run faster, serve more, or with less"
    return "Ways to make it fit" if aim_of(plan) == "fit" else "To serve more, or with less"


def without(plan: Plan) -> SizedText:
    """What stands in place of the list where nothing was found: what is missing, and where to look on."""
    if aim_of(plan) != "fit":
        return SizedText("Nothing that was tried serves more")
    if not plan.missing_bytes:
        return SizedText("Nothing that was tried makes it surely fit")
    each = " on each GPU" if len(plan.devices) > 1 and len(plan.groups) == 1 else ""
    other = "What fits lists the machines that it needs, and the models for these GPUs (kvplanner fits)"
    return SizedText(f"Nothing that was tried makes it fit: {size_mark(plan.missing_bytes)} are missing{each}. {other}")


def lines(
    plan: Plan, remedies: Sequence[Remedy], *, unit: ByteUnit = "GiB", width: int, most: int, head: str = ""
) -> Iterator[str]:
    """The list for a terminal; nothing where there is no remedy and none is needed. head: in place of its heading."""
    if not remedies:
        if plan.fits is False:
            yield from ("", *wrap(sizes_in(without(plan), unit), width))
        return
    yield from ("", head or heading(plan))
    for number, remedy in enumerate(remedies[:most], 1):
        first = f"{number:>3}  {title(remedy)}: {', '.join(outcome(remedy, unit))}"
        yield from wrap(first, width, subsequent_indent=_INDENT, break_on_hyphens=False)
        for cost in remedy.costs:
            yield from wrap(f"{_INDENT}{cost}", width, subsequent_indent=_INDENT, break_on_hyphens=False)
        gone = removed(remedy.request, remedy.changes)
        if gone:
            yield f"{_INDENT}without {' '.join(gone)}"
        flags = flags_of(remedy).removeprefix("-- ")
        if flags:
            yield f"{_INDENT}{flags}"
