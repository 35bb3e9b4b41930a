"""GPUs of which llama.cpp's memory cannot be told are refused, not planned with none or all of what they share."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput, NotModelled


@pytest.mark.parametrize(
    ("gpu", "error"),
    [("Apple M3 Max", BadInput), ("M3 Max 64GB", NotModelled)],
)
@pytest.mark.parametrize("name", ["llamacpp", "ollama"])
def test_what_metal_hands_out_is_not_made_up(name: str, gpu: str, error: type[Exception]) -> None:
    request = PlanRequest(model=models.load("Qwen/Qwen3-8B"), machine=gpus.machine(gpu), engine=name)
    with pytest.raises(error, match="M3 Max"):
        engine(name).plan(request)
