"""A diagnosis in words and as JSON (kvplanner.diagnosis/1): what a log says, beside what a plan of it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis, unstated
from kvplanner.diagnose.findings import Finding
from kvplanner.diagnose.implied import Implied
from kvplanner.diagnose.privacy import public, public_document, scrubbed
from kvplanner.diagnose.reading import Ended, Stated
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.printable import printable
from kvplanner.report.devices import number
from kvplanner.report.options import in_sentence, option_label
from kvplanner.report.pitfalls import hints
from kvplanner.report.remedies import lines as remedy_lines
from kvplanner.report.segments import name_of
from kvplanner.report.sentences import failing_words
from kvplanner.report.table import table
from kvplanner.sized_text import show_size
from kvplanner.units import ByteUnit, format_count

SCHEMA: Final = "kvplanner.diagnosis/1"
# Figures of a log that are sizes, by the names of segments where they are one, in the order in which they are told.
_SIZES: Final = {
    "weights": name_of("weights"),
    "runtime": name_of("runtime"),
    "activations": name_of("activations"),
    "cuda_graphs_estimated": "CUDA graphs, estimated",
    "cuda_graphs": name_of("cuda_graphs"),
    "kv_cache": name_of("kv_cache"),
    "compute": name_of("compute"),
    "unaccounted": "unaccounted",
    "budget": "budget",
    "free_at_start": "free at start",
    "gpu_total": "GPU, in all",
}
_UNKNOWN: Final = "an unknown amount"
_MOST_REMEDIES: Final = 5
_SEGMENTS: Final = ("weights", "runtime", "activations", "cuda_graphs", "kv_cache", "compute")


def headline(found: Diagnosis) -> str:
    """One sentence: whether it started, else the stage and the cause."""
    ended, reading = found.reading.ended, found.reading
    title = reading.grammar.title
    if ended is not None:
        return f"{title} fails {_when(found)}: {cause(found, ended)}"
    if reading.started:
        tokens = f": KV cache for {format_count(found.tokens)} tokens" if found.tokens is not None else ""
        return f"{title} started{tokens}"
    return f"The log ends before {title} has started, and tells no error"


def cause(found: Diagnosis, ended: Ended) -> str:
    """Why a start ended, with the figures that decide."""
    figures = ended.figures

    def size(name: str) -> str:
        value = figures.get(name, found.size(name))
        return show_size(value) if isinstance(value, int | float) else _UNKNOWN

    if ended.cause == "free_memory":
        share = figures.get("budget_share")
        of = f" (utilisation {share:g})" if isinstance(share, float) else ""
        return f"{size('free_at_start')} of {size('gpu_total')} is free and {size('budget')} is wanted{of}"
    if ended.cause == "no_cache":
        return "the budget leaves nothing for the KV cache"
    if ended.cause == "memory_moved":
        return "the free memory grew while the engine measured: another program let go of some"
    if ended.cause == "state_blocks":
        sequences, blocks = figures.get("sequences", 0), figures.get("blocks", 0)
        return f"{sequences:,} sequences need a state block each and the KV cache has {blocks:,}"
    if ended.cause == "host_full":
        return f"{size('tried')} more of the host's memory was asked for than it has left"
    if ended.cause == "request_slots":
        return "more requests run at once than it has slots for, whatever memory is left"
    if ended.cause == "killed":
        return "the system ended it from outside, as it does when the host's own memory runs out"
    if ended.cause == "refused":
        return str(figures.get("why", "the settings do not go together"))
    if ended.cause == "one_request":
        return _one_request(figures, size)
    return _out_of_memory(figures, size)


def _one_request(figures: dict[str, int | float | str], size: object) -> str:
    assert callable(size)
    length = figures.get("context_length")
    request = f"one request of {length:,} tokens" if isinstance(length, int) else "one request of full length"
    if "needed" not in figures:
        held = figures.get("tokens")
        return (
            f"{request} is more than the {held:,} tokens that the KV cache holds" if held else f"{request} is too long"
        )
    text = f"{request} needs {size('needed')} of KV cache and {size('kv_cache')} is left"
    suggested = figures.get("suggested_context_length")
    return f"{text}; the engine suggests {suggested:,} tokens" if isinstance(suggested, int) else text


def _out_of_memory(figures: dict[str, int | float | str], size: object) -> str:
    assert callable(size)
    if "tried" not in figures:
        return "the GPU has no memory left"
    if "gpu_free" not in figures:
        on = f" on GPU {figures['gpu']}" if "gpu" in figures else ""
        at_start = size("free_at_start")
        return f"{size('tried')} more was asked for{on}" + (
            f", of which {at_start} was free at the start" if on and at_start != _UNKNOWN else ""
        )
    text = f"{size('tried')} more was asked for, and GPU {figures.get('gpu', 0)} has {size('gpu_free')} free"
    text += f" of {size('gpu_total')}" if "gpu_total" in figures else ""
    unused, tried = figures.get("reserved_unused"), figures["tried"]
    if isinstance(unused, int) and isinstance(tried, int) and unused > tried:
        text += f"; {size('reserved_unused')} is reserved and cannot be handed out: fragmentation, not lack of memory"
    return text


def about(found: Diagnosis) -> str:
    """Model, engine with its release, GPUs."""
    parts = [found.model or "model not named", f"{found.reading.grammar.title} {found.version or 'of unknown release'}"]
    return " · ".join((*parts, f"{found.gpus} GPUs") if found.gpus > 1 else parts)


def notes(found: Diagnosis) -> Iterator[str]:
    """What else there is to say of a log."""
    yield from hints(found)
    if found.first_start:
        yield "a first start: it compiled, which takes memory that later starts leave to the KV cache"
    if found.reading.servers > 1:
        yield f"the log is of {found.reading.servers} servers; this is {found.reading.source}"
    if found.reading.starts > 1:
        yield f"the log holds {found.reading.starts} starts; this is the last one"
    yield from (f"not understood: {problem}" for problem in found.problems)


def comparison(found: Diagnosis, beside: Implied) -> Iterator[str]:
    """What was assumed, and where the log and its plan do not end alike, or are not of one machine."""
    if open_ := list(_assumed(found, beside.plan)):
        yield f"assumed, as the log does not state it: {', '.join(open_)}"
    stage = failing_words(beside.measured)
    if beside.other_total_bytes is not None:
        own = beside.plan.devices[beside.plan.tightest].cuda_total_bytes
        yield (f"the log's GPU has {show_size(beside.other_total_bytes)} and the planned one {show_size(own)}: "
               "name the GPU that it ran on for figures and remedies of this start")  # fmt: skip
        return
    if beside.unexplained:
        yield (f"the log's KV cache is {show_size(beside.unaccounted_bytes)} smaller than the plan's: another GPU than "
               "the planned one, or another program on it")  # fmt: skip
        return
    if beside.agreement == "stage":
        yield f"the plan fails {stage}, the log {_when(found)}: the remedies are the plan's"
    elif beside.agreement == "doubt":
        yield f"the plan may fail {_when(found)} too: its range is on both sides"
    elif beside.agreement == "log":
        fits = "fits" if beside.measured.sure else "may fit"
        yield f"the plan of this start {fits}, the log fails {_when(found)}: the remedies leave more memory free"
    elif beside.agreement == "plan":
        yield f"the log starts, and the plan fails {stage}"
    if beside.unaccounted_bytes:
        more = "less" if beside.unaccounted_bytes > 0 else "more"
        yield (f"the KV cache is {show_size(abs(beside.unaccounted_bytes))} {more} than the log's other figures leave: "
               "counted as runtime for the remedies")  # fmt: skip


def _assumed(found: Diagnosis, plan: Plan) -> Iterator[str]:
    """The options that decide a plan and that the log leaves open, with what the plan takes for them."""
    for option in unstated(found):
        resolved = plan.options.get(option.name)
        if resolved is not None and resolved.value is not None and option.name not in found.options:
            value = resolved.value
            yield f"{in_sentence(option_label(option))} {format_count(value) if type(value) is int else value}"


def finding_words(findings: Iterable[Finding]) -> Iterator[str]:
    """Both numbers of each contradiction of an exact figure."""
    for one in findings:
        measured, planned = ((f"{n:,} tokens" if one.tokens else show_size(n)) for n in (one.measured, one.planned))
        yield (f"{one.name}: the log prints {measured} and the plan counts {planned}, which ought to be exact. "
               "A report of it (Save Report, or diagnose --report FILE) has what is needed to mend it")  # fmt: skip


def _when(found: Diagnosis) -> str:
    rules = engine(found.engine).stages
    return next((rule.when for rule in rules if rule.stage == found.stage), "to start")


def text(
    found: Diagnosis, beside: Implied | None = None, *, unit: ByteUnit = "GiB", width: int = 100, remark: str = ""
) -> str:
    """The diagnosis as text; beside: the plan that the log implies; remark: on it, or why there is none."""
    found = public(found)
    plan = beside.plan if beside else None
    lines = [headline(found), ""]
    lines.append(about(found))
    if found.options:
        lines.append("Set: " + ", ".join(f"{name} {value}" for name, value in found.options.items()))
    cells = list(rows(found, plan, unit))
    if cells:
        heads = ("", f"measured, {unit}", *(["planned", "difference"] if plan else []))
        lines += ["", *table([heads, *cells], align="<>>>"[: len(heads)])]
    lines += [f"Tokens    {format_count(found.tokens)}"] if found.tokens is not None else []
    lines += [f"Note: {note}" for note in (*notes(found), remark) if note]
    if beside is not None:
        lines += [f"Note: {words}" for words in comparison(found, beside)]
        lines += [f"Finding: {words}" for words in finding_words(beside.findings)]
        if not beside.of_another_machine and (found.stage is not None or beside.measured.fits is False):
            lines += remedy_lines(
                beside.measured,
                beside.remedies,
                unit=unit,
                width=width,
                most=_MOST_REMEDIES,
                head=_heading(found, beside),
            )
    return "\n".join(map(printable, lines)) + "\n"


def _heading(found: Diagnosis, beside: Implied) -> str:
    alone = found.stage is not None and beside.agreement == "log" and beside.measured.sure
    return "What leaves more memory free" if alone else ""


def rows(found: Diagnosis, plan: Plan | None, unit: ByteUnit) -> Iterator[tuple[str, ...]]:
    """A row for each size; of an engine that prints by device, for each of several devices."""
    devices = found.devices
    if len(devices) < 2:
        yield from _rows_of(found.size, plan.devices[plan.tightest] if plan else None, unit)
        return
    for place, name in enumerate(devices):
        planned = next((d for d in plan.gpus if d.device.index == place), None) if plan else None

        def size(figure: str, name: str = name) -> int | None:
            return found.of_device(figure, name)

        yield from _rows_of(size, planned, unit, f"{name} ", compared=plan is not None)


def _rows_of(
    size: Callable[[str], int | None], device: DevicePlan | None, unit: ByteUnit, prefix: str = "",
    compared: bool = False,
) -> Iterator[tuple[str, ...]]:  # fmt: skip
    for name, title in _SIZES.items():
        measured = size(name)
        if measured is None:
            continue
        row = [prefix + title, number(measured, unit)]
        if device is not None or compared:
            segments = device.segments if device is not None else ()
            segment = next((s for s in segments if s.kind == name), None) if name in _SEGMENTS else None
            row += [number(segment.bytes, unit), _difference(measured - segment.bytes, unit)] if segment else ["", ""]
        yield tuple(row)


def _difference(size: int, unit: ByteUnit) -> str:
    """Without a sign where it is nothing as shown."""
    text = number(size, unit)
    return text if text.strip("−0.") else text.lstrip("−")


def to_json(
    found: Diagnosis, beside: Implied | None = None, plan_file: dict[str, object] | None = None, remark: str = ""
) -> dict[str, object]:
    """Every size is an integer number of bytes. plan_file: the document of the request that the remedies change."""
    from kvplanner.report.schema import remedy_to_json
    from kvplanner.report.schema import to_json as plan_json

    found = public(found)
    ended = found.reading.ended
    return {
        "schema": SCHEMA,
        "engine": {"name": found.engine, "version": found.version},
        "model": found.model,
        "options": found.options,
        "gpus": found.gpus,
        "started": found.reading.started,
        "stage": found.stage,
        "cause": None if ended is None else {
            "code": ended.cause, "sentence": cause(found, ended), "line": ended.line, "figures": ended.figures,
        },
        "measured": [_measured(s) for s in found.reading.stated if s.size],
        "figures": {s.name: s.value for name in _names(found) if (s := found.reading.best(name)) and not s.size},
        "tokens": found.tokens,
        "notes": [
            *hints(found), *found.problems, *filter(None, (scrubbed(remark),)),
            *(comparison(found, beside) if beside else ()),
        ],
        "starts": found.reading.starts,
        "unread_lines": found.reading.unread,
        "planned": public_document(plan_json(beside.plan)) if beside else None,
        "findings": [f._asdict() for f in beside.findings] if beside else [],
        "agreement": beside.agreement if beside else None,
        "unaccounted_bytes": beside.unaccounted_bytes if beside else None,
        "remedies": [public_document(remedy_to_json(remedy)) for remedy in beside.remedies] if beside else [],
        "plan": public_document(plan_file),
    }  # fmt: skip


def _names(found: Diagnosis) -> list[str]:
    return list(dict.fromkeys(s.name for s in found.reading.stated))


def _measured(stated: Stated) -> dict[str, object]:
    device = stated.process or None
    return {"name": stated.name, "process": device, "device": device, "bytes": stated.value, "line": stated.line}
