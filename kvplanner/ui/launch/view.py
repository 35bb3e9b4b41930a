"""The Launch page: what starts a server as planned, in the form that is asked for, and a way to paste one in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Signal
from PySide6.QtGui import QFocusEvent, QGuiApplication, QShowEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from kvplanner.engine.registry import engine
from kvplanner.errors import PlannerError
from kvplanner.report.launch import FORMS, TITLES, Form, snippet
from kvplanner.ui.theme.ink import fixed, set_pale
from kvplanner.ui.widgets.focus_frame import FocusFrame
from kvplanner.ui.widgets.labels import spoken

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.report.words import Unit

EMPTY: Final = "Choose a model and GPUs"
_LEAST_LETTERS: Final = 12
_LEAST_LINES: Final = 7


class LaunchView(QWidget):
    """Follows the plan while it is seen. copied(what): to the clipboard; paste_wanted(): a command from there.

    path_of(): where the plan's model lies on this machine, "" for one that is known by its name. check_wanted(): the
    engine's own program should be asked; lacking(plan): why it cannot be, "" where it can.
    """

    segment_selected = Signal(object)
    copied = Signal(str)
    paste_wanted = Signal()
    check_wanted = Signal()

    def __init__(
        self, path_of: Callable[[], str], lacking: Callable[[Plan], str], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._path_of = path_of
        self._lacking = lacking
        self._plan: Plan | None = None
        self._empty = EMPTY
        self.form = QComboBox(self)
        for form in FORMS:
            self.form.addItem(TITLES[form], form)
        spoken(self.form, "Form of the command")
        self.form.setMinimumWidth(self.fontMetrics().averageCharWidth() * _LEAST_LETTERS)  # before a button is cut
        self.copy_button = QPushButton("Copy", self)
        self.copy_button.setToolTip("Copy all of it")
        self.paste_button = QPushButton("Paste a command", self)
        self.paste_button.setToolTip("Plan the command, compose file, manifest or call that lies on the clipboard")
        self.check_button = QPushButton("Ask the engine", self)
        self.answer = QPlainTextEdit(self)
        self.answer.setAccessibleName("The engine's own answer")
        self.text = QPlainTextEdit(self)
        self.text.setAccessibleName("What starts the server as planned")
        for shown in (self.text, self.answer):
            shown.setReadOnly(True)
            shown.setFrameShape(QPlainTextEdit.Shape.NoFrame)
            shown.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
            shown.setTabChangesFocus(True)
            shown.setFont(fixed(self.font()))
            FocusFrame(shown)
        self.answer.hide()
        self.text.setMinimumHeight(self.fontMetrics().height() * _LEAST_LINES)
        line = QHBoxLayout()
        line.addWidget(self.form)
        line.addWidget(self.copy_button)
        line.addWidget(self.check_button)
        line.addStretch(1)
        line.addWidget(self.paste_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(line)
        column.addWidget(self.text, 2)
        column.addWidget(self.answer, 3)
        self.form.currentIndexChanged.connect(self._show)
        self.copy_button.clicked.connect(self.copy)
        self.paste_button.clicked.connect(self.paste_wanted)
        self.check_button.clicked.connect(self.check_wanted)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the form."""
        self.form.setFocus(event.reason())

    def showEvent(self, event: QShowEvent) -> None:
        """What was planned meanwhile."""
        super().showEvent(event)
        self._show()

    @property
    def chosen(self) -> Form:
        """The form that shows."""
        return FORMS[self.form.currentIndex()]

    def set_plan(self, plan: Plan | None) -> None:
        """The command of another plan; an answer about the one before is gone."""
        if plan is not self._plan:
            self.answer.hide()
        self._plan = plan
        if self.isVisible():
            self._show()

    def set_unit(self, unit: Unit) -> None:
        """A command has no sizes."""

    def set_selected(self, position: int, kind: SegmentKind | None) -> None:
        """A command is of the whole plan."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)
        self.text.setEnabled(not dimmed)

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan."""
        self._empty = text or EMPTY
        self._show()

    def copy(self) -> None:
        """All of what shows, to the clipboard."""
        if self.copy_button.isEnabled():
            QGuiApplication.clipboard().setText(self.text.toPlainText())
            self.copied.emit(f"the command as {self.form.currentText()}")

    def show_asking(self, asking: bool) -> None:
        """While the engine's program runs it is not asked again."""
        self.check_button.setEnabled(not asking)
        self.check_button.setText("Asking…" if asking else "Ask the engine")

    def show_answer(self, text: str) -> None:
        """What the engine says, below the command."""
        self.answer.setPlainText(text)
        self.answer.setVisible(bool(text))

    def _show_check(self) -> None:
        why = self._lacking(self._plan) if self._plan is not None else EMPTY
        self.check_button.setVisible(self._plan is None or engine(self._plan.request.engine).probe() is not None)
        self.check_button.setEnabled(not why and not self.check_button.text().startswith("Asking"))
        tip = "Run the engine's own program on this file, for 30 seconds at most, and compare its sizes with the plan's"
        self.check_button.setToolTip(why or tip)
        self.check_button.setAccessibleDescription(why or tip)

    def _show(self) -> None:
        self._show_check()
        text, whole = self._empty, False
        if self._plan is not None:
            try:
                text, whole = snippet(self.chosen, self._plan, self._path_of()), True
            except PlannerError as error:
                text = error.what[:1].upper() + error.what[1:]
        self.copy_button.setEnabled(whole)
        if text != self.text.toPlainText():
            at = self.text.verticalScrollBar().value()
            self.text.setPlainText(text)
            self.text.verticalScrollBar().setValue(at)
