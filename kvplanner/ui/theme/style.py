"""The window's drawing style: Fusion with flat inputs, buttons and frames, by the properties that widgets carry.

Its first use costs 15 ms, since it makes Qt's Python types for everything that a style can draw: it begins after the
first frame with bars, and what that frame shows draws itself.

A style sheet with the same looks costs 65 ms more at start, so only scroll bars, tabs and menus use one. Properties:
role (heading, muted, error, warning) of labels; card (popup, drop), level of frames; primary, quiet, button of buttons.
"""

from __future__ import annotations

from typing import Any, Final

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPalette, QPolygonF
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QLabel,
    QProxyStyle,
    QStyle,
    QStyleOption,
    QStyleOptionButton,
    QStyleOptionComplex,
    QStyleOptionToolButton,
    QToolButton,
    QWidget,
)

from kvplanner.ui.theme.ink import chevron, pen, rounded, tokens_of

ROLES: Final = {
    "muted": QPalette.ColorRole.PlaceholderText,
    "heading": QPalette.ColorRole.PlaceholderText,
    "error": QPalette.ColorRole.BrightText,
    "warning": QPalette.ColorRole.LinkVisited,
}
_FOCUSED: Final = QStyle.StateFlag.State_HasFocus
_HOVERED: Final = QStyle.StateFlag.State_MouseOver
_TICK: Final = ((0.24, 0.52), (0.43, 0.72), (0.78, 0.3))  # of the box: where the tick's ends are
_FAINT: Final = 110  # of 255: the line below words that can be clicked
_DOWN: Final = QStyle.StateFlag.State_Sunken | QStyle.StateFlag.State_On


class Style(QProxyStyle):
    """Fusion, flat."""

    def __init__(self) -> None:
        super().__init__("Fusion")

    def polish(self, target: Any) -> None:
        """Colours by role; they follow the palette when the theme changes. Labels and tooltips are plain text.

        Left to itself Qt takes a text with a tag in it for HTML, and loads the pictures that it names: names come from
        files and processes. A label that is meant to be rich says so.
        """
        super().polish(target)
        if isinstance(target, QLabel):
            if target.textFormat() == Qt.TextFormat.AutoText:
                target.setTextFormat(Qt.TextFormat.PlainText)
            role = ROLES.get(target.property("role") or "")
            if role is not None:
                target.setForegroundRole(role)
        elif isinstance(target, QToolButton) and target.property("quiet"):
            target.setAutoRaise(True)
            target.setCursor(Qt.CursorShape.PointingHandCursor)

    def drawPrimitive(
        self,
        element: QStyle.PrimitiveElement,
        option: QStyleOption,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Inputs, buttons."""
        primitive = QStyle.PrimitiveElement
        if widget is not None and element == primitive.PE_PanelLineEdit:
            self._line_edit(option, painter, widget)
        elif widget is not None and element == primitive.PE_PanelButtonCommand:
            self._button(option, painter, widget)
        elif widget is not None and element == primitive.PE_PanelButtonTool:
            self._tool_button(option, painter, widget)
        elif element == primitive.PE_PanelItemViewRow and option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(option.rect, option.palette.highlight())
        elif element == primitive.PE_IndicatorCheckBox and widget is not None:
            self._check_box(option, painter, widget)
        elif element in (primitive.PE_FrameFocusRect, primitive.PE_IndicatorArrowDown) and isinstance(
            widget, QToolButton
        ):
            return  # focus shows as an outline, and a menu as the ▾ in the text
        else:
            super().drawPrimitive(element, option, painter, widget)

    def _line_edit(self, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
        tokens = tokens_of(widget)
        if widget.property("bare"):
            return
        wrong, focus = bool(widget.property("wrong")), bool(option.state & _FOCUSED)
        line = tokens.danger if wrong else tokens.accent if focus else tokens.border
        rounded(painter, QRectF(option.rect), tokens.danger_soft if wrong else tokens.field, line, 4)

    def _check_box(self, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
        tokens = tokens_of(widget)
        on = bool(option.state & QStyle.StateFlag.State_On)
        strong, usable = tokens.accent, bool(option.state & QStyle.StateFlag.State_Enabled)
        area = QRectF(option.rect)
        outline = tokens.outline if not option.state & (_FOCUSED | _HOVERED) else strong
        rounded(painter, area, (strong if usable else tokens.outline) if on else tokens.field, outline, 3)
        if on:
            tick = QPolygonF([area.topLeft() + QPointF(area.width() * x, area.height() * y) for x, y in _TICK])
            painter.save()
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(pen(tokens.on_accent if usable else tokens.panel, 1.8, square=False))
            painter.drawPolyline(tick)
            painter.restore()

    def drawComplexControl(
        self,
        control: QStyle.ComplexControl,
        option: QStyleOptionComplex,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Lists to choose from, as those of the form look."""
        if control == QStyle.ComplexControl.CC_ComboBox and isinstance(widget, QComboBox) and not widget.isEditable():
            tokens, area = tokens_of(widget), QRectF(option.rect)
            fill = tokens.raised if option.state & _HOVERED else tokens.panel
            rounded(painter, area, fill, tokens.accent if option.state & _FOCUSED else tokens.border, 4)
            chevron(painter, QPointF(area.right() - 12, area.center().y()), tokens.muted)
            return
        super().drawComplexControl(control, option, painter, widget)

    def _button(self, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
        tokens = tokens_of(widget)
        focus = bool(option.state & _FOCUSED)
        if widget.property("primary"):
            rounded(painter, QRectF(option.rect), tokens.accent, tokens.text if focus else tokens.accent, 5)
            return
        fill = tokens.raised if option.state & (_HOVERED | _DOWN) else tokens.panel
        rounded(painter, QRectF(option.rect), fill, tokens.accent if focus else tokens.border, 5)

    def _tool_button(self, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
        tokens = tokens_of(widget)
        if widget.property("button"):
            self._button(option, painter, widget)
            return
        hover, focus = bool(option.state & (_HOVERED | _DOWN)), bool(option.state & _FOCUSED)
        if hover or focus:
            rounded(painter, QRectF(option.rect), tokens.raised if hover else "", tokens.accent if focus else "", 4)

    def drawControl(
        self, element: QStyle.ControlElement, option: QStyleOption, painter: QPainter, widget: QWidget | None = None
    ) -> None:
        """Frames, and labels of buttons whose ground is not the usual one."""
        control = QStyle.ControlElement
        if element == control.CE_Splitter:
            return
        if element == control.CE_ShapedFrame and isinstance(widget, QFrame) and self._frame(painter, widget):
            return
        if element == control.CE_PushButtonLabel and widget and isinstance(option, QStyleOptionButton):
            changed = QStyleOptionButton(option)
            if widget.property("primary"):
                changed.palette.setColor(QPalette.ColorRole.ButtonText, QColor(tokens_of(widget).on_accent))
            super().drawControl(element, changed, painter, widget)
            return
        if element == control.CE_ToolButtonLabel and widget and isinstance(option, QStyleOptionToolButton):
            quiet = QStyleOptionToolButton(option)
            if widget.property("quiet") and not option.state & (_HOVERED | _DOWN | _FOCUSED):
                quiet.palette.setColor(QPalette.ColorRole.ButtonText, QColor(tokens_of(widget).muted))
            super().drawControl(element, quiet, painter, widget)
            if _is_link(widget):
                _underline(quiet, painter)
            return
        super().drawControl(element, option, painter, widget)

    def _frame(self, painter: QPainter, widget: QFrame) -> bool:
        """Draw a frame that carries a property; False for any other."""
        tokens = tokens_of(widget)
        level = widget.property("level")
        if level:
            fills = {"warning": tokens.warning_soft, "error": tokens.danger_soft}
            rounded(painter, QRectF(widget.rect()), fills.get(level, tokens.selection), "", 6)
            return True
        kind = widget.property("card")
        if not kind:
            return False
        rounded(painter, QRectF(widget.rect()), tokens.panel, tokens.accent if kind == "drop" else tokens.outline, 8)
        return True


def _is_link(widget: QWidget) -> bool:
    """Whether a button is nothing but words: no sign, no ▸ that opens something, no switch."""
    if not isinstance(widget, QToolButton) or not widget.property("quiet") or widget.isCheckable():
        return False
    return len(widget.text()) > 1 and widget.text()[-1] not in "▸▾"


def _underline(option: QStyleOptionToolButton, painter: QPainter) -> None:
    """A fine line below the words."""
    words = option.fontMetrics.boundingRect(option.rect, Qt.AlignmentFlag.AlignCenter.value, option.text)
    ink = option.palette.color(QPalette.ColorRole.ButtonText)
    ink.setAlpha(_FAINT)
    painter.fillRect(QRectF(words.left(), words.bottom() - 0.5, words.width(), 1), ink)
