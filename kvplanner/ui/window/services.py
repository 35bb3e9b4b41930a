"""What the parts of a window are given to work with: everything that all windows share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kvplanner.app import settings as s
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from PySide6.QtWidgets import QWidget

    from kvplanner.app.jobs import Jobs
    from kvplanner.app.library import Library
    from kvplanner.app.runs import Runs
    from kvplanner.app.session import Session
    from kvplanner.app.state import PlanState
    from kvplanner.report.words import Unit
    from kvplanner.ui.theme.theme import Theme


class Windows(Protocol):
    """The open windows as one of them sees them. ended: all is saved and stopped."""

    @property
    def count(self) -> int:
        """Windows that are open."""

    @property
    def ended(self) -> bool:
        """Whether windows that close now lose nothing."""

    def finishes_first(self, then: Callable[[], object]) -> bool:
        """Whether files are being written: `then` follows once they are, unless one fails."""

    def open(self, state: PlanState, path: Path | None, beside: QWidget) -> None:
        """Show another window, whole from its first moment on."""

    def choose_numbers(self) -> None:
        """Write figures in all windows as is chosen, or as the system does by now."""

    def quit(self) -> None:
        """End with all windows; one whose edits would be lost asks."""


class Services(NamedTuple):
    """keep: False for a run that must leave no trace."""

    settings: s.Settings
    jobs: Jobs
    library: Library
    theme: Theme
    session: Session
    windows: Windows
    keep: bool
    runs: Runs

    def unit(self) -> Unit:
        """The unit of sizes."""
        return "GB" if self.settings.get(s.UNIT) == "GB" else "GiB"
