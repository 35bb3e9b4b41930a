"""The form's inputs: the wheel, what cannot be chosen, names that are too long."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QStandardItemModel, QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.ui.setup.option_field import ChoiceField, SliderField
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import Keyboard


def roll(widget: QWidget) -> bool:
    """Turn the wheel over a widget; whether it kept the event."""
    buttons, keys = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
    down, phase = QPoint(0, -120), Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(QPointF(5, 5), QPointF(5, 5), QPoint(), down, buttons, keys, phase, False)
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def test_the_wheel_changes_an_input_only_with_the_focus(window: MainWindow) -> None:
    window.activateWindow()
    slider, box = window.panel.fields["gpu_memory_utilization"], window.panel.fields["kv_cache_dtype"]
    assert isinstance(slider, SliderField)
    assert isinstance(box, ChoiceField)
    window.panel.model.button.setFocus()
    for widget in (slider.slider, box.box):
        assert not roll(widget)
    assert dict(window.document.state.ask.options) == {}
    for widget in (slider.slider, box.box):
        widget.setFocus()
        assert roll(widget)
    assert set(window.document.state.ask.options) == {"gpu_memory_utilization", "kv_cache_dtype"}


def refusals(window: MainWindow) -> dict[str, str]:
    """The weight formats that cannot be chosen, by name, with what they say."""
    rows = window.panel.model.formats.model()
    assert isinstance(rows, QStandardItemModel)
    items = [rows.item(at) for at in range(rows.rowCount())]
    return {item.data(Qt.ItemDataRole.UserRole): item.text() for item in items if not item.isEnabled()}


def test_formats_that_the_engine_cannot_load_are_grey_with_the_reason(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window()
    assert refusals(window)["GGUF Q4_K_M"] == "What if GGUF Q4_K_M — vLLM 0.33 has no GGUF quantisation"
    assert "FP8" not in refusals(window)
    # The keyboard passes over them.
    window.activateWindow()
    box = window.panel.model.formats
    box.setFocus()
    for _ in range(20):
        Keyboard().press(Qt.Key.Key_Down)
    assert window.document.state.ask.weight_format == "MXFP4"
    window.document.edit("older", version="0.16")
    assert refusals(window) == {}
    assert box.itemText(box.findData("GGUF Q4_K_M")) == "What if GGUF Q4_K_M"


def test_a_drag_lays_out_neither_the_form_nor_the_bars_anew(window: MainWindow) -> None:
    class Asked(QObject):
        count = 0

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            self.count += event.type() == QEvent.Type.LayoutRequest
            return False

    for users in (64, 65):
        window.document.set_option("max_num_seqs", users)
        window.document.flush()
        QApplication.processEvents()
    asked, form, bars = Asked(), window.panel.widget(), window.centre.bars.parentWidget()
    assert form is not None
    assert bars is not None
    for place in (form, bars):
        place.installEventFilter(asked)
    window.document.set_option("max_num_seqs", 66)
    window.document.flush()
    QApplication.processEvents()
    assert asked.count == 0
