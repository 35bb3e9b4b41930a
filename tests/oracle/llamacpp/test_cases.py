"""The planner beside unmodified llama.cpp: 1,356 cases of eleven models, one to four GPUs, all placement flags.

Beside them 464 cases of 116 further models of 101 architectures, four of each, and 232 with flags that few give.
"""

from __future__ import annotations

import pytest

from kvplanner.engine.llamacpp.compute import chain
from kvplanner.engine.llamacpp.figures import CHECKED
from tests.oracle.llamacpp.cases import (
    MORE,
    Checked,
    checked,
    checked_flags,
    checked_wide,
    load,
    model_of,
    settings_of,
    wide,
    wide_model,
)  # fmt: skip

# Architectures whose graphs are not laid out as llama.cpp does; a plan names them as less certain.
OTHERS = {
    "arctic",
    "bitnet",
    "bloom",
    "dream",
    "gpt2",
    "llada-moe",
    "minimax-01",
    "modern-bert",
    "mpt",
    "plamo2",
    "smallthinker",
    "starcoder",
}


def wide_errors(models: int) -> dict[str, list[float]]:
    """Errors of compute buffers by architecture, of every so-manieth model; weights and context must be equal."""
    data = wide()
    names = set(list(data["models"])[::models])
    found: dict[str, list[float]] = {}
    for case in checked_wide(names):
        arch = wide_model(case.model)[0].spec.model_type
        assert case.exact or arch in OTHERS, (case.model, case.gpus, case.flags)
        found.setdefault(arch, []).append(case.compute_error)
    return found


def test_some_of_many_architectures_come_out_as_llama_cpp_reserves() -> None:
    known = [error for arch, errors in wide_errors(6).items() if arch not in OTHERS for error in errors]
    assert len(known) >= 60
    assert sum(error <= 0.01 for error in known) >= 0.95 * len(known)


@pytest.mark.slow
def test_all_of_many_architectures_come_out_as_llama_cpp_reserves() -> None:
    found = wide_errors(1)
    for arch, errors in found.items():
        if arch not in OTHERS:
            assert sum(error <= 0.01 for error in errors) >= 0.5 * len(errors), (arch, errors)
    known = [error for arch, errors in found.items() if arch not in OTHERS for error in errors]
    assert len(known) >= 390
    assert sum(error <= 0.01 for error in known) >= 0.985 * len(known)
    assert sum(error <= 0.1 for error in known) >= 0.995 * len(known)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_flags_that_few_give_come_out_as_llama_cpp_reserves(step: int) -> None:
    """-sm tensor and none, -ts, -mg, -ot of every kind, keys alone quantised, tiny micro-batches, processors alone."""
    known = [case for case in checked_flags(step) if arch_of(case.model) not in OTHERS]
    assert len(known) >= 200 // step
    assert all(case.exact for case in known)
    errors = [case.compute_error for case in known]
    assert sum(error <= 0.01 for error in errors) >= 0.92 * len(errors)
    assert sum(error <= 0.1 for error in errors) >= 0.97 * len(errors)


def arch_of(name: str) -> str:
    found = wide_model(name) if name in wide()["models"] else model_of(name)
    return found[0].spec.model_type


def test_a_plan_names_what_was_not_laid_out_as_less_certain() -> None:
    assert not OTHERS & CHECKED
    archs = {model["metadata"]["general.architecture"] for model in wide()["models"].values()}
    assert archs - CHECKED == OTHERS


@pytest.fixture(scope="module")
def cases() -> list[Checked]:
    """Every case with its answer."""
    return list(checked(load()))


@pytest.mark.slow
def test_weights_and_context_are_equal_on_every_device(cases: list[Checked]) -> None:
    wrong = [case for case in cases if not case.exact]
    assert len(cases) >= 1356
    assert not wrong, wrong[:3]


@pytest.mark.slow
def test_compute_buffers_are_near(cases: list[Checked]) -> None:
    errors = [case.compute_error for case in cases]
    assert sum(error <= 0.01 for error in errors) >= 0.995 * len(errors)
    assert sum(error <= 0.1 for error in errors) >= 0.997 * len(errors)


@pytest.mark.slow
def test_models_that_no_rule_was_made_for_come_out_as_well() -> None:
    """A 70B, an 8B in 16 bits, DeepSeek-V2-Lite and Qwen3.5-27B: 290 cases on one GPU and on two."""
    others = list(checked(load(MORE)))
    assert len(others) >= 290
    assert not [case for case in others if not case.exact]
    for model in {case.model for case in others}:
        errors = [case.compute_error for case in others if case.model == model]
        assert sum(error <= 0.01 for error in errors) >= 0.9 * len(errors), model
        assert sum(error <= 0.1 for error in errors) >= 0.97 * len(errors), model


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama31-8b-q4km", "qwen3-32b-q4km", "gptoss-20b-mxfp4", "mistral-small-24b-q4km"])
def test_usual_models_on_one_gpu_are_exact_to_a_kibibyte(cases: list[Checked], model: str) -> None:
    plain = {"ctx", "np", "kvu", "nout", "ubatch", "batch", "swa_full"}
    chosen = [case for case in cases if case.model == model and case.gpus == "1x" and set(case.flags) <= plain]
    assert len(chosen) > 15
    for case in chosen:
        for buffer in case.buffers:
            assert abs(buffer.got[2] - buffer.true[2]) <= 8192, (case.flags, buffer)


@pytest.mark.slow
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
