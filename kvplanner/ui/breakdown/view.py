"""The breakdown table: the selected device's segments with size, range, share and basis."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import (
    QAbstractTableModel,
    QEvent,
    QItemSelection,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction, QColor, QFont, QFontMetrics, QGuiApplication, QIcon, QKeySequence, QResizeEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QSizePolicy,
    QTableView,
    QVBoxLayout,
)
from PySide6.QtWidgets import QWidget as Widget

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import words
from kvplanner.report.devices import replicas
from kvplanner.report.words import Unit
from kvplanner.ui.bars.swatch import SWATCH, swatch
from kvplanner.ui.breakdown.lines import Line, lines
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import set_pale, sized, tokens_of
from kvplanner.ui.theme.palette import LIGHT, Tokens
from kvplanner.ui.widgets import tables
from kvplanner.ui.widgets.labels import spoken

COLUMNS: Final = ("", "size", "range", "share", "basis")
HEAD_GAP: Final = 4
# Pixels of a row beside its text: with room to breathe, and at least.
EASY: Final = 9
TIGHT: Final = 3
PADDING: Final = 13  # of a column
NAME_LEAST: Final = 14  # characters of a name that stay in any case
Index = QModelIndex | QPersistentModelIndex
_NOWHERE: Final = QModelIndex()


def _texts(line: Line) -> tuple[str, ...]:
    """What stands in the columns."""
    return line.name, line.size, line.range, line.share, line.basis


class BreakdownModel(QAbstractTableModel):
    """The table's rows for Qt."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._lines: tuple[Line, ...] = ()
        self._position = 0
        self._unit: Unit = "GiB"
        self._tokens: Tokens = LIGHT
        self._bold = QFont()
        self._swatches: dict[tuple[str, str], QIcon] = {}

    def show(self, plan: Plan | None, position: int, unit: Unit) -> None:
        """Takes a device's rows; keeps the rows in place where their number stays."""
        made = lines(plan, position, unit) if plan is not None and plan.devices else ()
        before = self._unit
        old = self._lines
        same = [row.kind for row in made] == [row.kind for row in old]
        if not same:
            self.beginResetModel()
        self._plan, self._position, self._unit, self._lines = plan, position, unit, made
        if not same:
            self.endResetModel()
        else:
            self._tell_changes(old)
        if unit != before:
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)

    def _tell_changes(self, old: tuple[Line, ...]) -> None:
        """Cell by cell, since a view paints all of itself for a range: a step of a drag changes a few."""
        for row, (before, now) in enumerate(zip(old, self._lines, strict=True)):
            whole = (before.missing, before.later) != (now.missing, now.later)
            for column, (was, text) in enumerate(zip(_texts(before), _texts(now), strict=True)):
                if whole or was != text:
                    index = self.index(row, column)
                    self.dataChanged.emit(index, index)

    def restyle(self, tokens: Tokens, font: QFont) -> None:
        """Takes colours and the base font."""
        self._tokens = tokens
        self._bold = sized(font, 1.0, bold=True)
        self._swatches.clear()

    def line(self, row: int) -> Line | None:
        """A row's content."""
        return self._lines[row] if 0 <= row < len(self._lines) else None

    def column(self, column: int) -> list[str]:
        """A column's texts."""
        return [_texts(row)[column] for row in self._lines]

    def strong_sizes(self) -> list[str]:
        """The sizes that stand in bold: sums and what is missing."""
        return [row.size for row in self._lines if row.kind is None]

    def as_text(self) -> str:
        """The table with tabs between the columns, as spreadsheets take it."""
        heads = ["segment", self._unit, "range", "share", "basis"]
        return "\n".join("\t".join(row) for row in (heads, *map(_texts, self._lines))) + "\n"

    def row_of(self, kind: SegmentKind | None) -> int:
        """A segment's row, −1 for none."""
        return next((i for i, row in enumerate(self._lines) if kind is not None and row.kind == kind), -1)

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        """Rows."""
        return 0 if parent.isValid() else len(self._lines)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        """Columns."""
        return 0 if parent.isValid() else len(COLUMNS)

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Sums cannot be selected."""
        line = self.line(index.row())
        if line is None or not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        if line.kind is None:
            return Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Column titles; sizes are in the chosen unit."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return ("segment", self._unit, "range", "share", "basis")[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignVCenter | (
                Qt.AlignmentFlag.AlignLeft if section in (0, 4) else Qt.AlignmentFlag.AlignRight
            )
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Texts, swatches, alignment and accessible names."""
        line = self.line(index.row())
        if line is None:
            return None
        column = index.column()
        roles = Qt.ItemDataRole
        if role == roles.DisplayRole:
            return shown(_texts(line)[column])
        if role == roles.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignLeft if column in (0, 4) else Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        if role == roles.DecorationRole and column == 0:
            return self._swatch(line)
        if role == roles.ToolTipRole:
            tip = "\n".join(filter(None, (line.name, line.tip))) if column == 0 else line.tip
            return shown(tip) if tip else tip
        if role == roles.AccessibleTextRole:
            return shown(self._accessible(line, column))
        return self._look(line, column, role)

    def _look(self, line: Line, column: int, role: int) -> object:
        if role == Qt.ItemDataRole.FontRole and line.kind is None:
            return self._bold
        if role == Qt.ItemDataRole.ForegroundRole:
            if line.missing:
                return QColor(self._tokens.danger)
            return QColor(self._tokens.muted if column in (2, 4) or line.later else self._tokens.text)
        return None

    def _accessible(self, line: Line, column: int) -> str:
        if column or line.kind is None or self._plan is None:
            return (line.name, f"{line.size} {self._unit}", line.range, line.share, line.basis)[column]
        return words.segment_name(self._plan, (self._position,), line.kind, self._unit)

    def _swatch(self, line: Line) -> QIcon:
        key = (line.kind or ("missing" if line.missing else "sum"), self._tokens.name)
        made = self._swatches.get(key)
        if made is None:
            pixmap = swatch(line.kind, self._tokens, missing=line.missing)
            made = self._swatches[key] = QIcon(pixmap)
            made.addPixmap(pixmap, QIcon.Mode.Selected)  # else a selected row would tint it
        return made


class _Table(QTableView):
    """A table that tells when its room changes."""

    resized = Signal()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tells, once the viewport has its size."""
        super().resizeEvent(event)
        self.resized.emit()


class BreakdownView(Widget):
    """The table with, where devices differ, a choice of the device. height_changed(): it has other rows."""

    segment_selected = Signal(object)
    height_changed = Signal()

    def __init__(self, parent: Widget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._position = 0
        self._kind: SegmentKind | None = None
        self._groups: tuple[tuple[int, ...], ...] = ()
        self._setting = False
        self._rows = -1
        self.model = BreakdownModel(self)
        self.title = QLabel(self)
        self.title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._full_title = ""
        self.devices = QComboBox(self)
        spoken(self.devices, "Device")
        self.devices.activated.connect(self._choose)
        self.table = _Table(self)
        self._set_up_table()
        head = QHBoxLayout()
        head.setContentsMargins(6, 0, 6, 0)
        head.addWidget(self.devices)
        head.addWidget(self.title, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(HEAD_GAP)
        column.addLayout(head)
        column.addWidget(self.table, 1)
        self.setFocusProxy(self.table)
        self._restyle()

    def _set_up_table(self) -> None:
        table = self.table
        table.setModel(self.model)
        tables.flat(table, "Breakdown of the selected device")
        table.setIconSize(QSize(SWATCH, SWATCH))
        table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        table.resized.connect(self._room_changed)
        copy = QAction("Copy table", table)
        copy.setShortcut(QKeySequence.StandardKey.Copy)
        copy.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        copy.triggered.connect(self.copy_text)
        table.addAction(copy)
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        header = table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(36)
        table.selectionModel().selectionChanged.connect(self._row_selected)

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan; stays with the device and the segment where they still exist."""
        self._plan = plan
        if plan is None or self._position >= len(plan.devices):
            self._position = 0
        self._groups = plan.groups if plan is not None else ()
        self._show()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._show()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Shows a device's rows and marks a segment's; emits nothing."""
        known = self._plan is not None and device < len(self._plan.devices)
        if known and (device, kind) != (self._position, self._kind):
            self._position, self._kind = device, kind
            self._show()

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        if set_pale(self, dimmed):
            self._restyle()
            self.table.viewport().update()

    def copy_text(self) -> None:
        """Puts the table on the clipboard."""
        if self._plan is not None:
            QGuiApplication.clipboard().setText(self.model.as_text())

    def _show(self) -> None:
        self._setting = True
        self.model.show(self._plan, self._position, self._unit)
        self._show_devices()
        self._fit_columns()
        self._fit_rows()
        row = self.model.row_of(self._kind)
        chosen = self.table.selectionModel()
        if row < 0:
            self.table.clearSelection()
        elif not chosen.isRowSelected(row, QModelIndex()) or len(chosen.selectedRows()) > 1:
            self.table.selectRow(row)
        self._setting = False

    def _show_devices(self) -> None:
        plan = self._plan
        several = len(self._groups) > 1
        self.devices.setVisible(several)
        if plan is None or not plan.devices:
            self._full_title = ""
            self.title.setText("")
            return
        index = next(i for i, g in enumerate(self._groups) if self._position in g)
        names = [words.device_name(plan, g) for g in self._groups]
        if several:
            if names != [self.devices.itemText(i) for i in range(self.devices.count())]:
                self.devices.clear()
                self.devices.addItems(names)
            self.devices.setCurrentIndex(index)
        device = plan.devices[self._position]
        parts = ["" if several else names[index], device.device.gpu.name]
        parts += [words.size(device.total_bytes, self._unit) if device.total_bytes else "capacity not known"]
        parts += [replicas(plan, self._groups[index]), words.identity(plan, self._groups[index])]
        self._full_title = shown(" · ".join(part for part in parts if part))
        self._fit_title()

    def _fit_title(self) -> None:
        """The title, cut where the room ends; whole in the tool tip."""
        room = max(self.title.width(), 40)
        text = self.title.fontMetrics().elidedText(self._full_title, Qt.TextElideMode.ElideRight, room)
        self.title.setText(text)
        self.title.setToolTip(self._full_title if text != self._full_title else "")
        self.title.setAccessibleName(self._full_title)

    def natural_height(self) -> int:
        """The height at which all rows show with room to breathe."""
        return self._height_with(self.fontMetrics().height() + EASY)

    def least_height(self) -> int:
        """The height at which all rows still show."""
        return self._height_with(self.fontMetrics().height() + TIGHT)

    def _height_with(self, row: int) -> int:
        head = max(self.title.sizeHint().height(), self.devices.sizeHint().height() if len(self._groups) > 1 else 0)
        return head + HEAD_GAP + self.table.horizontalHeader().sizeHint().height() + self.model.rowCount() * row + 2

    def _fit_rows(self) -> None:
        """Rows as high as the room allows, so that the last one, the total, is never cut off."""
        count, high = self.model.rowCount(), self.fontMetrics().height()
        room = self.table.viewport().height() // max(count, 1)
        row = min(max(room, high + TIGHT), high + EASY)
        if row != self.table.verticalHeader().defaultSectionSize():
            self.table.verticalHeader().setDefaultSectionSize(row)
        if count != self._rows:
            self._rows = count
            self.table.horizontalHeader().setVisible(count > 0)
            self.height_changed.emit()

    def _room_changed(self) -> None:
        self._fit_columns()
        self._fit_rows()
        self._fit_title()

    def _choose(self, index: int) -> None:
        self._position = self._groups[index][0]
        self._show()
        kind = self._kind or "kv_cache"
        self.segment_selected.emit((self._position, kind))

    def _row_selected(self, _selected: QItemSelection, _deselected: QItemSelection) -> None:
        rows = self.table.selectionModel().selectedRows()
        line = self.model.line(rows[0].row()) if rows else None
        if line is not None and line.kind is not None and not self._setting:
            self._kind = line.kind
            self.segment_selected.emit((self._position, line.kind))

    def _column_widths(self) -> list[int]:
        """The least that each column takes with its texts whole, but for long names."""
        metrics = self.fontMetrics()
        heads = ["segment", self._unit, "range", "share", "basis"]
        wide = [
            max(metrics.horizontalAdvance(text) for text in (*self.model.column(column), heads[column])) + PADDING
            for column in range(len(COLUMNS))
        ]
        strong = QFontMetrics(sized(self.font(), 1.0, bold=True))
        wide[0] = min(wide[0], metrics.averageCharWidth() * NAME_LEAST) + SWATCH + 16
        wide[1] = max([wide[1], *(strong.horizontalAdvance(size) + PADDING for size in self.model.strong_sizes())])
        wide[3] = max([wide[3], *(strong.horizontalAdvance(text) + PADDING for text in self.model.column(3))])
        return wide

    def whole_width(self) -> int:
        """The width at which no column is left out."""
        return sum(self._column_widths())

    def _fit_columns(self) -> None:
        """Cuts names where the room ends; only below their least width leaves out the range, then the basis."""
        wide, room = self._column_widths(), self.table.viewport().width()
        for column in (2, 4):
            hidden = sum(wide) > room
            wide[column] = 0 if hidden else wide[column]
            if self.table.isColumnHidden(column) != hidden:
                self.table.setColumnHidden(column, hidden)
        wide[0] = max(room - sum(wide[1:]), 60)
        for column, width in enumerate(wide):
            if width and self.table.columnWidth(column) != width:
                self.table.setColumnWidth(column, width)

    def _restyle(self) -> None:
        self.model.restyle(tokens_of(self), self.font())
        self.title.setFont(sized(self.font(), 0.94))
        self.title.setProperty("role", "muted")
        self.table.verticalHeader().setMinimumSectionSize(self.fontMetrics().height() + TIGHT)

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._restyle()
            self._show()
