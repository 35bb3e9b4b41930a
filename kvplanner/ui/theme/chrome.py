"""How scroll bars, tabs, menus, tooltips and the heads of tables look: flat, in the theme's colours.

`style.Style` asks for each of them. A style sheet would say the same in thirty lines, but Qt keeps rules for each part
of each widget that lives under one: 3 of the 5.5 MiB that a window then takes, and a fifth of the time to open it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPalette, QPolygonF
from PySide6.QtWidgets import (
    QStyle,
    QStyleOption,
    QStyleOptionHeader,
    QStyleOptionMenuItem,
    QStyleOptionSlider,
    QStyleOptionTab,
    QWidget,
)

from kvplanner.ui.theme.geometry import TAB_AIR, TAB_TIGHT, TIGHT
from kvplanner.ui.theme.ink import colour, pen, rounded
from kvplanner.ui.theme.palette import Tokens

_METRIC: Final = QStyle.PixelMetric
_CONTENTS: Final = QStyle.ContentsType
_STATE: Final = QStyle.StateFlag
_PART: Final = QStyle.SubControl
_ITEM: Final = QStyleOptionMenuItem.MenuItemType

_METRICS: Final = {
    _METRIC.PM_ScrollBarExtent: 10,
    _METRIC.PM_ScrollBarSliderMin: 28,
    _METRIC.PM_MenuPanelWidth: 1,
    _METRIC.PM_MenuHMargin: 4,
    _METRIC.PM_MenuVMargin: 4,
    _METRIC.PM_MenuBarPanelWidth: 0,
    _METRIC.PM_MenuBarItemSpacing: 6,
    _METRIC.PM_MenuBarHMargin: 4,
    _METRIC.PM_MenuBarVMargin: 1,
    _METRIC.PM_TabBarTabHSpace: 2 * TAB_AIR,
    _METRIC.PM_TabBarTabVSpace: 16,
    _METRIC.PM_TabBarTabOverlap: 0,
    _METRIC.PM_TabBarTabShiftHorizontal: 0,
    _METRIC.PM_TabBarTabShiftVertical: 0,
    _METRIC.PM_ToolTipLabelFrameWidth: 8,
    _METRIC.PM_HeaderMargin: 3,
    _METRIC.PM_HeaderMarkSize: 0,  # the sign of a sorted column is drawn beside its title, not by the style
}
_LINE: Final = 2  # below the title of the tab in front
_SIGN, _CHECKS = 22, 14  # pixels left of a menu's texts, and more where some are ticked
_AFTER, _APART = 26, 12  # right of them, and between a text and its keys
_MENU_AIR, _BAR_AIR = 5, (9, 4)
_LIST_AIR: Final = 8
_RULE: Final = 9  # pixels of a separator with its air
_TITLE: Final = 3  # pixels beside a column's title, over the metric that goes for all sides
_TICK: Final = ((7.0, 0.0), (9.5, 2.5), (14.0, -3.0))  # from the left, and from the middle


# scroll bars ----------------------------------------------------------------------------------------------------


def scroll_part(part: QStyle.SubControl, option: QStyleOptionSlider) -> QRect:
    """Where a part of a scroll bar is: it has no arrows, so its groove is the whole of it."""
    area, across = option.rect, option.orientation == Qt.Orientation.Horizontal
    if part == _PART.SC_ScrollBarGroove:
        return area
    whole = area.width() if across else area.height()
    span = option.maximum - option.minimum
    length = whole
    if span > 0:
        share = whole * option.pageStep // max(span + option.pageStep, 1)
        length = min(whole, max(_METRICS[_METRIC.PM_ScrollBarSliderMin], share))
    start = QStyle.sliderPositionFromValue(
        option.minimum, option.maximum, option.sliderPosition, whole - length, option.upsideDown
    )
    spans = {
        _PART.SC_ScrollBarSlider: (start, length),
        _PART.SC_ScrollBarSubPage: (0, start),
        _PART.SC_ScrollBarAddPage: (start + length, whole - start - length),
    }
    if part not in spans:
        return QRect()
    begin, size = spans[part]
    found = QRect(begin, 0, size, area.height()) if across else QRect(0, begin, area.width(), size)
    return QStyle.visualRect(option.direction, area, found.translated(area.topLeft()))


def scroll_bar(option: QStyleOptionSlider, painter: QPainter, tokens: Tokens) -> None:
    """Its handle alone."""
    if option.maximum <= option.minimum:
        return
    held = option.state & _STATE.State_Sunken
    over = option.state & _STATE.State_MouseOver and option.activeSubControls & _PART.SC_ScrollBarSlider
    handle = QRectF(scroll_part(_PART.SC_ScrollBarSlider, option)).adjusted(2, 2, -2, -2)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(tokens.outline if held or over else tokens.border))
    painter.drawRoundedRect(handle, 3, 3)
    painter.restore()


# tabs -----------------------------------------------------------------------------------------------------------


def tab_shape(option: QStyleOptionTab, painter: QPainter, tokens: Tokens) -> None:
    """No more than a line below the one in front."""
    if option.state & _STATE.State_Selected:
        area = option.rect
        painter.fillRect(area.left(), area.bottom() + 1 - _LINE, area.width(), _LINE, colour(tokens.accent))


def tab_label(option: QStyleOptionTab, tokens: Tokens) -> QStyleOptionTab:
    """The title in the colour of its state; the focus shows by that colour alone."""
    changed = QStyleOptionTab(option)
    plain = option.state & (_STATE.State_Selected | _STATE.State_MouseOver)
    ink = tokens.accent if option.state & _STATE.State_HasFocus else tokens.text if plain else tokens.muted
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.ButtonText):
        changed.palette.setColor(role, colour(ink))
    changed.state &= ~_STATE.State_HasFocus
    changed.rect = option.rect.adjusted(0, 0, 0, -_LINE)
    return changed


def lined(option: QStyleOption, painter: QPainter, tokens: Tokens) -> None:
    """The ground of a menu bar, of a column's title or of what is beside them all, with the line below."""
    area = option.rect
    painter.fillRect(area, colour(tokens.panel))
    painter.fillRect(area.left(), area.bottom(), area.width(), 1, colour(tokens.border))


def close_sign(option: QStyleOption, painter: QPainter, tokens: Tokens) -> None:
    """What closes a tab."""
    over = bool(option.state & (_STATE.State_MouseOver | _STATE.State_Sunken)) and option.state & _STATE.State_Enabled
    if over:
        rounded(painter, QRectF(option.rect), tokens.raised, "", 3)
    middle, half = QRectF(option.rect).center(), 3.5
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(pen(tokens.text if over else tokens.muted, 1.4, square=False))
    for rise in (half, -half):
        painter.drawLine(middle + QPointF(-half, -rise), middle + QPointF(half, rise))
    painter.restore()


# menus ----------------------------------------------------------------------------------------------------------


def menu_bar_item(option: QStyleOptionMenuItem, painter: QPainter, tokens: Tokens, flags: int) -> None:
    """A menu's title."""
    painter.fillRect(option.rect, colour(tokens.panel))
    if option.state & (_STATE.State_Selected | _STATE.State_Sunken):
        rounded(painter, QRectF(option.rect), tokens.raised, "", 4)
    painter.setPen(colour(tokens.text if option.state & _STATE.State_Enabled else tokens.muted))
    painter.drawText(option.rect, Qt.AlignmentFlag.AlignCenter | flags | Qt.TextFlag.TextSingleLine, option.text)


def menu_item(option: QStyleOptionMenuItem, painter: QPainter, tokens: Tokens, flags: int) -> None:
    """A line of a menu: a tick, the text, its keys, and the sign of a menu within."""
    area = option.rect
    if option.menuItemType == _ITEM.Separator:
        painter.fillRect(area.left() + 6, area.center().y(), area.width() - 12, 1, colour(tokens.border))
        return
    usable = bool(option.state & _STATE.State_Enabled)
    if usable and option.state & _STATE.State_Selected:
        rounded(painter, QRectF(area), tokens.selection, "", 4)
    ink = tokens.text if usable else tokens.muted
    left, middle = float(area.left()), area.center().y() + 0.5
    painter.save()
    painter.setFont(option.font)
    painter.setPen(colour(ink))
    text, _, keys = option.text.partition("\t")
    words = area.adjusted(_text_left(option), 0, -_AFTER, 0)
    flags |= Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
    painter.drawText(words, flags | Qt.AlignmentFlag.AlignLeft, text)
    if keys:
        words.setLeft(words.right() + 1 - option.reservedShortcutWidth)
        painter.drawText(words, flags | Qt.AlignmentFlag.AlignLeft, keys)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    if option.checked and option.checkType == QStyleOptionMenuItem.CheckType.Exclusive:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(ink))
        painter.drawEllipse(QPointF(left + 10.5, middle), 3, 3)
    elif option.checked:
        painter.setPen(pen(ink, 1.8, square=False))
        painter.drawPolyline(QPolygonF([QPointF(left + x, middle + y) for x, y in _TICK]))
    if option.menuItemType == _ITEM.SubMenu:
        tip = QPointF(area.right() - 10, middle)
        painter.setPen(pen(tokens.muted, 1.5, square=False))
        painter.drawPolyline(QPolygonF([tip + QPointF(-4, -4), tip, tip + QPointF(-4, 4)]))
    painter.restore()


def list_item(option: QStyleOptionMenuItem, painter: QPainter, tokens: Tokens) -> None:
    """A line of the list that a choice opens: Qt draws it as a menu's."""
    area = option.rect
    painter.fillRect(area, colour(tokens.panel))
    if option.menuItemType == _ITEM.Separator:
        painter.fillRect(area.left() + 6, area.center().y(), area.width() - 12, 1, colour(tokens.border))
        return
    if option.state & _STATE.State_Selected:
        rounded(painter, QRectF(area), tokens.selection, "", 4)
    painter.save()
    painter.setFont(option.font)
    painter.setPen(colour(tokens.text if option.state & _STATE.State_Enabled else tokens.muted))
    flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
    painter.drawText(area.adjusted(_LIST_AIR, 0, 0, 0), flags, option.text)
    painter.restore()


def _text_left(option: QStyleOptionMenuItem) -> int:
    return _SIGN + (_CHECKS if option.menuHasCheckableItems else 0)


# heads of tables ------------------------------------------------------------------------------------------------


def head_label(option: QStyleOptionHeader, tokens: Tokens) -> QStyleOptionHeader:
    """A column's title."""
    changed = type(option)(option)
    changed.palette.setColor(QPalette.ColorRole.ButtonText, colour(tokens.muted))
    changed.rect = option.rect.adjusted(_TITLE, 0, -_TITLE, 0)
    return changed


# sizes ----------------------------------------------------------------------------------------------------------


def metric(kind: QStyle.PixelMetric, widget: QWidget | None) -> int | None:
    """Pixels of a part of these; None: it is none of them."""
    found = _METRICS.get(kind)
    if kind == _METRIC.PM_TabBarTabHSpace and widget is not None and widget.property(TIGHT):
        return 2 * TAB_TIGHT
    return found


def _menu_item_size(option: Any, size: QSize, widget: QWidget | None) -> QSize:
    if option.menuItemType == _ITEM.Separator:
        return QSize(size.width(), _RULE)
    return QSize(size.width() + _text_left(option) + _APART + _AFTER, size.height() + 2 * _MENU_AIR)


def _menu_bar_item_size(option: Any, size: QSize, widget: QWidget | None) -> QSize:
    return size + QSize(2 * _BAR_AIR[0], 2 * _BAR_AIR[1]) if not size.isEmpty() else size


# From the size of what is in it, before the base style adds to it.
SIZES: Final[dict[QStyle.ContentsType, Callable[[Any, QSize, QWidget | None], QSize]]] = {
    _CONTENTS.CT_MenuItem: _menu_item_size,
    _CONTENTS.CT_MenuBarItem: _menu_bar_item_size,
}
HEAD_AIR: Final = QSize(2 * _TITLE + 4, 5)  # what a column's title takes more than the base style's
