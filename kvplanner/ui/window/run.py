"""From the start of the process to the end of the event loop."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QLocale, QSocketNotifier, QTimer
from PySide6.QtWidgets import QApplication

import kvplanner
from kvplanner.app.jobs import JobControl, error_text
from kvplanner.app.session import OpenPlan, Restored
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import WindowArguments

if TYPE_CHECKING:
    from kvplanner.app.state import PlanState
    from kvplanner.gpu.spec import Machine
    from kvplanner.request.words import PlanWords
    from kvplanner.ui.window.window import MainWindow

MOUNT_S = 2.0
UNSEEN = "This machine's GPUs cannot be seen now: planned for the catalogue's, with what was free last time"


def make_app() -> QApplication:
    """The one QApplication, with its names set."""
    existing = QApplication.instance()
    if isinstance(existing, QApplication):
        return existing
    # One way to write numbers all over the app, the one that engines and their documentation use.
    QLocale.setDefault(QLocale(QLocale.Language.English, QLocale.Country.UnitedKingdom))
    app = QApplication(["kvplanner"])
    app.setApplicationName("kvplanner")
    app.setApplicationDisplayName("kvplanner")
    app.setApplicationVersion(kvplanner.__version__)
    app.setDesktopFileName("kvplanner")
    app.setQuitOnLastWindowClosed(False)
    return app


def show(arguments: WindowArguments) -> int:
    """Show the window and run until it is closed."""
    app = make_app()
    application, _ = open_first(app, arguments)
    stop_on_interrupt(app, application)
    status = app.exec()
    application.shut_down()
    return status


def open_first(app: QApplication, arguments: WindowArguments) -> tuple[Application, MainWindow]:
    """Show the first window; what it plans is read in the background once its ground has been painted."""
    application = Application(app, keep=not arguments.safe_mode, theme=arguments.theme)
    window = application.first_window()
    if arguments.size:
        window.resize(*arguments.size)
    window.ready.connect(lambda: begin(application, window, arguments))
    if arguments.tab:
        window.filled.connect(lambda: window.centre.show_tab(arguments.tab))
    window.filled.connect(application.after_first_frame)
    window.filled.connect(lambda: _collect_again(application))
    application.show(window)
    return application, window


def _collect_again(application: Application) -> None:
    """Look for garbage from now on, but not among what the start made: no edit waits while all that is gone through."""
    gc.freeze()
    application.jobs.garbage.begin()


def stop_on_interrupt(app: QApplication, application: Application) -> None:
    """Ctrl+C in the terminal, and what asks a program to end, close in order.

    The event loop sleeps outside Python: a signal writes to a pipe that it watches, so that nothing has to look now and
    then, and an idle window costs nothing.
    """
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not at once: Python sees it wherever it is, in the middle of a frame too.
        signal.signal(number, lambda number, frame: QTimer.singleShot(0, application, application.end))
    if sys.platform == "win32":  # no pipe can be watched there
        import socket

        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        read, write = reading.detach(), writing.detach()
    else:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    woken = QSocketNotifier(read, QSocketNotifier.Type.Read, application)
    woken.activated.connect(lambda: woken.setEnabled(False))  # by then Python has seen the signal, which it ends on


def begin(
    application: Application, window: MainWindow, arguments: WindowArguments, restored: Restored | None = None
) -> None:
    """Give the first window, and those of the session, their plans; read in the background."""
    asked = arguments.words is not None or arguments.log is not None or arguments.safe_mode
    restored = restored or (Restored((), crashed=False) if asked else application.session.restore())
    if restored.aside:
        names = ", ".join(str(path) for path in restored.aside)
        text = f"Not all that was open last time can be opened; all of it is kept in {names}"
        window.messages.warning(text, key="aside")
    if restored.plans:
        _Restoring(application, window, restored).begin()
    else:
        _load_start(application, window, arguments.words)
    if arguments.log is not None:
        window.opening.open_path(arguments.log)


def _probe() -> Machine | None:
    """This machine's GPUs, for plans that name them; what asks NVML is loaded then."""
    from kvplanner.ui.window.local import probe_now

    return probe_now()


def _load_start(application: Application, window: MainWindow, words: PlanWords | None) -> None:
    def work(control: object) -> PlanState:
        from kvplanner.app.start import start_state

        return start_state(words, _probe)

    def done(state: PlanState) -> None:
        path = Path(words.model) if words is not None and words.model.endswith(".kvplan.json") else None
        window.document.reset(state, path)
        if words is None or not words.gpu:
            window.adopt_machine()
        window.document.flush()

    def failed(error: Exception) -> None:
        window.messages.error(error, "Could not open what was asked for", key="start")
        if words is not None:
            _load_start(application, window, None)

    application.jobs.submit("Reading the model", work, done, failed)


def _file_of(path: str, control: JobControl) -> Path | None:
    """The file that a plan belongs to, if it is still there; one on a mount that does not answer is taken to be."""
    from kvplanner.deadline import OutOfTime, in_time
    from kvplanner.reading import is_there

    if not path:
        return None
    try:
        there = in_time(lambda: is_there(Path(path)), MOUNT_S, control.check)
    except OutOfTime:
        there = True
    return Path(path) if there else None


class _Restoring:
    """Opens the windows of a session: the first is there already, further ones show once their plan has been read."""

    def __init__(self, application: Application, first: MainWindow, restored: Restored) -> None:
        self._application = application
        self._first = self._top = first
        self._restored = restored
        self._left = len(restored.plans)

    def begin(self) -> None:
        """Read all plans, each in the background."""
        for plan in self._restored.plans:
            self._read(self._first if plan is self._restored.plans[0] else self._application.new_window(), plan)

    def _read(self, window: MainWindow, plan: OpenPlan) -> None:
        kept: list[Path | None] = []

        def work(control: JobControl) -> tuple[PlanState, tuple[PlanState, ...], Path | None]:
            from kvplanner.app.start import restored_pins, restored_state

            try:
                state = restored_state(plan, _probe)
            except Exception:
                kept.append(self._application.session.put_aside(plan))
                raise
            return state, restored_pins(plan, _probe), _file_of(plan.path, control)

        def done(found: tuple[PlanState, tuple[PlanState, ...], Path | None]) -> None:
            from kvplanner.app.planstore import is_local, was_local

            state, pinned, path = found
            window.document.reset(state, path, modified=plan.modified)
            window.document.set_pinned(pinned)
            if not is_local(state):  # asked just now
                window.adopt_machine()
                if was_local(plan.plan):
                    window.messages.warning(UNSEEN, key="unseen")
            self._opened(window)

        def failed(error: Exception) -> None:
            aside = f" It is kept as {kept[0]}" if kept and kept[0] is not None else ""
            text = f"The last plan could not be opened: {error_text(error).rstrip('.')}.{aside}"
            window.messages.warning(text, key="restored")
            _load_start(self._application, window, None)
            self._opened(window)

        self._application.jobs.submit("Reading the last plan", work, done, failed)

    def _opened(self, window: MainWindow) -> None:
        """Show a further window; once all are there, the one on top tells about the crash."""
        if window is not self._first:
            if self._top in self._application.windows:  # not closed meanwhile
                self._application.cascade(window, self._top)
            window.fill()
            window.document.flush()
            self._application.show(window, self._top)
            self._top = window
        self._left -= 1
        if self._left or not self._restored.crashed or self._top not in self._application.windows:
            return
        if not any(window.help.crash_offered for window in self._application.windows):
            plans = (
                "your plan was" if len(self._restored.plans) == 1 else f"your {len(self._restored.plans)} plans were"
            )
            self._top.messages.info(f"kvplanner was not closed properly last time: {plans} restored", key="crashed")
