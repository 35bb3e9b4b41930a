"""The pages beside the table, declared as data: each is made when it is first seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind


class View(Protocol):
    """What every view of a plan offers."""

    def set_plan(self, plan: Plan | None) -> None:
        """Show a plan."""

    def set_unit(self, unit: Any) -> None:
        """Show GiB or GB."""

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Mark a segment."""


class Detail(View, Protocol):
    """A view that can be pale."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""


class Page(Detail, Protocol):
    """A widget behind a tab. segment_selected((position, kind)): chosen there."""

    segment_selected: Any

    def set_empty(self, text: str) -> None:
        """What to say while there is no plan; "" for the usual words."""


class Tab(NamedTuple):
    """A page by key and title; make(parent): the page, a widget that is a Page.

    A page with `natural_height()` and the signal `height_changed` is as high as it says; others have a chart's shape.
    One that is `roomy`, of tables or plots, gets more of a tall window.
    """

    key: str
    title: str
    make: Callable[[QWidget], Page]


def _explain(parent: QWidget) -> Page:
    from kvplanner.ui.explain.view import ExplainView

    return ExplainView(parent)


def _startup(parent: QWidget) -> Page:
    from kvplanner.ui.startup.view import StartupView

    return StartupView(parent)


def _log(parent: QWidget) -> Page:
    from kvplanner.ui.log.view import LogView

    return LogView(parent)


EXPLAIN: Final = "explain"
STARTUP: Final = "startup"
LOG: Final = "log"
WAYS: Final = "ways"
FITS: Final = "fits"
COMPARE: Final = "compare"
LAUNCH: Final = "launch"
TABS: Final = (Tab(EXPLAIN, "Explain", _explain), Tab(STARTUP, "Start-up", _startup), Tab(LOG, "Log", _log))
