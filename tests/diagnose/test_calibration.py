"""What a log teaches stands beside the rules' values, replaces neighbours' estimates, and leaves exact figures."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.diagnose import runs
from kvplanner.diagnose.calibration import learn
from kvplanner.diagnose.diagnosis import diagnose, request_of
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.units import GIB

LOG = Path(__file__).parent / "logs" / "vllm" / "066-v0-ok.log"
LLAMA = models.load("meta-llama/Llama-3.1-8B-Instruct")


def test_a_run_gives_its_own_plan_what_it_measured_and_nothing_exact_moves() -> None:
    found, machine = diagnose(BytesIO(LOG.read_bytes()).read), gpus.machine("RTX 4090 24696MiB")
    learned = learn(found, LLAMA, machine, "a log")
    assert learned.calibrations
    request = request_of(found, LLAMA, machine)
    before, after = (engine("vllm").plan(request._replace(calibration=c)) for c in ((), learned.calibrations))
    assert after.kv_cache is not None
    assert before.kv_cache is not None
    printed = round(5.48 * GIB)
    assert abs(after.kv_cache.available.value - printed) < abs(before.kv_cache.available.value - printed)
    narrow, wide = after.kv_cache.available, before.kv_cache.available
    assert narrow.high - narrow.low < wide.high - wide.low
    for one, other in zip(before.devices[0].segments, after.devices[0].segments, strict=False):
        if one.estimate.basis == "exact" and one.kind == other.kind:
            assert other.estimate.value == one.estimate.value
    activations = after.devices[0].segment("activations")
    assert activations is not None
    assert activations.estimate.basis == "calibrated"
    assert "a log" in activations.estimate.notes[-1]


def test_runs_are_kept_and_hold_no_path(tmp_path: Path) -> None:
    found = diagnose(BytesIO(LOG.read_bytes()).read)
    learned = learn(found, LLAMA, gpus.machine("RTX 4090"), "a log")
    run = runs.run_of(
        learned.calibrations, engine="vllm", version="0.6.6.post1", model="/home/ann/models/llama", gpu="RTX 4090"
    )
    place = tmp_path / "calibrations.json"
    runs.keep((run,), place)
    assert "/home" not in place.read_text("utf-8")
    assert runs.kept(place) == (run,)
    assert runs.in_use(place) == run.calibrations
    runs.keep((run._replace(on=False),), place)
    assert runs.in_use(place) == ()
    place.write_text(json.dumps({"schema": runs.SCHEMA, "runs": [{"id": "x"}]}), encoding="utf-8")
    assert runs.in_use(place) == ()
    with pytest.raises(BadInput):
        runs.kept(place)
