"""The planner beside unmodified llama.cpp: 1,356 cases of eleven models, one to four GPUs, all placement flags."""

from __future__ import annotations

import pytest

from kvplanner.engine.llamacpp.compute import chain
from tests.oracle.llamacpp.cases import MORE, Checked, checked, load, model_of, settings_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases() -> list[Checked]:
    """Every case with its answer."""
    return list(checked(load()))


def test_weights_and_context_are_equal_on_every_device(cases: list[Checked]) -> None:
    wrong = [case for case in cases if not case.exact]
    assert len(cases) >= 1356
    assert not wrong, wrong[:3]


def test_compute_buffers_are_near(cases: list[Checked]) -> None:
    errors = [case.compute_error for case in cases]
    assert sum(error <= 0.01 for error in errors) >= 0.985 * len(errors)
    assert sum(error <= 0.1 for error in errors) >= 0.99 * len(errors)


def test_models_that_no_rule_was_made_for_come_out_as_well() -> None:
    """A 70B, an 8B in 16 bits, DeepSeek-V2-Lite and Qwen3.5-27B: 290 cases on one GPU and on two."""
    others = list(checked(load(MORE)))
    assert len(others) >= 290
    assert not [case for case in others if not case.exact]
    for model in {case.model for case in others}:
        errors = [case.compute_error for case in others if case.model == model]
        assert sum(error <= 0.01 for error in errors) >= 0.9 * len(errors), model
        assert sum(error <= 0.1 for error in errors) >= 0.97 * len(errors), model


@pytest.mark.parametrize("model", ["llama31-8b-q4km", "qwen3-32b-q4km", "gptoss-20b-mxfp4", "mistral-small-24b-q4km"])
def test_usual_models_on_one_gpu_are_exact_to_a_kibibyte(cases: list[Checked], model: str) -> None:
    plain = {"ctx", "np", "kvu", "nout", "ubatch", "batch", "swa_full"}
    chosen = [case for case in cases if case.model == model and case.gpus == "1x" and set(case.flags) <= plain]
    assert len(chosen) > 15
    for case in chosen:
        for buffer in case.buffers:
            assert abs(buffer.got[2] - buffer.true[2]) <= 8192, (case.flags, buffer)


def test_the_layers_that_are_left_out_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some layers are laid out; all of them give the same peak."""
    from kvplanner.engine.llamacpp.sizes import size_up

    oracle = load()
    few = [case for case in oracle["cases"] if case["ok"] and case["gpus"] in ("1x", "2x-24-12")][::23]
    for case in few:
        flags = {**oracle["flag_defaults"], **case["flags"]}
        if flags["sm"] != "layer":
            continue
        model, tensors = model_of(case["model"])
        settings = settings_of(flags, model.spec.context_length or 0)
        free = [24 << 30] * (2 if case["gpus"].startswith("2") else 1)
        short = size_up(model, tensors, settings, free).compute
        monkeypatch.setattr(chain, "_REPEATS", 1000)
        whole = size_up(model, tensors, settings, free).compute
        monkeypatch.undo()
        for left, right in zip((*short.gpus, short.host), (*whole.gpus, whole.host), strict=True):
            assert abs(left - right) <= right // 100, (case["model"], case["flags"])
