"""A running server calibrates plans like its own, as a log does: by its KV cache and its processes' memory."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.diagnose.attached import Attached, learn_running
from kvplanner.diagnose.calibration import run_of_server
from kvplanner.diagnose.runs import from_json, to_json
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Calibration, PlanRequest
from kvplanner.units import GIB, MIB

MODEL = "Qwen/Qwen3-8B"


def plan(version: str = "0.11.0", runs: tuple[Calibration, ...] = (), **options: int | float) -> Plan:
    request = PlanRequest(
        models.load(MODEL), gpus.machine("RTX 4090"), "vllm", version, {"max_model_len": 8192, **options}
    )
    return engine("vllm").plan(request._replace(calibration=runs))


def held(of: Plan) -> int:
    """What the plan gives the engine's processes on its only GPU."""
    return sum(s.bytes for s in of.devices[0].segments if s.kind not in (
        "driver_reserved", "other", "fragmentation", "headroom"))  # fmt: skip


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0", "0.19.1", "0.33.0"])
def test_a_cache_that_is_smaller_than_planned_moves_the_plan_onto_it(version: str) -> None:
    of = plan(version)
    assert of.kv_cache is not None
    units = of.kv_cache.units - round(300 * MIB / of.kv_cache.bytes_per_unit)
    learned = learn_running(of, Attached(None, units))
    again = plan(version, learned.calibrations)
    assert again.kv_cache is not None
    assert abs(again.kv_cache.units - units) <= 1
    assert again.kv_cache.tokens_high - again.kv_cache.tokens_low < of.kv_cache.tokens_high - of.kv_cache.tokens_low
    # Another context is a neighbour: its plan moves by as much, and its band gets narrower too.
    other, moved = plan(version, max_model_len=4096), plan(version, learned.calibrations, max_model_len=4096)
    assert other.kv_cache is not None
    assert moved.kv_cache is not None
    assert 0.5 < (other.kv_cache.units - moved.kv_cache.units) / (of.kv_cache.units - units) < 1.5
    assert all(a.bytes == b.bytes for a, b in zip(of.devices[0].segments, again.devices[0].segments, strict=True)
               if a.estimate.basis == "exact")  # fmt: skip


def test_tokens_stand_for_units_where_a_server_states_those_alone() -> None:
    of = plan()
    assert of.kv_cache is not None
    by_units = learn_running(of, Attached(None, 1800)).calibrations
    assert learn_running(of, Attached(None, None, 1800 * 16)).calibrations == by_units


def test_what_the_budget_does_not_hold_is_not_moved_by_the_cache() -> None:
    request = PlanRequest(models.load(MODEL), gpus.machine("RTX 4090"), "sglang")
    of = engine("sglang").plan(request)
    assert of.kv_cache is not None
    assert learn_running(of, Attached(None, None, of.kv_cache.tokens - 2000)).calibrations == ()


def test_memory_beyond_all_that_the_plan_allows_is_outside_the_budget() -> None:
    of = plan()
    kinds = {c.kind: c.bytes for c in learn_running(of, Attached(held(of) + 500 * MIB)).calibrations}
    assert set(kinds) == {"runtime_outside", "cuda_graphs"}
    planned = sum(s.bytes for s in of.devices[0].segments if s.kind in kinds)
    assert sum(kinds.values()) == pytest.approx(planned + 500 * MIB, abs=40 * MIB)


def test_what_says_nothing_or_is_of_another_start_calibrates_nothing() -> None:
    of = plan()
    inside = learn_running(of, Attached(held(of) - 200 * MIB))
    assert inside.calibrations == ()
    assert "read that first" in inside.why
    assert "other settings" in learn_running(of, Attached(held(of) - 4 * GIB)).why
    assert "other settings" in learn_running(of, Attached(held(of) + 4 * GIB)).why
    assert "another GPU" in learn_running(of, Attached(None, 40_000)).why
    assert "does not start" in learn_running(plan(max_model_len=40_000), Attached(20 * GIB, 1900)).why


def test_it_learns_beside_the_rules_and_not_beside_what_others_measured() -> None:
    of = plan()
    first = learn_running(of, Attached(None, 1800)).calibrations
    assert learn_running(plan(runs=first), Attached(None, 1800)).calibrations == first


def test_its_run_is_kept_as_a_servers_with_the_rule_that_matches() -> None:
    of = plan()
    run = run_of_server(learn_running(of, Attached(held(of) + 200 * MIB, 1900)), of)
    assert (run.engine, run.version, run.model, run.origin) == ("vllm", "0.11.0", MODEL, "server")
    assert run.words.startswith("running server of vllm 0.11.0")
    (again,) = from_json(to_json((run,)), "here")
    assert again == run
    again_plan = plan(runs=again.calibrations)
    activations = again_plan.devices[0].segment("activations")
    assert activations is not None
    assert activations.estimate.basis == "calibrated"
    assert any(
        "running server" in str(note) and "same engine rules" in str(note) for note in activations.estimate.notes
    )
