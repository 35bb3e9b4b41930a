"""What tables have in common: rows without a grid, air between the columns, Tab leads out of them."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QPainter, QPalette, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from kvplanner.ui.widgets.focus_frame import FocusFrame

ROW_PADDING: Final = 6
AIR: Final = 3
ARROW: Final = 8  # pixels that the arrow of a sorted column is wide
TITLE_MARGIN: Final = 6  # as the style has it


class Airy(QStyledItemDelegate):
    """Cells with air on both sides of their text, in line with the heads: no two columns touch."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        """The text within the air; the view draws the ground of a row."""
        super().initStyleOption(option, index)
        option.rect = option.rect.adjusted(AIR, 0, -AIR, 0)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Room for the text and the air."""
        return super().sizeHint(option, index) + QSize(2 * AIR + 1, 0)  # and a rounded pixel


class Header(QHeaderView):
    """Titles with the arrow of the sorted column beside its text, on the side where there is room: never over it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.setSectionsClickable(True)
        self.setHighlightSections(False)
        self.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)

    def paintSection(self, painter: QPainter, rect: QRect, section: int) -> None:
        """The title, then the arrow: up where the least stands on top. The style draws none of its own."""
        painter.save()
        super().paintSection(painter, rect, section)
        painter.restore()
        if self.isSortIndicatorShown() and self.sortIndicatorSection() == section:
            up = self.sortIndicatorOrder() == Qt.SortOrder.AscendingOrder
            painter.setPen(QPen(self.palette().color(QPalette.ColorRole.PlaceholderText), 1.5))
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            x, y, half = self._arrow_at(rect, section), rect.center().y() + 0.5, ARROW / 2
            tip, foot = (y - half / 2, y + half / 2) if up else (y + half / 2, y - half / 2)
            painter.drawPolyline([QPointF(x - half, foot), QPointF(x, tip), QPointF(x + half, foot)])

    def _arrow_at(self, rect: QRect, section: int) -> float:
        """Its middle, left of titles that end at the right and right of those that begin at the left."""
        ask, across = self.model().headerData, Qt.Orientation.Horizontal
        wide = self.fontMetrics().horizontalAdvance(str(ask(section, across, Qt.ItemDataRole.DisplayRole) or ""))
        side = Qt.AlignmentFlag(ask(section, across, Qt.ItemDataRole.TextAlignmentRole) or self.defaultAlignment())
        apart = TITLE_MARGIN + wide + ARROW
        return rect.right() - apart if side & Qt.AlignmentFlag.AlignRight else rect.left() + apart


def sortable(table: QTableView) -> None:
    """Let a click on a title sort by its column."""
    table.setHorizontalHeader(Header(table))
    table.setSortingEnabled(True)


def flat(table: QTableView, name: str, padding: int = ROW_PADDING) -> None:
    """Make a table one of rows that are read and chosen; name: what a screen reader says."""
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setItemDelegate(Airy(table))
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setFrameShape(QFrame.Shape.NoFrame)
    table.setTabKeyNavigation(False)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + padding)
    table.horizontalHeader().setHighlightSections(False)
    table.setAccessibleName(name)
    FocusFrame(table)


def made(parent: QWidget, name: str, padding: int = ROW_PADDING) -> QTableView:
    """A new one."""
    table = QTableView(parent)
    flat(table, name, padding)
    return table
