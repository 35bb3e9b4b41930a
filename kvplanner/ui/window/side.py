"""The side of the window with the form: it can be made wider, and folds away where the window has no room for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QHBoxLayout, QSizePolicy, QWidget

from kvplanner.app import settings as s
from kvplanner.ui.setup.width import GRIP_WIDTH, NARROWEST, RAIL_WIDTH, WIDEST, folds, panel_width
from kvplanner.ui.theme.ink import colour, tokens_of

if TYPE_CHECKING:
    from kvplanner.ui.setup.panel import SetupPanel

KEY_STEP: Final = 20


class Grip(QWidget):
    """The edge of the form, to be dragged, or moved with Left and Right. moved(pixels), released(), usual()."""

    moved = Signal(int)
    released = Signal()
    usual = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._from: float | None = None
        self.setFixedWidth(GRIP_WIDTH)
        self.setCursor(Qt.CursorShape.SplitHCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Width of the setup")
        self.setToolTip("Drag to make the setup wider; double-click for its usual width")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin."""
        self._from = event.globalPosition().x()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Follow."""
        if self._from is not None:
            self.moved.emit(round(event.globalPosition().x() - self._from))
            self._from = event.globalPosition().x()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Back."""
        self.usual.emit()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """End."""
        self._from = None
        self.released.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """In steps."""
        step = {Qt.Key.Key_Left: -KEY_STEP, Qt.Key.Key_Right: KEY_STEP}.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        self.moved.emit(step)
        self.released.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        """A line where the form ends; a thick one while it has the focus."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        wide = 3 if self.hasFocus() else 1
        painter.fillRect(0, 0, wide, self.height(), colour(tokens.accent if self.hasFocus() else tokens.border))


class Rail(QAbstractButton):
    """What stays of a folded form: a strip over the whole height that brings it back."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText("Setup")
        self.setAccessibleName("Show the setup")
        self.setToolTip("Show the setup (Ctrl+B)")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setFixedWidth(RAIL_WIDTH)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        """Its text stands upright."""
        return QSize(RAIL_WIDTH, 120)

    def enterEvent(self, event: QEnterEvent) -> None:
        """Something happens on a click."""
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The form's ground with its name."""
        tokens, painter = tokens_of(self), QPainter(self)
        painter.fillRect(self.rect(), colour(tokens.raised if self.underMouse() else tokens.panel))
        painter.fillRect(self.width() - 1, 0, 1, self.height(), colour(tokens.border))
        if self.hasFocus():
            painter.setPen(colour(tokens.accent))
            painter.drawRect(self.rect().adjusted(1, 1, -2, -2))
        painter.setPen(colour(tokens.text))
        painter.rotate(-90)
        wide = self.fontMetrics().horizontalAdvance("Setup  ▾") + 8
        painter.drawText(QRect(-wide - 14, 0, wide, self.width()), Qt.AlignmentFlag.AlignCenter, "Setup  ▾")


class Side(QWidget):
    """The form with its grip, or a narrow rail with a button that brings it back. shown(on): the form can be seen."""

    shown = Signal(bool)

    def __init__(self, panel: SetupPanel, settings: s.Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.panel = panel
        self._settings = settings
        self._narrow = False
        self._opened = False  # in a window that has no room for it
        self.grip = Grip(self)
        self.rail = Rail(self)
        self.rail.hide()
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(0)
        line.addWidget(panel)
        line.addWidget(self.grip)
        line.addWidget(self.rail)
        self._set_width(panel_width(settings.get(s.PANEL_WIDTH), self.fontMetrics().height()))
        self.grip.moved.connect(lambda by: self._set_width(panel.width() + by))
        self.grip.released.connect(lambda: settings.set(s.PANEL_WIDTH, panel.width()))
        self.grip.usual.connect(self._usual_width)
        self.rail.clicked.connect(lambda: self.show_form(True))

    def _set_width(self, width: int) -> None:
        self.panel.set_width(min(max(width, NARROWEST), WIDEST))

    def _usual_width(self) -> None:
        self._settings.set(s.PANEL_WIDTH, 0)
        self._set_width(panel_width(0, self.fontMetrics().height()))

    @property
    def open(self) -> bool:
        """Whether the form shows."""
        return not self.panel.isHidden()

    def show_form(self, on: bool) -> None:
        """Show the form or fold it; remembered where the window has room for it."""
        if self._narrow:
            self._opened = on
        else:
            self._settings.set(s.SETUP_FOLDED, not on)
        self._arrange()

    def fit(self, window_width: int) -> None:
        """Fold in a window that has no room for it, until it is asked for."""
        narrow = folds(window_width)
        if narrow != self._narrow:
            self._narrow, self._opened = narrow, False
        self._arrange()

    def _arrange(self) -> None:
        on = self._opened if self._narrow else not self._settings.get(s.SETUP_FOLDED)
        if on == self.open and on == self.rail.isHidden():
            return
        focus = QApplication.focusWidget()
        had_focus = focus is not None and self.panel.isAncestorOf(focus)
        self.panel.setVisible(on)
        self.grip.setVisible(on)
        self.rail.setVisible(not on)
        if had_focus and not on:
            self.rail.setFocus(Qt.FocusReason.OtherFocusReason)
        elif on and self.rail.hasFocus():
            self.panel.model.button.setFocus(Qt.FocusReason.OtherFocusReason)
        self.shown.emit(on)
