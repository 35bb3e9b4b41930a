"""The load line to its printed digits, and the gaps between weights, by release (public start-up reports)."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.engine.vllm.weights import loaded
from kvplanner.units import GIB


def load_line(name: str, gpu: str, version: str, **options: OptionValue) -> float:
    request = PlanRequest(models.load(name), gpus.machine(gpu), "vllm", version, options)
    here = defaults.resolve(request)[0]
    return loaded.loaded(request.model, here, gpu_of(request.machine.devices[0].gpu), 0).value / GIB


@pytest.mark.parametrize(
    ("name", "gpu", "version", "options", "printed_gib"),
    [
        # https://github.com/vllm-project/vllm/issues/15815: 30.52 GiB of tensors
        ("Qwen/Qwen2.5-32B-Instruct", "2xL40S", "0.7.1", {"tensor_parallel_size": 2}, 30.71),
        ("Qwen/Qwen2.5-7B-Instruct", "H100", "0.19.0", {}, 14.25),
        ("Qwen/Qwen2.5-7B-Instruct", "RTX 4090", "0.24.0", {}, 14.29),
        ("google/gemma-2-2b-it", "H100", "0.19.0", {}, 4.90),
        ("google/gemma-2-27b-it", "H100", "0.19.0", {}, 50.72),
        ("google/gemma-3-27b-it", "H100", "0.19.0", {}, 51.45),
        ("openai/gpt-oss-20b", "A100-SXM4-80GB", "0.19.0", {}, 13.72),
        ("openai/gpt-oss-20b", "GB10", "0.30", {}, 13.80),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "RTX 3090", "0.22.1", {}, 5.29),
        ("Qwen/Qwen3.5-9B", "L40S", "0.19.0", {}, 17.66),
        ("Qwen/Qwen3.5-4B", "RTX 4090 D", "0.23.0", {}, 8.61),
        ("google/gemma-4-31B-it", "B300", "0.26.0", {}, 58.99),
    ],
)
def test_the_load_line_comes_out_as_printed(
    name: str, gpu: str, version: str, options: dict[str, OptionValue], printed_gib: float
) -> None:
    assert load_line(name, gpu, version, **options) == pytest.approx(printed_gib, abs=0.011)


def test_nvfp4_experts_without_a_gate_are_padded_to_whole_rows_of_scales() -> None:
    """A rank's width of 928 stands in 1024: https://github.com/vllm-project/vllm/issues/33333 prints 9.83 GiB."""
    name, tensor_parallel = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", {"tensor_parallel_size": 2}
    assert load_line(name, "2xRTX 5070 Ti", "0.13.0", **tensor_parallel) == pytest.approx(9.83, abs=0.05)
    assert load_line(name, "2xRTX 4090", "0.13.0", **tensor_parallel) < 9.2  # Marlin takes them as they are


@pytest.mark.parametrize(("version", "limited"), [("0.20.0", False), ("0.20.1", True), ("0.33.0", True)])
def test_pieces_stay_whole_since_0_20_1(version: str, limited: bool) -> None:
    """Qwen2.5-7B's output projections of 24.5 MiB stand in 26: 42 MiB more."""
    assert (load_line("Qwen/Qwen2.5-7B-Instruct", "H100", version) > 14.27) is limited


@pytest.mark.parametrize(("version", "positions"), [("0.28.0", 4 * 262_144), ("0.33.0", 262_144)])
def test_tables_of_three_axes_were_four_times_as_long(version: str, positions: int) -> None:
    request = PlanRequest(models.load("Qwen/Qwen3.5-4B"), gpus.machine("H100"), "vllm", version)
    here = defaults.resolve(request)[0]
    found = loaded.tables(request.model, here, gpu_of(request.machine.devices[0].gpu), 0)
    assert found.inputs[0].value == positions * 64 * 2
    assert rules.LONG_AXES.at(here.version) is (positions > 262_144)


def test_a_start_that_repacking_leaves_too_little_for_dies_at_capture() -> None:
    """gpt-oss-120b on two H100 at the default share: pieces of 260 MiB in each layer before loading limited cuts.

    https://github.com/vllm-project/vllm/pull/41268
    """
    request = PlanRequest(models.load("openai/gpt-oss-120b"), gpus.machine("2xH100"), "vllm", "0.19.0",
                          {"tensor_parallel_size": 2})  # fmt: skip
    before = engine("vllm").plan(request)
    assert before.stage == "graph_capture"
    gaps = before.devices[0].segment("fragmentation")
    assert gaps is not None
    between = next(i.value for i in gaps.estimate.inputs if i.name == "between weights")
    assert 36 * 250 * 2**20 < int(between) < 36 * 275 * 2**20
    for change in ({"pytorch_alloc_conf": "expandable_segments:True"}, {}):
        version = "0.19.0" if change else "0.21.0"
        after = engine("vllm").plan(request._replace(version=version, options={**request.options, **change}))
        assert after.fits, version
        small = after.devices[0].segment("fragmentation")
        assert small is None or small.bytes < GIB


def test_segments_add_up_with_what_is_of_no_use() -> None:
    request = PlanRequest(models.load("Qwen/Qwen2.5-7B-Instruct"), gpus.machine("RTX 4090"), "vllm", "0.19.0",
                          {"max_model_len": 8192})  # fmt: skip
    device = engine("vllm").plan(request).devices[0]
    kinds = [segment.kind for segment in device.segments]
    assert kinds[-2:] == ["fragmentation", "headroom"]
    assert sum(segment.bytes for segment in device.segments) == device.total_bytes
