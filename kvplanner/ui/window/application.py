"""The application: what all windows share, and the order in which it starts and ends."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from kvplanner.app import settings as s
from kvplanner.app.crash import ExceptionCatcher, NativeCrashLog
from kvplanner.app.jobs import Jobs
from kvplanner.app.library import Library
from kvplanner.app.runs import Runs
from kvplanner.app.session import OpenPlan, Session
from kvplanner.ui.theme import figures
from kvplanner.ui.theme.theme import Theme, choice_of
from kvplanner.ui.window.services import Services

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvplanner.app.state import PlanState
    from kvplanner.ui.window.tabbed import Tabs
    from kvplanner.ui.window.window import MainWindow

CASCADE: Final = 28
LEAST_SEEN: Final = 160


class Application(QObject):
    """Settings, jobs, library, theme, session and the open windows.

    keep: False for a run that must leave no trace (a screenshot, safe mode): no settings, no session.
    """

    def __init__(self, app: QApplication, *, keep: bool = True, theme: str = "") -> None:
        super().__init__(app)
        self.app = app
        self.keep = keep
        self.settings = s.Settings(parent=self, save=keep)
        self.jobs = Jobs(self)
        self.library = Library(self.jobs, self)
        self.theme = Theme(app, choice_of(theme or self.settings.get(s.THEME)))
        self.windows: list[MainWindow] = []
        self.session = Session(self._open_plans, self.jobs, parent=self)
        self.session.enabled = keep
        self.services = Services(
            settings=self.settings,
            jobs=self.jobs,
            library=self.library,
            theme=self.theme,
            session=self.session,
            windows=self,
            keep=keep,
            runs=Runs(self, save=keep),
        )
        self._finishing: Callable[[], object] | None = None
        self.jobs.written.connect(self._written)
        self.catcher = ExceptionCatcher(self.session.write_now, self._context, self)
        self.native_log = NativeCrashLog()
        self._ended = False
        figures.choose(self.settings.get(s.NUMBERS))
        app.aboutToQuit.connect(self.shut_down)
        self.settings.changed.connect(self._setting_changed)

    # windows ---------------------------------------------------------------------------------------------------

    def first_window(self) -> MainWindow:
        """A window that is a mere ground until it has been painted, not shown yet."""
        from kvplanner.ui.window.window import MainWindow

        window = MainWindow(self.services)
        self.windows.append(window)
        window.closed.connect(self._window_closed)
        window.filled.connect(lambda: _complete(window))
        return window

    def new_window(self) -> MainWindow:
        """A window with all its parts, not shown yet."""
        window = self.first_window()
        window.assemble()
        window.furnish()
        return window

    @property
    def count(self) -> int:
        """Windows that are open."""
        return len(self.windows)

    def open(self, state: PlanState, path: Path | None, beside: QWidget) -> None:
        """Show another window, whole from the first moment on."""
        window = self.new_window()
        window.document.reset(state, path)
        self.cascade(window, beside)
        window.fill()
        window.document.flush()
        self.show(window, beside)

    @cached_property
    def tabs(self) -> Tabs:
        """The windows of tabs, where the user wants such."""
        from kvplanner.ui.window.tabbed import Tabs

        return Tabs(self.quit, self)

    def show(self, window: MainWindow, beside: QWidget | None = None) -> None:
        """Show a plan's window, on its own or as a tab. beside: the one that it came from."""
        if self.settings.get(s.PLAN_TABS):
            self.tabs.show(window, beside)
        else:
            window.show()

    def cascade(self, window: QWidget, beside: QWidget) -> None:
        """Put a window, not shown yet, where its title and those of the others can be seen."""
        window.resize(beside.size())
        room, taken = beside.screen().availableGeometry(), {(w.x(), w.y()) for w in self.windows if w is not window}
        x, y = beside.x() + CASCADE, beside.y() + CASCADE
        for _ in self.windows:
            if x + LEAST_SEEN > room.right() or y + LEAST_SEEN > room.bottom():
                x, y = room.x(), room.y()
            if (x, y) not in taken:
                break
            x, y = x + CASCADE, y + CASCADE
        window.move(x, y)

    def _window_closed(self, window: MainWindow) -> None:
        if self._ended:
            return
        if len(self.windows) > 1:
            self.windows.remove(window)
            self._finishing = None  # it may be what waits for a file
            if self.settings.get(s.PLAN_TABS):
                self.tabs.forget(window)
            self.session.touch()
            window.destroyed.connect(self._give_back_soon)
            window.deleteLater()
        else:
            self.shut_down()
            self.app.quit()

    def _give_back_soon(self) -> None:
        """Once the parts of a closed window are gone as well."""
        from kvplanner.app import memory

        if not self._ended:
            QTimer.singleShot(0, self, lambda: memory.give_back())

    def quit(self) -> None:
        """End with all windows in the session; a window whose file lacks edits asks first."""
        for window in self.windows:
            if window.assembled and window.saving.asks_before_quit():
                if self.settings.get(s.PLAN_TABS):
                    self.tabs.front(window)
                window.raise_()
                window.activateWindow()
                window.saving.ask_to_save(then_quit=True)
                return
        if not self.finishes_first(self.quit):
            self.end()

    def finishes_first(self, then: Callable[[], object]) -> bool:
        """Whether files are being written: `then` follows once they are, unless one fails. False where asked again."""
        if self._ended or self._finishing is not None or not self.jobs.writing:
            return False
        self._finishing = then
        for window in self.windows:
            window.messages.brief("Closes once the file is written")
        return True

    def _written(self, well: bool) -> None:
        then, self._finishing = self._finishing, None
        if then is not None and well:
            then()

    def end(self) -> None:
        """End with all windows in the session, and ask nothing."""
        for window in self.windows:
            window.keep_layout()
        self.shut_down()
        self.app.quit()

    @property
    def ended(self) -> bool:
        """Whether all has been saved and stopped: windows that close now lose nothing."""
        return self._ended

    def _setting_changed(self, name: str) -> None:
        if name == s.THEME.name:
            self.theme.set_choice(choice_of(self.settings.get(s.THEME)))
        elif name == s.UNIT.name:
            for window in self.windows:
                if window.furnished:
                    window.apply_unit()
        elif name == s.NUMBERS.name:
            self.choose_numbers()
        elif name == s.CALM.name:
            for window in self.windows:
                if window.furnished:
                    _calm(window)
        elif name == s.PLAN_TABS.name:
            self._arrange_windows()

    def choose_numbers(self) -> None:
        """Write figures as is chosen, or as the system does by now, everywhere at once."""
        changed = figures.choose(self.settings.get(s.NUMBERS))
        for window in self.windows:
            if window.furnished:
                window.apply_numbers(again=changed)

    def _arrange_windows(self) -> None:
        """All plans as tabs of one window, or each in a window of its own."""
        as_tabs = self.settings.get(s.PLAN_TABS)
        if not as_tabs:
            self.tabs.apart()
        for window in self.windows:
            if as_tabs:
                self.tabs.show(window)
            if window.furnished:
                window.actions_of_window.by_name["plan_tabs"].setChecked(as_tabs)

    # session ---------------------------------------------------------------------------------------------------

    def _open_plans(self) -> tuple[OpenPlan, ...]:
        from kvplanner.app.planstore import to_session

        plans: list[OpenPlan] = []
        for document in (window.document for window in self.windows if window.assembled):
            if document.state.model is not None and document.state.machine is not None:
                path = str(document.path) if document.path else ""
                pinned = tuple(to_session(state) for state in document.pinned)
                plans.append(OpenPlan(to_session(document.state), path, document.modified, pinned))
        return tuple(plans)

    def _context(self) -> str:
        from kvplanner.diagnose.privacy import public_options
        from kvplanner.report.private import public_name

        window = self.windows[-1] if self.windows else None
        state = window.document.state if window is not None and window.assembled else None
        if state is None or state.model is None:
            return ""
        machine = state.machine.describe() if state.machine is not None else "none"
        ask = state.ask
        return (
            f"engine: {ask.engine} {ask.version or ''}\nmodel: {public_name(state.model)}\nmachine: {machine}\n"
            f"options: {public_options(ask.options)}\nload: {ask.load}"
        )

    # start and end ---------------------------------------------------------------------------------------------

    def after_first_frame(self) -> None:
        """What can wait until a window shows: crash records, this machine's GPUs."""
        if self.keep:
            previous = self.native_log.take_previous()
            self.native_log.start()
            if previous and self.windows:
                self.windows[0].help.offer_crash_report(previous)
            self._tell_broken_settings()
        self.catcher.caught.connect(self._show_crash)
        self.catcher.install()
        QTimer.singleShot(0, self.library, self.library.probe_gpus)

    def _tell_broken_settings(self) -> None:
        broken = self.settings.broken
        if broken is None or not self.windows:
            return
        kept = "the old file is kept as" if self.settings.saved else "nothing is saved while it stands in the way:"
        text = f"The settings could not be read and begin anew; {kept} {broken}"
        self.windows[0].messages.warning(text, key="settings")

    def _show_crash(self, text: str) -> None:
        if self.windows and not self._ended:
            self.windows[-1].help.show_crash_report(text)

    def shut_down(self) -> None:
        """Stop timers, cancel jobs, wait for threads, save; then nothing is left that could abort the process."""
        if self._ended:
            return
        self._ended = True
        for window in self.windows:
            window.stop()
        self.jobs.stop()
        self.session.close()
        self.settings.save()
        self.catcher.uninstall()
        self.native_log.stop()


def _complete(window: MainWindow) -> None:
    """What no first sight needs: ways to change the plan, what else would run, plans that can be dragged, greetings."""
    from kvplanner.app import memory
    from kvplanner.ui.window.commands.deciding import Deciding
    from kvplanner.ui.window.commands.greeting import Greeting
    from kvplanner.ui.window.commands.solving import Solving
    from kvplanner.ui.window.tabbed import DragHandle

    memory.keep_small()
    Solving(window)
    Deciding(window)
    DragHandle(window, window.centre.verdict.icon)
    Greeting(window)
    window.actions_of_window.by_name["plan_tabs"].setChecked(window.services.settings.get(s.PLAN_TABS))
    _calm(window)
    window.centre.settle()  # by the width of all tabs


def _calm(window: MainWindow) -> None:
    """Whether things may move by themselves."""
    on = window.services.settings.get(s.CALM)
    window.actions_of_window.by_name["reduce_motion"].setChecked(on)
    window.centre.bars.canvas.calm = window.status.calm = on
