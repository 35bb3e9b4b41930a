"""Sleeping GPUs are told from sysfs, and let sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from kvplanner.observe import helper as helper_module
from kvplanner.observe.helper import Command, Helper, HelperSettings
from kvplanner.observe.power import PowerWatch, power_states
from kvplanner.observe.snapshot import Snapshot
from tests.observe.kit import Stub, scenario_text
from tests.patience import LONG_S, wait_for

pytestmark = pytest.mark.slow

PCI = "0000:01:00.0"


def device(
    root: Path, pci: str, status: str, control: str = "auto", vendor: str = "0x10de", kind: str = "0x030000"
) -> None:
    folder = root / pci
    (folder / "power").mkdir(parents=True, exist_ok=True)
    for name, text in {
        "vendor": vendor,
        "class": kind,
        "power/runtime_status": status,
        "power/control": control,
    }.items():
        (folder / name).write_text(text + "\n")


def test_only_nvidias_display_devices_count(tmp_path: Path) -> None:
    device(tmp_path, PCI, "suspended")
    device(tmp_path, "0000:01:00.1", "suspended", kind="0x040300")
    device(tmp_path, "0000:00:02.0", "active", vendor="0x8086")
    device(tmp_path, "0000:02:00.0", "active", "on", kind="0x030200")
    (tmp_path / "0000:03:00.0").mkdir()
    assert [tuple(s) for s in power_states(tmp_path)] == [(PCI, True, True), ("0000:02:00.0", False, False)]
    assert power_states(tmp_path / "absent") == ()


def test_watching_reads_little(tmp_path: Path) -> None:
    device(tmp_path, PCI, "active")
    device(tmp_path, "0000:02:00.0", "active", "on")
    watch = PowerWatch(tmp_path)
    assert [s.asleep for s in watch.states(0.0)] == [False, False]
    device(tmp_path, PCI, "suspended")
    device(tmp_path, "0000:03:00.0", "active")
    assert [s.asleep for s in watch.states(0.5)] == [False, False]
    assert [s.asleep for s in watch.states(1.0)] == [True, False]
    assert [s.pci for s in watch.states(31.0)] == [PCI, "0000:02:00.0", "0000:03:00.0"]


class Running:
    """A helper in a thread, with the other end of its link."""

    def __init__(self, sysfs: Path) -> None:
        self.link, there = Pipe()
        self.helper = Helper(there, HelperSettings(interval=0.1, sysfs=sysfs))
        self.thread = threading.Thread(target=self.helper.loop)
        self.thread.start()

    def next(self) -> Snapshot:
        assert self.link.poll(LONG_S)
        found: Snapshot = self.link.recv()
        return found

    def until(self, state: str) -> Snapshot:
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            if (found := self.next()).state == state:
                return found
        pytest.fail(f"no snapshot said {state}")

    def stop(self) -> None:
        self.link.send(Command("stop"))
        self.thread.join()
        self.helper.close()


@pytest.fixture
def running(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Running]]:
    monkeypatch.setattr(helper_module, "IDLE_BEFORE_REST_S", 0.3)
    monkeypatch.setattr(helper_module, "REST_S", 0.5)
    made: list[Running] = []
    yield made
    for one in made:
        one.stop()


def test_a_sleeping_gpu_is_not_asked(stub: Stub, tmp_path: Path, running: list[Running]) -> None:
    sysfs = tmp_path / "sys"
    device(sysfs, PCI, "suspended")
    stub.use("slow-and-odd")
    one = Running(sysfs)
    running.append(one)
    shot = one.next()
    assert (shot.state, shot.gpus[0].status, shot.gpus[0].pci) == ("asleep", "asleep", PCI)
    assert stub.calls() == []
    device(sysfs, PCI, "active")
    awake = one.until("ok")
    assert awake.gpus[0].name == "NVIDIA GeForce RTX 4060 Laptop GPU"


def test_an_idle_laptop_gpu_is_let_go(
    stub: Stub, tmp_path: Path, running: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    sysfs = tmp_path / "sys"
    device(sysfs, PCI, "active")
    stub.use("[gpu 0]\npci = 00000000:01:00.0\ntotal_mib = 8188\nused_mib = 3\nutil_gpu = 0\n")
    one = Running(sysfs)
    running.append(one)
    monkeypatch.setattr(helper_module, "REST_S", LONG_S)  # it sleeps before it is looked at again
    assert one.until("asleep").gpus[0].total.value is not None
    assert stub.calls()[-1] == "nvmlShutdown"
    device(sysfs, PCI, "suspended")
    wait_for(lambda: one.next().gpus[0].message.startswith("Asleep"))
    stub.forget_calls()
    monkeypatch.setattr(helper_module, "REST_S", 0.0)
    one.next()
    assert stub.calls() == []


def test_a_gpu_at_work_is_not_let_go(stub: Stub, tmp_path: Path, running: list[Running]) -> None:
    sysfs = tmp_path / "sys"
    device(sysfs, PCI, "active")
    stub.use("desktop-4090")
    one = Running(sysfs)
    running.append(one)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert one.next().state == "ok"


def test_of_two_gpus_only_the_waking_one_is_opened(stub: Stub, tmp_path: Path, running: list[Running]) -> None:
    sysfs = tmp_path / "sys"
    device(sysfs, "0000:1d:00.0", "active", "on")
    device(sysfs, "0000:1e:00.0", "suspended")
    stub.use(scenario_text("gpu-lost").replace("lost_after = 14", ""))
    one = Running(sysfs)
    running.append(one)
    shot = one.until("ok")
    assert [g.pci for g in shot.gpus if g.status == "ok"] == ["0000:1d:00.0"]
    assert "nvmlDeviceGetHandleByIndex_v2" not in stub.calls()
