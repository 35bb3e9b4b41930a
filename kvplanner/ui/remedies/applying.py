"""What changes of a request change of a document's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvplanner.solve.change import ENGINE, GPUS, MODEL, RELEASE, WEIGHT_FORMAT

if TYPE_CHECKING:
    from kvplanner.app.state import PlanState
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.mends import Mend
    from kvplanner.solve.remedies import Remedy
    from kvplanner.solve.solver import Solved


def fields_of(state: PlanState, made: Remedy | Mend | Solved) -> dict[str, Any]:
    """The fields to edit, all at once: options, and model, format, machine, load or release where those are others."""
    request = made.request
    assert request is not None
    fields: dict[str, Any] = {"options": dict(request.options)}
    if request.load != state.ask.load:
        fields["load"] = request.load
    named = {change.option: change.value for change in made.changes}
    if ENGINE in named or RELEASE in named:
        fields |= {"engine": request.engine, "version": request.version}
    if WEIGHT_FORMAT in named:
        fields["weight_format"] = request.weight_format
    if MODEL in named:
        fields |= {"model": request.model, "model_text": str(named[MODEL]), "weight_format": request.weight_format}
    if GPUS in named:
        fields |= {
            "devices": request.machine.devices,
            "machine_text": str(named[GPUS]),
            "machine_source": request.machine.source,
            "machine_chosen": True,
            "unticked": frozenset(),
            "given_free": {},
        }
    return fields


def whole_fields(request: PlanRequest, text: str) -> dict[str, Any]:
    """The fields that make a state plan a request, whatever it plans now, but for its load. text: names the model."""
    from kvplanner.app.planstore import LOCAL
    from kvplanner.catalog import gpus

    machine = request.machine
    words = "" if machine.source == LOCAL else gpus.machine_words(machine)
    fields: dict[str, Any] = {
        "model": request.model, "model_text": text, "engine": request.engine, "version": request.version,
        "options": dict(request.options), "weight_format": request.weight_format, "measured": dict(request.measured),
        "devices": machine.devices, "machine_text": words, "machine_source": machine.source,
        "machine_chosen": True, "unticked": frozenset(), "given_free": {},
    }  # fmt: skip
    return fields if request.load is None else fields | {"load": request.load}
