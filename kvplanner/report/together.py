"""Servers that share GPUs, in words and as JSON: schema kvplanner.together/1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.report.sentences import failing_words, summary
from kvplanner.report.table import table
from kvplanner.sized_text import show_size, sizes_in
from kvplanner.solve.together import Placed, held
from kvplanner.units import ByteUnit

SCHEMA: Final = "kvplanner.together/1"


def lines(orders: Sequence[Sequence[Placed]], unit: ByteUnit = "GiB") -> list[str]:
    """The order that was asked for, server by server; then what the other orders come to."""
    told: list[str] = []
    for at, one in enumerate(orders[0], 1):
        told += [f"{at}. {one.name}"]
        free = [size for size in one.free_bytes if size is not None]
        if free:
            told.append(f"   finds {show_size(min(free), unit)} free")
        told.append(f"   {_verdict(one, unit)}")
        if isinstance(one.plan, Plan) and one.plan.fits:
            told.append(f"   holds {show_size(max(held(one.plan).values()), unit)} of each GPU that it uses")
    if len(orders) > 1:
        rows = [("order", "starts")]
        rows += [(" → ".join(str(_number(orders[0], one)) for one in order), _outcome(order)) for order in orders]
        told += ["", *table(rows, "<<")]
    return told


def _number(first: Sequence[Placed], one: Placed) -> int:
    return [placed.name for placed in first].index(one.name) + 1


def _verdict(one: Placed, unit: ByteUnit) -> str:
    if isinstance(one.plan, str):
        return f"Refused: {one.plan}"
    said = sizes_in(summary(one.plan), unit)
    if one.plan.stage:
        return f"{said}; fails {failing_words(one.plan)}"
    return said if one.sure or not one.plan.fits else f"{said}; not surely: at the ends of the ranges it may not start"


def _outcome(order: Sequence[Placed]) -> str:
    failed = [
        f"{at}. fails{f' at {one.stage}' if one.stage else ''}" for at, one in enumerate(order, 1) if not one.fits
    ]
    if failed:
        return "; ".join(failed)
    return "all" if all(one.sure for one in order) else "all, not surely"


def to_json(orders: Sequence[Sequence[Placed]]) -> dict[str, object]:
    """The document: every order, that which was asked for first."""
    return {
        "schema": SCHEMA,
        "orders": [
            [
                {
                    "name": one.name,
                    "fits": one.fits,
                    "sure": one.sure,
                    "stage": one.stage,
                    "free_bytes": list(one.free_bytes),
                    "held_bytes": {str(k): v for k, v in held(one.plan).items()}
                    if isinstance(one.plan, Plan)
                    else None,
                    "tokens": one.plan.kv_cache.tokens if isinstance(one.plan, Plan) and one.plan.kv_cache else None,
                    "refused": one.plan if isinstance(one.plan, str) else None,
                }
                for one in order
            ]
            for order in orders
        ],
    }
