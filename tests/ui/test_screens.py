"""Every state of the window, at many sizes and in every theme, measured: no text is cut, covered or hard to read.

$KVPLANNER_SCREENSHOTS names a folder for the pictures; without it none is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QDialog

from kvplanner.app.library import Library
from kvplanner.app.start import start_state
from kvplanner.catalog import models
from kvplanner.ui.dialogs.about import AboutDialog
from kvplanner.ui.dialogs.calibrations import CalibrationsDialog
from kvplanner.ui.dialogs.crash import CrashDialog
from kvplanner.ui.dialogs.data import DataDialog
from kvplanner.ui.dialogs.inspect import InspectDialog
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.commands.greeting import Tour
from kvplanner.ui.window.screenshot import picture, settle, write
from kvplanner.ui.window.window import MainWindow
from tests.ui.kit import plain_look
from tests.ui.measure import faults
from tests.ui.states import LARGER, SMALL, STATES, State, log_planned, wait_for
from tests.ui.window.kit import words

pytestmark = pytest.mark.slow

MOST_GAP: Final = 12


def application_of(theme: str) -> Application:
    """An application without settings or session, which sees no GPU."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    return Application(app, keep=False, theme=theme)


class Galleries:
    """One window for all pictures of a theme: "light", "dark", "contrast", or "larger" for larger letters."""

    def __init__(self, app: QApplication) -> None:
        self._app, self._theme = app, ""
        self._made: Application | None = None
        self._font = app.font()

    def window(self, theme: str) -> MainWindow:
        """The window of a theme; that of another theme is closed."""
        if self._theme != theme:
            self.close()
            if theme == "larger":
                larger = self._app.font()
                larger.setPointSizeF(self._font.pointSizeF() * 1.5)
                self._app.setFont(larger)
            self._made, self._theme = application_of("light" if theme == "larger" else theme), theme
            window = self._made.new_window()
            window.show()
            window.fill()
        assert self._made is not None
        return self._made.windows[0]

    def close(self) -> None:
        """No window, and the look that other tests expect."""
        if self._made is not None:
            window = self._made.windows[0]
            self._made.shut_down()
            window.hide()
            window.deleteLater()
            self._made.deleteLater()
            QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
            QApplication.processEvents()
        self._made, self._theme = None, ""
        self._app.setFont(self._font)
        plain_look(self._app)


@pytest.fixture(scope="module")
def galleries(qapp: QApplication) -> Iterator[Galleries]:
    """Nothing is asked of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "probe_gpus", lambda self: self._probed(None))
        patch.setattr(Library, "scan_models", lambda self, failed, folders=(): None)
        qapp.setQuitOnLastWindowClosed(False)
        made = Galleries(qapp)
        yield made
        made.close()


@pytest.fixture
def gallery(galleries: Galleries, request: pytest.FixtureRequest) -> MainWindow:
    """The window of a theme. Not of the module itself: pytest makes that anew for each pair of theme and name."""
    return galleries.window(request.param)


def cleared(window: MainWindow) -> None:
    """As at its start."""
    window.pickers.close_choosers()
    window.drops.left()
    for shown in window.findChildren(Tour):
        shown.close()
    launching = window.centre.below._pages.get("launch")
    if launching is not None:
        launching.form.setCurrentIndex(0)  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    fitting = window.centre.below._pages.get("fits")
    if fitting is not None:
        fitting.way.setCurrentIndex(0)  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    for strip in window.centre.messages.strips:
        strip.dismiss()
    dock = window.view.dock
    if dock is not None:
        dock.panel.feed.end_replay()
        window.view.gpu_panel(False)
    page = window.centre.below._pages.get("compare")
    if page is not None:
        for _ in page._pins.kept:  # type: ignore[attr-defined]  # a page's own: the window gives widgets
            page._pins.remove(0)  # type: ignore[attr-defined]  # a page's own: the window gives widgets
        page.show_sweep(on=False)  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    if window.panel.advanced is not None:
        window.panel.advanced.toggle.setChecked(False)
    window.panel.gpus.toggle.setChecked(False)
    window.view.unit_gib()
    window.centre.show_tab("Explain")
    window.panel.verticalScrollBar().setValue(0)
    window.centre._scroll.verticalScrollBar().setValue(0)


def shown(window: MainWindow, state: State) -> None:
    """Bring the window into a state, and let it come to rest."""
    cleared(window)
    window.resize(*state.size)
    window.document.reset(start_state(words(**state.arguments), lambda: None))
    window.document.flush()
    window.centre._chosen_by_user = False
    window.panel.model.button.setFocus()
    settle(20)
    state.act(window)
    window.centre.show_details()
    explain = window.centre.below.page("explain")
    wait_for(lambda: not explain._timer.isActive())  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    settle(25)


def trouble(window: MainWindow) -> list[str]:
    """What is wrong with what shows."""
    form = window.panel.widget()
    assert form is not None
    wide = form.width() - window.panel.viewport().width()
    found = [f"the form is {wide} pixels wider than its panel"] if wide > 0 else []
    gaps = gap_below(window)
    return [*faults(window), *found, *([f"{gaps} pixels are bare between the cards"] if gaps > MOST_GAP else [])]


def gap_below(window: MainWindow) -> int:
    """The most pixels between the bars, the table, the tabs and the chart, one below the other."""
    centre, below = window.centre, window.centre.below
    cards = [centre._bars_card, below.table_card, below.tabs_card, below.chart_card]
    spans = sorted((c.mapTo(window, c.rect().topLeft()).y(), c.height()) for c in cards if c.isVisible())
    end, most = spans[0][0] + spans[0][1], 0
    for top, height in spans[1:]:
        most, end = max(most, top - end), max(end, top + height)
    return most


# Where things stand is the same in every theme: those that have colours of their own.
COLOURED = ("fits", "does-not-fit", "weights-too-large", "cannot-tell", "start-up-small", "explain-weights", "ways",
            "what-fits", "log-planned", "model-picker", "advanced", "compare", "together", "sweep", "map", "launch",
            "refused-value", "messages", "no-driver", "replay", "sglang", "llamacpp-moved",
            "llamacpp-answered", "ollama-together")  # fmt: skip
PAIRS = [("light", name) for name in STATES]
PAIRS += [(theme, name) for theme in ("dark", "contrast") for name in COLOURED]
PAIRS += [("larger", name) for name in LARGER]


@pytest.mark.parametrize(("gallery", "name"), PAIRS, indirect=["gallery"])
def test_every_screen_can_be_read(gallery: MainWindow, name: str, request: pytest.FixtureRequest) -> None:
    window, state = gallery, STATES[name]
    theme = request.node.callspec.params["gallery"]
    shown(window, state)
    assert window.size().toTuple() == state.size, "the content asks for more room than the window has"
    found = trouble(window)
    for _ in range(3):  # what is laid out late has come to rest by then
        if found:
            settle(80)
            found = trouble(window)
    folder = os.environ.get("KVPLANNER_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write(picture(window, state.scale), Path(folder) / f"{name}-{theme}.png")
    assert not found, "\n".join(["", *found])
    if state.size == SMALL and theme != "larger":
        assert window.centre.verdict.height() < SMALL[1] / 5, "the verdict takes a fifth of a low window"
    image = window.centre.grab().toImage()
    dark = image.pixelColor(4, image.height() // 2).lightness() < 128
    assert dark == (theme == "dark")
    bar = window.centre._scroll.verticalScrollBar()
    if state.size[1] >= 800 and theme != "larger" and not window.centre.messages.strips and not window.view.dock:
        for _ in range(20):
            if bar.maximum():
                settle(80)
        assert bar.maximum() == 0, "the plan scrolls though there is room"


def calibrations(window: MainWindow) -> QDialog:
    """With a run of a log."""
    shown(window, State({"gpu": "RTX 4090"}, log_planned))
    page = window.centre.below.page("log")
    page.calibrate_button.click()  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    wait_for(window.services.runs.kept)
    return CalibrationsDialog(window.services.runs, lambda error, what: None, window)


DIALOGS: Final[dict[str, Callable[[MainWindow], QDialog]]] = {
    "about": AboutDialog,
    "calibrations": calibrations,
    "crash": lambda window: CrashDialog(
        "Traceback (most recent call last):\n  ...\nValueError: a failure\n" * 9, window
    ),
    "data": lambda window: DataDialog(window.services.jobs, window),
    "inspect": lambda window: InspectDialog(models.load("Qwen/Qwen3-30B-A3B"), window),
}


@pytest.mark.parametrize("gallery", ["light", "dark", "contrast", "larger"], indirect=True)
@pytest.mark.parametrize("name", DIALOGS)
def test_every_dialog_can_be_read(gallery: MainWindow, name: str, request: pytest.FixtureRequest) -> None:
    dialog = DIALOGS[name](gallery)
    dialog.show()
    settle(60)
    folder = os.environ.get("KVPLANNER_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write(dialog.grab(), Path(folder) / f"{name}-{request.node.callspec.params['gallery']}.png")
    found = faults(dialog)
    dialog.close()
    dialog.deleteLater()
    assert not found, "\n".join(["", *found])
