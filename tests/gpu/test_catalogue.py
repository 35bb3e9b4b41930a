"""The GPU catalogue: figures from public prints, and the rules for unknown totals."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.gpu.spec import GpuEntry
from kvplanner.units import GIB, MIB


def test_every_gpu_reads() -> None:
    assert len(gpus.index()) == 163
    for entry in gpus.index():
        gpu = gpus.gpu(entry.id)
        if gpu.total is None:
            assert gpu.vendor in ("apple", "amd") or entry.id == "b100", "the memory size itself is unknown"
            continue
        assert gpu.cuda_total is not None
        assert 0 < gpu.cuda_total.value <= gpu.total.value
        for figure in (gpu.total, gpu.cuda_total):
            assert figure.low <= figure.value <= figure.high
            assert figure.inputs[0].source


@pytest.mark.parametrize(
    ("name", "total_mib", "cuda_mib"),
    # NVML totals and CUDA totals as printed publicly; sources beside each in the record.
    [("H100", 81559, 81081), ("H200", 143771, 143155), ("RTX 4090", 24564, 24081), ("L40S", 46068, 45467),
     ("B200", 183359, 182630), ("T4", 15360, 14913)],
)  # fmt: skip
def test_printed_totals(name: str, total_mib: int, cuda_mib: int) -> None:
    gpu = gpus.machine(name).devices[0].gpu
    assert gpu.total is not None
    assert gpu.cuda_total is not None
    assert (gpu.total.value, gpu.cuda_total.value) == (total_mib * MIB, cuda_mib * MIB)
    assert gpu.total.basis == gpu.cuda_total.basis == "exact"


def test_an_unknown_cuda_total_is_the_nvml_total_less_two_per_cent() -> None:
    gpu = gpus.machine("A10").devices[0].gpu
    assert gpu.total is not None
    assert gpu.cuda_total is not None
    assert gpu.cuda_total.basis == "assumed"
    assert gpu.cuda_total.value == gpu.total.value - round(gpu.total.value * 0.02)
    assert gpu.cuda_total.low < gpu.cuda_total.value < gpu.cuda_total.high


@pytest.mark.parametrize("name", ["RTX 4060 Ti 16GB", "RTX 3060 12GB", "RTX 5070"])
def test_a_total_that_windows_prints_says_nothing_about_linux(name: str) -> None:
    gpu = gpus.machine(name).devices[0].gpu
    assert gpu.total is not None
    assert gpu.cuda_total is not None
    assert gpu.cuda_total.basis == "assumed"
    reserved = gpu.total.value - gpu.cuda_total.value
    assert reserved == max(round(gpu.total.value * 0.02), 300 * MIB)
    assert gpu.cuda_total.high == gpu.total.value  # as Windows prints it


@pytest.mark.parametrize("entry", gpus.index(), ids=lambda e: e.id)
def test_only_what_was_printed_is_exact_and_no_board_has_more_than_its_size(entry: GpuEntry) -> None:
    facts, gpu = gpus.record(entry.id), gpus.gpu(entry.id)
    if gpu.total is None or gpu.cuda_total is None:
        return
    printed = {facts[key] * MIB for key in ("nvml_total_mib", "torch_total_mib") if key in facts}
    printed.add(facts.get("driver_total_bytes"))
    for total in (gpu.total, gpu.cuda_total):
        if total.basis == "exact":
            assert total.value in printed
            continue
        assert total.basis == "assumed"
        assert total.high <= round(facts["memory_gb"] * GIB)


def test_a_driver_without_nvml_keeps_nothing_to_itself() -> None:
    big = gpus.machine("MI300X").devices[0].gpu
    assert big.total is not None
    assert big.cuda_total is not None
    assert (big.total.value, big.total.basis) == (206_141_652_992, "exact")  # rocm-smi's print
    assert (big.cuda_total.value, big.cuda_total.basis) == (196_588 * MIB, "exact")
    for name in ("MI325X", "RX 7900 XTX"):
        gpu = gpus.machine(name).devices[0].gpu
        assert gpu.total is not None
        assert gpu.cuda_total is not None
        assert gpu.total.basis == "assumed"
        assert gpu.total.value == gpu.cuda_total.value


def test_an_unknown_total_is_that_of_the_nearest_card() -> None:
    gpu = gpus.machine("RTX 5060 Ti 8GB").devices[0].gpu
    assert gpu.total is not None
    assert gpu.total.basis == "assumed"
    assert "nearest card" in gpu.total.inputs[0].source


def test_unified_memory_has_nothing_reserved() -> None:
    gpu = gpus.machine("DGX Spark").devices[0].gpu
    assert gpu.unified_memory
    assert gpu.total == gpu.cuda_total


def test_boards_of_one_name_are_told_apart_by_their_total() -> None:
    plain = gpus.by_nvml_name("NVIDIA GeForce RTX 4090", 24564 * MIB)
    assert plain is not None
    assert plain.total is not None
    assert plain.total.value == 24564 * MIB
    assert gpus.by_nvml_name("Some GPU of tomorrow") is None


@pytest.mark.parametrize("name", ["T4000", "Jetson AGX Orin 32GB", "Jetson Orin NX 16GB"])
def test_shared_memory_without_a_print_is_told_from_measured_boards(name: str) -> None:
    """Those show 61.35 of 64, 7.43 of 8 and 122.80 of 128 GiB: never the whole."""
    gpu = gpus.machine(name).devices[0].gpu
    nominal = (gpus.record(gpu.id)["memory_gb"]) * GIB
    assert gpu.total is not None
    assert gpu.total == gpu.cuda_total
    assert gpu.total.basis == "assumed"
    assert 0.92 * nominal < gpu.total.low <= gpu.total.value < gpu.total.high < nominal
    assert gpu.total.value < 0.97 * nominal
    assert "the nearest measured board" in gpu.total.inputs[1].source


def test_a_plan_for_shared_memory_reserves_nothing() -> None:
    plan = engine("vllm").plan(PlanRequest(models.load("Qwen/Qwen3-0.6B"), gpus.machine("Jetson Orin NX 16GB")))
    reserved = plan.devices[0].segment("driver_reserved")
    assert reserved is not None
    assert (reserved.estimate.value, reserved.estimate.high) == (0, 0)
