"""Painted parts for assistive technology: each has a named, invisible twin widget where it is drawn.

Twins are plain widgets, since interfaces written in Python are deleted twice when their widget goes (PySide6 6.11).
They exist only while assistive technology listens.
"""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, QTimer
from PySide6.QtWidgets import QLabel, QWidget

from kvplanner.ui.theme.figures import shown

FOLLOW_MS = 200  # after the first frame, which needs none of Qt's classes for assistive technology


class Accessible(QWidget):
    """A widget whose painted parts can be walked; subclasses say what the parts are."""

    access_title = ""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._twins: list[QLabel] = []
        self._twin_timer = QTimer(self)
        self._twin_timer.setSingleShot(True)
        self._twin_timer.setInterval(FOLLOW_MS)
        self._twin_timer.timeout.connect(self._follow)
        self.setAccessibleName(self.access_title)

    def access_count(self) -> int:
        """How many parts there are."""
        raise NotImplementedError

    def access_name(self, index: int) -> str:
        """What a part is called."""
        raise NotImplementedError

    def access_text(self, index: int) -> str:
        """More about a part."""
        raise NotImplementedError

    def access_rect(self, index: int) -> QRect:
        """Where a part is, in the widget."""
        raise NotImplementedError

    def access_current(self) -> int:
        """The part that has the keyboard, −1 for none."""
        raise NotImplementedError

    def parts_changed(self) -> None:
        """Brings the twins up to date soon, if anyone listens."""
        if not self._twin_timer.isActive():
            self._twin_timer.start()

    def _follow(self) -> None:
        if _listening():
            self.update_twins()

    def twins(self) -> list[QLabel]:
        """The twins in use, in the order of the parts."""
        return [twin for twin in self._twins if not twin.isHidden()]

    def update_twins(self) -> None:
        """Names and places the twins; spare ones are hidden for later."""
        count = self.access_count()
        while len(self._twins) < count:
            twin = QLabel(self)
            twin.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            twin.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            self._twins.append(twin)
        for index, twin in enumerate(self._twins):
            if index < count:
                twin.setAccessibleName(shown(self.access_name(index)))
                twin.setAccessibleDescription(shown(self.access_text(index)))
                twin.setGeometry(self.access_rect(index))
            twin.setVisible(index < count)

    def tell_focus(self) -> None:
        """Tells assistive technology which part now has the keyboard."""
        index = self.access_current()
        if not 0 <= index < self.access_count():
            return
        self.setAccessibleDescription(shown(self.access_name(index)))
        if _listening():
            from PySide6.QtGui import QAccessible, QAccessibleEvent

            self.update_twins()
            QAccessible.updateAccessibility(QAccessibleEvent(self._twins[index], QAccessible.Event.Focus))


def _listening() -> bool:
    """Whether assistive technology is there; asked late, since Qt's classes for it take their time to load."""
    from PySide6.QtGui import QAccessible

    return QAccessible.isActive()
