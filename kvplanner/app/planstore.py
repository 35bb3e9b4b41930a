"""Between a document's state and a plan file.

A plan file names models and machines in words, so that it stays valid when catalogues grow; devices that were
switched off are kept beside it, in a field that other readers pass over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplanner.app.library import open_model
from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus
from kvplanner.errors import PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.plan import planfile
from kvplanner.plan.planfile import PlanFile

WINDOW_FIELD: Final = "window"


def to_planfile(state: PlanState) -> PlanFile:
    """What to store for a state; its devices are counted anew, as `machine` names only those in use."""
    used = state.machine
    devices = used.devices if used else ()
    free = {at: d.free_bytes for at, d in enumerate(devices) if d.free_bytes is not None}
    unknown: dict[str, object] = dict(state.extra)
    unknown.pop(WINDOW_FIELD, None)
    if state.unticked:
        everything = Machine(state.devices)
        unknown[WINDOW_FIELD] = {
            "machine": gpus.machine_words(everything),
            "unticked": sorted(state.unticked),
            "free_bytes": {str(d.index): d.free_bytes for d in _with_free(state) if d.free_bytes is not None},
        }
    return PlanFile(
        state.model_text,
        gpus.machine_words(used) if used else "",
        state.engine,
        state.version,
        dict(state.options),
        state.load,
        state.weight_format,
        dict(state.measured),
        free,
        unknown,
    )


def _with_free(state: PlanState) -> tuple[Any, ...]:

    machine = state._replace(unticked=frozenset()).machine
    return machine.devices if machine else ()


def to_state(file: PlanFile, *, allow_network: bool = False) -> PlanState:
    """The state that a plan file stands for. Reads the model: for a background job. Raises PlannerError."""
    model = open_model(file.model, allow_network=allow_network)
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
        engine=file.engine,
        version=file.version,
        options=dict(file.options),
        load=file.load,
        weight_format=file.weight_format,
        measured=dict(file.measured),
        extra=dict(file.unknown),
    )


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
    sizes = {int(k): v for k, v in given.items() if str(k).isdecimal() and isinstance(v, int) and v >= 0}
    if len(everything.devices) - len(unticked) != len(machine.devices):
        return machine, frozenset(), free
    return everything, unticked, sizes


def save(path: Path, state: PlanState) -> None:
    """Write a plan file, whole or not at all. Raises BadInput."""
    planfile.save(path, to_planfile(state))


def read(path: Path) -> PlanState:
    """Read a plan file and its model: for a background job. Raises PlannerError."""
    return to_state(planfile.load(path))
