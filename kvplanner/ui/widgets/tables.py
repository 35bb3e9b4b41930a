"""What tables have in common: rows without a grid, air between the columns, Tab leads out of them."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

ROW_PADDING: Final = 6
COLUMN_GAP: Final = 10


class Airy(QStyledItemDelegate):
    """Cells a little wider than their text, so that two right-aligned numbers never touch."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Room for the text and a gap."""
        return super().sizeHint(option, index) + QSize(COLUMN_GAP, 0)


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


def made(parent: QWidget, name: str, padding: int = ROW_PADDING) -> QTableView:
    """A new one."""
    table = QTableView(parent)
    flat(table, name, padding)
    return table
