"""What the reader does when things change under it."""

from __future__ import annotations

import pytest

from kvplanner.observe import reader as reader_module
from kvplanner.observe.nvml import Nvml, Unavailable, normal_pci
from kvplanner.observe.reader import GpuReader
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LOST_PAUSE_S", 0.0)


def again(reader: GpuReader) -> None:
    """Lets the reader list its devices at the next sample."""
    reader._listed_at = -100.0


def test_memory_that_moves_shows(stub: Stub) -> None:
    stub.use("desktop-4090")
    reader = GpuReader()
    before = reader.sample()[0].allocated.value
    stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", "used_mib = 9206"))
    after = reader.sample()[0].allocated.value
    assert (before, after) == (1206 * MIB, 9206 * MIB)
    reader.close()


def test_unplugged_and_back(stub: Stub) -> None:
    two = scenario_text("gpu-lost").replace("lost_after = 14", "")
    stub.use(two)
    reader = GpuReader()
    assert [g.status for g in reader.sample()] == ["ok", "ok"]
    stub.use(two.split("[gpu 1]")[0])
    assert [g.status for g in reader.sample()] == ["ok", "lost"]
    again(reader)
    gone = reader.sample()
    assert [g.status for g in gone] == ["ok", "lost"]
    assert gone[1].total.value == 24576 * MIB
    stub.use(two)
    again(reader)
    back = reader.sample()
    assert [(g.status, g.message, g.since) for g in back] == [("ok", "", None)] * 2
    reader.close()


def test_zero_devices_then_some(stub: Stub) -> None:
    stub.use("no-devices")
    reader = GpuReader()
    assert reader.sample() == ()
    stub.use("desktop-4090")
    again(reader)
    assert [g.name for g in reader.sample()] == ["NVIDIA GeForce RTX 4090"]
    reader.close()


def test_a_gpu_that_is_plugged_in_beside_another(stub: Stub) -> None:
    two = scenario_text("gpu-lost").replace("lost_after = 14", "")
    stub.use(two.split("[gpu 1]")[0])
    reader = GpuReader()
    assert len(reader.sample()) == 1
    stub.use(two)
    again(reader)
    assert [g.status for g in reader.sample()] == ["ok", "ok"]
    reader.close()


def test_destroyed_mig_instance_disappears(stub: Stub) -> None:
    whole = scenario_text("a100-mig")
    stub.use(whole)
    reader = GpuReader()
    assert len(reader.sample()) == 5
    stub.use(whole.split("[mig 0.4]")[0])
    assert reader.sample()[-1].status == "lost"
    again(reader)
    assert [g.status for g in reader.sample()] == ["ok"] * 4
    reader.close()


def test_old_form_of_mig_names_is_kept(stub: Stub) -> None:
    old = "MIG-GPU-a1000000-0000-4000-8000-000000000040/1/0"
    stub.use(scenario_text("a100-mig").replace("MIG-11111111-0000-5000-8000-000000000001", old))
    reader = GpuReader()
    assert old in {g.uuid for g in reader.sample()}
    reader.close()


def test_not_supported_alone_is_not_shared_memory(stub: Stub) -> None:
    stub.use(
        "error.nvmlDeviceGetMemoryInfo* = NOT_SUPPORTED\n[gpu 0]\nname = GRID A100-10C\ncc = 8.0\ntotal_mib = 10240\n"
    )
    reader = GpuReader(host=lambda: pytest.fail("host memory must not be asked"))
    (gpu,) = reader.sample()
    assert gpu.shared is False
    assert gpu.total.value is None
    assert "not supported" in gpu.total.reason
    reader.close()


def test_a_catalogued_unified_gpu_without_a_capability_is_shared(stub: Stub) -> None:
    stub.use("error.nvmlDeviceGetMemoryInfo* = NOT_SUPPORTED\n[gpu 0]\nname = NVIDIA GB10\n")
    reader = GpuReader(host=lambda: (100, 40))
    (gpu,) = reader.sample()
    assert (gpu.shared, gpu.total.value, gpu.allocated.value) == (True, 100, 60)
    reader.close()


def test_everything_unsupported_is_words_not_zero(stub: Stub) -> None:
    stub.use("error.nvmlDeviceGet* = NOT_SUPPORTED\n[gpu 0]\nname = GRID\n")
    reader = GpuReader()
    shown = reader.sample()
    for gpu in shown:
        readings = (gpu.total, gpu.reserved, gpu.allocated, gpu.free, gpu.utilization, gpu.temperature, gpu.power_mw)
        assert all(r.value is None and r.reason for r in readings)
    reader.close()


def test_impossible_rows_are_left_out_and_said(stub: Stub) -> None:
    text = scenario_text("r535-transition")
    stub.use("missing = nvmlDeviceGetComputeRunningProcesses_v2\n" + text)
    reader = GpuReader()
    (gpu,) = reader.sample()
    assert gpu.processes is not None
    assert all(p.pid not in (0, 0xFFFFFFFF) for p in gpu.processes)
    assert all(p.memory.value is None or p.memory.value <= 24564 * MIB for p in gpu.processes)
    assert "wrongly" in gpu.process_note
    reader.close()


def test_process_in_two_lists_is_one_row(stub: Stub) -> None:
    stub.use("[gpu 0]\ntotal_mib = 1000\nused_mib = 300\ncompute = 4000001:100\ngraphics = 4000001:200\n")
    reader = GpuReader()
    (gpu,) = reader.sample()
    assert gpu.processes is not None
    ((pid, memory, kinds),) = [(p.pid, p.memory.value, p.kinds) for p in gpu.processes]
    assert (pid, memory, kinds) == (4000001, 200 * MIB, ("compute", "graphics"))
    # Asking for the compute list alone keeps what the other list told.
    (gpu,) = reader.sample(gauges=False, lists=("compute",))
    assert [(p.memory.value, p.kinds) for p in gpu.processes or ()] == [(200 * MIB, ("compute", "graphics"))]
    stub.use("[gpu 0]\ntotal_mib = 1000\nused_mib = 300\ngraphics = 4000001:200\n")
    (gpu,) = reader.sample(gauges=False, lists=("compute",))
    assert [(p.memory.value, p.kinds) for p in gpu.processes or ()] == [(200 * MIB, ("graphics",))]
    reader.close()


def test_a_missing_side_list_is_no_trouble(stub: Stub) -> None:
    stub.use("missing = nvmlDeviceGetMPSComputeRunningProcesses*\n[gpu 0]\ntotal_mib = 1000\n")
    reader = GpuReader()
    (gpu,) = reader.sample()
    assert (gpu.processes, gpu.process_note) == ((), "")
    reader.close()


def test_a_finished_process_goes(stub: Stub) -> None:
    stub.use("[gpu 0]\ntotal_mib = 1000\nused_mib = 300\ncompute = 4000001:100\n")
    reader = GpuReader()
    assert len(reader.sample()[0].processes or ()) == 1
    stub.use("[gpu 0]\ntotal_mib = 1000\nused_mib = 300\ncompute =\n")
    assert reader.sample(lists=("compute",))[0].processes == ()
    reader.close()


def test_cost_of_a_sample(stub: Stub) -> None:
    stub.use("8xh100")
    reader = GpuReader()
    reader.sample()
    stub.forget_calls()
    reader.sample(gauges=False, lists=())
    assert stub.calls() == ["nvmlDeviceGetMemoryInfo_v2"] * 8
    reader.close()


def test_skipped_gpu_is_not_touched(stub: Stub) -> None:
    stub.use("gpu-lost")
    reader = GpuReader(skip={"0000:1e:00.0"})
    found = reader.sample()
    assert [g.status for g in found] == ["ok", "stalled"]
    assert "left alone" in found[1].message
    reader.close()


CODES = (
    "NOT_SUPPORTED", "NO_PERMISSION", "GPU_IS_LOST", "UNKNOWN", "FUNCTION_NOT_FOUND", "TIMEOUT", "INVALID_ARGUMENT",
    "UNINITIALIZED", "RESET_REQUIRED", "DEPRECATED", "MEMORY", "77",
)  # fmt: skip


def test_whatever_any_call_answers_the_others_are_shown(stub: Stub) -> None:
    machines = [scenario_text("8xh100"), scenario_text("a100-mig"), scenario_text("desktop-4090")]
    stub.use(machines[1])
    reader = GpuReader()
    reader.sample()
    reader.close()
    functions = sorted(set(stub.calls()) - {"nvmlInitWithFlags", "nvmlShutdown"})
    assert len(functions) >= 15
    for number, function in enumerate(functions):
        for code in CODES:
            stub.use(f"error.{function} = {code}\n" + machines[number % 3])
            reader = GpuReader()
            for gpu in (*reader.sample(), *reader.sample()):
                assert gpu.status == "ok" or gpu.message, (function, code)
                for reading in (gpu.total, gpu.reserved, gpu.allocated, gpu.free, gpu.temperature, gpu.power_mw):
                    assert reading.value is not None or reading.reason, (function, code, gpu)
                assert gpu.processes is not None or gpu.process_note or gpu.status != "ok", (function, code)
            reader.close()


def test_another_package_called_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(Unavailable) as caught:
        Nvml()
    assert caught.value.state == "wrong_library"
    assert "nvidia-ml-py" in caught.value.remedy


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("LIBRARY_NOT_FOUND", "no_driver"),
        ("NO_PERMISSION", "no_permission"),
        ("GPU_IS_LOST", "lost"),
        ("UNKNOWN", "lost"),
        ("TIMEOUT", "failed"),
    ],
)
def test_each_refusal_to_start_has_its_words(stub: Stub, code: str, state: str) -> None:
    stub.use(f"init = {code}\n[gpu 0]\n")
    with pytest.raises(Unavailable) as caught:
        GpuReader()
    assert caught.value.state == state
    assert caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"), ("0000:01:00.0", "0000:01:00.0"), ("0000000F:01:00.0", "000f:01:00.0"),
        ("01:00.0", "01:00.0"), ("odd", "odd"), ("", ""),
    ],
)  # fmt: skip
def test_pci_ids_have_one_form(text: str, normal: str) -> None:
    assert normal_pci(text) == normal
