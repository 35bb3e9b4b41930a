"""Plans side by side as a table: what differs, by subject, with the change against the first plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from kvplanner.record import NamedTuple
from kvplanner.report.compare import SECTIONS, name_of, rule_changes, texts, why_lines
from kvplanner.solve.compare import Row, Side, compare
from kvplanner.ui.theme.figures import shown

if TYPE_CHECKING:
    from PySide6.QtCore import QObject

    from kvplanner.report.words import Unit

Index = QModelIndex | QPersistentModelIndex
NOW: Final = "Now"
# What decides comes first.
_ORDER: Final = ("verdict", "figure", "request", "option", "segment")
# A gain of these is good, a loss bad; of the others it depends.
_MORE_IS_BETTER: Final = frozenset({
    "tokens", "available_bytes", "max_concurrency", "max_context_length", "sure_max_context_length",
    "max_concurrent_requests", "users_by_memory", "serves_users", "sure_serves_users",
})  # fmt: skip


class Line(NamedTuple):
    """A row of the table: a section's title where `row` is None. why: the arithmetic of what differs."""

    title: str
    cells: tuple[str, ...] = ()
    row: Row | None = None
    why: str = ""


class CompareModel(QAbstractTableModel):
    """Columns: what, then the edited plan, then each pinned one.

    gain, loss: the colours of a change for the better and for the worse. title: the font of a section's title.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.lines: list[Line] = []
        self.sides: tuple[Side, ...] = ()
        self._rows: tuple[Row, ...] = ()
        self._unit: Unit = "GiB"
        self._everything = False
        self.gain: Any = None
        self.loss: Any = None
        self.title: Any = None

    def set_sides(self, sides: Sequence[Side]) -> None:
        """Other plans; fewer than two show nothing."""
        self.sides = tuple(sides)
        self._rows = compare(self.sides) if len(self.sides) > 1 else ()
        self._remake()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._remake()

    def set_everything(self, on: bool) -> None:
        """Also what does not differ."""
        self._everything = on
        self._remake()

    def _remake(self) -> None:
        lines: list[Line] = []
        for section in _ORDER:
            title = SECTIONS[section]
            found = [r for r in self._rows if r.section == section and (r.differs or self._everything)]
            lines += [Line(title)] if found else []
            for row in found:
                why = "\n".join(why_lines(row, self._unit)).strip() if row.formulas or row.because else ""
                if row.name == "rules":
                    why = "\n".join(text for *_, found in rule_changes(self.sides) for text in found)
                name = name_of(row, self.sides)
                cells = _now_first(texts(row, self.sides, self._unit))
                lines.append(Line(f"{name[:1].upper()}{name[1:]}", cells, row, why))
        heads = [(line.title, len(line.cells)) for line in lines]
        if heads == [(line.title, len(line.cells)) for line in self.lines]:
            self.lines = lines
            if lines:
                self.dataChanged.emit(self.index(0, 0), self.index(len(lines) - 1, len(self.sides)))
            return
        self.beginResetModel()
        self.lines = lines
        self.endResetModel()

    def rowCount(self, parent: Index | None = None) -> int:
        """Titles and rows."""
        return 0 if parent is not None and parent.isValid() else len(self.lines)

    def columnCount(self, parent: Index | None = None) -> int:
        """What, and each plan."""
        return 1 + len(self.sides)

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Titles cannot be chosen."""
        if self.lines[index.row()].row is None:
            return Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """A letter for each pinned plan."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if section == 0 else self._heading(section)
        if role == Qt.ItemDataRole.ToolTipRole and section:
            return _now_first([side.name for side in self.sides])[section - 1]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignLeft if section == 0 else Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Texts, and the colour of a gain or a loss."""
        line, column = self.lines[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return line.title if column == 0 else shown(line.cells[column - 1]) if line.cells else ""
        if role == Qt.ItemDataRole.ToolTipRole:
            return shown(line.why) or None
        if role == Qt.ItemDataRole.ForegroundRole and line.row is not None and column:
            return self._ink(line.row, column)
        if role == Qt.ItemDataRole.FontRole and line.row is None:
            return self.title
        if role == Qt.ItemDataRole.TextAlignmentRole and column:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def _heading(self, column: int) -> str:
        """Over a column."""
        return NOW if column == 1 else heading(column - 2, len(self.sides))

    def _ink(self, row: Row, column: int) -> Any:
        delta = _now_first(row.deltas)[column - 1]
        if not delta or row.name not in _MORE_IS_BETTER:
            return None
        return self.gain if delta > 0 else self.loss

    def as_text(self) -> str:
        """All of it with tabs, for a spreadsheet."""
        heads = ["", *(self._heading(column) for column in range(1, self.columnCount()))]
        about = [f"{heading(at, len(self.sides))}\t{side.name}" for at, side in enumerate(self.sides)]
        return "\n".join([*about, "", "\t".join(heads), *("\t".join((line.title, *line.cells)) for line in self.lines)])


def _now_first(of_sides: Sequence[Any]) -> tuple[Any, ...]:
    """In the order of the columns."""
    return (of_sides[-1], *of_sides[:-1])


def heading(at: int, count: int) -> str:
    """What a plan is called: a letter where it is pinned."""
    return NOW if at == count - 1 else "ABC"[at]
