"""Where F6 goes: from panel to panel, forward and back, and always to something that can be seen."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

from kvplanner.record import NamedTuple

MARGIN = 12


class Stop(NamedTuple):
    """A panel, and what of it takes the focus: where that cannot, the first of the panel that can."""

    panel: QWidget
    target: QWidget


def step(stops: Sequence[Stop], by: int) -> None:
    """Move the focus to the next panel (by 1) or the one before (by -1); from elsewhere to the first or the last.

    A panel without anything that can take it is passed over.
    """
    focus = QApplication.focusWidget()
    inside = (i for i, s in enumerate(stops) if focus is not None and (s.panel is focus or s.panel.isAncestorOf(focus)))
    at = next(inside, -1 if by > 0 else 0)
    ahead = (stops[(at + by * far) % len(stops)] for far in range(1, len(stops) + 1))
    target = next((found for stop in ahead if (found := _landing(stop)) is not None), None)
    if target is not None:
        target.setFocus(Qt.FocusReason.ShortcutFocusReason)
        reveal(target)


def _landing(stop: Stop) -> QWidget | None:
    """What takes the focus in a panel, None where nothing does."""
    if _takes(stop.target):
        return stop.target
    found = stop.panel.nextInFocusChain()
    while found is not None and found is not stop.panel:
        if stop.panel.isAncestorOf(found) and found.focusPolicy() & Qt.FocusPolicy.TabFocus and _takes(found):
            return found
        found = found.nextInFocusChain()
    return None


def _takes(widget: QWidget) -> bool:
    return widget.isVisible() and widget.isEnabled()


def reveal(widget: QWidget) -> None:
    """Scroll all that it lies in so that it can be seen."""
    ground = widget.parentWidget()
    while ground is not None:
        if isinstance(ground, QScrollArea) and ground.widget() is not None:
            ground.ensureWidgetVisible(widget, MARGIN, MARGIN)
        ground = ground.parentWidget()
