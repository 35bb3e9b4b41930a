"""Between a document's state and a plan file.

A plan file names models and machines in words, so that it stays valid when catalogues grow; devices that were
switched off are kept beside it, in a field that other readers pass over. A session also keeps there that the machine
was this very one, or merely assumed: a plan file goes to other computers, a session does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kvplanner.app.library import open_model
from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine
from kvplanner.errors import PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.request import planfile
from kvplanner.request.planfile import PlanFile

WINDOW_FIELD: Final = "window"
LOCAL: Final = "this machine"
_OURS: Final = ("machine", "unticked", "free_bytes", "source", "chosen", "uuids", "stated_free", "model_place")


def to_planfile(state: PlanState) -> PlanFile:
    """What to store for a state; its devices are counted anew, as `machine` names only those in use."""
    used = state.machine
    devices = used.devices if used else ()
    free = {at: d.free_bytes for at, d in enumerate(devices) if d.free_bytes is not None}
    unknown: dict[str, object] = dict(state.extra)
    kept = unknown.pop(WINDOW_FIELD, None)
    more = {k: v for k, v in kept.items() if k not in _OURS} if isinstance(kept, Mapping) else {}
    if more:
        unknown[WINDOW_FIELD] = more
    if state.unticked:
        everything = Machine(state.devices)
        unknown[WINDOW_FIELD] = more | {
            "machine": gpus.machine_words(everything),
            "unticked": sorted(state.unticked),
            "free_bytes": {str(d.index): d.free_bytes for d in _with_free(state) if d.free_bytes is not None},
        }
    return PlanFile(
        state.model_text,
        gpus.machine_words(used) if used else "",
        state.ask,
        free,
        unknown,
    )


def _with_free(state: PlanState) -> tuple[Any, ...]:
    machine = state._replace(unticked=frozenset()).machine
    return machine.devices if machine else ()


def to_state(file: PlanFile, *, allow_network: bool = False, place: str = "") -> PlanState:
    """The state that a plan file stands for. Reads the model, from a place on this machine where that is known: for a
    background job. Raises PlannerError.
    """
    engine(file.ask.engine)
    model = open_model(place or file.model, allow_network=allow_network)
    model = placed(model) if place else model
    machine, unticked, free = gpus.machine(file.machine), frozenset[int](), dict(file.free)
    kept = file.unknown.get(WINDOW_FIELD)
    if isinstance(kept, Mapping):
        machine, unticked, free = _switched_off(kept, machine, free)
    known = {device.index for device in machine.devices}
    text = file.machine if file.machine == gpus.machine_words(machine) else gpus.machine_words(machine)
    return PlanState(
        model_text=file.model,
        model=model,
        machine_text=text,
        devices=machine.devices,
        unticked=unticked,
        machine_source=machine.source,
        machine_chosen=True,
        given_free={index: size for index, size in free.items() if index in known},
        ask=file.ask,
        extra=dict(file.unknown),
        model_place=place,
    )


def placed(model: Model) -> Model:
    """A model whose place nobody but a log named: what is made of its plan does not tell it."""
    from kvplanner.diagnose.privacy import public_name

    return model._replace(id=public_name(model.id), source_detail=public_name(model.source_detail))


def _switched_off(
    kept: Mapping[str, Any], machine: Machine, free: dict[int, int]
) -> tuple[Machine, frozenset[int], dict[int, int]]:
    """All devices and those switched off, where the field holds them; else what the file says by itself."""
    words, indices, given = kept.get("machine"), kept.get("unticked"), kept.get("free_bytes", {})
    if not isinstance(words, str) or not isinstance(indices, list) or not isinstance(given, dict):
        return machine, frozenset(), free
    try:
        everything = gpus.machine(words)
    except PlannerError:
        return machine, frozenset(), free
    unticked = frozenset(i for i in indices if isinstance(i, int) and 0 <= i < len(everything.devices))
    sizes = _sizes(given)
    if len(everything.devices) - len(unticked) != len(machine.devices):
        return machine, frozenset(), free
    return everything, unticked, sizes


def to_session(state: PlanState) -> dict[str, object]:
    """What the session stores: the plan file's document, and how its machine came about."""
    document = planfile.to_json(to_planfile(state))
    kept = document.get(WINDOW_FIELD)
    window: dict[str, object] = dict(kept) if isinstance(kept, Mapping) else {}
    window |= {"source": state.machine_source, "chosen": state.machine_chosen}
    if state.model_place:
        window["model_place"] = state.model_place
    if is_local(state):
        window["uuids"] = [device.uuid for device in state.devices]
        window["stated_free"] = {str(index): size for index, size in state.given_free.items()}
    return document | {WINDOW_FIELD: window}


def from_session(document: Mapping[str, Any], where: str, local: Callable[[], Machine | None]) -> PlanState:
    """The state that `to_session` stored; a plan for this machine is for its GPUs as they are now.

    Without GPUs here such a plan is for the same ones of the catalogue. Reads the model, and asks for the GPUs where
    they matter: for a background job. Raises PlannerError.
    """
    window = document.get(WINDOW_FIELD)
    place = window.get("model_place") if isinstance(window, Mapping) else ""
    state = to_state(planfile.from_json(dict(document), where), place=place if isinstance(place, str) else "")
    if not isinstance(window, Mapping):
        return state
    state = state._replace(machine_chosen=window.get("chosen") is not False)
    if window.get("source") != LOCAL:
        return state
    machine = local()
    if machine is None:
        return state
    uuids, stated = window.get("uuids"), window.get("stated_free")
    then = uuids if isinstance(uuids, list) else []
    given = stated if isinstance(stated, Mapping) else {}
    sizes = _sizes(given)
    before = tuple(d._replace(uuid=str(u)) for d, u in zip(state.devices, then, strict=False))
    return here(state._replace(devices=before or state.devices, given_free=sizes), machine)


def is_local(state: PlanState) -> bool:
    """Whether a state is for this machine's GPUs."""
    return state.machine_source == LOCAL


def was_local(document: Mapping[str, Any]) -> bool:
    """Whether a session's document was of a plan for this machine's GPUs."""
    window = document.get(WINDOW_FIELD)
    return isinstance(window, Mapping) and window.get("source") == LOCAL


def here(state: PlanState, machine: Machine) -> PlanState:
    """The state on this machine as it is now: what was left out or stated of a GPU stays with that GPU."""
    index = {device.uuid: device.index for device in machine.devices if device.uuid}
    now = {device.index: index[device.uuid] for device in state.devices if device.uuid in index}
    unticked = frozenset(now[i] for i in state.unticked if i in now)
    return state._replace(
        machine_text="",
        devices=machine.devices,
        machine_source=machine.source,
        unticked=unticked if len(unticked) < len(machine.devices) else frozenset(),
        given_free={now[i]: size for i, size in state.given_free.items() if i in now},
    )


def save(path: Path, state: PlanState) -> None:
    """Write a plan file, whole or not at all. Raises BadInput."""
    planfile.save(path, to_planfile(state))


def read(path: Path, *, allow_network: bool = False) -> PlanState:
    """Read a plan file and its model: for a background job. Raises PlannerError.

    allow_network: the user said that the Hub may be asked for a model that the file names so.
    """
    return to_state(planfile.load(path), allow_network=allow_network)


def notes(path: Path) -> tuple[str, ...]:
    """What a plan file says that is not planned with. Raises PlannerError."""
    return planfile.notes(planfile.load(path))


def _sizes(given: Mapping[Any, object]) -> dict[int, int]:
    """Bytes by the number of a GPU, of what a file says; what is neither is left out."""
    return {int(k): v for k, v in given.items()
            if str(k).isdecimal() and len(str(k)) <= _MOST_DIGITS and isinstance(v, int) and v >= 0}  # fmt: skip


_MOST_DIGITS: Final = 6
