"""Measurements of neighbouring runs: they narrow, they never touch what is exact, and contradictions show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.request import Calibration
from kvplanner.engine.vllm.calibration import calibrate
from kvplanner.engine.vllm.memory import activations, runtime
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.units import GIB, MIB
from tests.engine.vllm.weights.models import H100, LLAMA_3_8B, settings

HERE = settings("0.19.0")


def seen(size: int, **changes: str) -> Calibration:
    facts = {"era": HERE.era.name, "gpu": H100.name, "family": "llama", "source": "start-up log"} | changes
    return Calibration("activations", size, **facts)


def test_a_neighbour_narrows_the_band() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    close = calibrate(law, "activations", (seen(round(1.89 * GIB)),), LLAMA_3_8B, HERE, H100)
    assert close.high - close.low < law.high - law.low
    assert close.low <= close.value <= close.high
    assert close.basis == "calibrated"
    assert "start-up log" in close.notes[-1]


def test_other_eras_gpus_families_and_kinds_do_not_count() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    others = [seen(GIB, era="0.33"), seen(GIB, gpu="L4"), seen(GIB, family="qwen3"), seen(GIB)._replace(kind="runtime")]
    assert calibrate(law, "activations", others, LLAMA_3_8B, HERE, H100) == law
    assert calibrate(runtime.inside(HERE, H100, 0), "runtime", others[:3], LLAMA_3_8B, HERE, H100).notes == ()


def test_exact_estimates_stay() -> None:
    law = weights.rank_weights(LLAMA_3_8B, HERE, H100, 0)
    assert calibrate(law, "activations", (seen(GIB),), LLAMA_3_8B, HERE, H100) == law


def test_a_contradiction_is_told_and_covered() -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    far = calibrate(law, "activations", (seen(9 * GIB),), LLAMA_3_8B, HERE, H100)
    assert far.value == 9 * GIB
    assert far.low <= law.value
    assert "contradict" in far.notes[-1]


@given(st.lists(st.integers(0, 12 * GIB), min_size=1, max_size=9))
def test_the_band_holds_the_value_and_is_never_wider_than_both_sources(sizes: list[int]) -> None:
    law = activations.peak(LLAMA_3_8B, HERE, H100, 0)
    found = calibrate(law, "activations", [seen(size) for size in sizes], LLAMA_3_8B, HERE, H100)
    assert found.low <= found.value <= found.high
    slack = max(max(sizes) - min(sizes), 48 * MIB, round(0.03 * max(sizes))) + 1
    assert found.low >= min(law.low, min(sizes) - slack, 0)
    assert found.high <= max(law.high, max(sizes) + slack)
