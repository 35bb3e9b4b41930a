"""Every architecture that the readers know plans end to end: a config as transformers saves it, on one GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.model.families import read_config
from kvplanner.source.checkpoint.opening import from_config

FILE = Path(__file__).parents[2] / "model" / "class_counts.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["architecture"]: row["config"] for row in map(json.loads, FILE.read_text("utf-8").splitlines())
}


@pytest.mark.parametrize("architecture", sorted(ROWS))
def test_it_plans_or_says_which_release_ran_it(architecture: str) -> None:
    spec, inventory = read_config(ROWS[architecture])
    model = from_config(architecture, spec, inventory, "config", "config.json")
    try:
        plan = engine("vllm").plan(PlanRequest(model, gpus.machine("H100")))
    except BadInput as error:
        assert "was supported in vLLM until" in error.what
        return
    assert plan.fits is not False
    device = plan.devices[0]
    weights = sum(s.bytes for s in device.segments if s.kind == "weights")
    assert 0 < weights <= 1.3 * inventory.stored_bytes() + (64 << 20)
