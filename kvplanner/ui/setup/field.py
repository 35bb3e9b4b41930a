"""One line of the form: label, input, reset, and the message when the value is refused."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.ui.setup.inputs import ROW_HEIGHT
from kvplanner.ui.setup.labels import breakable

EDIT_WIDTH: Final = 96


class WrappedLabel(QLabel):
    """A text of several lines that gets the height it takes: layouts within layouts lose it. exact: and no more."""

    def __init__(self, text: str = "", parent: QWidget | None = None, *, exact: bool = False) -> None:
        super().__init__(text, parent)
        self._exact = exact
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def setText(self, text: str) -> None:
        """Another text may need another height."""
        super().setText(text)
        if self.isVisible():
            self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """At another width the text takes another height."""
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        """The text may have changed while it was hidden."""
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        height = max(0, self.heightForWidth(self.width()))
        self.setMinimumHeight(height)
        if self._exact:
            self.setMaximumHeight(height)


class ErrorLabel(WrappedLabel):
    """What is wrong, hidden while nothing is. It may quote what was typed: plain text, and long words break."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", "error")
        self.said = ""
        self.hide()

    def say(self, text: str) -> None:
        """Show a message, "" for none."""
        self.said = text
        self.setText(breakable(text))
        self.setVisible(bool(text))


def muted_label(text: str = "", parent: QWidget | None = None) -> QLabel:
    """A quiet line of text that wraps."""
    label = QLabel(text, parent)
    label.setProperty("role", "muted")
    label.setWordWrap(True)
    return label


def heading(text: str, parent: QWidget | None = None) -> QLabel:
    """A section's title."""
    label = QLabel(text.upper(), parent)
    label.setProperty("role", "heading")
    label.setAccessibleName(text)
    font = label.font()
    font.setPointSizeF(font.pointSizeF() * 0.85)
    font.setWeight(QFont.Weight.DemiBold)
    font.setLetterSpacing(QFont.SpacingType.AbsoluteSpacing, 0.6)
    label.setFont(font)
    return label


def quiet_button(text: str, name: str, parent: QWidget | None = None) -> QToolButton:
    """A button that looks like text until it is pointed at; `name` is what a screen reader says."""
    button = QToolButton(parent)
    button.setText(text)
    button.setProperty("quiet", "true")
    button.setAccessibleName(name)
    button.setToolTip(name)
    button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return button


class Field(QWidget):
    """A labelled input. reset_asked(): the value should become the default again; error_changed(): refused, or not."""

    edit_last = False  # of two inputs the second comes first on the line
    reset_asked = Signal()
    error_changed = Signal()

    def __init__(self, label: str, inputs: tuple[QWidget, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = label
        self.label = QLabel(label, self)
        self.label.setMinimumHeight(ROW_HEIGHT)
        self.label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.inputs = inputs
        self.line = QHBoxLayout()
        self.line.setSpacing(6)
        self.line.addWidget(self.label)
        self.reset_button = quiet_button("↺", f"Reset {label} to its default", self)
        policy = self.reset_button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset_button.setSizePolicy(policy)
        self.reset_button.setFixedWidth(22)
        self.reset_button.hide()
        self.reset_button.clicked.connect(self.reset_asked)
        self.error = ErrorLabel(self)
        self.outer = QVBoxLayout(self)
        self.outer.setContentsMargins(0, 0, 0, 0)
        self.outer.setSpacing(2)
        self.outer.addLayout(self.line)
        self.outer.addWidget(self.error)
        if inputs:
            self.label.setBuddy(inputs[0])
        for widget in inputs:
            if not widget.accessibleName():
                widget.setAccessibleName(label)

    def set_changed(self, changed: bool) -> None:
        """Whether the value was set by the user: then it can be reset."""
        if self.reset_button.isHidden() == changed:
            had_focus = self.reset_button.hasFocus()
            self.reset_button.setVisible(changed)
            if had_focus and not changed and self.inputs:
                self.inputs[-1].setFocus(Qt.FocusReason.OtherFocusReason)

    def set_hint(self, text: str) -> None:
        """What the tooltip and a screen reader add to the name."""
        self.setToolTip(text)
        for widget in self.inputs:
            widget.setAccessibleDescription(text)

    def set_error(self, text: str) -> None:
        """Say below the input why its value was refused; "" takes it back."""
        if text == self.error.said:
            return
        self.error.say(text)
        self.error_changed.emit()
        for widget in self.inputs:
            set_wrong = getattr(widget, "set_wrong", None)
            if set_wrong is not None:
                set_wrong(bool(text))

    def marks(self) -> tuple[QWidget, ...]:
        """Further buttons of the row that a keyboard reaches."""
        return ()


def tab_stops(field: Field) -> list[QWidget]:
    """What a keyboard reaches in a row, in the order in which it is read."""
    inputs = [*reversed(field.inputs)] if len(field.inputs) == 2 and field.edit_last else [*field.inputs]
    return [*inputs, field.reset_button, *field.marks()]
