"""`gui --screenshot`: the window in a given state, size and theme, rendered to a PNG, without a trace."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QEventLoop, QIODevice, QTimer
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QApplication

from kvplanner.app.start import start_state
from kvplanner.errors import BadInput
from kvplanner.files import write_whole
from kvplanner.reading import is_folder
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import WindowArguments
from kvplanner.ui.window.tabs import TABS
from kvplanner.ui.window.window import DEFAULT_SIZE, MainWindow

SETTLE_MS = 50
LONGEST_MS = 10_000  # for what is read and sought in the background: a draft model, remedies
QUIET_MS = 350  # with no job: longer than any pause after which one begins


def settle(milliseconds: int = SETTLE_MS) -> None:
    """Let queued events, layouts and paints happen."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def prepared_window(application: Application, arguments: WindowArguments) -> MainWindow:
    """A window that shows what the arguments ask for. Raises PlannerError."""
    from kvplanner.ui.window.local import probe_now

    window = application.new_window()
    window.resize(*(arguments.size or DEFAULT_SIZE))
    window.show()
    window.fill()
    window.document.reset(start_state(arguments.words, probe_now))
    window.document.flush()
    if arguments.tab and not window.centre.show_tab(arguments.tab):
        raise BadInput(f"no tab is called {arguments.tab!r}", "--tab", f"Tabs: {', '.join(tab.title for tab in TABS)}")
    if arguments.log is not None:
        window.opening.open_path(arguments.log)
    wait_for_jobs(application)
    return window


def wait_for_jobs(application: Application) -> None:
    """Until none has run for a while, and what they found is on the screen."""
    quiet = 0
    for _ in range(LONGEST_MS // SETTLE_MS):
        settle()
        quiet = 0 if application.jobs.active else quiet + SETTLE_MS
        if quiet >= QUIET_MS:
            return


def picture(window: MainWindow, scale: float = 1.0) -> QPixmap:
    """The window as pixels, `scale` times as many as its screen takes for each of its own."""
    ratio = scale * window.screen().devicePixelRatio()
    image = QPixmap(window.size() * ratio)
    image.setDevicePixelRatio(ratio)
    window.render(image)
    return image


def take(app: QApplication, arguments: WindowArguments) -> int:
    """Render and write; 0, or 2 with one line on standard error."""
    assert arguments.screenshot is not None
    check_place(arguments.screenshot)
    application = Application(app, keep=False, theme=arguments.theme or "light")
    try:
        window = prepared_window(application, arguments)
        write(picture(window, arguments.scale), arguments.screenshot)
    finally:
        application.shut_down()
        for window in application.windows:
            window.hide()
            window.deleteLater()
    return 0


def check_place(path: Path) -> None:
    """Raises BadInput where no PNG can be written: a name of another kind, a folder that is not there."""
    if path.suffix.lower() != ".png":
        raise BadInput("a screenshot is a PNG", str(path), "Give a name that ends in .png")
    if not is_folder(path.parent):
        raise BadInput(f"there is no folder {path.parent}", str(path), "Make the folder first, or choose another place")
    if is_folder(path):
        raise BadInput("is a folder", str(path), "Choose another name")


def write(image: QPixmap, path: Path) -> None:
    """Write a PNG. Raises BadInput where that is not possible."""
    check_place(path)
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not image.save(buffer, "PNG"):
        raise BadInput("is no picture: the window could not be drawn", str(path), "Try once more")
    try:
        write_whole(path, bytes(buffer.data().data()))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot be written: {reason}", str(path), "Choose another place") from error
