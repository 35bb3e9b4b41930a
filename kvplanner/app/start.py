"""What a window begins with: the arguments' plan, what was open before, or the start model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kvplanner.app.library import open_model
from kvplanner.app.session import OpenPlan
from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus, models
from kvplanner.engine.request import Ask
from kvplanner.gpu.spec import Device, Machine
from kvplanner.request.start import START_CONTEXTS, START_GPU, START_GPU_ID, START_MODEL, START_MODELS

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.request.words import Built, PlanWords


def first_state() -> PlanState:
    """What `start_state` makes of no words at all, without loading what reads words."""
    from kvplanner.engine.registry import names

    return PlanState(
        model_text=START_MODEL,
        model=models.load(START_MODEL),
        machine_text=f"1x{START_GPU_ID}",
        devices=(Device(0, gpus.gpu(START_GPU_ID)),),
        ask=Ask(names()[0]),
    )


def start_state(asked: PlanWords | None, local: Callable[[], Machine | None]) -> PlanState:
    """The state that plan arguments stand for; without a model the start model. Raises PlannerError."""
    if asked is None:
        return first_state()
    from kvplanner.request.named import LOCAL
    from kvplanner.request.words import Sources, build

    words = asked
    named = words if words.model or _names_model(words) else words._replace(model=START_MODEL)
    # Without words the window starts on an assumed GPU at once and asks NVML later.
    seen = local if named.gpu.strip().lower() == LOCAL else _nobody
    built = build(named, Sources(open_model, seen))
    return state_of(built, chosen=bool(words.gpu))


def _nobody() -> Machine | None:
    return None


def _names_model(words: PlanWords) -> bool:
    return any(not flag.startswith("-") for flag in words.flags)


def state_of(built: Built, *, chosen: bool) -> PlanState:
    """A request and its words as a document's state."""
    from kvplanner.request.named import LOCAL

    request = built.request
    machine = request.machine
    stated = {d.index: d.free_bytes for d in machine.devices if d.free_bytes is not None and d.free_source == "--free"}
    return PlanState(
        model_text=built.model,
        model=request.model,
        machine_text="" if built.machine == LOCAL else gpus.machine_words(machine) or built.machine or START_GPU,
        devices=machine.devices,
        machine_source=machine.source,
        machine_chosen=chosen,
        given_free=stated,
        ask=request.ask,
    )


def adopt(document: Document, machine: Machine | None) -> str:
    """Plan for this machine's GPUs while the user has chosen none: a better assumption than a GPU by name.

    Once they are planned for, only further GPUs change the plan: one that no longer answers stays in it, and what is
    free is what was free then, until the user takes what is free now. A server that starts must not turn its own plan.
    Returns what else of the start plan is another one for that, in a sentence, "" for nothing.
    """
    state = document.state
    if machine is None or state.machine_chosen or state.model is None:
        return ""
    from kvplanner.app.planstore import here, is_local

    planned = {device.uuid for device in state.devices}
    if is_local(state) and not {device.uuid for device in machine.devices} > planned:
        return ""
    if state.model_text == START_MODEL and not state.ask.options and not document.undo_count:
        made = fitting(here(state, machine))
        document.amend(**made._asdict())
        if made.ask.options:
            name = made.model.id.rpartition("/")[2] if made.model else ""
            length = next(iter(made.ask.options.values()))
            return f"Begun with {name} and a context of {length:,}, which fit this machine"
        return "" if made.model_text == START_MODEL else f"Begun with {made.model_text}, which fits this machine"
    document.amend(**here(state, machine)._asdict())
    return ""


def fitting(state: PlanState) -> PlanState:
    """A start plan that works on the state's machine: shorter contexts first, then smaller models.

    The state itself where it works, or where nothing does: no first sight of this machine is to be a failure that
    nobody caused.
    """
    from kvplanner.engine.command import role_option
    from kvplanner.engine.registry import engine
    from kvplanner.errors import PlannerError

    chosen = engine(state.ask.engine)
    context = role_option(chosen, state.ask.version, "context")
    lengths = START_CONTEXTS if context is not None else ()
    for name, length in ((name, length) for name in START_MODELS for length in (None, *lengths)):
        options = {context.name: length} if context is not None and length is not None else {}
        tried = state.changed(model_text=name, model=models.load(name), options=options)
        request = tried.request()
        try:
            if request is not None and chosen.plan(request).fits:
                return tried
        except PlannerError:
            continue
    return state


def restored_pins(plan: OpenPlan, local: Callable[[], Machine | None]) -> tuple[PlanState, ...]:
    """The states that a plan of the session was compared with; those that cannot be read any more are left out."""
    from kvplanner.app.planstore import from_session
    from kvplanner.errors import PlannerError

    found = []
    for document in plan.pinned:
        with suppress(PlannerError):
            found.append(from_session(document, "last session", local))
    return tuple(found)


def restored_state(plan: OpenPlan, local: Callable[[], Machine | None]) -> PlanState:
    """The state of a plan of the session; local: this machine, asked for only where the plan is for it.

    Raises PlannerError.
    """
    from kvplanner.app.planstore import from_session

    return from_session(plan.plan, plan.path or "last session", local)
