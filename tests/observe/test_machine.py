"""This machine as a machine to plan for."""

from __future__ import annotations

import time

import pytest

from kvplanner.gpu.spec import Machine
from kvplanner.observe.machine import local_machine
from kvplanner.observe.reader import GpuReader
from kvplanner.observe.snapshot import Snapshot
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text


def see(stub: Stub, text: str, environ: dict[str, str] | None = None) -> Machine | None:
    stub.use(text)
    reader = GpuReader(host=lambda: (127600748 * 1024, 60000000 * 1024))
    shot = Snapshot(1, 0.0, time.mktime((2026, 1, 2, 12, 3, 0, 0, 0, 0)), reader.sample())
    reader.close()
    return local_machine(shot, environ or {})


def test_a_desktop_card(stub: Stub) -> None:
    machine = see(stub, "desktop-4090")
    assert machine is not None
    assert machine.source == "this machine"
    (device,) = machine.devices
    spec = device.gpu
    assert (spec.name, spec.arch, spec.compute_capability) == ("NVIDIA GeForce RTX 4090", "Ada Lovelace", (8, 9))
    assert spec.total is not None
    assert spec.cuda_total is not None
    assert (spec.total.value, spec.total.basis) == (24564 * MIB, "measured")
    assert (spec.cuda_total.value, spec.cuda_total.basis) == (24110 * MIB, "measured")
    assert spec.cuda_total.low < spec.cuda_total.value < spec.cuda_total.high
    assert (device.free_bytes, device.free_source) == (22904 * MIB, "NVML, 12:03:00")
    assert device.uuid.startswith("GPU-4b8f0c1e")
    assert "display" in device.marks


def test_a_reworked_card_is_what_nvml_says(stub: Stub) -> None:
    machine = see(stub, scenario_text("desktop-4090").replace("total_mib = 24564", "total_mib = 49140"))
    assert machine is not None
    (device,) = machine.devices
    assert device.gpu.total is not None
    assert device.gpu.total.value == 49140 * MIB


def test_ecc_makes_the_total_smaller_and_is_no_other_card(stub: Stub) -> None:
    text = scenario_text("desktop-4090").replace("total_mib = 24564", "total_mib = 23028")
    machine = see(stub, text)
    assert machine is not None
    assert not [m for m in machine.devices[0].marks if "differs" in m]
    machine = see(stub, scenario_text("desktop-4090").replace("total_mib = 24564", "total_mib = 20000"))
    assert machine is not None
    assert [m for m in machine.devices[0].marks if "differs" in m]


def test_instances_stand_for_a_split_gpu(stub: Stub) -> None:
    machine = see(stub, "a100-mig")
    assert machine is not None
    totals = [d.gpu.total.value // MIB for d in machine.devices if d.gpu.total]
    assert totals == [19968, 9856, 4864, 4864]
    assert {d.gpu.arch for d in machine.devices} == {"Ampere"}
    assert not any(d.gpu.nvlink for d in machine.devices)
    assert all(d.gpu.cuda_total == d.gpu.cuda_total and "MIG instance" in d.marks for d in machine.devices)


def test_compute_instances_of_one_gpu_instance_share_their_memory(stub: Stub) -> None:
    machine = see(stub, "h200-mig-shared")
    assert machine is not None
    assert [any("shares its memory" in m for m in d.marks) for d in machine.devices] == [True, True, False]


def test_shared_memory_is_the_hosts(stub: Stub) -> None:
    machine = see(stub, "gb10-unified")
    assert machine is not None
    (device,) = machine.devices
    assert device.gpu.unified_memory
    assert device.gpu.total is not None
    assert device.gpu.total.value == 127600748 * 1024
    assert device.free_bytes == 60000000 * 1024


def test_the_windows_display_driver_leaves_cuda_the_whole_total(stub: Stub) -> None:
    machine = see(stub, "wsl2")
    assert machine is not None
    total = machine.devices[0].gpu.cuda_total
    assert total is not None
    assert total.value == 16376 * MIB


def test_an_unknown_card_is_planned_with_what_is_seen(stub: Stub) -> None:
    machine = see(stub, "[gpu 0]\nname = NVIDIA Quantum 9000\ncc = 13.0\ntotal_mib = 100000\nreserved_mib = 500\n")
    assert machine is not None
    spec = machine.devices[0].gpu
    assert (spec.name, spec.compute_capability) == ("NVIDIA Quantum 9000", (13, 0))
    assert spec.cuda_total is not None
    assert spec.cuda_total.value == 99500 * MIB


@pytest.mark.parametrize(("value", "uuids"), [("1", ["…001"]), ("", []), ("1,0", ["…001", "…000"])])
def test_hidden_devices_are_hidden(stub: Stub, value: str, uuids: list[str]) -> None:
    machine = see(stub, scenario_text("gpu-lost").replace("lost_after = 14", ""), {"CUDA_VISIBLE_DEVICES": value})
    found = [f"…{d.uuid[-3:]}" for d in machine.devices] if machine else []
    assert found == uuids


def test_nothing_to_plan_for(stub: Stub) -> None:
    assert see(stub, "no-devices") is None
