"""Build resources/models/recipes.json: how publishers quantise, and how far their files lie from each other's recipes.

Run through build_catalogue.py, after the models. A recipe is what a quantised repository of the catalogue shows; the
spread of a format is how published sizes lie to what the recipes of other repositories would give.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvplanner.catalog import models, naming
from kvplanner.catalog.stored import UNEXPLAINED
from kvplanner.model.model import Model
from kvplanner.model.quantisation import published
from kvplanner.model.quantisation.published import Recipe

# A spread of few rows says little: these stand for "any".
_FEW = 6


def build(sources: Sequence[Path], target: Path) -> int:
    """Write recipes.json below `target`; returns the number of recipes."""
    rows = list(_rows())
    rows.sort(key=lambda row: (-row["seen"], -len(row["ids"]), row["key"], row["publisher"], row["architecture"]))
    known = [published.recipe_of(row) for row in rows]
    data = {"schema": "kvplanner.recipes/1", "spread": _spreads(sources, known), "recipes": rows}
    body = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    head = json.dumps(data["spread"], separators=(",", ":"))
    text = f'{{"schema":"{data["schema"]}","spread":{head},"recipes":[\n{body}\n]}}\n'
    (target / "recipes.json").write_text(text, encoding="utf-8")
    return len(rows)


def _rows() -> Iterator[dict[str, Any]]:
    """One row for each different recipe, with the repositories that show it."""
    found: dict[str, dict[str, Any]] = {}
    for entry in models.index():
        if entry.like or entry.quantization is None:
            continue
        row = _row(models.load(entry.id))
        if row is None:
            continue
        same = json.dumps({k: v for k, v in row.items() if k not in ("ids", "seen")})
        if same in found:
            found[same]["ids"] += row["ids"]
            found[same]["seen"] += row["seen"]
        else:
            found[same] = row
    yield from found.values()


def _row(model: Model) -> dict[str, Any] | None:
    assert model.inventory is not None
    held = model.inventory
    outside = tuple(group for group in held.outside if group.path != UNEXPLAINED)
    held = held._replace(outside=outside)
    parts = published.parts_in(held)
    experts = published.has_experts(held)
    sizes: defaultdict[str, int] = defaultdict(int)
    for group, layers in held.groups():
        sizes[published.part_of(group, experts)] += group.elements * layers
    key = published.key_of(list(parts.values()), [sizes[name] for name in parts])
    if not key:
        return None
    facts = models.record(model.id)
    predicts = bool(model.spec.mtp_layers) or (False if "mtp" in facts.get("absent", ()) else None)
    row = {
        "key": key, "publisher": model.id.partition("/")[0], "architecture": model.spec.architecture,
        "traits": published.traits_of(model.spec), "method": model.spec.quantization,
        "kv_cache": model.spec.kv_cache_dtype, "parts": {k: list(v) if v else None for k, v in sorted(parts.items())},
        "twice": "tied" in facts.get("extra", (0, ""))[1] if model.spec.tied_embeddings else None,
        "predicts": predicts,
        "seen": int(not facts.get("derived")), "ids": [model.id],
    }  # fmt: skip
    return {name: value for name, value in row.items() if value is not None}


def _spreads(sources: Sequence[Path], known: Sequence[Recipe]) -> dict[str, list[float]]:
    """By format: how published sizes lie to what other repositories' recipes give, as a range that holds 90 %.

    "near": where another recipe of the same publisher for the same architecture is known.
    """
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    for source in sources:
        path = source / "published-sizes.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            said = naming.parse(row["id"])
            if row.get("note") or said is None or said.key in ("", naming.PLAIN):
                continue
            others = [r._replace(ids=tuple(i for i in r.ids if i != row["id"])) for r in known]
            others = [r for r in others if r.ids]
            guess = naming.size_of(said, others)
            if guess is None:
                continue
            base = models.load(said.base.id)
            spec = base.spec
            recipe = naming.recipe_for(said, spec, others)
            assert recipe is not None
            near = published.is_near(recipe, spec, said.publisher)
            copies, copy = naming.as_recipe(base, recipe, others)[2], naming.copy_bytes(spec)
            other = guess - copy if copies else guess + copy
            for name in ("near",) if near else (said.key, "any"):
                ratios[name].append(row["stored_bytes"] / guess if near else _ratio(row["stored_bytes"], guess, other))
    return {key: _range(found) for key, found in sorted(ratios.items()) if len(found) >= _FEW}


def _ratio(stored: int, guess: int, other: int) -> float:
    """How a published size lies to a guess, or to the one with a tied head stored as the recipe's models do not.

    RedHatAI's gemma-4-12B-it-FP8-Dynamic stores it twice, its gemma-4-31B-it-FP8-Dynamic once; plans allow for both.
    """
    return min((stored / size for size in (guess, other)), key=lambda ratio: abs(ratio - 1))


def _range(ratios: list[float]) -> list[float]:
    """The range that holds 90 % of some ratios, and one."""
    ratios.sort()
    out = len(ratios) // 20
    return [round(min(ratios[out], 1), 4), round(max(ratios[-1 - out], 1), 4)]
