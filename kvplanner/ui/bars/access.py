"""The memory bars for assistive technology: a list whose items are the segments, in the order of the walk."""

from __future__ import annotations

from functools import cache
from typing import Final, Protocol, cast, runtime_checkable

from PySide6.QtCore import QObject, QPoint, QRect
from PySide6.QtGui import QAccessible, QAccessibleEvent, QAccessibleInterface, QColor, QWindow
from PySide6.QtWidgets import QAccessibleWidget, QWidget
from shiboken6 import isValid

# Qt's null pointers; the stubs do not call these results optional.
_NO_INTERFACE: Final = cast(QAccessibleInterface, None)
_NO_OBJECT: Final = cast(QObject, None)
_NO_WINDOW: Final = cast(QWindow, None)


@runtime_checkable
class Walkable(Protocol):
    """A painted widget whose parts assistive technology can walk."""

    def access_count(self) -> int:
        """How many parts there are."""
        ...

    def access_name(self, index: int) -> str:
        """What a part is called."""
        ...

    def access_text(self, index: int) -> str:
        """More about a part."""
        ...

    def access_rect(self, index: int) -> QRect:
        """Where a part is, in the widget."""
        ...

    def access_current(self) -> int:
        """The part that has the keyboard, −1 for none."""
        ...


class _Part(QAccessibleInterface):
    def __init__(self, owner: PartsInterface, index: int) -> None:
        super().__init__()
        self._owner = owner
        self._index = index

    def _live(self) -> Walkable | None:
        walk = self._owner.walk
        return walk if walk is not None and self._index < walk.access_count() else None

    def isValid(self) -> bool:
        return self._live() is not None

    def object(self) -> QObject:
        return _NO_OBJECT

    def window(self) -> QWindow:
        return self._owner.window() if self._live() else _NO_WINDOW

    def parent(self) -> QAccessibleInterface:
        return self._owner

    def child(self, index: int) -> QAccessibleInterface:
        return _NO_INTERFACE

    def childCount(self) -> int:
        return 0

    def childAt(self, x: int, y: int) -> QAccessibleInterface:
        return _NO_INTERFACE

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        return -1

    def focusChild(self) -> QAccessibleInterface:
        return _NO_INTERFACE

    def text(self, kind: QAccessible.Text) -> str:
        walk = self._live()
        if walk is None:
            return ""
        if kind == QAccessible.Text.Name:
            return walk.access_name(self._index)
        return walk.access_text(self._index) if kind == QAccessible.Text.Description else ""

    def setText(self, kind: QAccessible.Text, text: str) -> None:
        """Nothing here can be renamed."""

    def rect(self) -> QRect:
        walk, widget = self._live(), self._owner.live_widget
        if walk is None or widget is None:
            return QRect()
        rect = walk.access_rect(self._index)
        return QRect(widget.mapToGlobal(rect.topLeft()), rect.size())

    def role(self) -> QAccessible.Role:
        return QAccessible.Role.ListItem

    def state(self) -> QAccessible.State:
        return QAccessible.State()

    def backgroundColor(self) -> QColor:
        return QColor()

    def foregroundColor(self) -> QColor:
        return QColor()


class PartsInterface(QAccessibleWidget):
    """The list; its items are made when first asked for and kept as long as the widget."""

    def __init__(self, widget: QWidget, walk: Walkable, name: str) -> None:
        super().__init__(widget, QAccessible.Role.List, name)
        self._widget = widget
        self._walk = walk
        self._parts: list[_Part] = []

    @property
    def live_widget(self) -> QWidget | None:
        """The widget, None when it is gone."""
        return self._widget if isValid(self._widget) else None

    @property
    def walk(self) -> Walkable | None:
        """The widget's parts, None when it is gone."""
        return self._walk if isValid(self._widget) else None

    def childCount(self) -> int:
        """The segments."""
        return self._walk.access_count() if isValid(self._widget) else 0

    def child(self, index: int) -> QAccessibleInterface:
        """The index-th segment."""
        if not 0 <= index < self.childCount():
            return _NO_INTERFACE
        while len(self._parts) <= index:
            part = _Part(self, len(self._parts))
            QAccessible.registerAccessibleInterface(part)
            self._parts.append(part)
        return self._parts[index]

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        """Which segment an interface is, −1 for none."""
        return next((i for i, part in enumerate(self._parts) if part is child), -1)

    def childAt(self, x: int, y: int) -> QAccessibleInterface:
        """The segment at a point of the screen."""
        walk, widget = self.walk, self.live_widget
        if walk is None or widget is None:
            return _NO_INTERFACE
        point = widget.mapFromGlobal(QPoint(x, y))
        found = next((i for i in range(self.childCount()) if walk.access_rect(i).contains(point)), None)
        return _NO_INTERFACE if found is None else self.child(found)

    def focusChild(self) -> QAccessibleInterface:
        """The segment that has the keyboard."""
        current = self._walk.access_current() if isValid(self._widget) else -1
        return self.child(current) if current >= 0 else _NO_INTERFACE


class Accessible(QWidget):
    """A widget that offers its parts to assistive technology (subclasses are Walkable)."""

    access_title = ""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        _install()
        self._access: PartsInterface | None = None
        self.setAccessibleName(self.access_title)

    def access_interface(self) -> QAccessibleInterface | None:
        """The interface, made when first asked for."""
        if self._access is None and isinstance(self, Walkable):
            self._access = PartsInterface(self, self, self.access_title)
        return self._access

    def tell_focus(self, index: int) -> None:
        """Tells assistive technology that a part now has the keyboard."""
        if index >= 0 and QAccessible.isActive():
            event = QAccessibleEvent(self, QAccessible.Event.Focus)
            event.setChild(index)
            QAccessible.updateAccessibility(event)


def _factory(_key: str, thing: QObject) -> QAccessibleInterface | None:
    return thing.access_interface() if isinstance(thing, Accessible) else None


@cache
def _install() -> None:
    QAccessible.installFactory(_factory)
