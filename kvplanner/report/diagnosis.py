"""A diagnosis in words and as JSON (kvplanner.diagnosis/1): what a log says, beside what a plan of it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.diagnose.reading import Ended, Stated
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.printable import printable
from kvplanner.report.devices import number
from kvplanner.report.segments import name_of
from kvplanner.report.table import table
from kvplanner.sized_text import show_size
from kvplanner.units import ByteUnit, format_count

SCHEMA: Final = "kvplanner.diagnosis/1"
# Figures of a log that are sizes, by the names of segments where they are one, in the order in which they are told.
_SIZES: Final = {
    "weights": name_of("weights"), "runtime": name_of("runtime"), "activations": name_of("activations"),
    "cuda_graphs_estimated": "CUDA graphs, estimated", "cuda_graphs": name_of("cuda_graphs"),
    "kv_cache": name_of("kv_cache"), "budget": "budget", "free_at_start": "free at start", "gpu_total": "GPU, in all",
}  # fmt: skip
_SEGMENTS: Final = ("weights", "runtime", "activations", "cuda_graphs", "kv_cache")


def headline(found: Diagnosis) -> str:
    """One sentence: whether it started, else the stage and the cause."""
    ended, reading = found.reading.ended, found.reading
    title = reading.grammar.title
    if ended is not None:
        when = next((rule.when for rule in engine(found.engine).stages if rule.stage == ended.stage), "")
        return f"{title} fails {when or 'to start'}: {cause(found, ended)}"
    if reading.started:
        tokens = f": KV cache for {format_count(found.tokens)} tokens" if found.tokens is not None else ""
        return f"{title} started{tokens}"
    return f"The log ends before {title} has started, and tells no error"


def cause(found: Diagnosis, ended: Ended) -> str:
    """Why a start ended, with the figures that decide."""
    figures = ended.figures

    def size(name: str) -> str:
        value = figures.get(name, found.size(name))
        return show_size(value) if isinstance(value, int | float) else "an unknown amount"

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
    text = f"{size('tried')} more was asked for, and GPU {figures.get('gpu', 0)} has {size('gpu_free')} free"
    text += f" of {size('gpu_total')}" if "gpu_total" in figures else ""
    unused, tried = figures.get("reserved_unused"), figures["tried"]
    if isinstance(unused, int) and isinstance(tried, int) and unused > tried:
        text += f"; {size('reserved_unused')} is reserved and cannot be handed out: fragmentation, not lack of memory"
    return text


def hints(found: Diagnosis) -> Iterator[str]:
    """What people take for something else, where the log shows it."""
    ended, share = found.reading.ended, found.reading.best("budget_share")
    if ended is None:
        return
    if ended.stage in ("kv_cache_sizing", "kv_cache_too_small") and share is not None and float(share.value) < 0.85:
        yield (f"utilisation {float(share.value):g} is what the engine may use in all, weights and cache together: a "
               "lower one leaves no room for the cache, and does not make the weights smaller")  # fmt: skip
    if ended.stage == "graph_capture":
        yield "graphs are captured out of what the budget leaves: a lower utilisation, or fewer captured sizes, helps"
    if ended.cause == "state_blocks":
        yield "each sequence of a model with recurrent state holds a block of its own: lower the most sequences"


def text(found: Diagnosis, plan: Plan | None = None, *, unit: ByteUnit = "GiB") -> str:
    """The diagnosis as text; plan: of the request that the log implies."""
    lines = [headline(found), ""]
    about = [found.model or "model not named", f"{found.reading.grammar.title} {found.version or 'of unknown release'}"]
    if found.gpus > 1:
        about.append(f"{found.gpus} GPUs")
    lines.append(" · ".join(about))
    if found.options:
        lines.append("Set: " + ", ".join(f"{name} {value}" for name, value in found.options.items()))
    rows = list(_rows(found, plan, unit))
    if rows:
        heads = ("", f"measured, {unit}", *(["planned", "difference"] if plan else []))
        lines += ["", *table([heads, *rows], align="<>>>"[: len(heads)])]
    lines += [f"Tokens    {format_count(found.tokens)}"] if found.tokens is not None else []
    lines += [f"Note: {hint}" for hint in hints(found)]
    if found.reading.starts > 1:
        lines.append(f"Note: the log holds {found.reading.starts} starts; this is the last one")
    lines += [f"Note: not understood: {problem}" for problem in found.problems]
    return "\n".join(map(printable, lines)) + "\n"


def _rows(found: Diagnosis, plan: Plan | None, unit: ByteUnit) -> Iterator[tuple[str, ...]]:
    device = plan.devices[plan.tightest] if plan else None
    for name, title in _SIZES.items():
        measured = found.size(name)
        if measured is None:
            continue
        row = [title, number(measured, unit)]
        if device is not None:
            segment = next((s for s in device.segments if s.kind == name), None) if name in _SEGMENTS else None
            row += [number(segment.bytes, unit), number(measured - segment.bytes, unit)] if segment else ["", ""]
        yield tuple(row)


def to_json(
    found: Diagnosis, plan: Plan | None = None, plan_file: dict[str, object] | None = None
) -> dict[str, object]:
    """Every size is an integer number of bytes."""
    from kvplanner.report.schema import to_json as plan_json

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
        "notes": [*hints(found), *found.problems],
        "starts": found.reading.starts,
        "unread_lines": found.reading.unread,
        "planned": plan_json(plan) if plan else None,
        "plan": plan_file,
    }  # fmt: skip


def _names(found: Diagnosis) -> list[str]:
    return list(dict.fromkeys(s.name for s in found.reading.stated))


def _measured(stated: Stated) -> dict[str, object]:
    return {"name": stated.name, "process": stated.process or None, "bytes": stated.value, "line": stated.line}
