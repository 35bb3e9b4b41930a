"""An inspection as text: the same lines in the terminal and in the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.printable import cut, printable
from kvplanner.report.inspect import Inspection
from kvplanner.report.table import table
from kvplanner.units import counted, format_both, format_bytes, format_parameters

# Names and notes come from files: a line, a table and a name of any length are cut, and say by how much.
MOST: Final = 600
MOST_ROWS: Final = 60
MOST_NAME: Final = 100


def lines(found: Inspection) -> Iterator[str]:
    """The inspection to read: the model in a line, then layers, tensors, caches and what is odd. All is printable."""
    yield from (cut(printable(line), MOST) for line in _lines(found))


def _lines(found: Inspection) -> Iterator[str]:
    yield " · ".join(_headline(found))
    yield f"Source: {found.source}"
    yield ""
    yield found.summary
    for row in found.layers:
        yield f"  {row.layers:>3} × {row.words}  ({row.which})"
    yield from _towers(found)
    yield from _tensors(found)
    yield from _caches(found)
    if found.odd or found.problems or found.assumed_fields:
        yield ""
    yield from (f"Odd: {text}" for text in found.odd)
    yield from (f"Problem: {text}" for text in found.problems)
    if found.assumed_fields:
        yield f"Assumed: {', '.join(found.assumed_fields)}: not in the file, taken from the architecture's defaults"


def _headline(found: Inspection) -> Iterator[str]:
    yield found.id
    yield found.architecture
    if found.parameters:
        active = found.active
        moving = active is not None and active < found.parameters
        at_work = f" ({_billions(active)} at work on a token)" if moving and active else ""
        yield f"{_billions(found.parameters)} parameters{at_work}"
    if found.weight_format:
        yield found.weight_format
    if found.stored:
        yield f"{format_both(found.stored.value)} stored" + ("" if found.stored.basis == "exact" else " (estimated)")
    if found.context_length:
        yield f"context {found.context_length:,}"


def _billions(count: int) -> str:
    return format_parameters(count) if count >= 5_000_000 else f"{count:,}"


def _towers(found: Inspection) -> Iterator[str]:
    for tower in found.towers:
        shape = f"{_layers(tower.depth)} of width {tower.hidden_size:,}"
        yield f"      {tower.kind} tower: {shape}, {_billions(tower.params)} parameters"


def _tensors(found: Inspection) -> Iterator[str]:
    if not found.tensors:
        yield ""
        yield "The tensors are not known: only the config was read"
        return
    total = sum(row.bytes for row in found.tensors)
    heads = ("tensors", "format", "how many", "parameters", "GB", "GiB", "share")
    rows = [
        (
            r.kind,
            r.format,
            f"{r.tensors:,}",
            f"{r.elements:,}",
            _gb(r.bytes),
            _gib(r.bytes),
            f"{100 * r.bytes / total:.1f} %" if total else "–",
        )
        for r in found.tensors[:MOST_ROWS]
    ]
    yield ""
    yield from table([heads, *rows], "<<>>>>>")
    if len(found.tensors) > MOST_ROWS:
        yield f"and {len(found.tensors) - MOST_ROWS:,} more kinds and formats"
    if not total:
        yield "All tensors are empty: the file holds no weights"
    largest = [
        (cut(r.path, MOST_NAME), _shape(r.shape), r.format, f"{r.tensors:,}", format_bytes(r.bytes, "MiB"))
        for r in found.largest
    ]
    yield ""
    yield from table([("largest", "shape", "format", "how many", "each"), *largest], "<<<>>")


def _shape(sizes: tuple[int, ...]) -> str:
    return " × ".join(f"{n:,}" for n in sizes)


def _layers(count: int) -> str:
    return counted(count, "layer", "layers")


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2f}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.2f}"


def _caches(found: Inspection) -> Iterator[str]:
    yield ""
    if not found.caches and not found.states:
        yield "Keeps no KV cache"
        return
    for cache in found.caches:
        upto = f", for {cache.bound:,} tokens at most" if cache.bound else ""
        yield f"KV cache, {cache.kind}: {cache.bytes_per_token:,.10g} bytes a token in {_layers(cache.layers)}{upto}"
    if len(found.caches) > 1:
        yield f"KV cache of all layers: {found.bytes_per_token:,.10g} bytes a token"
    for state in found.states:
        size = f"{state.bytes_per_sequence:,} bytes"
        yield f"State, {state.kind}: {size} a sequence in {_layers(state.layers)}, whatever its length"
    if found.bytes_per_token and found.context_length:
        grown = round(found.growing_bytes_per_token * found.context_length)
        bounded = round(sum(c.bytes_per_token * min(c.bound, found.context_length) for c in found.caches if c.bound))
        whole = grown + bounded + found.state_bytes_per_sequence
        yield f"One sequence of {found.context_length:,} tokens: {format_both(whole)}, before an engine's rounding"
