"""The plans that were pinned in a window: kept as they were, beside the one that is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from kvplanner.record import NamedTuple
from kvplanner.request.named import load_text
from kvplanner.solve.compare import MOST, Side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvplanner.app.state import PlanState
    from kvplanner.engine.plan import Plan


class Pin(NamedTuple):
    """A plan as it was, and what was set for it."""

    state: PlanState
    plan: Plan

    @property
    def name(self) -> str:
        """What it is a plan of, in short."""
        return name_of(self.plan)


def planned_pin(state: PlanState) -> Pin | None:
    """A state with its plan, None where the engine refuses it: for a background job."""
    from kvplanner.engine.registry import engine
    from kvplanner.errors import PlannerError
    from kvplanner.request.draft import open_draft

    request = state.request()
    if request is None:
        return None
    chosen = engine(request.engine)
    try:
        wish = chosen.draft_wanted(request.options)
        if wish is not None:
            from kvplanner.app.library import open_model

            request = request._replace(draft=open_draft(wish, open_model))
        return Pin(state, chosen.plan(request))
    except PlannerError:
        return None


class Pins(QObject):
    """Of one window, the oldest first. changed(): other ones."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.kept: tuple[Pin, ...] = ()

    @property
    def full(self) -> bool:
        """Whether no further plan fits beside the edited one."""
        return len(self.kept) >= MOST - 1

    def add(self, state: PlanState, plan: Plan) -> bool:
        """Keep a plan; False where it is pinned already or there are as many as can be compared."""
        if self.full or any(pin.state == state for pin in self.kept):
            return False
        self.kept = (*self.kept, Pin(state, plan))
        self.changed.emit()
        return True

    def take(self, pins: tuple[Pin, ...]) -> None:
        """These and no others: what a session had."""
        self.kept = pins[: MOST - 1]
        self.changed.emit()

    def remove(self, at: int) -> None:
        """Let one go."""
        self.kept = tuple(pin for position, pin in enumerate(self.kept) if position != at)
        self.changed.emit()

    def sides(self, plan: Plan) -> tuple[Side, ...]:
        """The pinned plans, then the edited one."""
        return (*(Side(pin.name, pin.plan) for pin in self.kept), Side(name_of(plan), plan))


def name_of(plan: Plan) -> str:
    """Model, weight format, machine, release and what the user set: enough to tell plans apart."""
    model, settings, *rest = _parts(plan)
    return ", ".join(part for part in (model, " ".join(settings), *rest) if part)


def told_apart(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Names of plans that begin with what not all of them have in common: the end of a name may be cut."""
    listed = []
    for plan in plans:
        model, settings, *rest = _parts(plan)
        listed.append([part for part in (model, *settings, *rest) if part])
    shared = set.intersection(*map(set, listed)) if len(listed) > 1 else set()
    return tuple(", ".join(sorted(parts, key=lambda part: part in shared)) for parts in listed)


def _parts(plan: Plan) -> tuple[str, tuple[str, ...], str, str, str]:
    """Model, each setting with its value, machine, engine, load."""
    from kvplanner.engine.command import command_words
    from kvplanner.engine.registry import engine

    request = plan.request
    chosen = engine(request.engine)
    words = command_words(chosen, request)
    load = request.load
    settings: list[str] = [f"{name}={value}" for name, value in words.environment.items()]
    for word in words.flags:
        if word.startswith("-") or not settings:
            settings.append(word)
        else:
            settings[-1] += f" {word}"
    return (
        " ".join((request.model.id.rpartition("/")[2], request.weight_format or "")).strip(),
        tuple(settings),
        _short(request.machine.describe()),
        f"{chosen.title} {plan.engine_version}",
        load_text(load) if load else "",
    )


def _short(machine: str) -> str:
    """Without the maker's names, which go without saying."""
    for word in ("NVIDIA ", "GeForce "):
        machine = machine.replace(word, "")
    return machine
