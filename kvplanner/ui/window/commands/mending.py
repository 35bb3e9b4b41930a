"""What can be done at once about settings that have no plan, as buttons beside the reason."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject, Signal

from kvplanner.errors import NotModelled, PlannerError, UnknownName
from kvplanner.report.options import in_sentence
from kvplanner.ui.remedies.back import Back
from kvplanner.ui.verdict.offer import Offer

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.jobs import JobControl
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.mends import Mend
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.setup.pickers import Pickers
    from kvplanner.ui.window.centre import Centre
    from kvplanner.ui.window.services import Services

MOST: Final = 3
KEY: Final = "ways back"
_NEAR: Final = 2


class Mending(QObject):
    """Keeps the last good plan in sight, pale, with the reason why there is no other and what can be done.

    What can be done at a glance is there at once; changes that give a plan are looked for on a thread, and take their
    place as they are found. panel, pickers: None until the form is made. changed(said, ways): they are others.
    """

    changed = Signal(str, object)

    def __init__(self, document: Document, centre: Centre, services: Services, parent: QObject) -> None:
        super().__init__(parent)
        self.said = ""  # why there is no plan, and what to do
        self.ways: tuple[Back, ...] = ()
        self._document = document
        self._centre = centre
        self._services = services
        self._mends: tuple[PlannerError, tuple[Mend, ...]] | None = None  # of an error, once they are known
        self.panel: SetupPanel | None = None
        self.pickers: Pickers | None = None

    def failed(self, error: PlannerError) -> None:
        """Of what is set there is no plan."""
        from kvplanner.app.messages import in_window

        plan = self._document.plan
        if plan is None:
            self._centre.set_problem(error.brief, in_window(error.remedy))
        elif self._centre.plan is None:
            self._centre.set_plan(plan)
        self.show()
        self._look(error)

    def _look(self, error: PlannerError) -> None:
        """Look for changes that give a plan."""
        request = self._document.known_request()
        if request is None:
            return

        def done(found: tuple[Mend, ...]) -> None:
            if self._document.error is error:
                self._mends = error, found
                self.show()

        self._services.jobs.submit(
            "Looking for ways back to a plan", lambda control: _search(request, error, control), done, _failed, key=KEY
        )

    def show(self) -> None:
        """Say whether the plan in sight is of what the form shows."""
        from kvplanner.app.messages import in_window
        from kvplanner.report.verdict import no_plan

        error, centre = self._document.error, self._centre
        field, said = self.panel.refused if self.panel is not None else ("", "")
        if error is not None:
            centre.set_stale(error.brief, in_window(error.remedy), self._another())
        else:
            centre.set_stale(f"{in_sentence(field)} is refused" if field else None, said)
        self.ways = self._fixes(field)
        centre.set_actions([Offer(way.text, way.tip, way.run) for way in self.ways])
        self.said = (
            ". ".join(filter(None, (no_plan(error.brief), in_window(error.remedy)))) if error is not None else ""
        )
        self.changed.emit(self.said, self.ways)

    def _fix(self, mend: Mend) -> Back:
        from kvplanner.report.mends import button, sentence

        return Back(button(mend), partial(self._apply, mend), sentence(mend, self._services.unit()))

    def _apply(self, mend: Mend) -> None:
        """Make it the plan, in one step that undo takes back."""
        from kvplanner.report.mends import button
        from kvplanner.ui.remedies.applying import fields_of

        self._document.seal()
        self._document.edit(button(mend), **fields_of(self._document.state, mend))

    def _another(self) -> str:
        """The model of the plan in sight, "" where it is the one that is chosen."""
        plan, model = self._document.plan, self._document.state.model
        if plan is None or model is None or plan.request.model.id == model.id:
            return ""
        return plan.request.model.id.rsplit("/", 1)[-1]

    def _fixes(self, refused: str) -> tuple[Back, ...]:
        if self.panel is None or self.pickers is None:
            return ()
        error = self._document.error
        if error is not None:
            mends = self._mends[1] if self._mends is not None and self._mends[0] is error else ()
            made = tuple(self._fix(mend) for mend in mends)
            return fixes(error, self._document, self.panel, self.pickers, made)
        return (Back("Show the field", self.panel.go_to_refused, "Go to what is refused"),) if refused else ()


def fixes(
    error: PlannerError, document: Document, panel: SetupPanel, pickers: Pickers, mends: tuple[Back, ...] = ()
) -> tuple[Back, ...]:
    """The nearest ways back to a plan, the best one first, a few at most. mends: changes that are known to give one."""
    found = [*mends] if mends else [*_values(error, document, panel), *_places(error, document, panel, pickers)]
    undo = Back(f"Undo {in_sentence(document.undo_label)}", document.undo, "Take the last change back")
    undos = [undo] if document.undo_label else []
    if mends:
        return (*found[: MOST - len(undos)], *undos)
    return tuple([*found, *undos][:MOST])


def _search(request: PlanRequest, error: PlannerError, control: JobControl) -> tuple[Mend, ...]:
    """The nearest few that give a plan, those that fit first."""
    from kvplanner.solve.mends import mends

    found = []
    for mend in mends(request, error):
        control.check()
        found.append(mend)
        if len(found) > MOST:
            break
    return tuple(sorted(found, key=lambda mend: not mend.plan.fits)[:MOST])


def _failed(error: Exception) -> None:
    raise error


def _values(error: PlannerError, document: Document, panel: SetupPanel) -> list[Back]:
    """Another value of the option at fault, or its default."""
    option = panel.option_at(error.where)
    if option is None or option.name not in document.state.ask.options:
        return []
    name, label = option.name, panel.label_of(option)
    near = error.near if isinstance(error, UnknownName) else ()
    offered = [value for value in near if not option.choices or value in option.choices]
    return [
        *(
            Back(f"Use {value}", partial(document.set_option, name, value), f"{label}: {value}")
            for value in offered[:_NEAR]
        ),
        Back(f"Reset {in_sentence(label)}", lambda: document.set_option(name, None), f"{label}: back to its default"),
    ]


def _places(error: PlannerError, document: Document, panel: SetupPanel, pickers: Pickers) -> list[Back]:
    """What else of the plan can be given back or chosen anew."""
    ask = document.state.ask
    found: list[Back] = []
    if error.where == "--engine-version" and ask.version is not None:
        found.append(
            Back(
                "Use the newest release", lambda: document.edit("Change engine version", version=None), "Of the engine"
            )
        )
    if ask.weight_format is not None and (error.where == "--weight-format" or isinstance(error, NotModelled)):
        stored = Back(
            "Weights as stored", lambda: document.edit("Weights as stored", weight_format=None), "Without the what-if"
        )
        found.append(stored)
    place = panel.place_of(error.where)
    if place is panel.gpus:
        found.append(Back("Choose GPUs…", pickers.open_gpus, "Open the chooser of GPUs"))
    elif place is panel.model or isinstance(error, NotModelled):
        found.append(Back("Choose another model…", pickers.open_models, "Open the chooser of models"))
    elif place is not None:
        found.append(Back("Show the field", lambda: panel.go_to(error.where), "Go to what is refused"))
    return found
