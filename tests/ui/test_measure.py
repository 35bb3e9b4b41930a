"""That the measuring of screens finds what it is for: each fault, made on purpose, and none where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPalette, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QComboBox,
    QLabel,
    QPushButton,
    QScrollArea,
    QTabBar,
    QTableView,
    QTextBrowser,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.ui.measure import faults


class Board(QWidget):
    """A ground with texts that are painted: (text, where, ink)."""

    texts: tuple[tuple[str, QRectF, str], ...] = ()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor("#ffffff"))
        for text, place, ink in self.texts:
            painter.setPen(QColor(ink))
            painter.drawText(place, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop), text)


def label(board: Board, text: str, *place: int) -> QLabel:
    made = QLabel(text, board)
    made.setGeometry(*place)
    return made


def well(board: Board) -> None:
    label(board, "Weights", 10, 10, 120, 24)
    label(board, "KV cache", 10, 40, 120, 24)
    board.texts = (("activations", QRectF(10, 80, 150, 24), "#222222"),)


def cut_label(board: Board) -> None:
    label(board, "Runtime outside the budget", 10, 10, 60, 24)


def cut_lines(board: Board) -> None:
    label(board, "Several words that need three lines at least here", 10, 10, 100, 20).setWordWrap(True)


def cut_button(board: Board) -> None:
    QPushButton("Copy the whole command", board).setGeometry(10, 10, 60, 24)


def cut_choice(board: Board) -> None:
    box = QComboBox(board)
    box.addItem("As stored, in a long word")
    box.setGeometry(10, 10, 70, 24)


def over_the_edge(board: Board) -> None:
    label(board, "Weights", 290, 10, 120, 24)


def covered(board: Board) -> None:
    label(board, "Weights", 10, 10, 120, 24)
    label(board, "KV cache", 60, 15, 120, 24)


def faint_label(board: Board) -> None:
    made = label(board, "Weights", 10, 10, 120, 24)
    palette = made.palette()
    palette.setColor(QPalette.ColorRole.WindowText, QColor("#999999"))
    made.setPalette(palette)


def cut_paint(board: Board) -> None:
    board.texts = (("a text that is wider than it may be", QRectF(10, 10, 40, 24), "#000000"),)


def covered_paint(board: Board) -> None:
    board.texts = (("budget", QRectF(10, 10, 90, 24), "#000000"), ("capacity", QRectF(30, 12, 90, 24), "#000000"))


def faint_paint(board: Board) -> None:
    board.texts = (("budget", QRectF(10, 10, 90, 24), "#aaaaaa"),)


def squeezed(board: Board) -> None:
    """In a ground that scrolls, but cut by a place on it."""
    ground, area = QWidget(), QScrollArea(board)
    ground.setFixedSize(250, 600)
    area.setWidget(ground)
    area.setGeometry(0, 0, 280, 180)
    place = QWidget(ground)
    place.setGeometry(10, 10, 120, 12)
    QPushButton("Weights", place).setGeometry(0, 0, 100, 24)


def tabs(board: Board, rules: str) -> QTabBar:
    bar = QTabBar(board)
    bar.setDocumentMode(True)
    bar.setUsesScrollButtons(False)
    bar.setStyleSheet(rules)
    for title in ("Explain", "Start-up"):
        bar.addTab(title)
    bar.setGeometry(0, 0, 290, 30)
    return bar


def cut_tabs(board: Board) -> None:
    tabs(board, "QTabBar::tab { width: 30px; padding: 4px 9px; }")


def faint_tabs(board: Board) -> None:
    tabs(board, "QTabBar::tab { padding: 4px 9px; color: #b0b0b0; background: #ffffff; }")


def table(board: Board, text: str, ink: str = "#000000", tip: str = "") -> None:
    view, rows = QTableView(board), QStandardItemModel(1, 1)
    rows.setHorizontalHeaderLabels(["of"])
    item = QStandardItem(text)
    item.setForeground(QColor(ink))
    item.setToolTip(tip)
    rows.setItem(0, 0, item)
    rows.setParent(view)
    view.setModel(rows)
    view.verticalHeader().hide()
    view.setColumnWidth(0, 60)
    view.setGeometry(0, 0, 200, 100)


def cut_cell(board: Board) -> None:
    table(board, "a cell that is wider", tip="and a hint that says something else")


def hinted_cell(board: Board) -> None:
    table(board, "a cell that is wider", tip="a cell that is wider, whole")


def faint_cell(board: Board) -> None:
    table(board, "cell", "#b0b0b0")


def page(board: Board, html: str) -> QTextBrowser:
    text = QTextBrowser(board)
    text.setGeometry(0, 0, 280, 160)
    text.setHtml(html)
    return text


def whole_page(board: Board) -> None:
    page(board, '<p style="color:#222222">Several words that need more than one line in a page of this width</p>')


def broken_word(board: Board) -> None:
    page(board, '<table width="60"><tr><td>bytes&nbsp;per&nbsp;block</td></tr></table>')


def wide_page(board: Board) -> None:
    page(board, '<table width="400"><tr><td>' + "several words " * 4 + "</td></tr></table>").setLineWrapMode(
        QTextBrowser.LineWrapMode.NoWrap
    )


def covered_page(board: Board) -> None:
    page(board, "<p>Several words that need more than one line in a page of this width</p>")
    button = QPushButton("Copy as text", board)
    button.setFlat(True)
    button.setGeometry(160, 2, 110, 20)


def faint_words(board: Board) -> None:
    page(board, '<p>black, and <span style="color:#b0b0b0">grey</span></p>')


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (well, ""), (cut_label, "needs"), (cut_lines, "needs"), (cut_button, "needs"), (cut_choice, "needs"),
        (over_the_edge, "shows"), (covered, "share"), (faint_label, "contrast"), (cut_paint, "needs"),
        (covered_paint, "share"), (faint_paint, "contrast"), (squeezed, "shows"), (cut_tabs, "needs"),
        (faint_tabs, "contrast"), (cut_cell, "needs"), (hinted_cell, ""), (faint_cell, "contrast"), (whole_page, ""),
        (broken_word, "breaks"), (wide_page, "leaves"), (covered_page, "under"), (faint_words, "contrast"),
    ],
)  # fmt: skip
def test_each_fault_is_found(qtbot: QtBot, make: Callable[[Board], None], words: str) -> None:
    board = Board()
    qtbot.addWidget(board)
    board.setPalette(QPalette(QColor("#f0f0f0"), QColor("#ffffff")))  # whatever colours another test left behind
    board.resize(300, 200)
    make(board)
    board.show()
    found = faults(board)
    assert any(words in fault for fault in found) if words else found == []
