"""Changes to a request: engine options, the weight format, the model or the machine; each as data that can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.lever import Step
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.record import NamedTuple

# What a change may be of beside an engine's option.
WEIGHT_FORMAT: Final = "weight_format"
MODEL: Final = "model"
GPUS: Final = "gpus"
ENGINE: Final = "engine"
RELEASE: Final = "engine_version"
OWN_FLAGS: Final = {
    WEIGHT_FORMAT: "--weight-format", GPUS: "--gpu", ENGINE: "--engine", RELEASE: "--engine-version",
}  # fmt: skip


class Change(NamedTuple):
    """option: an engine's option by name, or WEIGHT_FORMAT, MODEL, GPUS, ENGINE, RELEASE.

    value: None gives it back to its default.
    """

    option: str
    value: OptionValue | None


def stepped(request: PlanRequest, step: Step) -> tuple[PlanRequest, tuple[Change, ...]]:
    """The request with a step's options set, and what changed by it."""
    options = {name: value for name, value in request.options.items() if name not in step}
    options |= {name: value for name, value in step.items() if value is not None}
    changes = tuple(Change(name, value) for name, value in step.items() if request.options.get(name) != value)
    return request._replace(options=options), changes


def merged(changes: Sequence[Change]) -> tuple[Change, ...]:
    """One change for each option: the last."""
    return tuple({change.option: change for change in changes}.values())


def engine_flags(request: PlanRequest, changes: Sequence[Change]) -> str:
    """The engine's flags that make the changes, as one writes them behind others; "" where there are none."""
    from kvplanner.engine.command import format_command

    chosen = engine(request.engine)
    named = {change.option: change.value for change in changes if change.value is not None}
    options = {o.name: named[o.name] for o in chosen.options(request.version) if o.name in named}
    bare = format_command(chosen, request._replace(options={}))
    return format_command(chosen, request._replace(options=options)).replace(bare, "").strip()


def removed(request: PlanRequest, changes: Sequence[Change]) -> tuple[str, ...]:
    """The flags that have to go."""
    gone = {change.option for change in changes if change.value is None}
    return tuple(o.spelled for o in engine(request.engine).options(request.version) if o.name in gone)
