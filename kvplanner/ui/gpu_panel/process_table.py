"""The table of processes that use the GPUs: sortable, filterable, and copied as text."""

from __future__ import annotations

import shlex
from typing import Final

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QHeaderView, QLabel, QLineEdit, QTableView, QVBoxLayout, QWidget

from kvplanner.observe.signatures import signature
from kvplanner.observe.snapshot import GpuSample, ProcessSample, Snapshot, labels_in_words
from kvplanner.record import NamedTuple
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.widgets import tables
from kvplanner.units import MIB, ByteUnit, format_bytes

COLUMNS: Final = ("GPU", "PID", "User", "Name", "Memory", "Command")
_GPU, _PID, _USER, _NAME, _MEMORY, _COMMAND = range(len(COLUMNS))
SORT_ROLE: Final = int(Qt.ItemDataRole.UserRole)
_RIGHT: Final = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
Index = QModelIndex | QPersistentModelIndex
_ROOT: Final = QModelIndex()


class Row(NamedTuple):
    """One process on one GPU."""

    gpu: GpuSample
    process: ProcessSample

    @property
    def key(self) -> tuple[str, int, float | None]:
        """What tells this row from others."""
        return self.gpu.uuid, self.process.pid, self.process.created


class ProcessModel(QAbstractTableModel):
    """The rows of the last snapshot that listed processes."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[Row, ...] = ()
        self._unit: ByteUnit = "GiB"

    def set_snapshot(self, snapshot: Snapshot) -> bool:
        """Takes in the processes; returns whether rows came, went or changed their order."""
        heads = [g for g in snapshot.gpus if not (g.mig and any(c.parent_uuid == g.uuid for c in snapshot.gpus))]
        rows = tuple(Row(g, p) for g in heads for p in g.processes or ())
        same = [r.key for r in rows] == [r.key for r in self._rows]
        if same and [r.process for r in rows] == [r.process for r in self._rows]:
            return False
        if same:
            self._rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))
            return False
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()
        return True

    def set_unit(self, unit: ByteUnit) -> None:
        """GiB or GB."""
        self._unit = unit
        if self._rows:
            self.dataChanged.emit(self.index(0, _MEMORY), self.index(len(self._rows) - 1, _MEMORY))

    def row(self, index: int) -> Row:
        """A row by its place."""
        return self._rows[index]

    def place(self, key: tuple[str, int, float | None]) -> int:
        """The place of a row, -1 when it is gone."""
        return next((i for i, r in enumerate(self._rows) if r.key == key), -1)

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Rows."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Columns."""
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole.value
    ) -> object:
        """Column titles."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole and section in (_PID, _MEMORY):
            return _RIGHT
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole.value) -> object:
        """Text, sort values, alignment and tips."""
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(row, column)
        if role == SORT_ROLE:
            return _sort_value(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole and column in (_PID, _MEMORY):
            return _RIGHT
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.process.memory.reason if column == _MEMORY else self._text(row, column)
        return None

    def _text(self, row: Row, column: int) -> str:
        process = row.process
        if column == _GPU:
            return row.gpu.label.removeprefix("GPU ")
        if column == _PID:
            return str(process.pid)
        if column == _USER:
            return process.user or "–"
        if column == _NAME:
            return shown_name(process)
        if column == _MEMORY:
            value = process.memory.value
            return shown(size_text(value, self._unit)) if value is not None else "n/a"
        return shlex.join(process.command) if process.command else "–"


def size_text(value: int, unit: ByteUnit) -> str:
    """Bytes in `unit`, small ones in the thousandth of it."""
    if value >= 100 * MIB:
        return format_bytes(value, unit)
    return format_bytes(value, "MB" if unit in ("GB", "MB") else "MiB", 0)


def process_notes(snapshot: Snapshot) -> list[str]:
    """What the table cannot show, and why, with GPUs of one reason together."""
    reasons: dict[str, list[GpuSample]] = {}
    for gpu in snapshot.gpus:
        if gpu.process_note:
            reasons.setdefault(gpu.process_note, []).append(gpu)
    notes = [f"{labels_in_words(gpus)}: {reason}." for reason, gpus in reasons.items()]
    if any(g.wddm and g.processes for g in snapshot.gpus):
        notes.append("The Windows display driver does not tell memory per process.")
    return notes


def shown_name(process: ProcessSample) -> str:
    """The name, with the engine that the process belongs to."""
    name = process.name.rsplit("/", 1)[-1] or "name unknown"
    kind = signature(process.engine) if process.engine else None
    return f"{name} ({kind.title})" if kind and kind.title.lower() not in name.lower() else name


def _sort_value(row: Row, column: int) -> object:
    process = row.process
    values: tuple[object, ...] = (
        row.gpu.number * 1000 + (row.gpu.gpu_instance or 0), process.pid, process.user.lower(),
        shown_name(process).lower(), -1 if process.memory.value is None else process.memory.value,
        " ".join(process.command).lower(),
    )  # fmt: skip
    return values[column]


class ProcessFilter(QSortFilterProxyModel):
    """Sorts by numbers and finds words in any column."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words: list[str] = []
        self.setDynamicSortFilter(True)

    def set_words(self, text: str) -> None:
        """Only rows that hold all these words."""
        self._words = text.lower().split()
        self.invalidate()

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        """Whether a row holds all the words."""
        model = self.sourceModel()
        texts = [str(model.index(source_row, c).data()).lower() for c in range(len(COLUMNS))]
        return all(any(word in text for text in texts) for word in self._words)

    def lessThan(self, left: Index, right: Index) -> bool:
        """By value; memory is an integer larger than Qt's."""
        one, other = left.data(SORT_ROLE), right.data(SORT_ROLE)
        return bool(one < other)


class ProcessTable(QWidget):
    """Filter, table and the note below it. chosen(ProcessSample or None): the selected process."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = ProcessModel(self)
        self.proxy = ProcessFilter(self)
        self.proxy.setSourceModel(self.model)
        self.filter = QLineEdit(self)
        self.filter.setPlaceholderText("Filter processes")
        self.filter.setAccessibleName("Filter processes")
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self.proxy.set_words)
        self.view = self._make_view()
        self.note = QLabel(self)
        self.note.setWordWrap(True)
        self.note.setProperty("role", "muted")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 6, 0, 0)
        column.setSpacing(4)
        for widget in (self.filter, self.view, self.note):
            column.addWidget(widget)
        self.note.hide()

    def _make_view(self) -> QTableView:
        view = tables.made(self, "Processes on the GPUs", 8)
        view.setModel(self.proxy)
        tables.sortable(view)
        view.sortByColumn(_MEMORY, Qt.SortOrder.DescendingOrder)
        header = view.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        samples = {_GPU: "GPU ▾", _PID: "4194304", _USER: "user12", _NAME: "VLLM::Worker_", _MEMORY: "000.00 GiB"}
        for column, sample in samples.items():
            view.setColumnWidth(column, view.fontMetrics().horizontalAdvance(sample) + 16)
        view.selectionModel().selectionChanged.connect(self._tell)
        copy = QShortcut(QKeySequence(QKeySequence.StandardKey.Copy), view)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        copy.activated.connect(self.copy)
        return view

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Shows the processes of a snapshot; the selection stays with its process."""
        selected = self.selected()
        if self.model.set_snapshot(snapshot) and selected is not None:
            place = self.model.place(selected.key)
            if place >= 0:
                self.view.selectRow(self.proxy.mapFromSource(self.model.index(place, 0)).row())
        notes = process_notes(snapshot)
        self.note.setText(shown("\n".join(notes)))
        self.note.setVisible(bool(notes))

    def set_unit(self, unit: ByteUnit) -> None:
        """GiB or GB."""
        self.model.set_unit(unit)

    def selected(self) -> Row | None:
        """The selected row."""
        found = self.view.selectionModel().selectedRows()
        return self.model.row(self.proxy.mapToSource(found[0]).row()) if found else None

    def copy(self) -> None:
        """The selected row as tab-separated text."""
        found = self.view.selectionModel().selectedRows()
        if found:
            cells = [str(self.proxy.index(found[0].row(), c).data()) for c in range(len(COLUMNS))]
            QGuiApplication.clipboard().setText("\t".join(cells))

    def _tell(self) -> None:
        row = self.selected()
        self.chosen.emit(row.process if row else None)
