"""A server over several slices of cards says what stands against it."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Ask
from kvplanner.gpu.slices import said_of_slices

ALIKE = "2xa100-sxm4-40gb 3g.20gb"
UNEQUAL = "1xa100-sxm4-40gb 3g.20gb,1xa100-sxm4-40gb 1g.5gb"


@pytest.mark.parametrize(
    ("machine", "said"),
    [(ALIKE, ("one slice",)), (UNEQUAL, ("one slice", "unequal size")), ("1xa100-sxm4-40gb 3g.20gb", ()),
     ("2xa100-sxm4-40gb", ()), ("1xrtx-4090,1xrtx-3090", ())],
)  # fmt: skip
def test_what_is_said(machine: str, said: tuple[str, ...]) -> None:
    text = said_of_slices(gpus.machine(machine).devices)
    assert bool(text) == bool(said)
    assert all(word in text for word in said)
    assert ("unequal" in text) == ("unequal size" in said)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_plan_over_slices_says_so(name: str) -> None:
    ask = Ask(name)
    request = ask.request(models.load("Qwen/Qwen3-0.6B"), gpus.machine(UNEQUAL))
    spread = engine(name).plan(request)
    option = "tensor_parallel_size" if name == "vllm" else "tp_size"
    if len(spread.devices) < 2:
        spread = engine(name).plan(request._replace(options={option: 2}))
    assert any("unequal size" in warning for warning in spread.warnings)
    alone = engine(name).plan(request._replace(options={option: 1}))
    assert not any("slice" in warning for warning in alone.warnings)
