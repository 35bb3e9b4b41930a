"""That the measuring of screens finds what it is for: each fault, made on purpose, and none where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QComboBox, QLabel, QPushButton, QWidget
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (well, ""), (cut_label, "needs"), (cut_lines, "needs"), (cut_button, "needs"), (cut_choice, "needs"),
        (over_the_edge, "shows"), (covered, "share"), (faint_label, "contrast"), (cut_paint, "needs"),
        (covered_paint, "share"), (faint_paint, "contrast"),
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
