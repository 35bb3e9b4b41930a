"""Reports of real plans: all sizes in the unit that is asked for, every GPU that lacks memory named."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.report import text as report
from kvplanner.report.devices import shortages
from kvplanner.units import GIB, ByteUnit

# What stands in both units, side by side, and what the engine itself says.
_BOTH = re.compile(r"[\d,.]+ GB = [\d,.]+ GiB|vLLM says: .*|```\n.*\n```")


def plan(model: str, gpu: str, options: dict[str, OptionValue] | None = None) -> Plan:
    return engine("vllm").plan(PlanRequest(models.load(model), gpus.machine(gpu), options=options or {}))


def _text(made: Plan, unit: ByteUnit) -> str:
    return report.text(made, unit=unit)


def _markdown(made: Plan, unit: ByteUnit) -> str:
    return report.markdown(made, unit=unit)


@pytest.mark.parametrize("tell", [_text, _markdown])
@pytest.mark.parametrize("gpu", ["RTX 4090", "H100", "RTX 4060 Ti 16GB"])
def test_a_report_in_gb_has_no_size_in_gib_alone(tell: Callable[[Plan, ByteUnit], str], gpu: str) -> None:
    made = plan("meta-llama/Llama-3.1-8B-Instruct", gpu)
    alone = _BOTH.sub("", tell(made, "GB"))
    assert " GB" in alone
    # The engine's own rule of defaults names a threshold in GiB.
    assert re.findall(r"[\d,.]+ [GM]iB", alone.replace("total below 70 GiB", "").replace("total ≥ 70 GiB", "")) == []
    assert (
        re.findall(r"[\d,.]+ [GM]B", _BOTH.sub("", tell(made, "GiB")).replace(made.devices[0].device.gpu.name, ""))
        == []
    )


def test_the_arithmetic_is_in_the_unit_with_the_other_reading_beside_it() -> None:
    told = report.explain(plan("meta-llama/Llama-3.1-8B-Instruct", "H100"), unit="GB")
    assert re.search(r"= ceil\([\d.]+ GB × 0.92\)", told)
    assert re.search(r"CUDA total +[\d.]+ GB  = [\d.]+ GiB", told)
    assert re.search(r"what CUDA sees \([\d.]+ GB\)", told)


def test_each_gpu_that_lacks_memory_is_named() -> None:
    made = plan("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090")
    first, second = shortages(made)
    assert (first.positions, second.positions) == ((0,), (1,))
    assert first.bytes == made.missing_bytes > second.bytes > 5 * GIB
    line = "5.84 GB = 5.44 GiB missing on GPU 0, 5.80 GB = 5.40 GiB on GPU 1"
    assert f"Start-up fails while loading the weights: {line}" in report.text(made, width=140)
    assert f"Start-up fails while loading the weights; {line}." in report.markdown(made)


def test_alike_gpus_are_named_together_and_a_single_one_not_at_all() -> None:
    pair = report.text(plan("Qwen/Qwen3-30B-A3B", "2xRTX 4090"))
    assert "5.84 GB = 5.44 GiB missing on GPU 0–1\n" in pair
    alone = report.text(plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090"))
    assert "= 11.26 GiB missing\n" in alone
    assert shortages(plan("meta-llama/Llama-3.1-8B-Instruct", "H100")) == ()


def test_little_memory_that_is_missing_is_not_told_as_nothing() -> None:
    told = report.text(plan("meta-llama/Llama-3.1-8B-Instruct", "19.5GiB,9.62GiB,4.75GiB,4.75GiB"), width=140)
    assert "Start-up fails at the free-memory check, before loading: 3.0 MB = 2.8 MiB missing on GPU 2–3" in told


def test_every_replica_that_lacks_memory_is_named() -> None:
    made = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090,RTX 3090,RTX 4090,RTX 3090", {"data_parallel_size": 4})
    assert made.stage == "kv_cache_too_small"
    first, second = shortages(made)
    assert (first.positions, second.positions) == ((0, 2), (1, 3))
    alone = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 3090")
    assert abs(second.bytes - alone.missing_bytes) < alone.devices[0].bytes_per_unit
    assert second.bytes < first.bytes == made.missing_bytes
    parts = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090,80GiB", {"data_parallel_size": 2})
    assert [s.positions for s in shortages(parts)] == [(0,)]
