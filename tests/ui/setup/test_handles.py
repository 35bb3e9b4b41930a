"""Placement by hand: the slider of layers and the grips between GPUs move the plan, and so the bars and the command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from kvplanner.engine.command import format_command
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.ui.setup.handle_fields import LayersField, SharesField
from kvplanner.ui.setup.split_bar import SplitBar
from kvplanner.ui.window.window import MainWindow

MODEL, PAIR = "Llama-3.3-70B-Instruct", "2xRTX 3090"


def planned(window: MainWindow) -> Plan:
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    return plan


def command(plan: Plan) -> str:
    return format_command(engine(plan.request.engine), plan.request)


def weights(plan: Plan) -> list[int]:
    return [sum(s.bytes for s in device.segments if s.kind == "weights") for device in plan.devices]


def test_the_slider_of_layers_moves_weights_between_the_gpus_and_the_host(
    open_window: Callable[..., MainWindow],
) -> None:
    window = open_window(model=MODEL, gpu=PAIR, engine="llamacpp")
    field = window.panel.fields["n_gpu_layers"]
    assert isinstance(field, LayersField)
    window.document.set_option("ctx_size", 32768)
    before = planned(window)
    assert field.slider.scale.high == 81
    field.slider.setSliderDown(True)
    field.slider.setValue(field.slider.scale.position(20))
    during = planned(window)
    assert during.request.options["n_gpu_layers"] == "20"
    assert weights(during)[0] < weights(before)[0]
    assert weights(during)[-1] > weights(before)[-1]
    assert window.centre.bars.canvas.plan() is during
    assert "--n-gpu-layers 20" in command(during)
    # How many of them fit is drawn on the track, and no number of layers above it starts.
    assert field.slider.works is not None
    most = int(field.slider.works.high)
    field.slider.setValue(field.slider.scale.position(most + 1))
    assert planned(window).fits is False
    field.slider.setValue(field.slider.scale.position(most))
    assert planned(window).fits is True
    field.slider.setSliderDown(False)
    window.document.undo()
    assert "n_gpu_layers" not in planned(window).request.options


def test_a_grip_moves_layers_from_one_gpu_to_the_next(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window(model=MODEL, gpu=PAIR, engine="llamacpp")
    field = window.panel.fields["tensor_split"]
    assert isinstance(field, SharesField)
    before = planned(window)
    assert field.bar.parts == next(h.parts for h in before.handles if h.option == "tensor_split")
    (grip,) = field.bar.grips
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
    QTest.mouseMove(grip, QPoint(5 - field.bar.width() // 4, 10))
    during = planned(window)
    shares = field.bar.parts
    assert shares[0] < shares[1]
    assert sum(shares) == sum(h.whole for h in before.handles if h.option == "tensor_split")
    assert during.request.options["tensor_split"] == f"{shares[0]},{shares[1]}"
    assert weights(during)[0] < weights(before)[0]
    assert weights(during)[1] > weights(before)[1]
    # What the plan makes of these shares is what the grip was moved to.
    assert next(h.parts for h in during.handles if h.option == "tensor_split") == shares
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton)
    assert f"--tensor-split {shares[0]},{shares[1]}" in command(planned(window))
    # The keyboard moves one layer at a time; the name says which GPUs.
    qtbot.keyClick(grip, Qt.Key.Key_Right)
    assert planned(window).request.options["tensor_split"] == f"{shares[0] + 1},{shares[1] - 1}"
    assert grip.accessibleName() == "Share of GPU 0 and GPU 1"


def test_one_gpu_has_nothing_to_share_and_a_dense_model_no_experts(open_window: Callable[..., MainWindow]) -> None:
    window = open_window(model="Llama-3.1-8B-Instruct", gpu="RTX 3090", engine="llamacpp")
    shares, experts = window.panel.fields["tensor_split"], window.panel.fields["n_cpu_moe"]
    assert isinstance(shares, SharesField)
    assert isinstance(experts, LayersField)
    assert shares.bar.isHidden()
    assert not experts.slider.isEnabled()


@pytest.mark.parametrize(("model", "layers"), [("Qwen3-0.6B", 29), (MODEL, 81)])
def test_each_key_moves_one_layer_and_a_page_a_tenth(
    open_window: Callable[..., MainWindow], qtbot: QtBot, model: str, layers: int
) -> None:
    """Also where keys come faster than plans."""
    window = open_window(model=model, gpu=PAIR, engine="llamacpp")
    window.document.set_option("ctx_size", 4096)
    planned(window)
    field = window.panel.fields["n_gpu_layers"]
    assert isinstance(field, LayersField)
    for _ in range(3):
        qtbot.keyClick(field.slider, Qt.Key.Key_Left)
    assert planned(window).request.options["n_gpu_layers"] == str(layers - 3)
    qtbot.keyClick(field.slider, Qt.Key.Key_PageDown)
    qtbot.keyClick(field.slider, Qt.Key.Key_Right)
    assert planned(window).request.options["n_gpu_layers"] == str(layers - 3 - (layers - 1) // 10 + 1)
    qtbot.keyClick(field.slider, Qt.Key.Key_Home)
    assert planned(window).request.options["n_gpu_layers"] == "0"


def test_the_slider_of_experts_stands_where_they_are_and_takes_the_place_of_all_on_the_host(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window(model="gpt-oss-120b", gpu="RTX 3090", engine="llamacpp")
    window.document.set_option("ctx_size", 32768)
    field = window.panel.fields["n_cpu_moe"]
    assert isinstance(field, LayersField)
    # As --fit keeps them, then as all of them are told to stay.
    fitted = next(handle.parts[0] for handle in planned(window).handles if handle.option == "n_cpu_moe")
    assert 20 < fitted < 36
    assert field.slider.value() == field.slider.scale.position(fitted)
    window.document.set_option("cpu_moe", True)
    planned(window)
    assert field.slider.value() == field.slider.scale.position(36)
    # How few are enough is drawn on the track; a key moves one layer's experts to the GPU.
    assert field.slider.works is not None
    least = int(field.slider.works.low)
    qtbot.keyClick(field.slider, Qt.Key.Key_Left)
    moved = planned(window)
    assert moved.request.options == {"ctx_size": 32768, "n_cpu_moe": 35}
    assert weights(moved)[0] > 2 << 30
    window.document.set_option("n_cpu_moe", least)
    assert planned(window).fits is True
    window.document.set_option("n_cpu_moe", least - 1)
    assert planned(window).fits is False


def test_a_drag_is_one_step_of_undo_and_other_splits_have_their_own_handles(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window(model=MODEL, gpu="4xRTX 3090", engine="llamacpp")
    window.document.set_option("ctx_size", 32768)
    window.document.set_option("n_gpu_layers", "50")
    field = window.panel.fields["tensor_split"]
    assert isinstance(field, SharesField)
    before = planned(window)
    steps = window.document.undo_count
    grip = field.bar.grips[-1]
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
    for distance in (-10, -20, -30):
        QTest.mouseMove(grip, QPoint(5 + distance, 10))
        assert weights(planned(window)) != weights(before)
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton)
    assert sum(field.bar.parts) == 50
    assert window.document.undo_count == steps + 1
    window.document.undo()
    assert weights(planned(window)) == weights(before)
    # One GPU alone has nothing to share; within layers, shares are hundredths; an older build's layers are its own.
    window.document.set_option("split_mode", "none")
    planned(window)
    assert field.bar.isHidden()
    window.document.set_option("split_mode", "tensor")
    planned(window)
    assert field.bar.parts == (25, 25, 25, 25)
    window.document.set_option("split_mode", None)
    window.document.edit("Change engine version", version="b7400")
    assert sum(next(h.parts for h in planned(window).handles if h.option == "tensor_split")) == 50


@pytest.mark.parametrize("by", ["key", "mouse"])
def test_the_first_move_keeps_what_fit_placed_and_is_one_step_back(
    open_window: Callable[..., MainWindow], qtbot: QtBot, by: str
) -> None:
    """Layers and experts on the host that --fit mixed: what is not moved is written out, also in the command."""
    window = open_window(model="gpt-oss-120b", gpu=PAIR, engine="llamacpp")
    layers, shares = window.panel.fields["n_gpu_layers"], window.panel.fields["tensor_split"]
    assert isinstance(layers, LayersField)
    assert isinstance(shares, SharesField)
    before = planned(window)
    assert before.request.options == {}
    assert "by --fit" in before.options["tensor_split"].reason
    steps, parts = window.document.undo_count, shares.bar.parts
    if by == "key":
        qtbot.keyClick(layers.slider, Qt.Key.Key_Left)
    else:
        x, y = round(layers.slider.x_of(37)), layers.slider.height() // 2
        QTest.mousePress(layers.slider, Qt.MouseButton.LeftButton, pos=QPoint(x, y))
        for distance in (2, 4, 6):  # a layer is some three pixels
            QTest.mouseMove(layers.slider, QPoint(x - distance, y))
            planned(window)
        QTest.mouseRelease(layers.slider, Qt.MouseButton.LeftButton, pos=QPoint(x - 6, y))
    after = planned(window)
    left = int(str(after.request.options["n_gpu_layers"]))
    assert 33 <= left < 37
    assert after.request.options["ctx_size"] == before.options["ctx_size"].value
    assert after.request.options["tensor_split"] == ",".join(map(str, parts))
    assert "exps=CPU" in str(after.request.options["override_tensor"])
    assert "--override-tensor" in command(after)
    # The layers that were moved are on the host, and nothing else is.
    moved = 37 - left
    assert weights(after)[-1] - weights(before)[-1] == pytest.approx(moved * 1.73e9, rel=0.02)
    assert window.document.undo_count == steps + 1
    window.document.undo()
    assert planned(window).request.options == {}
    # A grip between the GPUs does the same.
    (grip,) = shares.bar.grips
    if by == "key":
        qtbot.keyClick(grip, Qt.Key.Key_Left)
    else:
        QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
        QTest.mouseMove(grip, QPoint(5 - shares.bar.width() // 37 - 1, 10))
        QTest.mouseRelease(grip, Qt.MouseButton.LeftButton)
    other = planned(window)
    assert other.request.options["tensor_split"] == f"{parts[0] - 1},{parts[1] + 1}"
    assert other.request.options["n_gpu_layers"] == "37"
    assert weights(other)[-1] == weights(before)[-1]
    # What is typed is the option alone, as it would be in a command.
    window.document.undo()
    layers.edit.committed.emit("30")
    assert planned(window).request.options == {"n_gpu_layers": "30"}


def test_row_split_has_its_handle_in_the_builds_that_have_it(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window(model=MODEL, gpu=PAIR, engine="llamacpp")
    window.document.edit("Change engine version", version="b7400")
    window.document.set_options({"split_mode": "row", "ctx_size": 4096, "n_gpu_layers": "60"}, "By rows")
    field = window.panel.fields["tensor_split"]
    assert isinstance(field, SharesField)
    before = planned(window)
    parts = field.bar.parts
    assert sum(parts) == 60
    (grip,) = field.bar.grips
    for _ in range(6):
        qtbot.keyClick(grip, Qt.Key.Key_Right)
    moved = planned(window)
    assert moved.request.options["tensor_split"] == f"{parts[0] + 6},{parts[1] - 6}"
    assert weights(moved)[0] > weights(before)[0]
    assert weights(moved)[1] < weights(before)[1]
    assert weights(moved)[2] == weights(before)[2]
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=QPoint(5, 10))
    QTest.mouseMove(grip, QPoint(5 - field.bar.width() // 3, 10))
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton)
    assert weights(planned(window))[0] < weights(before)[0]
    assert "--split-mode row" in command(planned(window))


def test_a_grip_that_is_gone_moves_nothing(qtbot: QtBot) -> None:
    """Until Qt deletes it, a key may still reach it."""
    bar = SplitBar()
    qtbot.addWidget(bar)
    bar.set_parts((10, 10, 10))
    gone = bar.grips[1]
    bar.set_parts((10, 10))
    gone.setValue(gone.value() - 3)
    assert bar.parts == (10, 10)
    assert gone.isHidden()
