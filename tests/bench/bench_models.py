"""Models: reading the index, finding a model, reading a config, loading a record, inspecting."""

from __future__ import annotations

import json
from functools import partial

from tests.bench import Row, cpu_ms


def run() -> list[Row]:
    """One row each; the floor of reading a config is parsing its JSON."""
    from kvplanner.catalog import models
    from kvplanner.model.families import read_config
    from kvplanner.model.whatif import reformat
    from kvplanner.report.inspect import inspect

    index = models.index.__wrapped__
    models.search("warm")
    rows = [
        Row("index of all models", cpu_ms(index), budget=10),
        Row("search by three words", cpu_ms(lambda: models.search("qwen3 8b fp8"), inner=5), budget=5),
    ]
    for name in ("meta-llama/Llama-3.1-8B-Instruct", "google/gemma-4-26B-A4B-it", "zai-org/GLM-5-FP8"):
        facts = models.record(name)
        text = json.dumps(facts["config"])
        took = cpu_ms(partial(read_config, facts["config"], side_quant=facts.get("side_quant")), inner=10)
        floor = cpu_ms(partial(json.loads, text), inner=10)
        rows.append(Row(f"config of {name.rpartition('/')[2]}", took, floor, budget=1))
    rows.append(Row("slowest config of the catalogue", *_slowest()))
    model = models.load("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert model.inventory is not None
    inventory = model.inventory
    rows.append(Row("inspect", cpu_ms(lambda: inspect(model), inner=5), budget=5))
    rows.append(Row("what if GGUF", cpu_ms(lambda: reformat(inventory, model.spec, "GGUF Q4_K_M")), budget=10))
    return rows


def _slowest() -> tuple[float, float, None, None, str, str]:
    """The config that takes longest to read: long lists of skipped modules."""
    from kvplanner.catalog import models
    from kvplanner.model.families import read_config

    worst, name, floor = 0.0, "", 0.0
    for entry in models.index():
        if entry.like:
            continue
        facts = models.record(entry.id)
        took = cpu_ms(partial(read_config, facts["config"], side_quant=facts.get("side_quant")), repeat=3)
        if took > worst:
            worst, name, text = took, entry.id, json.dumps(facts)
            floor = cpu_ms(partial(json.loads, text), repeat=3)
    return worst, floor, None, None, "ms CPU", name
