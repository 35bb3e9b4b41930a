"""Which releases and GPUs run a quantisation method."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.settle import formats
from kvplanner.errors import BadInput
from kvplanner.model.families import read_config
from kvplanner.model.model import Model
from tests.model.schemes import E4M3, FP4, INT4, NV4, ROUND4, grouped, quark, torchao

VLLM = engine("vllm")


def quantised(config: dict[str, Any]) -> Model:
    """Llama-3.1-8B with a quantisation config."""
    base = models.load("meta-llama/Llama-3.1-8B-Instruct")
    facts = models.record(base.id)["config"]
    spec, inventory = read_config(facts | {"quantization_config": config})
    return base._replace(spec=spec, inventory=inventory)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


@pytest.mark.parametrize(
    "config",
    [
        GPTQ, ROUND4, ROUND4 | {"data_type": "mx_fp", "group_size": 32}, quark(E4M3 | {"qscheme": "per_channel"}),
        quark(NV4), torchao("Int4WeightOnlyConfig", group_size=128), torchao("Float8WeightOnlyConfig"),
        {"quant_method": "mxfp8"}, {"quant_method": "modelopt", "quant_algo": "MXFP8"}, grouped(INT4, "pack-quantized"),
        grouped(FP4, "nvfp4-pack-quantized"), {"quant_method": "fp_quant", "forward_dtype": "nvfp4"},
        {"quant_method": "experts_int8"}, {"quant_method": "fbgemm_fp8"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpu", ["H100", "B200", "A100-SXM4-80GB", "RTX 4090"])
def test_every_method_is_planned_or_refused_with_words(config: dict[str, Any], gpu: str) -> None:
    model = quantised(config)
    machine = gpus.machine(gpu)
    try:
        plan = VLLM.plan(PlanRequest(model, machine))
    except BadInput as error:
        assert "not supported for the current GPU" in str(error)
        return
    weights = next(s for s in plan.devices[0].segments if s.kind == "weights")
    assert model.inventory is not None
    assert 0.95 < weights.estimate.value / model.inventory.stored_bytes() < 1.1


@pytest.mark.parametrize(
    ("config", "version", "said"),
    [
        (GPTQ | {"desc_act": True}, "0.33", "activation ordering"),
        (grouped(INT4, "marlin-24"), "0.24", "Sparsity support has been removed"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "0.28", "no bitsandbytes quantisation"),
        ({"bits": 4, "group_size": 64}, "0.33", "MLX's format"),
        ({"quant_method": "exl2", "bits": 4.0}, "0.16", "ExLlamaV2's format"),
    ],
)
def test_what_a_release_does_not_load_is_refused(config: dict[str, Any], version: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        VLLM.plan(PlanRequest(quantised(config), gpus.machine("H100"), version=version))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("config", "version"),
    [
        (GPTQ | {"desc_act": True}, "0.29"), (grouped(INT4, "marlin-24"), "0.20"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "0.27"),
    ],
)  # fmt: skip
def test_releases_before_that_load_it(config: dict[str, Any], version: str) -> None:
    assert VLLM.plan(PlanRequest(quantised(config), gpus.machine("H100"), version=version)).devices


@pytest.mark.parametrize(
    ("method", "version", "least"),
    [
        ("auto_awq", (33, 0), (7, 5)), ("modelopt", (26, 0), (8, 9)), ("modelopt", (27, 0), (8, 0)),
        ("modelopt_mxfp8", (16, 0), (10, 0)), ("modelopt_mxfp8", (24, 0), (8, 0)), ("fp_quant", (33, 0), (10, 0)),
        ("torchao", (33, 0), (7, 5)), ("gpt_oss_mxfp4", (33, 0), (8, 0)), ("something", (33, 0), (0, 0)),
    ],
)  # fmt: skip
def test_least_capabilities_are_the_registries(method: str, version: tuple[int, int], least: tuple[int, int]) -> None:
    assert formats.least_capability(method, version) == least


def test_deprecated_methods_ask_for_a_flag() -> None:
    assert formats.deprecated("fp_quant", (33, 0))
    assert not formats.deprecated("awq", (33, 0))


def test_a_deprecated_method_is_planned_with_a_warning() -> None:
    plan = VLLM.plan(PlanRequest(quantised({"quant_method": "fbgemm_fp8"}), gpus.machine("H100")))
    assert any("--allow-deprecated-quantization" in warning for warning in plan.warnings)


def test_experts_int8_in_a_config_quantises_the_experts_while_loading() -> None:
    base = models.load("Qwen/Qwen3-30B-A3B")
    config = models.record(base.id)["config"] | {"quantization_config": {"quant_method": "experts_int8"}}
    spec, inventory = read_config(config)
    plan = VLLM.plan(PlanRequest(base._replace(spec=spec, inventory=inventory), gpus.machine("H100")))
    weights = next(s for s in plan.devices[0].segments if s.kind == "weights").estimate.value
    experts = sum(g.elements * n for g, n in inventory.groups() if g.kind == "experts")
    rows = sum(g.shape[0] * g.count * n for g, n in inventory.groups() if g.kind == "experts")
    assert abs(weights - (inventory.stored_bytes() - experts + 4 * rows)) < 0.001 * weights


@pytest.mark.parametrize(
    ("method", "version", "least"),
    [
        ("modelopt_mixed", (22, 0), (8, 9)), ("modelopt_mixed", (24, 0), (7, 5)), ("modelopt_mxfp8", (19, 1), (10, 0)),
        ("modelopt_mxfp8", (20, 0), (8, 0)), ("modelopt_fp4", (8, 5), (10, 0)), ("modelopt_fp4", (9, 2), (8, 0)),
        ("mxfp8", (19, 0), (10, 0)), ("modelopt", (26, 0), (8, 9)), ("modelopt", (27, 0), (8, 0)),
        ("fp8", (13, 0), (8, 0)), ("fp8", (14, 0), (7, 5)), ("quark", (33, 0), (7, 0)), ("torchao", (33, 0), (7, 5)),
    ],
)  # fmt: skip
def test_the_least_capability_is_that_of_the_releases_source(
    method: str, version: tuple[int, int], least: tuple[int, int]
) -> None:
    """get_min_capability of each method's class, in the source distributions on both sides of a border."""
    assert formats.least_capability(method, version) == least
