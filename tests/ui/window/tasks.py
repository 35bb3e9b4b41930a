"""Fourteen tasks that people come with, and the steps that each takes: before the window was gone over, and now.

A step is a click, a drop, a key with its modifiers, or a text that is typed or pasted at one go.
`python -m tests.ui.window.tasks` counts them in the real window and prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.engine.plan import Plan
from kvplanner.ui.window.window import MainWindow

MOST: Final = 4  # where the answer is one number


class Before(NamedTuple):
    """What a task took at the revision before, and how that is known: driven there, or from its menus and code."""

    steps: str
    known: str = "from its code"


_SAME: Final = "the same code"
# By task and part. Revision 968c3c5, the last one before the window was gone over; driven with the keys of the test.
BEFORE: Final[dict[str, Before]] = {
    "1 a 32B in four bits on one 24 GB card, what to change": Before("4, one way out: the context", "driven"),
    "2 two 3090s, 32k, 8 users": Before("9", "driven"),
    "3 a vllm serve line": Before("3, in the chooser of models only", "driven"),
    "4 a model's folder": Before("1", _SAME),
    "4 a GGUF file": Before("1", _SAME),
    "4 a config.json": Before("1", _SAME),
    "5 the fix of a failing plan": Before("1, the context only", "looked at"),
    "6 two options compared": Before("3, in two windows, by head"),
    "7 the longest context": Before("1", "looked at"),
    "7 the most users": Before("3", "driven"),
    "8 this machine's GPUs watched, the plan laid over": Before("1", _SAME),
    "8 the processes": Before("0, below the plot, at 60 pixels"),
    "8 a running server becomes the plan": Before("1", _SAME),
    "8 a recording": Before("2", _SAME),
    "8 its replay, with its date, pause and place": Before("–, it played once and looked live"),
    "9 a picture": Before("2", _SAME),
    "9 the command": Before("1", _SAME),
    "9 a report": Before("–, a Markdown table only"),
    "10 save": Before("2", _SAME),
    "10 reopen": Before("2", _SAME),
    "10 undo": Before("1", _SAME),
    "10 the last edit after a kill": Before("0", _SAME),
    "11 model, GPUs, context and cache type by keyboard": Before("13, Ctrl+F for each option"),
    "12 the verdict read at four sizes and at 150 %": Before("1, a scroll; no size below 1350×840 at 150 %"),
    "13 wrong input in each field, told where it is typed": Before("3", _SAME),
    "14 a GPU that no longer answers": Before("2, to the dock and its notice"),
    "14 no driver": Before("0, the first plan failed on a 24 GB machine"),
}
NOW: Final[dict[str, int]] = {}


class Person:
    """Does things in a window and counts them."""

    def __init__(self, window: MainWindow, qtbot: QtBot) -> None:
        self.window, self.qtbot = window, qtbot
        self.steps = 0

    def took(self, task: str, most: int = MOST) -> None:
        """A task is done: its steps since the one before."""
        assert task in BEFORE
        NOW[task] = max(self.steps, NOW.get(task, 0))
        assert self.steps <= most, f"{task}: {self.steps} steps"
        self.steps = 0

    def _target(self) -> QWidget:
        return QApplication.focusWidget() or self.window

    def keys(self, sequence: str) -> None:
        """A key with its modifiers."""
        self.steps += 1
        QTest.keySequence(self._target(), QKeySequence(sequence))

    def type(self, text: str) -> None:
        """A text at one go."""
        self.steps += 1
        for character in text:  # the first may open what the others go to
            QTest.keyClicks(self._target(), character)

    def paste(self, text: str) -> None:
        """A text that lies on the clipboard."""
        QGuiApplication.clipboard().setText(text)  # where it came from
        self.keys("Ctrl+V")

    def click(self, widget: QWidget, where: QPoint | None = None) -> None:
        """A click on something that can be seen."""
        self.steps += 1
        assert widget.isVisible()
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=where or QPoint())

    def drop(self, path: str) -> None:
        """A file or folder dropped on the plan."""
        self.steps += 1
        mime = QMimeData()
        mime.setUrls([QUrl.fromLocalFile(path)])
        copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        self.window.dragEnterEvent(QDragEnterEvent(QPoint(300, 300), copy, mime, left, none))
        self.window.dropEvent(QDropEvent(QPointF(300, 300), copy, mime, left, none))

    def offer(self, part: str) -> QPushButton:
        """A button of the verdict, once it is there."""
        verdict = self.window.centre.verdict

        def found() -> list[QPushButton]:
            return [b for b in verdict.findChildren(QPushButton) if b.isVisible() and part in getattr(b, "full", "")]

        self.qtbot.waitUntil(lambda: bool(found()), timeout=20_000)
        return found()[0]

    def planned(self, of: Callable[[Plan], bool]) -> Plan:
        """The plan, once it is such."""
        document = self.window.document

        def done() -> bool:
            document.flush()
            return document.plan is not None and document.error is None and of(document.plan)

        self.qtbot.waitUntil(done, timeout=20_000)
        assert document.plan is not None
        return document.plan

    def reads(self) -> str:
        """What the verdict says."""
        labels = self.window.centre.verdict.findChildren(QLabel)
        return " ".join(label.text() for label in labels if label.isVisible()).replace("\xa0", " ")


def table() -> str:
    """The tasks with their steps before and now, as Markdown."""
    rows = ["| task | steps before | steps now |", "|---|---|---|"]
    for task, before in BEFORE.items():
        rows.append(f"| {task} | {before.steps} ({before.known}) | {NOW.get(task, 'not counted')} |")
    return "\n".join(rows)


def main() -> int:
    """Counts all steps and prints the table; 1 where a task cannot be done."""
    import pytest

    status = pytest.main(["-q", "-p", "no:cacheprovider", "tests/ui/window/test_tasks.py"])
    counted = sys.modules.get("tests.ui.window.tasks", sys.modules[__name__])
    sys.stdout.write(f"\n{counted.table()}\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
