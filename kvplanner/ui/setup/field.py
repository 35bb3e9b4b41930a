"""One line of the form: label, input, reset, and the message when the value is refused."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.ui.setup.inputs import ROW_HEIGHT
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.widgets.labels import ErrorLabel, quiet_button

EDIT_WIDTH: Final = 96


class Field(QWidget):
    """A labelled input. reset_asked(): the value should become the default again; error_changed(): refused, or not."""

    _hint = ""
    edit_last = False  # of two inputs the second comes first on the line
    offer_below = False  # the line is full
    reset_asked = Signal()
    error_changed = Signal()

    def __init__(self, label: str, inputs: tuple[QWidget, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = label
        self._offered: QToolButton | None = None
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
        self._hint = text
        self.setToolTip(shown(text))
        for widget in self.inputs:
            widget.setAccessibleDescription(shown(text))

    def write_anew(self) -> None:
        """Figures look otherwise now."""
        if self._hint:
            self.set_hint(self._hint)

    def set_error(self, text: str) -> None:
        """Say below the input why its value was refused; "" takes it back."""
        if text == self.error.message:
            return
        self.error.say(text)
        self.error_changed.emit()
        for widget in self.inputs:
            set_wrong = getattr(widget, "set_wrong", None)
            if set_wrong is not None:
                set_wrong(bool(text))

    def offer(self, text: str, name: str) -> QToolButton:
        """A button behind the label, or right-hand below as values are, which asks for the value at a limit; hidden
        until it is shown.
        """
        button = quiet_button(text, name, self)
        button.hide()
        if self.offer_below:
            self.outer.insertWidget(1, button, 0, Qt.AlignmentFlag.AlignRight)
        else:
            self.line.insertWidget(1, button)
        self._offered = button
        return button

    def marks(self) -> tuple[QWidget, ...]:
        """Further buttons of the row that a keyboard reaches."""
        return (self._offered,) if self._offered is not None else ()


def tab_stops(field: Field) -> list[QWidget]:
    """What a keyboard reaches in a row, in the order in which it is read."""
    inputs = [*reversed(field.inputs)] if len(field.inputs) == 2 and field.edit_last else [*field.inputs]
    return [*inputs, field.reset_button, *field.marks()]
