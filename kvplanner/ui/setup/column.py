"""Many widgets one below another, made and shown a few at each turn of the event loop, from the top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from PySide6.QtCore import QEvent, QObject, QRect, QTimer, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

# Of a turn of 16 ms; painting what was shown takes the rest.
SLICE_S: Final = 0.006


class Column(QWidget):
    """Places its widgets itself: a layout would ask all of them for their heights anew at every turn.

    filled(): all that was asked for stands. height_changed(): layouts above should follow at once.
    make(key): a new widget, hidden, which stays for later arrangements. likely_height: of one, for the room that those
    still to come will take, so that what is below need not wander.
    """

    filled = Signal()
    height_changed = Signal()

    def __init__(self, make: Callable[[str], QWidget], likely_height: int, parent: QWidget) -> None:
        super().__init__(parent)
        self._make, self._likely_height = make, likely_height
        self._widgets: dict[str, QWidget] = {}
        self._heights: dict[QObject, int] = {}  # at the present width
        self._items: Sequence[tuple[str, bool]] = ()
        self._next = self._top = 0
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.timeout.connect(self._fill)

    @property
    def filling(self) -> bool:
        """Whether some are still to come, or to be placed."""
        return self._turn.isActive()

    def widget(self, key: str) -> QWidget:
        """The widget of a key, made if need be; it may have no place yet."""
        found = self._widgets.get(key)
        if found is None:
            found = self._widgets[key] = self._make(key)
            found.installEventFilter(self)
        return found

    def arrange(self, items: Sequence[tuple[str, bool]]) -> None:
        """Have these in this order, those shown that say so. What must go goes at once, what comes begins to."""
        self._items = items
        shown = {key for key, on in items if on}
        for key, widget in [*self._widgets.items()]:
            if key not in shown and not widget.isHidden():
                widget.hide()
            if self._items is not items:  # it had the focus: what was typed there took effect, and arranged them anew
                return
        self._next = self._top = 0
        self._fill()

    def empty(self) -> None:
        """Hide all, so that being shown again costs no more than what is in sight."""
        self._turn.stop()
        self._items = ()
        for widget in [*self._widgets.values()]:
            widget.hide()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nothing goes on where nobody sees it."""
        super().hideEvent(event)
        self._turn.stop()

    def showEvent(self, event: QShowEvent) -> None:
        """Go on."""
        super().showEvent(event)
        self._again()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """At another width everything has another height."""
        if event.size().width() != event.oldSize().width():
            self._heights.clear()
            self._again()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A widget whose content changed may need another height."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._heights.pop(watched, None)
            self._again()
        return False

    def _again(self) -> None:
        """From the top at the next turn: what stands where it should costs next to nothing."""
        self._next = self._top = 0
        if self._items:
            self._turn.start(0)

    def _fill(self) -> None:
        """The next few."""
        end = perf_counter() + SLICE_S
        while self._next < len(self._items) and perf_counter() < end:
            key, shown = self._items[self._next]
            self._next += 1
            if shown:
                self._top = self._put(self.widget(key), self._top)
        rest = [key for key, shown in self._items[self._next :] if shown]
        self._reserve(rest)
        if self._next < len(self._items):
            self._turn.start(0)
        else:
            self._turn.stop()
            self.filled.emit()

    def _put(self, widget: QWidget, top: int) -> int:
        """Show a widget here; where the next one begins."""
        height = self._heights.get(widget)
        if height is None:
            wide = self.width()
            height = widget.heightForWidth(wide) if widget.hasHeightForWidth() else widget.sizeHint().height()
            self._heights[widget] = height
        place = QRect(0, top, self.width(), height)
        if widget.geometry() != place:
            widget.setGeometry(place)
        if widget.isHidden():
            widget.show()
        return top + height

    def _reserve(self, rest: Sequence[str]) -> None:
        """Those in sight that are still to be placed make way; the room of the others is kept free."""
        top = self._top
        for key in rest:
            widget = self._widgets.get(key)
            if widget is not None and not widget.isHidden():
                top = self._put(widget, top)
                continue
            top += self._likely_height
        needed = max(top, self.height()) if rest else top
        if needed != self.minimumHeight() or needed != self.maximumHeight():
            self.setFixedHeight(needed)
            self.height_changed.emit()
