"""Measurements of neighbouring runs: they narrow, they never touch what is exact, and contradictions show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.request import Calibration
from kvplanner.engine.shared.calibration import Place, calibrate, carried
from kvplanner.engine.vllm.memory import activations, runtime
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.estimate import Estimate
from kvplanner.units import GIB, MIB
from tests.engine.vllm.weights.models import H100, LLAMA_3_8B, settings

HERE = settings("0.19.0")
PLACE = Place("vllm", HERE.era.name, H100.name, "llama")


def seen(size: int, **changes: str) -> Calibration:
    facts = {"era": HERE.era.name, "gpu": H100.name, "family": "llama", "source": "start-up log"} | changes
    return Calibration("activations", size, facts["era"], facts["gpu"], facts["family"], facts["source"])


def test_a_neighbour_narrows_the_band() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    close = calibrate(law, "activations", (seen(round(1.89 * GIB)),), PLACE)
    assert close.high - close.low < law.high - law.low
    assert close.low <= close.value <= close.high
    assert close.basis == "calibrated"
    assert "start-up log" in close.notes[-1]


def test_other_eras_gpus_families_and_kinds_do_not_count() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    others = [seen(GIB, era="0.33"), seen(GIB, gpu="L4"), seen(GIB, family="qwen3"), seen(GIB)._replace(kind="runtime")]
    assert calibrate(law, "activations", others, PLACE) == law
    assert calibrate(runtime.inside(HERE, H100, 0), "runtime", others[:3], PLACE).notes == ()


def test_exact_estimates_stay() -> None:
    law = weights.rank_weights(LLAMA_3_8B, HERE, H100, 0)
    assert calibrate(law, "activations", (seen(GIB),), PLACE) == law


def test_a_contradiction_is_told_and_covered() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    far = calibrate(law, "activations", (seen(9 * GIB),), PLACE)
    assert far.value == 9 * GIB
    assert far.low <= law.value
    assert "contradict" in far.notes[-1]


@given(st.lists(st.integers(0, 12 * GIB), min_size=1, max_size=9))
def test_the_band_holds_the_value_and_is_never_wider_than_both_sources(sizes: list[int]) -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    found = calibrate(law, "activations", [seen(size) for size in sizes], PLACE)
    assert found.low <= found.value <= found.high
    slack = max(max(sizes) - min(sizes), 48 * MIB, round(0.03 * max(sizes))) + 1
    assert found.low >= min(law.low, min(sizes) - slack, 0)
    assert found.high <= max(law.high, max(sizes) + slack)


def test_another_run_s_difference_is_carried_over_and_its_own_settings_give_what_it_measured() -> None:
    run = Calibration("activations", GIB, "", "", "", "a log", "vllm", 2 * GIB)
    assert carried(run, 2 * GIB) == GIB
    assert carried(run, 8 * GIB) == 4 * GIB  # in proportion: a batch four times as large
    context = run._replace(kind="runtime_outside")
    assert carried(context, 3 * GIB) == 2 * GIB  # as a difference
    assert carried(context, GIB // 2) == 0


def test_what_is_carried_far_is_in_more_doubt_than_what_was_measured_so() -> None:
    law = Estimate(4 * GIB, 2 * GIB, 8 * GIB, "analytic")
    near = Calibration("activations", 5 * GIB, "", "", "", "a log", "vllm", 4 * GIB)
    here = calibrate(law, "activations", (near,), PLACE)
    away = calibrate(law, "activations", (near._replace(bytes=5 * GIB // 4, law_bytes=GIB),), PLACE)
    assert here.value == away.value == 5 * GIB
    assert here.high - here.low < away.high - away.low < law.high - law.low
    assert "any plan" in here.notes[-1]
