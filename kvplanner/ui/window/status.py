"""The status bar: this machine, what can be undone, running jobs, the rules in force, and that nothing is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QMainWindow, QProgressBar

from kvplanner.app.jobs import Job, Jobs
from kvplanner.gpu.names import short_name
from kvplanner.ui.widgets.labels import Elided, quiet_button
from kvplanner.units import counted

if TYPE_CHECKING:
    from kvplanner.app.library import Library
    from kvplanner.engine.plan import Plan
    from kvplanner.gpu.spec import Machine

SHOW_AFTER_MS: Final = 500
QUIET_JOBS: Final = frozenset({"Saving the session", "Looking for GPUs"})


class Status(QObject):
    """Fills a window's status bar."""

    def __init__(self, window: QMainWindow, jobs: Jobs, library: Library) -> None:
        super().__init__(window)
        self._bar = bar = window.statusBar()
        bar.setSizeGripEnabled(False)
        self._jobs = jobs
        self.calm = False  # nothing moves by itself: the text alone says what runs
        self.machine, self.undo = Elided("", window), Elided("", window)
        self.lost = Elided("", window)
        self.lost.setProperty("role", "error")
        self.lost.setContentsMargins(8, 0, 8, 0)
        self.lost.hide()
        self.rules = Elided("not sent anywhere", window)
        self.rules.hint = "Planning happens on this computer. Only a model asked for as hub:org/name goes online."
        self._job_text = Elided("", window)
        self._progress = QProgressBar(window)
        self._progress.setFixedSize(120, 10)
        self._progress.setTextVisible(False)
        self._progress.setAccessibleName("Progress")
        self._cancel = quiet_button("Cancel", "Cancel what is running", window)
        self._cancel.clicked.connect(self._cancel_jobs)
        for label in (self.machine, self.undo, self.rules, self._job_text):
            label.setProperty("role", "muted")
            label.setContentsMargins(8, 0, 8, 0)
        for label in (self.machine, self.lost, self.undo):
            bar.addWidget(label)
        self.lost.hide()
        for widget in (self._job_text, self._progress, self._cancel, self.rules):
            bar.addPermanentWidget(widget)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SHOW_AFTER_MS)
        self._timer.timeout.connect(self._show_jobs)
        self._watched: set[Job] = set()
        self._jobs.active_changed.connect(self._jobs_changed)
        library.machine_found.connect(self.show_machine)
        if library.probed:
            self.show_machine(library.machine)
        self._hide_jobs()

    def show_machine(self, machine: Machine | None) -> None:
        """What NVML answered."""
        if machine is None:
            self.machine.setText("No NVIDIA GPU here")
        else:
            self.machine.setText(f"This machine: {short_name(machine.describe())}")
        # Else the next frame cuts the text at the width of the one before. (Not by way of the bar's layout: the bar
        # makes a new one now and then, and takes its Python object along when the old one goes.)
        QCoreApplication.sendPostedEvents(self._bar, QEvent.Type.LayoutRequest.value)

    def show_lost(self, text: str) -> None:
        """That planned GPUs no longer answer, "" once they do."""
        self.lost.setText(text)
        self.lost.setVisible(bool(text))

    def show_undo(self, count: int) -> None:
        """How many changes can be undone."""
        self.undo.setText(f"{counted(count, 'change', 'changes')} can be undone" if count else "")

    def show_plan(self, plan: Plan) -> None:
        """The rules that the plan follows."""
        from kvplanner.engine.registry import engine

        self.rules.setText(f"Rules: {engine(plan.request.engine).title} {plan.rules} · not sent anywhere")

    def show_failed(self, older: bool) -> None:
        """Nothing is planned; older: an older plan is in sight."""
        said = "The plan shown is an older one" if older else "Nothing is planned"
        self.rules.setText(f"{said} · not sent anywhere")

    def _wanted(self) -> list[Job]:
        return [job for job in self._jobs.active if job.title not in QUIET_JOBS]

    def _jobs_changed(self) -> None:
        if not self._wanted():
            self._timer.stop()
            self._hide_jobs()
        elif not self._timer.isActive() and self._job_text.isHidden():
            self._timer.start()

    def _show_jobs(self) -> None:
        wanted = self._wanted()
        if not wanted:
            return
        job = wanted[-1]
        if job not in self._watched:
            self._watched.add(job)
            job.progressed.connect(self._progressed)
            job.finished.connect(lambda: self._watched.discard(job))
        self._job_text.setText(f"{job.title}…")
        self._progress.setRange(0, 0)
        for widget in (self._job_text, self._cancel, *(() if self.calm else (self._progress,))):
            widget.show()

    def _progressed(self, share: float | None, text: str) -> None:
        if share is None:
            self._progress.setRange(0, 0)
        else:
            self._progress.setRange(0, 1000)
            self._progress.setValue(round(share * 1000))
        if text:
            self._job_text.setText(text)

    def _hide_jobs(self) -> None:
        for widget in (self._job_text, self._progress, self._cancel):
            widget.hide()

    def _cancel_jobs(self) -> None:
        for job in self._wanted():
            job.cancel()
        self._jobs_changed()
