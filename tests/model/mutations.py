"""Mutated configs: one change at a random place, as a hand or a broken tool would make it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from kvplanner.catalog import models

Path = tuple[str | int, ...]
# Keys that may appear in a newer config and that no reader knows.
NOVEL = (
    "num_shadow_layers",
    "expert_fusion_width",
    "window_growth",
    "state_mixing_rank",
    "compress_heads",
    "mtp_share",
)
VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 100_000, 1 << 40, 1 << 70, -(1 << 40), 0.5, 1e300, float("nan"),
    float("inf"), "", "full_attention", "bfloat16", "x" * 2000, [], [0], [1, 2], ["full_attention"], {}, {"a": 1},
    [[]], [None], b"\0".decode(),
)  # fmt: skip


class Mutation(NamedTuple):
    """What was done where. config: the result; deleted: the name of a removed field, else ""."""

    model: str
    what: str
    path: Path
    config: dict[str, Any]
    side: Any
    deleted: str


@cache
def seeds() -> tuple[str, ...]:
    """Every architecture, and every way to quantise, at least once."""
    chosen: dict[tuple[str, str], str] = {}
    for entry in models.index():
        if not entry.like:
            chosen.setdefault((entry.architecture, entry.quantization or ""), entry.id)
    return tuple(chosen.values())


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place below a config, lists by their first and last item only."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from places(item, (*path, key))
    elif isinstance(value, list) and value:
        for at in {0, len(value) - 1}:
            yield (*path, at)
            yield from places(value[at], (*path, at))


@cache
def facts(model: str) -> tuple[dict[str, Any], Any, tuple[Path, ...]]:
    record = models.record(model)
    return record["config"], record.get("side_quant"), tuple(places(record["config"]))


def mutate(model: str, rng: random.Random) -> Mutation:
    """One random change of a model's config."""
    config, side, where = facts(model)
    path = rng.choice(where)
    # Only what lies on the path is copied: readers change nothing that they are given.
    config = copy.copy(config)
    holder: Any = config
    for step in path[:-1]:
        holder[step] = copy.copy(holder[step])
        holder = holder[step]
    key, what, deleted = path[-1], rng.choice(("delete", "value", "value", "number", "list", "novel")), ""
    if what == "delete" or (what == "novel" and not isinstance(holder, dict)):
        deleted = key if isinstance(key, str) else ""
        del holder[key]
    elif what == "value":
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    elif what == "number":
        holder[key] = rng.choice((rng.randrange(-3, 300), rng.randrange(1 << 33), rng.random() * 100))
    elif what == "list":
        item = holder[key]
        holder[key] = (item + item[:1] if rng.random() < 0.5 else item[1:]) if isinstance(item, list) else [item]
    else:
        holder[rng.choice(NOVEL)] = copy.deepcopy(rng.choice(VALUES[1:]))
    return Mutation(model, what, path, config, side, deleted)
