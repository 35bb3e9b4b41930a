"""The GPUs of the form: several slices, long names, counts that no plan has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, Machine
from kvplanner.ui.setup.gpu_rows import NO_GPU, Stock, nothing_found, search
from kvplanner.ui.setup.gpu_section import DeviceRow
from kvplanner.ui.setup.pickers import local_row
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import MIB
from tests.ui.window.kit import Keyboard

SLICES = (("3g.20gb", 19968), ("2g.10gb", 9856), ("1g.5gb", 4864), ("1g.5gb", 4864))


def sliced() -> Machine:
    """An A100 with MIG on, as this machine's."""
    whole = gpus.gpu("a100-sxm4-40gb")

    def device(at: int, profile: str, mib: int) -> Device:
        size = exact(mib * MIB, "NVML")
        spec = whole._replace(name=f"NVIDIA A100-SXM4-40GB MIG {profile}", total=size, cuda_total=size)
        return Device(at, spec, uuid=f"MIG-00000{at}", marks=("MIG instance", "ECC"))

    return Machine(tuple(device(at, *each) for at, each in enumerate(SLICES)), "this machine")


def rows_of(window: MainWindow, machine: Machine) -> list[DeviceRow]:
    """The device rows of a window that plans a machine."""
    window.document.edit(
        "choose", devices=machine.devices, machine_source=machine.source, machine_text="", machine_chosen=True
    )
    window.panel.gpus.toggle.setChecked(True)
    QApplication.processEvents()
    return [row for row in window.panel.gpus.findChildren(DeviceRow) if row.isVisible()]


def test_this_machine_tells_the_sizes_of_all_its_devices() -> None:
    row = local_row(sliced(), "GiB", current=False)
    assert row.detail == "4.75–19.50 GiB each"
    assert row.trailing == "38.62 GiB"
    alike = Machine(sliced().devices[2:], "this machine")
    assert local_row(alike, "GiB", current=False).detail == "4.75 GiB each"
    assert local_row(gpus.machine("2xrtx-4090"), "GiB", current=False).detail == "23.99 GiB each, 23.52 usable"


def test_what_tells_slices_apart_can_be_read(window: MainWindow) -> None:
    rows = rows_of(window, sliced())
    assert [row.facts.text().split(" · ")[1] for row in rows] == [f"MIG {name}" for name, _ in SLICES]
    for row, (name, _) in zip(rows, SLICES, strict=True):
        assert row.box.text() == f"GPU {row.index} · A100-SXM4-40GB"
        assert name in row.box.accessibleDescription()


def test_a_name_that_is_too_long_is_cut_in_its_middle(open_window: Callable[..., MainWindow]) -> None:
    window = open_window(gpu="16xH100")
    rows = rows_of(window, Machine(window.document.state.devices, "catalogue"))
    assert len(rows) == 16
    for row in rows:
        text = row.box.text()
        assert row.box.accessibleName() == f"GPU {row.index} · H100 80GB HBM3"
        assert text.startswith(f"GPU {row.index}")
        assert text.endswith("HBM3")
        assert row.box.fontMetrics().horizontalAdvance(text) + 20 <= row.box.width()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("99x4090", "64 GPUs at most: type 64x4090"),
        ("100 x h100", "64 GPUs at most"),
        ("9" * 400 + "xh100", "64 GPUs at most"),
        ("0x4090", "at least one GPU"),
        ("2xnothing", NO_GPU),
        ("4091", NO_GPU),
        ("-3x4090", NO_GPU),
        ("x", NO_GPU),
        ("0GB", "A GPU of 0.00 GiB is out of range. Give between 256 MiB"),
        ("2x99999TB", "out of range"),
    ],
)
def test_a_count_that_no_plan_has_is_told(text: str, said: str) -> None:
    assert said in nothing_found(text)


def titles(text: str) -> list[str]:
    """The rows that a text gives."""
    return [row.title for row in search(text, Stock(gpus.index(), (), "", "GiB")) if row.kind == "item"]


def test_sizes_that_no_gpu_has_are_not_offered() -> None:
    assert titles("48GB") == ["1 × custom GPU of 48GB", *titles("48GB")[1:]]
    assert titles("2x 48 gib")[0] == "2 × custom GPU of 48gib"
    assert titles("0GB") == titles("0.1GiB") == titles("99999TB") == []


def test_a_mixed_machine_can_be_typed() -> None:
    assert titles("RTX 4090,2xRTX 3090") == ["RTX 4090 + 2 × RTX 3090"]
    assert titles("RTX 4090,nothing") == []


def test_a_refused_choice_is_told_until_another_one_is_made(window: MainWindow) -> None:
    section = window.panel.gpus
    window.machines.choose("0GB")
    assert section.error.message.startswith("A GPU of 0.00 GiB is out of range")
    window.machines.add("64xrtx-4090")
    assert section.error.message == "66 GPUs are more than a plan has: 64 at most"
    assert len(window.document.state.devices) == 2
    window.machines.add("rtx-3090")
    assert section.error.message == ""
    window.machines.choose("0GB")
    window.document.undo()
    assert section.error.message == ""


def test_the_chooser_says_what_is_wrong_with_the_count(window: MainWindow, qtbot: QtBot) -> None:
    window.activateWindow()
    window.pickers.open_gpus()
    Keyboard().type("99x4090")
    chooser = window.pickers.gpu_chooser
    assert any("64 GPUs at most" in label.text() for label in chooser.findChildren(QLabel) if label.isVisible())
    Keyboard().press(Qt.Key.Key_Escape)
