"""What leads from one plan to a decision: plans side by side, a setting over its range, and the command to start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from kvplanner.ui.compare.pins import Pin, Pins, planned_pin
from kvplanner.ui.window.tabs import COMPARE, LAUNCH, Page, Tab

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from kvplanner.engine.plan import Plan
    from kvplanner.engine.probe import Answer
    from kvplanner.ui.compare.sweep import SweepPage
    from kvplanner.ui.compare.together import TogetherPage
    from kvplanner.ui.launch.view import LaunchView
    from kvplanner.ui.window.window import MainWindow


class Deciding(QObject):
    """Adds the tabs Compare and Launch to a filled window, and keeps its pinned plans."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.pins = Pins(self)
        self.pins.changed.connect(self._keep)
        window.document.pinned_changed.connect(self._bring_back)
        self._bring_back()
        window.view.pin_wanted.connect(self.pin)
        window.centre.below.add_tab(Tab(COMPARE, "Compare", self._compare))
        window.centre.below.add_tab(Tab(LAUNCH, "Launch", self._launch))

    def _compare(self, parent: QWidget) -> Page:
        from kvplanner.ui.compare.page import ComparePage

        made = ComparePage(self.pins, self._sweep, self._together, parent)
        made.pin_wanted.connect(self.pin)
        made.back_wanted.connect(self.go_back)
        return made

    def _sweep(self, parent: QWidget) -> SweepPage:
        from kvplanner.ui.compare.sweep import SweepPage

        return SweepPage(self._window.document, self._window.services, self._window.messages, parent)

    def _together(self, parent: QWidget) -> TogetherPage:
        from kvplanner.ui.compare.together import TogetherPage

        return TogetherPage(self._window.document, self._window.services, self.pins, parent)

    def _launch(self, parent: QWidget) -> Page:
        from kvplanner.ui.launch.view import LaunchView

        made = LaunchView(self._model_path, self._lacking, parent)
        made.copied.connect(lambda what: self._window.messages.brief(f"Copied {what}"))
        made.paste_wanted.connect(self._window.opening.paste_command)
        made.check_wanted.connect(lambda: self._ask_engine(made))
        return made

    def _lacking(self, plan: Plan) -> str:
        from kvplanner.observe.crosscheck import lacking

        return lacking(plan, self._model_path())

    def _ask_engine(self, page: LaunchView) -> None:
        """Run the engine's own program beside the window, and show its answer where the plan is still the same."""
        from kvplanner.app.jobs import error_text
        from kvplanner.observe.crosscheck import cross_check
        from kvplanner.report.crosscheck import lines

        window = self._window
        plan, path = window.document.plan, self._model_path()
        if plan is None:
            return

        def done(answer: Answer) -> None:
            page.show_asking(False)
            if window.document.plan is plan:
                page.show_answer("\n".join(lines(plan, answer, window.services.unit())))

        def failed(error: Exception) -> None:
            page.show_asking(False)
            page.show_answer(error_text(error))

        page.show_asking(True)
        window.services.jobs.submit(
            "Asking the engine", lambda control: cross_check(plan, path, cancelled=lambda: control.cancelled),
            done, failed, key="cross-check",
        )  # fmt: skip

    def _model_path(self) -> str:
        from kvplanner.source.resolve import local_path

        state = self._window.document.state
        return local_path(state.place, state.model) if state.model is not None else ""

    def _keep(self) -> None:
        """With the session: what is pinned now."""
        self._window.document.set_pinned(tuple(pin.state for pin in self.pins.kept))
        self._window.services.session.touch()

    def _bring_back(self) -> None:
        """Pin what the session had pinned, once it is planned anew."""
        states = self._window.document.pinned
        if states == tuple(pin.state for pin in self.pins.kept):
            return

        def work(control: object) -> tuple[Pin, ...]:
            return tuple(pin for state in states if (pin := planned_pin(state)) is not None)

        self._window.services.jobs.submit(
            "Planning what is pinned", work, self.pins.take, lambda error: None, key=f"pins {id(self)}"
        )

    def pin(self) -> None:
        """Keep the plan that is edited; says so, and why not."""
        window = self._window
        lacking = window.form.lacking_for("compare")
        plan = window.document.plan
        if lacking or plan is None:
            window.messages.warning(lacking or "Nothing is planned yet", key="pin")
            return
        window.messages.clear("pin")
        window.centre.show_tab(COMPARE)
        if self.pins.full:
            window.messages.warning("Three plans are pinned: remove one in the tab Compare first", key="pin")
        elif self.pins.add(window.document.state, plan):
            window.messages.brief("Pinned: what you change now is compared with it")
        else:
            window.messages.brief("This plan is pinned already")

    def go_back(self, at: int) -> None:
        """Make a pinned plan the edited one, in one step that can be undone."""
        state = self.pins.kept[at].state
        self._window.document.edit("Go back to a pinned plan", **state._asdict())
