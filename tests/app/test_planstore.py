"""States and plan files: there and back, with devices switched off, and with strange extra fields."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.app import planstore
from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus, models
from kvplanner.engine.request import Load
from kvplanner.errors import BadInput
from kvplanner.request import planfile

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def state(**fields: object) -> PlanState:
    machine = gpus.machine("2xRTX 4090,1xRTX 3090")
    made = PlanState(
        model_text=MODEL, model=models.load(MODEL), machine_text=gpus.machine_words(machine),
        devices=machine.devices, machine_chosen=True,
    )  # fmt: skip
    return made.changed(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"options": {"max_model_len": 4096, "enforce_eager": True, "gpu_memory_utilization": 0.8}},
        {"load": Load(3, 10, 20)},
        {"given_free": {0: 10**10, 2: 5}},
        {"unticked": frozenset({1})},
        {"unticked": frozenset({0, 1}), "given_free": {2: 7 * 10**9}},
        {"version": "0.33.0", "weight_format": "fp8", "measured": {"activations": 3 * 10**9}},
    ],
)
def test_there_and_back(tmp_path: Path, fields: dict[str, object]) -> None:
    before = state(**fields)
    planstore.save(tmp_path / "a.kvplan.json", before)
    after = planstore.read(tmp_path / "a.kvplan.json")
    assert after._replace(extra={}) == before


def test_other_readers_see_only_the_devices_in_use(tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    planstore.save(path, state(unticked=frozenset({0}), given_free={1: 10**9}))
    file = planfile.load(path)
    machine = gpus.machine(file.machine)
    assert [d.gpu.id for d in machine.devices] == ["rtx-4090", "rtx-3090"]
    assert dict(file.free) == {0: 10**9}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=8), child, max_size=3),
)


@given(
    st.fixed_dictionaries(
        {}, optional={"machine": JSON | st.just("2xRTX 4090"), "unticked": JSON | st.just([0]), "free_bytes": JSON}
    )
)
def test_a_strange_window_field_changes_nothing_of_the_plan(kept: dict[str, object]) -> None:
    file = planstore.to_planfile(state())._replace(unknown={planstore.WINDOW_FIELD: kept})
    found = planstore.to_state(file)
    assert found.machine is not None
    assert found.model_text == MODEL


def test_numbers_of_gpus_without_end_are_left_out() -> None:
    kept = {"machine": "2xRTX 4090,1xRTX 3090", "unticked": [], "free_bytes": {"9" * 5000: 1, "²": 1, "1": 2}}
    file = planstore.to_planfile(state())._replace(unknown={planstore.WINDOW_FIELD: kept})
    assert dict(planstore.to_state(file).given_free) == {1: 2}


def test_a_model_that_is_gone_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    planstore.save(path, state()._replace(model_text="nobody/nothing-1b"))
    with pytest.raises(BadInput, match="nothing-1b"):
        planstore.read(path)
