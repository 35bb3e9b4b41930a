"""The rows of a chooser: a flat list with headings, two lines a row, drawn by one delegate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from kvplanner.record import NamedTuple
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import tokens_of
from kvplanner.ui.theme.palette import Tokens

RowKind = Literal["heading", "item", "action"]
AnyIndex = QModelIndex | QPersistentModelIndex
ROW_ROLE: Final = Qt.ItemDataRole.UserRole
MARK_ROLE: Final = Qt.ItemDataRole.UserRole + 1
# A mark's sign, told apart by shape as by colour.
SIGNS: Final[Mapping[str, str]] = {
    "fits": "✓", "may fit": "~", "needs RAM": "◐", "does not fit": "✗", "refused": "✗", "cannot tell": "?",
}  # fmt: skip
_STAR: Final = "★ "
PAD: Final = 12
NO_INDEX: Final = QModelIndex()


class Row(NamedTuple):
    """title and trailing on the first line, detail and note on the second; data is what choosing it gives."""

    kind: RowKind
    title: str
    detail: str = ""
    trailing: str = ""
    note: str = ""
    data: object = None
    current: bool = False
    starred: bool = False

    def spoken(self) -> str:
        """The row as one sentence."""
        star = "starred" if self.starred else ""
        return ", ".join(part for part in (self.title, star, self.trailing, self.detail, self.note) if part)


class RowsModel(QAbstractListModel):
    """A list of rows, replaced as a whole."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._rows: tuple[Row, ...] = ()
        self._marks: Mapping[object, str] = {}

    def set_marks(self, marks: Mapping[object, str]) -> None:
        """Marks by the data of rows, such as "fits"; rows that have none show none."""
        self._marks = marks
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows."""
        self.beginResetModel()
        self._rows = tuple(rows)
        self.endResetModel()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, headings included."""
        return self._rows

    def rowCount(self, parent: AnyIndex = NO_INDEX) -> int:
        """As many as there are rows."""
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """The row, or what it says."""
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role == ROW_ROLE:
            return row
        mark = self._marks.get(row.data, "") if row.kind == "item" else ""
        if role == MARK_ROLE:
            return mark
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return shown(f"{row.spoken()}, {mark}" if mark else row.spoken())
        if role == Qt.ItemDataRole.ToolTipRole:
            return shown("\n".join(part for part in (row.title, row.detail, row.note, mark) if part))
        return None

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """Headings cannot be chosen."""
        if index.isValid() and self._rows[index.row()].kind == "heading":
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def first(self) -> int:
        """The row to begin with: the first that can be chosen, -1 when there is none."""
        return next((i for i, row in enumerate(self._rows) if row.kind != "heading"), -1)

    def step(self, start: int, by: int) -> int:
        """The row that can be chosen nearest to `start + by` in that direction; `start` when there is none."""
        at = min(max(start + by, 0), len(self._rows) - 1)
        sign = 1 if by > 0 else -1
        for direction in (sign, -sign):
            row = at
            while 0 <= row < len(self._rows):
                if self._rows[row].kind != "heading":
                    return row
                row += direction
        return start


def _ink(mark: str, tokens: Tokens) -> str:
    """A mark's colour."""
    warned = dict.fromkeys(("may fit", "needs RAM"), tokens.warning)
    return {"fits": tokens.success, "cannot tell": tokens.muted, **warned}.get(mark, tokens.danger)


class RowDelegate(QStyledItemDelegate):
    """Draws rows. Fonts and metrics are made once, not per row."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        base = QFont(parent.font())
        self._title = QFont(base)
        self._title.setWeight(QFont.Weight.Medium)
        self._small = QFont(base)
        self._small.setPointSizeF(base.pointSizeF() * 0.9)
        self._heading = QFont(self._small)
        self._heading.setWeight(QFont.Weight.DemiBold)
        self._heights = {"heading": QFontMetrics(self._heading).height() + 14}
        self._line = QFontMetrics(self._title).height()
        self._sign = QFontMetrics(self._title).horizontalAdvance("✓") + 8
        self._heights["item"] = self._line + QFontMetrics(self._small).height() + 12
        self._heights["action"] = self._line + 14

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        """By kind of row."""
        row: Row = index.data(ROW_ROLE)
        return QSize(100, self._heights["item" if row.detail or row.note else row.kind])

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Two lines, left and right."""
        row: Row = index.data(ROW_ROLE)
        state: QStyle.StateFlag = option.state
        area: QRect = option.rect
        parent = self.parent()
        assert isinstance(parent, QWidget)
        tokens = tokens_of(parent)
        painter.save()
        if row.kind == "heading":
            painter.setFont(self._heading)
            painter.setPen(QColor(tokens.muted))
            painter.drawText(
                area.adjusted(PAD, 0, -PAD, -4), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, row.title
            )
            painter.restore()
            return
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, QColor(tokens.selection))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(area, QColor(tokens.raised))
        if row.current:
            painter.fillRect(QRect(area.left(), area.top(), 3, area.height()), QColor(tokens.accent))
        two_lines = bool(row.detail or row.note)
        top = area.adjusted(PAD, 6 if two_lines else 0, -PAD, 0)
        top.setHeight(self._line if two_lines else area.height())
        title_colour = tokens.accent if row.kind == "action" else tokens.text
        mark = str(index.data(MARK_ROLE) or "")
        if mark:
            painter.setFont(self._title)
            painter.setPen(QColor(_ink(mark, tokens)))
            painter.drawText(top, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, SIGNS.get(mark, ""))
        if row.kind == "item":
            top.setRight(top.right() - self._sign)  # whether or not there is a mark yet: nothing moves when it comes
        title = f"{_STAR if row.starred else ''}{row.title}"
        self._pair(painter, top, (self._title, title_colour, title), (self._small, tokens.text, row.trailing))
        if two_lines:
            below = QRect(top.left(), top.bottom() + 1, top.width(), area.bottom() - top.bottom() - 5)
            self._pair(painter, below, (self._small, tokens.muted, row.detail), (self._small, tokens.muted, row.note))
        painter.restore()

    def _pair(
        self, painter: QPainter, area: QRect, left: tuple[QFont, str, str], right: tuple[QFont, str, str]
    ) -> None:
        font, colour, text = right[0], right[1], shown(right[2])
        middle = Qt.AlignmentFlag.AlignVCenter
        taken = 0
        if text:
            metrics = QFontMetrics(font)
            text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, area.width() * 2 // 3)
            taken = metrics.horizontalAdvance(text) + 10
            painter.setFont(font)
            painter.setPen(QColor(colour))
            painter.drawText(area, middle | Qt.AlignmentFlag.AlignRight, text)
        font, colour, text = left[0], left[1], shown(left[2])
        painter.setFont(font)
        painter.setPen(QColor(colour))
        room = area.width() - taken
        text = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideMiddle, room)
        painter.drawText(area.adjusted(0, 0, -taken, 0), middle | Qt.AlignmentFlag.AlignLeft, text)
