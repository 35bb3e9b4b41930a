"""Document: one plan being edited, with undo, and the engine's answer to it.

Edits replace the frozen state; planning follows once per turn of the event loop, so that a slider drag never
queues work. A plan that fails leaves the last good one in place and carries the error beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

from kvplanner.app.history import History
from kvplanner.app.state import PlanState
from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from kvplanner.app.runs import Runs
    from kvplanner.engine.draft import DraftWish
    from kvplanner.engine.option import Option, OptionValue
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.request import Calibration, PlanRequest
    from kvplanner.model.model import Model


class Document(QObject):
    """Signals carry objects, since byte counts do not fit Qt's integers.

    changed(PlanState): the state is another one. planned(Plan): the plan of that state.
    failed(PlannerError): the state has no plan; `plan` still holds the last good one.
    history_changed(): undo, redo or the saved mark moved.
    draft_wanted(DraftWish): planning waits until `give_draft` answers that wish.
    pinned_changed(): other states are compared with this one.
    """

    changed = Signal(object)
    planned = Signal(object)
    failed = Signal(object)
    history_changed = Signal()
    draft_wanted = Signal(object)
    pinned_changed = Signal()

    def __init__(self, parent: QObject | None = None, state: PlanState | None = None) -> None:
        super().__init__(parent)
        self._history: History[PlanState] = History(state or PlanState())
        self.path: Path | None = None
        self.pinned: tuple[PlanState, ...] = ()
        self.plan: Plan | None = None
        self.error: PlannerError | None = None
        self.waiting = False  # for the draft model that the state names
        self.calibration: tuple[Calibration, ...] = ()
        self._runs: Runs | None = None
        self._planned_state: PlanState | None = None
        self._draft: tuple[DraftWish, Model | PlannerError | None] | None = None
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(0)
        self._turn.timeout.connect(self.flush)

    # state -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> PlanState:
        """What the user has set."""
        return self._history.value

    @property
    def title(self) -> str:
        """The file's name, or what is planned."""
        if self.path is not None:
            return self.path.name.removesuffix(".json").removesuffix(".kvplan")
        model = self.state.model
        return model.id.rsplit("/", 1)[-1] if model else "New plan"

    @property
    def modified(self) -> bool:
        """Whether there are edits that no file holds."""
        return not self._history.clean

    @property
    def undo_label(self) -> str:
        """What undo takes back, "" for nothing."""
        return self._history.undo_label

    @property
    def redo_label(self) -> str:
        """What redo brings back, "" for nothing."""
        return self._history.redo_label

    @property
    def undo_count(self) -> int:
        """Edits that can be undone."""
        return self._history.undo_count

    def options(self) -> tuple[Option, ...]:
        """The engine's options at the chosen version; the newest one's where it is no version, which the plan says."""
        from kvplanner.engine.command import declared
        from kvplanner.engine.registry import engine

        return declared(engine(self.state.ask.engine), self.state.ask.version)

    def set_pinned(self, states: tuple[PlanState, ...]) -> None:
        """The states that this one is compared with: no edit, and kept with the session."""
        if states != self.pinned:
            self.pinned = states
            self.pinned_changed.emit()

    # edits -----------------------------------------------------------------------------------------------------

    def edit(self, label: str, *, key: str = "", **fields: Any) -> None:
        """Make one undoable edit of the state's fields or its ask's; nothing happens when they have these values.

        key: consecutive edits with the same key become one entry, until `seal`.
        """
        state = self.state.changed(**fields)
        if state == self.state:
            return
        self._history.push(state, label, key)
        self._announce()

    def amend(self, **fields: Any) -> None:
        """Replace fields without an undoable edit: facts that arrived by themselves."""
        state = self.state.changed(**fields)
        if state != self.state:
            self._history.amend(state)
            self._announce()

    def set_option(
        self, name: str, value: OptionValue | None, *, label: str = "", key: str = "",
        beside: Iterable[tuple[str, OptionValue]] = (),
    ) -> None:  # fmt: skip
        """Set an engine option, or give it back to its default with None.

        Those that would hide what is set go with it. beside: further ones, of which those that are not set are set.
        """
        hiding = next((o.clears for o in self.options() if o.name == name), ()) if value is not None else ()
        options = {k: v for k, v in self.state.ask.options.items() if k not in (name, *hiding)}
        if value is not None:
            options = {**dict(beside), **options, name: value}
        verb = "Reset" if value is None else "Change"
        self.edit(label or f"{verb} {self._called(name)}", key=key, options=options)

    def _called(self, name: str) -> str:
        """An option as the form calls it, within a sentence."""
        from kvplanner.report.options import in_sentence, option_label

        option = next((option for option in self.options() if option.name == name), None)
        return in_sentence(option_label(option)) if option is not None else name

    def set_options(self, options: Mapping[str, OptionValue], label: str) -> None:
        """Replace all options that the user set."""
        self.edit(label, options=dict(options))

    def set_model(self, text: str, model: Model, *, engine: str = "") -> None:
        """Choose a model. A what-if weight format belongs to the model before it and goes.

        engine: to plan it with, where the one at hand does not load it.
        """
        other = engine and engine != self.state.ask.engine
        fields: dict[str, Any] = {"engine": engine, "version": None} if other else {}
        self.edit(f"Choose {model.id.rsplit('/', 1)[-1]}", model_text=text, model=model, weight_format=None, **fields)

    def seal(self) -> None:
        """End a run of merged edits (the slider was let go)."""
        self._history.seal()

    def undo(self) -> None:
        """Take the last edit back."""
        if self._history.undo():
            self._announce()

    def redo(self) -> None:
        """Bring the last undone edit back."""
        if self._history.redo():
            self._announce()

    def mark_saved(self, path: Path) -> None:
        """The state now lies in a file."""
        self.path = path
        self._history.mark_clean()
        self.history_changed.emit()

    def reset(self, state: PlanState, path: Path | None = None, *, modified: bool = False) -> None:
        """Start again from a state, with nothing to undo."""
        self.path = path
        self._history.reset(state)
        if modified:
            self._history.mark_dirty()
        self._announce()

    def _announce(self) -> None:
        self.changed.emit(self.state)
        self.history_changed.emit()
        if not self._turn.isActive():
            self._turn.start()

    # planning --------------------------------------------------------------------------------------------------

    def request(self) -> PlanRequest | None:
        """What is planned now: the state's request, with what runs measured. None while something is missing."""
        request = self.state.request()
        return request._replace(calibration=self.calibration) if request and self.calibration else request

    def follow(self, runs: Runs) -> None:
        """Plan with what other runs measured, now and whenever others are kept: no edit of this plan."""
        self._runs, self.calibration = runs, runs.in_use()
        runs.changed.connect(self._calibrate)

    def _calibrate(self) -> None:
        calibration = self._runs.in_use() if self._runs is not None else ()
        if calibration != self.calibration:
            self.calibration, self._planned_state = calibration, None
            if self.plan is not None or self.error is not None:
                self.flush()

    def flush(self) -> None:
        """Plan the current state now, if that has not been done."""
        self._turn.stop()
        state = self.state
        if state is self._planned_state:
            return
        self._planned_state = state
        self.waiting = False
        request = self.request()
        if request is None:
            return
        from kvplanner.engine.registry import engine

        try:
            whole = self._with_draft(request)
            if whole is None:
                self.waiting = True
                return
            plan = engine(state.ask.engine).plan(whole)
        except PlannerError as error:
            self._fail(error)
            return
        except Exception:
            # A defect of ours: the plan that shows is not of these settings, and the report says the rest.
            self._fail(PlannerError("the planner failed on these settings", "", "Undo the last change"))
            raise
        self.error = None
        self.plan = plan
        self.planned.emit(plan)

    def _with_draft(self, request: PlanRequest) -> PlanRequest | None:
        """The request with the draft model that it names; None while that is read. Raises PlannerError."""
        from kvplanner.engine.registry import engine

        wish = engine(request.engine).draft_wanted(request.options) if request.options else None
        if wish is None:
            return request
        if self._draft is None or self._draft[0] != wish:
            self.draft_wanted.emit(wish)
            return None
        found = self._draft[1]
        if isinstance(found, PlannerError):
            raise found
        return request._replace(draft=found)

    def known_request(self) -> PlanRequest | None:
        """What is planned now, with the draft model that it names as far as that is read."""
        from kvplanner.engine.registry import engine

        request = self.request()
        if request is None or self._draft is None or not isinstance(found := self._draft[1], tuple):
            return request
        try:
            wish = engine(request.engine).draft_wanted(request.options)
        except PlannerError:
            return request
        return request._replace(draft=found) if wish == self._draft[0] else request

    def give_draft(self, wish: DraftWish, found: Model | PlannerError | None) -> None:
        """The draft model that was wished for, why it cannot be had, or None where the plan goes without it."""
        self._draft = wish, found
        self._planned_state = None
        self.flush()

    def _fail(self, error: PlannerError) -> None:
        self.error = error
        self.failed.emit(error)

    def stop(self) -> None:
        """Stop the timer: the first step of shutting down."""
        self._turn.stop()
