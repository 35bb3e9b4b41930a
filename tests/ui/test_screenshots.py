"""Every state of the window as a picture, renewed by this test into $KVPLANNER_SCREENSHOTS (or a temporary folder).

What a test can see is asserted: the size, that both themes differ, that no text is cut where it must not be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QCheckBox, QLabel, QPushButton, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app.start import start_state
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.screenshot import picture, settle, write
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import settled, words

pytestmark = pytest.mark.slow

AT_REST_MS = 250  # the table and Explain follow an edit once it pauses


def nothing(window: MainWindow) -> None:
    """The plan as it is."""


class State(NamedTuple):
    """What to show: plan arguments, what to do then, size, scale."""

    arguments: dict[str, object]
    act: Callable[[MainWindow], None] = nothing
    size: tuple[int, int] = (1280, 800)
    scale: float = 1.0


def startup(window: MainWindow) -> None:
    window.view.show_startup()


def models(window: MainWindow) -> None:
    window.pickers.open_models("qwen3")


def all_models(window: MainWindow) -> None:
    window.pickers.open_models("")


def no_model(window: MainWindow) -> None:
    window.pickers.open_models("nothing is called that")


def gpus(window: MainWindow) -> None:
    window.pickers.open_gpus("2")


def advanced(window: MainWindow) -> None:
    window.document.set_option("max_num_seqs", 64)
    window.document.set_option("block_size", 32)
    window.document.flush()
    window.panel.show_search()
    section = window.panel.advanced
    assert section is not None
    settled(section)
    settle(5)
    window.panel.ensureWidgetVisible(section.entries["block_size"], 0, 400)


def refused(window: MainWindow) -> None:
    window.document.set_option("tensor_parallel_size", 3)
    window.document.flush()


def messages(window: MainWindow) -> None:
    window.messages.info("kvplanner was not closed properly last time: your plan was restored")
    window.messages.warning("The catalogue on this machine is older than the engine", "details")
    window.messages.error(OSError(28, "No space left on device"), "The plan was not saved")


def loading(window: MainWindow) -> None:
    window.panel.model.show_loading("Qwen3-235B-A22B")


def dropping(window: MainWindow) -> None:
    from kvplanner.app.opening import Opening

    window.drops.show(Opening("model", "Read the model folder Qwen3-8B and plan it on the GPUs chosen now"))


def gigabytes(window: MainWindow) -> None:
    window.view.unit_gb()


MIB = 2**20
STATES: dict[str, State] = {
    "fits": State({"gpu": "2xRTX 4090", "load": "32@1500+500"}),
    "start": State({}),
    "small-window": State({"gpu": "2xRTX 4090", "load": "32@1500+500"}, size=(1024, 640)),
    "does-not-fit": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}),
    "does-not-fit-small": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, size=(1024, 640)),
    "weights-too-large": State({"model": "Llama-3.3-70B-Instruct", "gpu": "1xRTX 4090,1xRTX 3090"}),
    "eight-folded": State({"model": "Llama-3.3-70B-Instruct", "gpu": "8xH100"}),
    "others-hold-memory": State({"gpu": "2xRTX 4090", "free": ("0=20GiB",)}),
    "cannot-tell": State({"gpu": "MI300X"}),
    "start-up": State({"gpu": "2xRTX 4090"}, startup),
    "model-picker": State({}, models),
    "model-picker-all": State({}, all_models),
    "model-picker-empty": State({}, no_model),
    "gpu-picker": State({}, gpus),
    "advanced": State({}, advanced),
    "refused-value": State({}, refused),
    "messages": State({}, messages),
    "loading": State({}, loading),
    "dropping": State({}, dropping),
    "gigabytes": State({"gpu": "80GB"}, gigabytes),
    "large": State({"gpu": "2xRTX 4090"}, size=(1280, 720), scale=2.0),
    "wide": State({"model": "Llama-3.3-70B-Instruct", "gpu": "4xH100"}, size=(2560, 1440)),
}


def cut_texts(window: QWidget) -> list[str]:
    """Visible labels and buttons whose text has less room than it needs and does not wrap."""
    found: list[str] = []
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or not isinstance(widget, QLabel | QPushButton | QToolButton | QCheckBox):
            continue
        if isinstance(widget, QLabel) and (widget.wordWrap() or widget.textFormat() == Qt.TextFormat.RichText):
            continue
        needed = max((QFontMetrics(widget.font()).horizontalAdvance(t) for t in widget.text().split("\n")), default=0)
        if widget.text() and "<" not in widget.text() and needed > widget.width() + 1:
            found.append(f"{type(widget).__name__} {widget.text()!r}: {widget.width()} of {needed}")
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", STATES)
def test_renew_screenshots(application: Application, qtbot: QtBot, tmp_path: Path, name: str, theme: str) -> None:
    state = STATES[name]
    application.settings.set(s.THEME, theme)
    window = application.new_window()
    window.resize(*state.size)
    window.show()
    window.fill()
    window.document.reset(start_state(words(**state.arguments), lambda: None))
    window.document.flush()
    settle(20)
    state.act(window)
    settle(AT_REST_MS)
    image = picture(window, state.scale)
    folder = Path(os.environ.get("KVPLANNER_SCREENSHOTS") or tmp_path)
    write(image, folder / f"{name}-{theme}.png")
    assert (image.width(), image.height()) == (state.size[0] * state.scale, state.size[1] * state.scale)
    assert window.size().toTuple() == state.size, "the content asks for more room than the window has"
    corner = image.toImage().pixelColor(int(state.size[0] * 0.6 * state.scale), int(12 * state.scale))
    assert (corner.lightness() < 128) == (theme == "dark")
    assert cut_texts(window) == []
    centre = window.centre._scroll
    if state.size[1] >= 800 and not window.centre.messages.strips:
        assert centre.verticalScrollBar().maximum() == 0, "the plan scrolls though there is room"
    form = window.panel.widget()
    assert form is not None
    assert form.width() <= window.panel.viewport().width(), "the form is wider than its panel"
