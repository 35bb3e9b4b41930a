"""Servers that share GPUs, in words and as JSON: schema kvplanner.together/1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.report.sentences import failing_words, summary
from kvplanner.report.table import table
from kvplanner.sized_text import show_size, sizes_in
from kvplanner.solve.together import Placed
from kvplanner.units import ByteUnit

SCHEMA: Final = "kvplanner.together/1"


def lines(orders: Sequence[Sequence[Placed]], unit: ByteUnit = "GiB") -> list[str]:
    """The order that was asked for, server by server; then what the other orders come to."""
    told: list[str] = []
    for at, one in enumerate(orders[0], 1):
        told += [f"{at}. {one.name}"]
        said = (unloaded(one), _said("finds", finds(one, unit)), verdict(one, unit), _said("holds", holds(one, unit)))
        told += [f"   {line}" for line in said if line]
    if len(orders) > 1:
        rows = [("order", "starts")]
        rows += [(" → ".join(str(one.number) for one in order), outcome(order)) for order in orders]
        told += ["", *table(rows, "<<")]
    return told


def unloaded(one: Placed) -> str:
    """Which models its server unloads for it, "" where none: "unloads 1. once it is idle"."""
    if not one.unloads:
        return ""
    numbers = " and ".join(f"{number}." for number in one.unloads)
    return f"unloads {numbers} once {'it is' if len(one.unloads) == 1 else 'they are'} idle"


def finds(one: Placed, unit: ByteUnit) -> str:
    """What others have left of the GPUs that it sees, "" where nothing was taken: "20 GiB free on GPU 0 and 1"."""
    return _of_gpus(dict(zip(one.gpus, one.free_bytes, strict=True)), " free", unit)


def holds(one: Placed, unit: ByteUnit) -> str:
    """What it takes of its GPUs once it serves, "" where it does not start."""
    return _of_gpus(one.taken_bytes, "", unit)


def _said(verb: str, text: str) -> str:
    return text and f"{verb} {text}"


def _of_gpus(sizes: Mapping[int, int | None], end: str, unit: ByteUnit) -> str:
    """GPUs of one size together."""
    groups: dict[int, list[int]] = {}
    for gpu, size in sorted(sizes.items()):
        if size is not None:
            groups.setdefault(size, []).append(gpu)
    return ", ".join(f"{show_size(size, unit)}{end} on GPU {' and '.join(map(str, gpus))}"
                     for size, gpus in groups.items())  # fmt: skip


def verdict(one: Placed, unit: ByteUnit) -> str:
    """Whether it starts in its turn, and where it fails otherwise."""
    if isinstance(one.plan, str):
        return f"Refused: {one.plan}"
    said = sizes_in(summary(one.plan), unit)
    if one.plan.stage:
        return f"{said}; fails {failing_words(one.plan)}"
    return said if one.sure or not one.plan.fits else f"{said}; not surely: at the ends of the ranges it may not start"


def _when(one: Placed) -> str:
    return "" if isinstance(one.plan, str) else failing_words(one.plan)


def outcome(order: Sequence[Placed]) -> str:
    """What an order comes to: all start, or which do not, by their numbers."""
    failed = [f"{one.number}. fails {_when(one)}".rstrip() for one in order if not one.fits]
    if failed:
        return "; ".join(failed)
    turns = ", not all at once" if any(one.unloads for one in order) else ""
    return f"all{turns}" if all(one.sure for one in order) else f"all{turns}, not surely"


def to_json(orders: Sequence[Sequence[Placed]]) -> dict[str, object]:
    """The document: every order, that which was asked for first."""
    return {
        "schema": SCHEMA,
        "orders": [
            [
                {
                    "name": one.name,
                    "number": one.number,
                    "fits": one.fits,
                    "sure": one.sure,
                    "stage": one.stage,
                    "unloads": list(one.unloads),
                    "gpus": list(one.gpus),
                    "free_bytes": list(one.free_bytes),
                    "held_bytes": {str(gpu): size for gpu, size in one.taken_bytes.items()} or None,
                    "tokens": one.plan.kv_cache.tokens if isinstance(one.plan, Plan) and one.plan.kv_cache else None,
                    "refused": one.plan if isinstance(one.plan, str) else None,
                }
                for one in order
            ]
            for order in orders
        ],
    }
