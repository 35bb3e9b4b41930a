"""The window's drawing style: Fusion with flat inputs, buttons and frames, by the properties that widgets carry.

Its first use costs 15 ms, since it makes Qt's Python types for everything that a style can draw: it begins after the
first frame with bars, and what that frame shows draws itself.

There is no style sheet: `chrome` says why, and how bars, menus and heads look. Properties: role (heading, muted, error,
warning) of labels; card (popup, drop), level of frames; primary, quiet, button of buttons; tight of tab bars.
"""

from __future__ import annotations

from typing import Any, Final

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
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
    QStyleOptionHeader,
    QStyleOptionMenuItem,
    QStyleOptionSlider,
    QStyleOptionTab,
    QStyleOptionToolButton,
    QToolButton,
    QWidget,
)

from kvplanner.ui.theme import chrome
from kvplanner.ui.theme.ink import chevron, colour, pen, rounded, tokens_of

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
_PRIMITIVE: Final = QStyle.PrimitiveElement
_CONTROL: Final = QStyle.ControlElement
_NOT_DRAWN: Final = frozenset(
    (_PRIMITIVE.PE_FrameStatusBarItem, _PRIMITIVE.PE_FrameMenu, _PRIMITIVE.PE_PanelScrollAreaCorner,
     _PRIMITIVE.PE_IndicatorHeaderArrow, _PRIMITIVE.PE_PanelMenuBar)
)  # fmt: skip
_GROUNDS: Final = {
    _PRIMITIVE.PE_PanelMenu: "box", _PRIMITIVE.PE_PanelTipLabel: "tip", _PRIMITIVE.PE_PanelStatusBar: "top",
    _PRIMITIVE.PE_FrameTabBarBase: "line",
}  # fmt: skip
_CHROME: Final = frozenset(
    (_CONTROL.CE_MenuItem, _CONTROL.CE_MenuBarItem, _CONTROL.CE_MenuBarEmptyArea, _CONTROL.CE_TabBarTabShape,
     _CONTROL.CE_TabBarTabLabel, _CONTROL.CE_HeaderSection, _CONTROL.CE_HeaderLabel, _CONTROL.CE_HeaderEmptyArea)
)  # fmt: skip


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
        """Inputs, buttons, the grounds of bars, menus and tooltips."""
        primitive = QStyle.PrimitiveElement
        if element in _NOT_DRAWN:
            return
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
        elif widget is not None and element == primitive.PE_IndicatorTabClose:
            chrome.close_sign(option, painter, tokens_of(widget))
        elif widget is not None and element in _GROUNDS:
            _ground(element, option, painter, widget)
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
        """Scroll bars; lists to choose from, as those of the form look."""
        if control == QStyle.ComplexControl.CC_ScrollBar and widget and isinstance(option, QStyleOptionSlider):
            chrome.scroll_bar(option, painter, tokens_of(widget))
            return
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
        """Frames, tabs, menus, heads, and labels of buttons whose ground is not the usual one."""
        control = QStyle.ControlElement
        if widget is not None and element in _CHROME:
            self._chrome(element, option, painter, widget)
            return
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

    def _chrome(self, element: QStyle.ControlElement, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
        tokens, control = tokens_of(widget), QStyle.ControlElement
        if isinstance(option, QStyleOptionMenuItem):
            keys = self.styleHint(QStyle.StyleHint.SH_UnderlineShortcut, option, widget)
            flag = Qt.TextFlag.TextShowMnemonic if keys else Qt.TextFlag.TextHideMnemonic
            if isinstance(widget, QComboBox):
                chrome.list_item(option, painter, tokens)
            elif element == control.CE_MenuItem:
                chrome.menu_item(option, painter, tokens, flag)
            elif element == control.CE_MenuBarItem:
                chrome.menu_bar_item(option, painter, tokens, flag)
            else:
                chrome.lined(option, painter, tokens)
        elif isinstance(option, QStyleOptionTab):
            if element == control.CE_TabBarTabShape:
                chrome.tab_shape(option, painter, tokens)
            else:
                super().drawControl(element, chrome.tab_label(option, tokens), painter, widget)
        elif element == control.CE_HeaderLabel and isinstance(option, QStyleOptionHeader):
            super().drawControl(element, chrome.head_label(option, tokens), painter, widget)
        else:
            chrome.lined(option, painter, tokens)

    def pixelMetric(
        self, metric: QStyle.PixelMetric, option: QStyleOption | None = None, widget: QWidget | None = None
    ) -> int:
        """Those of bars, menus and heads, in pixels."""
        own = chrome.metric(metric, widget)
        return own if own is not None else super().pixelMetric(metric, option, widget)

    def sizeFromContents(
        self, kind: QStyle.ContentsType, option: QStyleOption, size: QSize, widget: QWidget | None = None
    ) -> QSize:
        """Menus and heads by their own air."""
        own = chrome.SIZES.get(kind)
        if own is not None and not isinstance(widget, QComboBox):  # its list asks as a menu would, with no text's size
            return own(option, size, widget)
        found = super().sizeFromContents(kind, option, size, widget)  # type: ignore[arg-type]  # Qt takes none as well
        return found + chrome.HEAD_AIR if kind == QStyle.ContentsType.CT_HeaderSection else found

    def subControlRect(
        self,
        control: QStyle.ComplexControl,
        option: QStyleOptionComplex,
        part: QStyle.SubControl,
        widget: QWidget | None = None,
    ) -> QRect:
        """Where the parts of a scroll bar are."""
        if control == QStyle.ComplexControl.CC_ScrollBar and isinstance(option, QStyleOptionSlider):
            return chrome.scroll_part(part, option)
        return super().subControlRect(control, option, part, widget)  # type: ignore[arg-type]  # as above

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


def _ground(element: QStyle.PrimitiveElement, option: QStyleOption, painter: QPainter, widget: QWidget) -> None:
    """The ground of a menu, a tooltip or the status bar with its line, or the line below tabs."""
    tokens, area = tokens_of(widget), option.rect
    kind = _GROUNDS[element]
    if kind != "line":
        painter.fillRect(area, colour(tokens.panel))
    line = colour(tokens.outline if kind == "tip" else tokens.border)
    if kind in ("box", "tip"):
        painter.setPen(line)
        painter.drawRect(area.adjusted(0, 0, -1, -1))
    else:
        painter.fillRect(area.left(), area.top() if kind == "top" else area.bottom(), area.width(), 1, line)


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
