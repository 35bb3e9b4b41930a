"""Where F6 goes: from panel to panel, forward and back, and always to something that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

MARGIN = 12


class Stop(NamedTuple):
    """A panel, and what of it takes the focus."""

    panel: QWidget
    target: QWidget


def step(stops: Sequence[Stop], by: int) -> None:
    """Move the focus to the next panel (by 1) or the one before (by -1); from elsewhere to the first or the last."""
    focus = QApplication.focusWidget()
    inside = (i for i, s in enumerate(stops) if focus is not None and (s.panel is focus or s.panel.isAncestorOf(focus)))
    at = next(inside, -1 if by > 0 else 0)
    target = stops[(at + by) % len(stops)].target
    target.setFocus(Qt.FocusReason.ShortcutFocusReason)
    reveal(target)


def reveal(widget: QWidget) -> None:
    """Scroll all that it lies in so that it can be seen."""
    ground = widget.parentWidget()
    while ground is not None:
        if isinstance(ground, QScrollArea) and ground.widget() is not None:
            ground.ensureWidgetVisible(widget, MARGIN, MARGIN)
        ground = ground.parentWidget()
