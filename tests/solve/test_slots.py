"""Slots that serve more of a load: as many as the GPUs hold, and what it costs where the engine takes RAM for them."""

from __future__ import annotations

from typing import Final

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.report.remedies import title
from kvplanner.report.solved import asides
from kvplanner.solve.remedies import Remedy, remedies
from kvplanner.solve.solver import Solved

_LOAD: Final = Load(64, 8000, 1000)


def ways(name: str, options: dict[str, OptionValue]) -> dict[frozenset[int], Remedy]:
    """The ways of a 14B as Q4_K_M on 32 GB, by the values that they set."""
    model, machine = models.load("Qwen/Qwen3-14B"), gpus.machine("RTX 5090")
    request = PlanRequest(model, machine, name, None, options, _LOAD)
    plan = engine(name).plan(request)
    assert plan.sure
    found = [way for way in remedies(request, plan) if way.aim == "more"]
    for way in found:
        assert way.plan == engine(name).plan(way.request)
        assert way.plan.sure
    return {frozenset(change.value for change in way.changes if isinstance(change.value, int)): way for way in found}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {15}),  # --fit gives them what there is
        ({"ctx_size": 40_960}, {138_240, 15}),
        ({"ctx_size": 40_960, "parallel": 64, "kv_unified": True}, {138_240, 15}),
    ],
)
def test_slots_share_what_the_gpus_have_room_for(options: dict[str, OptionValue], wanted: set[int]) -> None:
    """It said that nothing serves more, with half of the card free."""
    way = ways("llamacpp", options)[frozenset(wanted)]
    assert way.plan.limits.sure_serves_users == 15
    # Sixteen of 9,216 cells take 22.5 GiB; 6.25 of the cache at hand and 16.1 beside it are there.
    assert way.losses == ("length",)


def test_slots_of_ollama_stay_on_the_gpu_or_say_what_they_take_of_the_host() -> None:
    found = ways("ollama", {})
    served = {values: way.plan.limits.sure_serves_users for values, way in found.items()}
    here, shorter, host = frozenset({4}), frozenset({9216, 15}), frozenset({64})
    assert served == {here: 4, shorter: 15, host: 64}
    assert found[host].losses == ("slow",)
    assert "many times slower, and it must hold 311." in found[host].costs[0]
    (ram,) = (device for device in found[here].plan.devices if device.device.kind == "host")
    weights = ram.segment("weights")
    assert weights is not None
    assert weights.bytes < 2**29, "the embedding alone"


def test_the_most_users_say_what_they_take_of_the_host() -> None:
    request = PlanRequest(models.load("Qwen/Qwen3-14B"), gpus.machine("RTX 5090"), "ollama", None, {}, _LOAD)
    plan = engine("ollama").plan(request)
    changed = request._replace(options={"num_parallel": 64})
    there = engine("ollama").plan(changed)
    (told,) = asides(plan, Solved("users", 64, 64, "load", (), changed, there))
    assert told.startswith("weights move to the host")
    assert asides(there, Solved("users", 64, 64, "load", (), changed, there)) == []


def test_a_split_that_fills_one_gpu_is_given_up_first() -> None:
    """Layers moved by hand overfill the middle one of three: half of the context was offered, or a coarser cache."""
    request = PlanRequest(
        models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("3xRTX 3090"), "llamacpp", None,
        {"tensor_split": "16,38,27", "n_gpu_layers": "81", "ctx_size": 65_536}, None,
    )  # fmt: skip
    plan = engine("llamacpp").plan(request)
    assert plan.fits is False
    first = remedies(request, plan)[0]
    assert (first.names, first.weight, first.sure) == (("split",), 0, True)
    assert "tensor_split" not in first.request.options
    assert title(first) == "Split by free memory"


def test_slots_share_cells_that_hold_more_requests_than_there_are_slots() -> None:
    """Four slots of 131,072 shared cells serve four of sixteen; slots of their own would have 4,096 cells each."""
    model, machine = models.load("google/gemma-3-27b-it"), gpus.machine("RTX 5090")
    request = PlanRequest(model, machine, "llamacpp", None, {}, Load(16, 8000, 1000))
    plan = engine("llamacpp").plan(request)
    assert (plan.limits.serves_users, plan.limits.users_by_memory) == (4, 14)
    first = remedies(request, plan)[0]
    assert first.request.options == {"parallel": 14, "kv_unified": True}
    assert first.plan.limits.sure_serves_users == 12
    assert first.weight == 0
