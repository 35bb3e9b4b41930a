"""Which of a chooser's rows fit: planned by a worker while the chooser is open, kept until something else is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject, Signal

from kvplanner.app.jobs import Batches

if TYPE_CHECKING:
    from kvplanner.app.jobs import Job, JobControl, Jobs
    from kvplanner.app.state import PlanState
    from kvplanner.engine.request import Ask
    from kvplanner.model.model import Model

# A row's data and what its plan says.
Marked = tuple[str, str]
# Makes them for rows of these data, or for all where none are named.
Rows = Callable[[tuple[str, ...]], Iterator[Marked]]
FITTING: Final = ("fits", "may fit")
_BATCH: Final = 32
_REST: Final = 0.001  # after each row, so that the window's own thread comes first
_MOST_LOCAL: Final = 60


class Marks(QObject):
    """Marks by the data of rows: words of report.fits.VERDICTS. changed(): there are more of them."""

    changed = Signal()

    def __init__(self, jobs: Jobs, key: str, parent: QObject) -> None:
        super().__init__(parent)
        self._jobs = jobs
        self._key = key
        self._subject: object = None
        self._token: object = None
        self._asked: frozenset[str] = frozenset()
        self._job: Job | None = None
        self.found: dict[object, str] = {}
        self._batches = Batches(self._arrived)

    def begin(self, subject: object, rows: Rows, texts: tuple[str, ...] = ()) -> None:
        """Mark rows; nothing where those of this subject are known, or on the way. texts: only rows of these data."""
        if subject != self._subject:
            self.end()
            self.found, self._asked = {}, frozenset()
        elif not texts or all(text in self.found or text in self._asked for text in texts):
            return
        missing = tuple(text for text in texts if text not in self.found)
        self._subject, self._token, self._asked = subject, object(), frozenset(missing)
        token, batches = self._token, self._batches

        def work(control: JobControl) -> None:
            _fill(rows(missing), control, lambda batch: batches.found.emit(token, batch))

        self._job = self._jobs.submit("Which of them fit", work, self._done, self._failed, key=self._key)

    def end(self) -> None:
        """Nobody looks any more: what is not finished begins anew another time."""
        if self._job is not None:
            self._job.cancel()
            self._job, self._subject, self._token = None, None, None

    def _arrived(self, token: object, batch: list[Marked]) -> None:
        if token is self._token:
            self.found.update(batch)
            self.changed.emit()

    def _done(self, _: object) -> None:
        self._job = None

    def _failed(self, error: Exception) -> None:
        self._job = None
        raise error


def _fill(rows: Iterator[Marked], control: JobControl, send: Callable[[list[Marked]], None]) -> None:
    batch: list[Marked] = []
    for marked in rows:
        control.check()
        batch.append(marked)
        if len(batch) == _BATCH:
            send(batch)
            batch = []
        sleep(_REST)
    send(batch)


def of_models(state: PlanState, local: tuple[str, ...]) -> tuple[object, Rows] | None:
    """What the marks of models depend on, and how they are made; None without a machine. local: on this computer."""
    machine = state.machine
    if machine is None:
        return None
    ask = state.ask._replace(weight_format=None, measured={}, options={})

    def rows(_: tuple[str, ...]) -> Iterator[Marked]:
        from kvplanner.report.fits import verdict_of
        from kvplanner.solve.fits import models_on

        for text, model in _opened(local):
            yield from ((text, verdict_of(fit)) for fit in models_on(machine, ask, entries=(), also=(model,)))
        for fit in models_on(machine, ask):
            yield fit.model, verdict_of(fit)

    return (machine, ask.engine, ask.version, ask.load, local), rows


def _opened(local: tuple[str, ...]) -> Iterator[tuple[str, Model]]:
    from kvplanner.errors import PlannerError
    from kvplanner.source.resolve import open_model

    for text in local[:_MOST_LOCAL]:
        try:
            yield text, open_model(text)
        except (PlannerError, OSError):
            continue  # opening it says why


def of_machines(state: PlanState) -> tuple[object, Rows] | None:
    """The same for machines: the chosen model on each of them, as it is asked for but for how GPUs share it."""
    model = state.model
    if model is None:
        return None
    from kvplanner.solve.fits import on_any_machine

    ask = on_any_machine(state.ask)

    def rows(texts: tuple[str, ...]) -> Iterator[Marked]:
        for text in texts:
            yield text, _on(text, model, ask)

    return (id(model), ask.weight_format, ask.engine, ask.version, ask.load, tuple(ask.options.items())), rows


def _on(text: str, model: Model, ask: Ask) -> str:
    from kvplanner.catalog import gpus
    from kvplanner.errors import PlannerError
    from kvplanner.report.fits import verdict_of
    from kvplanner.solve.fits import Fit, planned

    try:
        request = ask.request(model, gpus.machine(text))
    except PlannerError as error:
        return verdict_of(Fit(model.id, "", text, refused=error.what))
    return verdict_of(planned(request, text))
