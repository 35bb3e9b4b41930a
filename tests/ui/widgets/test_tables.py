"""Tables: the arrow of a sorted column stands beside its title, on whichever side that ends."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage, QStandardItem, QStandardItemModel
from pytestqt.qtbot import QtBot

from kvplanner.ui.widgets import tables
from kvplanner.ui.window.application import Application

TITLES = ("Model", "Context", "Left")


@pytest.mark.parametrize("section", range(3))
@pytest.mark.parametrize("order", list(Qt.SortOrder))
@pytest.mark.parametrize("side", [Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight])
def test_the_arrow_clears_the_title(
    application: Application, qtbot: QtBot, section: int, order: Qt.SortOrder, side: Qt.AlignmentFlag
) -> None:
    application.theme.complete()  # the style draws no arrow of its own
    model = QStandardItemModel(1, len(TITLES))
    for column, title in enumerate(TITLES):
        model.setHorizontalHeaderItem(column, QStandardItem(title))
        model.setHeaderData(column, Qt.Orientation.Horizontal, side, Qt.ItemDataRole.TextAlignmentRole)
    table = tables.made(None, "A table")  # type: ignore[arg-type]  # no parent
    qtbot.addWidget(table)
    table.setModel(model)
    tables.sortable(table)
    table.resize(400, 100)
    table.show()
    table.resizeColumnsToContents()
    header = table.horizontalHeader()

    def drawn() -> QImage:
        image = QImage(header.size(), QImage.Format.Format_RGB32)
        header.render(image, QPoint())
        return image

    header.setSortIndicatorShown(False)
    plain = drawn()
    header.setSortIndicatorShown(True)
    table.sortByColumn(section, order)
    sorted_ = drawn()
    area = QRect(header.sectionViewportPosition(section), 0, header.sectionSize(section), header.height())
    ground = plain.pixel(area.x() + area.width() // 2, 1)
    text = [p for p in _inside(area) if plain.pixel(p) != ground and p.y() < header.height() - 2]
    changed = [p for p in _inside(header.rect()) if plain.pixel(p) != sorted_.pixel(p)]
    assert changed, "there is an arrow"
    assert all(area.contains(point) for point in changed)
    left, right = min(p.x() for p in text), max(p.x() for p in text)
    # Where letters stand between pixels (Ubuntu's fonts), the title itself is drawn a little otherwise.
    beside = [p.x() for p in changed if p.x() < left or p.x() > right]
    assert max(beside) - min(beside) >= tables.ARROW, "over the title"
    assert max(beside) < left or min(beside) > right, "on one side of it"


def _inside(area: QRect) -> list[QPoint]:
    return [QPoint(x, y) for x in range(area.left(), area.right()) for y in range(area.top(), area.bottom())]
