"""A model as if stored in another weight format."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.whatif import as_format, refused
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.whatif import WHATIF_FORMATS


def test_another_format_changes_the_weights_and_says_so() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")
    changed = as_format(model, "FP8")
    assert changed.weight_format == "FP8"
    assert model.stored is not None
    assert changed.stored is not None
    assert 0.5 < changed.stored.value / model.stored.value < 0.6
    assert "holds bfloat16" in changed.source_detail
    assert as_format(changed, "FP8") is changed


def test_formats_that_a_release_cannot_load_are_told_with_the_reason() -> None:
    model, vllm = models.load("meta-llama/Llama-3.1-8B-Instruct"), engine("vllm")
    newest = refused(model, vllm, None)
    assert newest["GGUF Q4_K_M"] == "vLLM 0.33 has no GGUF quantisation"
    assert "FP8" not in newest
    assert refused(model, vllm, "0.16") == {}
    request = PlanRequest(model, gpus.machine("H100"))
    for name in WHATIF_FORMATS:
        asked = request._replace(weight_format=name)
        if name in newest:
            with pytest.raises(BadInput, match=newest[name]):
                vllm.plan(asked)
        else:
            assert vllm.plan(asked).fits
    unknown = refused(model._replace(inventory=None), vllm, "0.16")
    assert set(unknown.values()) == {"its tensors are not known"}


def test_a_dynamic_mix_is_as_unsure_as_its_files_lie_apart() -> None:
    model = models.load("Qwen/Qwen3-30B-A3B")
    machine = gpus.machine("RTX 3090")
    plans = {
        name: engine("llamacpp").plan(
            PlanRequest(model, machine, "llamacpp", None, {"ctx_size": 8192, "n_gpu_layers": 99}, weight_format=name)
        )
        for name in ("GGUF Q4_K_M", "GGUF UD-Q4_K_XL")
    }
    near, dynamic = (
        next(s.estimate for s in plan.devices[0].segments if s.kind == "weights") for plan in plans.values()
    )
    assert near.high < 1.03 * near.value
    assert dynamic.basis == "assumed"
    assert dynamic.low < near.value < dynamic.high
    assert dynamic.low < 0.95 * dynamic.value
    assert dynamic.high > 1.05 * dynamic.value
    refused_ = refused(models.load("openai/gpt-oss-20b"), engine("llamacpp"), None)
    assert "published in MXFP4" in refused_["GGUF UD-Q4_K_XL"]


def test_a_model_without_tensors_has_no_other_format() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")._replace(inventory=None)
    with pytest.raises(NotModelled, match="no other format"):
        as_format(model, "FP8")


@pytest.mark.parametrize(
    ("gpu", "version"),
    [("T4", None), ("Tesla V100-SXM2-16GB", None), ("Tesla V100-SXM2-16GB", "0.16"), ("P100", "0.11"),
     ("RTX 3090", None), ("T4", "0.11")],
)  # fmt: skip
def test_formats_without_kernels_for_the_gpu_are_told_with_the_reason(gpu: str, version: str | None) -> None:
    model, vllm, machine = models.load("Qwen/Qwen3-8B"), engine("vllm"), gpus.machine(gpu)
    anywhere, here = refused(model, vllm, version), refused(model, vllm, version, machine)
    assert anywhere.items() <= here.items()
    of_the_gpu = {name: why for name, why in here.items() if name not in anywhere}
    assert bool(of_the_gpu) == (gpu != "RTX 3090")
    capability = machine.devices[0].gpu.compute_capability
    assert capability is not None
    for name in WHATIF_FORMATS:
        request = PlanRequest(model, machine, version=version, weight_format=name)
        if name in of_the_gpu:
            assert of_the_gpu[name].startswith("needs compute capability ")
            assert of_the_gpu[name].endswith(f"has {capability[0]}.{capability[1]}")
            with pytest.raises(BadInput, match="is not supported for the current GPU") as caught:
                vllm.plan(request)
            assert caught.value.where == "--weight-format"
        elif name not in here:
            vllm.plan(request)


def test_a_stored_format_without_kernels_is_refused_at_the_gpu() -> None:
    with pytest.raises(BadInput, match="not supported for the current GPU") as caught:
        engine("vllm").plan(
            PlanRequest(models.load("Qwen/Qwen3-8B-AWQ"), gpus.machine("Tesla V100-SXM2-16GB"), version="0.16")
        )
    assert caught.value.where == "--gpu"
