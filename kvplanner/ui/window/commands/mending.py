"""What can be done at once about settings that have no plan, as buttons beside the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kvplanner.errors import NotModelled, PlannerError, UnknownName
from kvplanner.record import NamedTuple
from kvplanner.report.options import in_sentence

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.setup.pickers import Pickers
    from kvplanner.ui.window.centre import Centre

MOST: Final = 3
_NEAR: Final = 2


class Fix(NamedTuple):
    """A button: its text, what it does, and what it is for in a sentence."""

    text: str
    run: Callable[[], object]
    tip: str


class Mending:
    """Keeps the last good plan in sight, pale, with the reason why there is no other and what can be done.

    panel, pickers: None until the form is made.
    """

    def __init__(self, document: Document, centre: Centre) -> None:
        self._document = document
        self._centre = centre
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

    def show(self) -> None:
        """Say whether the plan in sight is of what the form shows."""
        from kvplanner.app.messages import in_window

        error, centre = self._document.error, self._centre
        field, said = self.panel.refused if self.panel is not None else ("", "")
        if error is not None:
            centre.set_stale(error.brief, in_window(error.remedy), self._another())
        else:
            centre.set_stale(f"{in_sentence(field)} is refused" if field else None, said)
        centre.set_actions([(fix.text, fix.tip, fix.run) for fix in self._fixes(field)])

    def _another(self) -> str:
        """The model of the plan in sight, "" where it is the one that is chosen."""
        plan, model = self._document.plan, self._document.state.model
        if plan is None or model is None or plan.request.model.id == model.id:
            return ""
        return plan.request.model.id.rsplit("/", 1)[-1]

    def _fixes(self, refused: str) -> tuple[Fix, ...]:
        if self.panel is None or self.pickers is None:
            return ()
        if self._document.error is not None:
            return fixes(self._document.error, self._document, self.panel, self.pickers)
        return (Fix("Show the field", self.panel.go_to_refused, "Go to what is refused"),) if refused else ()


def fixes(error: PlannerError, document: Document, panel: SetupPanel, pickers: Pickers) -> tuple[Fix, ...]:
    """The nearest ways back to a plan, the best one first, a few at most."""
    found = [*_values(error, document, panel), *_places(error, document, panel, pickers)]
    if document.undo_label:
        found.append(Fix(f"Undo {in_sentence(document.undo_label)}", document.undo, "Take the last change back"))
    return tuple(found[:MOST])


def _values(error: PlannerError, document: Document, panel: SetupPanel) -> list[Fix]:
    """Another value of the option at fault, or its default."""
    option = panel.option_at(error.where)
    if option is None or option.name not in document.state.ask.options:
        return []
    name, label = option.name, panel.label_of(option)
    near = error.near if isinstance(error, UnknownName) else ()
    offered = [value for value in near if not option.choices or value in option.choices]
    return [
        *(
            Fix(f"Use {value}", partial(document.set_option, name, value), f"{label}: {value}")
            for value in offered[:_NEAR]
        ),
        Fix(f"Reset {in_sentence(label)}", lambda: document.set_option(name, None), f"{label}: back to its default"),
    ]


def _places(error: PlannerError, document: Document, panel: SetupPanel, pickers: Pickers) -> list[Fix]:
    """What else of the plan can be given back or chosen anew."""
    ask = document.state.ask
    found: list[Fix] = []
    if error.where == "--engine-version" and ask.version is not None:
        found.append(
            Fix("Use the newest release", lambda: document.edit("Change engine version", version=None), "Of the engine")
        )
    if ask.weight_format is not None and (error.where == "--weight-format" or isinstance(error, NotModelled)):
        stored = Fix(
            "Weights as stored", lambda: document.edit("Weights as stored", weight_format=None), "Without the what-if"
        )
        found.append(stored)
    place = panel.place_of(error.where)
    if place is panel.gpus:
        found.append(Fix("Choose GPUs…", pickers.open_gpus, "Open the chooser of GPUs"))
    elif place is panel.model or isinstance(error, NotModelled):
        found.append(Fix("Choose another model…", pickers.open_models, "Open the chooser of models"))
    elif place is not None:
        found.append(Fix("Show the field", lambda: panel.go_to(error.where), "Go to what is refused"))
    return found
