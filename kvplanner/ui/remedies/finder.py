"""Looks for remedies of the document's plan on a thread, once edits pause; a newer plan ends the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject, QTimer, Signal

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.jobs import JobControl, Jobs
    from kvplanner.app.state import PlanState
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.remedies import Remedy

PAUSE_MS: Final = 250
KEY: Final = "remedies"


def search(request: PlanRequest, plan: Plan, control: JobControl) -> tuple[Remedy, ...]:
    """All remedies, ranked; between two of them the job may end."""
    from kvplanner.solve.others import others_with
    from kvplanner.solve.ranking import ranked
    from kvplanner.solve.remedies import found
    from kvplanner.source.stores.sisters import on_this_machine

    made = []
    for remedy in found(request, plan, others_with(on_this_machine)):
        control.check()
        made.append(remedy)
    return ranked(tuple(made))


class RemedyFinder(QObject):
    """changed(): `remedies` are others; they are those of `plan`, None while they are not known.

    refused: what is set has no plan.
    """

    changed = Signal()

    def __init__(self, document: Document, jobs: Jobs, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self._jobs = jobs
        self._state: PlanState | None = None
        self.plan: Plan | None = None
        self.remedies: tuple[Remedy, ...] | None = None
        self.refused = document.error is not None
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._start)
        document.planned.connect(self._planned)
        document.failed.connect(self._gone)
        if document.plan is not None and document.error is None:
            self._planned(document.plan)

    def _planned(self, plan: Plan) -> None:
        self.plan = plan
        self._forget(refused=False)
        self._pause.start()

    def _gone(self, _error: object) -> None:
        self.plan = None
        self._pause.stop()
        self._forget(refused=True)

    def _forget(self, *, refused: bool) -> None:
        known = self.remedies is not None or refused != self.refused
        self.remedies, self.refused = None, refused
        if known:
            self.changed.emit()

    def _start(self) -> None:
        self._document.flush()  # what was edited this very turn has a plan of its own, which begins anew
        plan, state = self.plan, self._document.state
        request = self._document.known_request()
        if plan is None or request is None or plan.fits is None or self._pause.isActive() or self._document.waiting:
            return
        self._state = state

        def done(remedies: tuple[Remedy, ...]) -> None:
            if self.plan is plan:
                self.remedies = remedies
                self.changed.emit()

        self._jobs.submit(
            "Looking for ways to change the plan",
            lambda control: search(request, plan, control),
            done,
            _failed,
            key=KEY,
        )

    def apply(self, remedy: Remedy) -> None:
        """Make a remedy the plan, in one step that undo takes back; nothing where the state is another by now."""
        if self.remedies is None or remedy not in self.remedies or self._document.state is not self._state:
            return
        from kvplanner.report.remedies import title
        from kvplanner.ui.remedies.applying import fields_of

        self._document.seal()
        self._document.edit(title(remedy), **fields_of(self._document.state, remedy))

    def stop(self) -> None:
        """No search begins any more."""
        self._pause.stop()


def _failed(error: Exception) -> None:
    raise error
