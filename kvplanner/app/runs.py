"""The runs that calibrate plans, shared by all windows: kept in a file, read when there is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from kvplanner.files import calibration_file
from kvplanner.reading import is_there

if TYPE_CHECKING:
    from kvplanner.diagnose.runs import Run
    from kvplanner.engine.request import Calibration


class Runs(QObject):
    """changed(): plans are calibrated by others now. save: False for a session that leaves no trace and finds none."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None, *, save: bool = True) -> None:
        super().__init__(parent)
        self._save = save
        self._unsaved: tuple[Run, ...] = ()

    def kept(self) -> tuple[Run, ...]:
        """All that are kept. Raises BadInput for a file that is broken."""
        if not self._save:
            return self._unsaved
        if not is_there(calibration_file()):
            return ()
        from kvplanner.diagnose.runs import kept

        return kept()

    def in_use(self) -> tuple[Calibration, ...]:
        """What those that are on say of plans; a broken file says nothing."""
        if not self._save:
            return tuple(c for run in self._unsaved if run.on and run.current for c in run.calibrations)
        if not is_there(calibration_file()):
            return ()
        from kvplanner.diagnose.runs import in_use

        return in_use()

    def keep(self, runs: Iterable[Run]) -> None:
        """Writes these in place of all. Raises OSError."""
        self._unsaved = () if self._save else tuple(runs)
        if self._save:
            from kvplanner.diagnose.runs import keep

            keep(runs)
        self.changed.emit()

    def add(self, more: Iterable[Run]) -> None:
        """Keeps further ones. Raises BadInput where they would be too many, OSError."""
        from kvplanner.diagnose.runs import added

        self.keep(added(self.kept(), more))
