"""A sweep in words, as a table or a map, and as JSON: schema kvplanner.sweep/1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.printable import inert
from kvplanner.report.loads import tokens_each
from kvplanner.report.options import option_label
from kvplanner.report.table import table
from kvplanner.solve.axis import RELEASE, USERS, Axis
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT
from kvplanner.solve.sweep import Point, runs
from kvplanner.units import format_count, round_band

SCHEMA: Final = "kvplanner.sweep/1"
HEADS: Final = ("tokens", "range", "at once", "users", "verdict", "first limit")
_OWN: Final = {USERS: "Users", RELEASE: "Release", WEIGHT_FORMAT: "Weight format", GPUS: "GPUs"}
_LIMITS: Final = {
    "context": "a request is longer than the context", "kv_cache": "the KV cache is full",
    "max_requests": "no more requests run at once",
}  # fmt: skip


def label_of(axis: Axis, request: PlanRequest) -> str:
    """What an axis is called."""
    return title_of(axis.name, request) or axis.flag


def title_of(name: str, request: PlanRequest) -> str:
    """What the setting of an axis is called; "" for one that the engine does not have."""
    options = engine(request.engine).options(request.version)
    found = next((option for option in options if option.name == name), None)
    return option_label(found) if found is not None else _OWN.get(name, "")


def shown(value: OptionValue) -> str:
    """A value of an axis as a person reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return format_count(value) if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else value


def verdict_of(point: Point) -> str:
    """In a word or two."""
    if point.refused:
        return "refused"
    if point.fits is None:
        return "cannot tell"
    if not point.fits:
        return "does not fit"
    return "fits" if point.sure else "may fit"


def limit_words(point: Point, request: PlanRequest) -> str:
    """What stops a point first, in words; "" for nothing."""
    if point.refused:
        return point.refused
    rule = next((rule for rule in engine(request.engine).stages if rule.stage == point.limit), None)
    if rule is not None:
        return f"{'fails' if point.fits is False else 'may fail'} {rule.when}"
    return _LIMITS.get(point.limit, point.limit)


def heading(request: PlanRequest) -> str:
    """What is swept: model, machine, engine and load."""
    chosen, load = engine(request.engine), request.load
    parts = [request.model.id, request.machine.describe(), f"{chosen.title} {request.version or chosen.versions[0]}"]
    if load is not None:
        parts.append(f"{tokens_each(load)} for each user")
    return " · ".join(parts)


def lines(axes: Sequence[Axis], points: Sequence[Point], request: PlanRequest) -> list[str]:
    """The sweep as text: a table of one setting, a map of two, rows of more."""
    if len(axes) == 2:
        return [*_map(axes, points, request)]
    heads = (*(label_of(axis, request) for axis in axes), *HEADS)
    rows = [heads, *(_cells(point, request) for point in points)]
    kept = [at for at in range(len(heads)) if at < len(axes) or any(row[at] for row in rows[1:])]
    align = ">" * len(axes) + ">>>><<"
    told = [*table([[row[at] for at in kept] for row in rows], "".join(align[at] for at in kept))]
    return [*told, "", *_runs(axes[0], points)] if len(axes) == 1 else told


def _cells(point: Point, request: PlanRequest) -> tuple[str, ...]:
    tokens = span = at_once = users = ""
    if point.tokens is not None and point.tokens_low is not None and point.tokens_high is not None and point.tokens:
        near, least, most = round_band(point.tokens, point.tokens_low, point.tokens_high)
        tokens = format_count(near)
        span = f"{format_count(least)}–{format_count(most)}" if least != most else ""
        at_once = f"{point.max_concurrency:,.1f}" if point.max_concurrency is not None else ""
    if point.users is not None and point.serves_users is not None:
        users = f"{_sure_first(point.sure_serves_users, point.serves_users)} of {format_count(point.users)}"
    words = verdict_of(point), limit_words(point, request)
    return (*map(shown, point.values), tokens, span, at_once, users, *words)


def _sure_first(sure: int | None, may: int) -> str:
    return format_count(may) if sure is None or sure >= may else f"{format_count(sure)}–{format_count(may)}"


def _runs(axis: Axis, points: Sequence[Point]) -> list[str]:
    """Where it works, surely and by the values: stretches of numbers and releases, other values one by one."""
    ordered = axis.name == RELEASE or not isinstance(axis.values[0], str | bool)
    surely, may = (_stretches(points, surely=surely, ordered=ordered) for surely in (True, False))
    if not may:
        return ["Works nowhere in this range"]
    told = [f"Works surely: {_spans(surely) if surely else 'nowhere in this range'}"]
    return told if may == surely else [*told, f"May work: {_spans(may)}"]


def _stretches(points: Sequence[Point], *, surely: bool, ordered: bool) -> Sequence[tuple[OptionValue, OptionValue]]:
    if ordered:
        return runs(points, surely=surely)
    return [(point.values[0], point.values[0]) for point in points if point.works(surely=surely)]


def _spans(found: Sequence[tuple[OptionValue, OptionValue]]) -> str:
    parts = [shown(first) if first == last else f"{shown(first)} to {shown(last)}" for first, last in found]
    return ", ".join(parts)


def _map(axes: Sequence[Axis], points: Sequence[Point], request: PlanRequest) -> list[str]:
    """Rows of the first setting, columns of the second: users where the load has them, else tokens."""
    down, across = axes
    width = len(across.values)
    users = any(point.users is not None for point in points)
    rows = [("", *map(shown, across.values))]
    rows += [
        (shown(value), *(_cell(point, users=users) for point in points[at * width : (at + 1) * width]))
        for at, value in enumerate(down.values)
    ]
    what = "users served" if users else "tokens of KV cache"
    title = f"{label_of(down, request)} down, {label_of(across, request).lower()} across: {what}"
    legend = "~ may not fit · – does not fit · ? cannot be told · x refused"
    return [title, *table(rows, ">" * (width + 1)), legend]


def _cell(point: Point, *, users: bool) -> str:
    if point.refused or not point.fits:
        return "x" if point.refused else "–" if point.fits is False else "?"
    value = point.serves_users if users else point.tokens
    if value is None:
        return "?"
    if users:
        return _sure_first(point.sure_serves_users, value) if point.sure else f"~{format_count(value)}"
    return _few(value) if point.sure else f"~{_few(value)}"


def _few(value: int) -> str:
    """Three digits and a decimal unit: "452k"."""
    for power, unit in ((3, "G"), (2, "M"), (1, "k")):
        if value >= 1000**power:
            return f"{value / 1000**power:.3g}{unit}"
    return str(value)


def point_words(axes: Sequence[Axis], point: Point, request: PlanRequest) -> str:
    """All that is known of one point, as a sentence: "Context 32,768: 212,000 tokens (207,000–217,000), ..."."""
    where = ", ".join(f"{label_of(axis, request)} {shown(v)}" for axis, v in zip(axes, point.values, strict=True))
    tokens, span, at_once, users, words, limit = _cells(point, request)[len(axes) :]
    parts = [words]
    if tokens:
        parts.append(f"{tokens} tokens of KV cache{f' ({span})' if span else ''}")
    parts += [f"{at_once} full-length requests at once"] if at_once else []
    parts += [f"serves {users} users"] if users else []
    parts += [limit] if limit else []
    return f"{where}: {'; '.join(parts)}"


def to_csv(axes: Sequence[Axis], points: Sequence[Point], request: PlanRequest) -> str:
    """A row for each point (RFC 4180); sizes in bytes."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out)
    fields = [name for name in Point._fields if name != "values"]
    writer.writerow([*(axis.name for axis in axes), *fields, "model", "machine", "engine", "engine_version"])
    version = request.version or engine(request.engine).versions[0]
    said = (request.model.id, request.machine.describe(), request.engine, version)
    for point in points:
        cells = (*point.values, *(getattr(point, name) for name in fields), *said)
        writer.writerow(["" if cell is None else inert(cell) if isinstance(cell, str) else cell for cell in cells])
    return out.getvalue()


def to_json(axes: Sequence[Axis], points: Sequence[Point], request: PlanRequest, machine: str) -> dict[str, object]:
    """The document; machine: the words that name it."""
    load = request.load
    return {
        "schema": SCHEMA,
        "model": request.model.id,
        "machine": machine,
        "engine": {"name": request.engine, "version": request.version or engine(request.engine).versions[0]},
        "load": load._asdict() if load else None,
        "axes": [
            {"name": axis.name, "flag": axis.flag, "label": label_of(axis, request), "values": list(axis.values)}
            for axis in axes
        ],
        "points": [point_to_json(point) for point in points],
    }


def point_to_json(point: Point) -> dict[str, object]:
    """One point."""
    return {
        **point._asdict(),
        "values": list(point.values),
        "limit": point.limit or None,
        "refused": point.refused or None,
    }
