"""Qt's side of the palette: fonts, colours, pens, and the patterns of segments."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPalette, QPen, QPixmap, QPolygonF
from PySide6.QtWidgets import QWidget

from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.geometry import Rect, Role, pattern_lines
from kvplanner.ui.theme.palette import Pattern, SegmentInk, Tokens, for_ground, paled

_KEPT: Final = 4000
_PALE: Final = "pale"


def tokens_of(widget: QWidget) -> Tokens:
    """The theme of a widget, told from its palette's window colour; paled where `set_pale` says so."""
    tokens = for_ground(widget.palette().color(QPalette.ColorRole.Window).name())
    return paled(tokens) if widget.property(_PALE) else tokens


def set_pale(widget: QWidget, pale: bool) -> bool:
    """Draw a widget in its theme's pale colours, or no longer; whether that is a change."""
    if bool(widget.property(_PALE)) == pale:
        return False
    widget.setProperty(_PALE, pale)
    widget.update()
    return True


@lru_cache(maxsize=512)
def colour(name: str, alpha: int = 255) -> QColor:
    """A QColor of "#rrggbb"."""
    made = QColor(name)
    made.setAlpha(alpha)
    return made


@lru_cache(maxsize=256)
def pen(name: str, width: float = 1.0, style: Qt.PenStyle = Qt.PenStyle.SolidLine, *, square: bool = True) -> QPen:
    """A pen of "#rrggbb"."""
    made = QPen(colour(name), width, style)
    made.setCapStyle(Qt.PenCapStyle.FlatCap if square else Qt.PenCapStyle.RoundCap)
    return made


@lru_cache(maxsize=32)
def dotted(name: str) -> QPen:
    """A pen that leaves dots eight pixels apart."""
    made = QPen(colour(name), 2.0)
    made.setCapStyle(Qt.PenCapStyle.RoundCap)
    made.setDashPattern([0.01, 3.99])
    return made


class Type:
    """The fonts of the bars, from a base font, and the widths of texts in them."""

    def __init__(self, base: QFont) -> None:
        self.fonts: dict[Role, QFont] = {
            "title": sized(base, 1.0, bold=True),
            "text": sized(base, 0.94),
            "small": sized(base, 0.88),
            "small_bold": sized(base, 0.88, bold=True),
        }
        self._metrics = {role: QFontMetricsF(font) for role, font in self.fonts.items()}
        self._widths: dict[tuple[str, Role], float] = {}

    def height(self, text: str, role: Role, width: float) -> float:
        """Pixels that a text takes downwards, wrapped at a width."""
        room, text = QRectF(0, 0, max(width, 1), 10_000), shown(text)
        return self._metrics[role].boundingRect(room, int(Qt.TextFlag.TextWordWrap), text).height() if text else 0.0

    def width(self, text: str, role: Role) -> float:
        """Pixels that a text takes."""
        text = shown(text)
        key = (text, role)
        known = self._widths.get(key)
        if known is None:
            if len(self._widths) >= _KEPT:
                self._widths.clear()
            known = self._widths[key] = self._metrics[role].horizontalAdvance(text)
        return known


def sized(base: QFont, factor: float, *, bold: bool = False) -> QFont:
    """The base font scaled and made bold."""
    made = QFont(base)
    if base.pixelSize() > 0:
        made.setPixelSize(max(9, round(base.pixelSize() * factor)))
    else:
        made.setPointSizeF(base.pointSizeF() * factor)
    if bold:
        made.setWeight(QFont.Weight.DemiBold)
    return made


def fixed(beside: QFont, factor: float = 1.0) -> QFont:
    """Letters of one width, as large as those beside them or scaled."""
    from PySide6.QtGui import QFontDatabase

    wanted, made = sized(beside, factor), QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    if wanted.pointSizeF() > 0:
        made.setPointSizeF(wanted.pointSizeF())
    else:
        made.setPixelSize(wanted.pixelSize())
    return made


def snapped(rect: Rect) -> QRectF:
    """The rectangle with its edges on whole pixels, so that neighbours touch."""
    left, top, right, bottom = round(rect.x), round(rect.y), round(rect.right), round(rect.bottom)
    return QRectF(left, top, right - left, bottom - top)


@lru_cache(maxsize=512)
def _lines(pattern: Pattern, width: int, height: int, pitch: float) -> list[QLineF]:
    return [QLineF(*line) for line in pattern_lines(pattern, width, height, pitch)]


# Pixels after which each pattern repeats, where it is not the pitch.
_PERIOD: Final[dict[Pattern, int]] = {"vertical": 5, "horizontal": 5, "grid": 5, "dots": 8}


@lru_cache(maxsize=128)
def _tile(pattern: Pattern, ink: str, width: float, period: int, ratio: float) -> QPixmap:
    """One period of a pattern as an image: much cheaper on the screen than its lines."""
    made = QPixmap(round(period * ratio), round(period * ratio))
    made.setDevicePixelRatio(ratio)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
    painter.translate(-period, -period)
    painter.setPen(dotted(ink) if pattern == "dots" else pen(ink, width))
    painter.drawLines(_lines(pattern, 3 * period, 3 * period, period))
    painter.end()
    return made


def fill_pattern(painter: QPainter, box: QRectF, pattern: Pattern, line: QPen, pitch: int = 7) -> None:
    """A pattern over a box whose edges are whole pixels: tiled on an unscaled screen, else as lines."""
    if pattern in ("solid", "empty") or box.width() < 1 or box.height() < 1:
        return
    device = painter.device()
    ratio = device.devicePixelRatioF()
    # Only a widget: a QPixmap belongs to the main thread, and pictures for files are drawn on others.
    if isinstance(device, QWidget) and painter.worldTransform().m11() == 1 and ratio == int(ratio):
        period = _PERIOD.get(pattern, pitch)
        painter.drawTiledPixmap(box, _tile(pattern, line.color().name(), line.widthF(), period, ratio))
        return
    painter.translate(box.topLeft())
    painter.setPen(line)
    painter.drawLines(_lines(pattern, int(box.width()), int(box.height()), pitch))
    painter.translate(-box.topLeft())


def fill_plain(painter: QPainter, box: QRectF, ink: QColor) -> None:
    """A box of one colour. (The first fillRect costs 2 ms more: it may take gradients, whose Python types it makes.)"""
    painter.save()
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ink)
    painter.drawRect(box)
    painter.restore()


def rounded(painter: QPainter, area: QRectF, fill: str, line: str, radius: float) -> None:
    """A rounded rectangle; "" for no fill or no line."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(line), 1.0) if line else QPen(Qt.PenStyle.NoPen))
    painter.setBrush(QColor(fill) if fill else QColor(Qt.GlobalColor.transparent))
    painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
    painter.restore()


def chevron(painter: QPainter, centre: QPointF, ink: str) -> None:
    """A small arrow that points down."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(pen(ink, 1.4, square=False))
    x, y = centre.x(), centre.y()
    painter.drawPolyline(QPolygonF([QPointF(x - 3.5, y - 1.8), QPointF(x, y + 1.8), QPointF(x + 3.5, y - 1.8)]))
    painter.restore()


def fill_segment(painter: QPainter, box: QRectF, ink: SegmentInk) -> None:
    """A segment's fill and pattern."""
    fill_plain(painter, box, colour(ink.fill))
    if ink.pattern not in ("solid", "empty"):
        fill_pattern(painter, box, ink.pattern, dotted(ink.line) if ink.pattern == "dots" else pen(ink.line))
