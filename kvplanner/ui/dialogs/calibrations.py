"""Calibrations: the runs whose figures replace estimates in plans like them, switched, handed on and deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHeaderView,
    QLabel,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)  # fmt: skip

from kvplanner.errors import PlannerError
from kvplanner.report.calibrations import about, measured, rule, used
from kvplanner.ui.widgets import tables

if TYPE_CHECKING:
    from kvplanner.app.runs import Runs
    from kvplanner.diagnose.runs import Run

_SIZE: Final = (940, 420)
_FILTER: Final = "Runs (*.json)"
_ABOUT: Final = (
    "What a start measured replaces the estimates of plans like it; what is counted exactly never changes. "
    "A log is added from its tab, or with kvplanner calibrations add."
)
_HEADS: Final = ("Run", "Date", "Measured", "For plans of the")
_ROLE: Final = Qt.ItemDataRole.UserRole


class CalibrationsDialog(QDialog):
    """The runs as rows; a tick uses one. failed: shows what went wrong."""

    def __init__(self, runs: Runs, failed: Callable[[Exception, str], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Calibrations")
        self._runs, self._failed = runs, failed
        self._filling = False
        told = QLabel(_ABOUT, self)
        told.setWordWrap(True)
        self.table = QTableWidget(0, len(_HEADS), self)
        self.table.setHorizontalHeaderLabels(_HEADS)
        tables.flat(self.table, "Runs that calibrate plans")
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setWordWrap(True)
        header = self.table.horizontalHeader()
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        for column, mode in enumerate(("Stretch", "ResizeToContents", "Stretch", "Stretch")):
            header.setSectionResizeMode(column, getattr(QHeaderView.ResizeMode, mode))
        self.table.itemChanged.connect(self._switched)
        self.table.itemSelectionChanged.connect(self._enable)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        action = QDialogButtonBox.ButtonRole.ActionRole
        self.import_button = buttons.addButton("&Import…", action)
        self.export_button = buttons.addButton("&Export…", action)
        self.delete_button = buttons.addButton("&Delete", action)
        self.import_button.clicked.connect(self._ask_import)
        self.export_button.clicked.connect(self._ask_export)
        self.delete_button.clicked.connect(self.delete)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.addWidget(told)
        layout.addWidget(self.table, 1)
        layout.addWidget(buttons)
        self.resize(*_SIZE)
        runs.changed.connect(self.fill)
        self.fill()

    def fill(self) -> None:
        """The rows anew."""
        try:
            there = self._runs.kept()
        except PlannerError as error:
            self._failed(error, "The calibrations were not read")
            there = ()
        self._filling = True
        self.table.setRowCount(len(there))
        for row, run in enumerate(there):
            texts = (about(run).replace(", ", "\n"), run.date, "\n".join(measured(run)), rule(run))
            for column, text in enumerate(texts):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                if column == 0:
                    item.setData(_ROLE, run.id)
                    item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable)
                    item.setCheckState(Qt.CheckState.Checked if run.on else Qt.CheckState.Unchecked)
                    if not run.current:
                        item.setToolTip(f"used: {used(run)}. Read its log again")
                self.table.setItem(row, column, item)
        self.table.resizeRowsToContents()
        self._filling = False
        self._enable()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Rows as high as their texts at the width that their columns have now."""
        super().resizeEvent(event)
        QTimer.singleShot(0, self.table, self.table.resizeRowsToContents)

    def _enable(self) -> None:
        self.export_button.setEnabled(self.table.rowCount() > 0)
        self.delete_button.setEnabled(bool(self.table.selectionModel().selectedRows()))

    def _ids(self) -> set[str]:
        return {str(index.data(_ROLE)) for index in self.table.selectionModel().selectedRows()}

    def _switched(self, item: QTableWidgetItem) -> None:
        if self._filling or item.column():
            return
        on, name = item.checkState() == Qt.CheckState.Checked, item.data(_ROLE)
        self._change(lambda there: tuple(r._replace(on=on) if r.id == name else r for r in there))

    def delete(self) -> None:
        """Forgets the selected runs."""
        gone = self._ids()
        self._change(lambda there: tuple(r for r in there if r.id not in gone))

    def _change(self, change: Callable[[tuple[Run, ...]], tuple[Run, ...]]) -> None:
        try:
            self._runs.keep(change(self._runs.kept()))
        except (PlannerError, OSError) as error:
            self._failed(error, "The calibrations were not changed")

    def import_from(self, path: Path) -> None:
        """Adds the runs of a file."""
        from kvplanner.diagnose.runs import kept_in

        try:
            self._runs.add(kept_in(path))
        except (PlannerError, OSError) as error:
            self._failed(error, "No runs were imported")

    def export_to(self, path: Path) -> None:
        """Writes the selected runs, all where none is."""
        from kvplanner.diagnose.runs import keep

        chosen = self._ids()
        try:
            keep([run for run in self._runs.kept() if not chosen or run.id in chosen], path)
        except (PlannerError, OSError) as error:
            self._failed(error, "The runs were not exported")

    def _ask_import(self) -> None:
        dialog = QFileDialog(self, "Import runs", str(Path.home()), _FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self._ask(dialog, self.import_from)

    def _ask_export(self) -> None:
        dialog = QFileDialog(self, "Export runs", str(Path.home() / "kvplanner-runs.json"), _FILTER)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("json")
        self._ask(dialog, self.export_to)

    def _ask(self, dialog: QFileDialog, take: Callable[[Path], None]) -> None:
        dialog.fileSelected.connect(lambda name: take(Path(name)))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
