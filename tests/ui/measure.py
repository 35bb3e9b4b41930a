"""What an eye would find wrong in a window, measured: text that is cut, texts over each other, and too little contrast.

`faults(window)` looks at widgets and at what our own painters draw; `Painted` writes down the latter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF, QImage, QPainter
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QComboBox,
    QHeaderView,
    QLabel,
    QLineEdit,
    QMenuBar,
    QPushButton,
    QScrollBar,
    QSlider,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionTab,
    QTabBar,
    QTableView,
    QTextEdit,
    QToolButton,
    QWidget,
)

from kvplanner.ui.theme.palette import luminance
from kvplanner.ui.widgets.labels import Elided
from kvplanner.ui.widgets.tables import AIR, ARROW, TITLE_MARGIN, Airy
from tests.ui import documents

READABLE = 4.5
SCALE = 2  # letters of one pixel's width show their colour at twice the size
ELLIPSIS = "…"


class Drawn(NamedTuple):
    """A text that a painter drew: the widget's text, where it stands there, and the room that it was given."""

    widget: QWidget
    text: str
    box: QRectF
    room: QRectF


class Painted:
    """Writes down every text that Python code paints on a widget while it is in force."""

    def __init__(self) -> None:
        self.texts: list[Drawn] = []

    def note(self, painter: QPainter, args: tuple[Any, ...]) -> None:
        """One call of QPainter.drawText."""
        device = painter.device()
        if not isinstance(device, QWidget):
            return
        transform, metrics = painter.worldTransform(), QFontMetricsF(painter.font())
        place, text, flags = args[0], args[-1], 0
        if isinstance(place, QPoint | QPointF):
            box = metrics.boundingRect(text).translated(QPointF(place))
            room = box
        else:
            flags = _int(args[1])
            box = metrics.boundingRect(QRectF(place), flags, text)
            room = QRectF(place)
            if flags & int(Qt.TextFlag.TextDontClip.value):  # only its width matters
                room = QRectF(room.x(), box.y(), room.width(), box.height())
        self.texts.append(Drawn(device, text, transform.mapRect(box), transform.mapRect(room)))


def _int(flags: Any) -> int:
    return int(getattr(flags, "value", flags))


@contextmanager
def painted() -> Iterator[Painted]:
    """Paint within this to know which texts were drawn where."""
    made, original = Painted(), QPainter.drawText

    def draw(self: QPainter, *args: Any) -> Any:
        made.note(self, args)
        return original(self, *args)

    QPainter.drawText = draw  # type: ignore[method-assign, assignment]  # counted for a while
    try:
        yield made
    finally:
        QPainter.drawText = original  # type: ignore[method-assign]  # counted for a while


def faults(window: QWidget) -> list[str]:
    """Everything that is cut, covers something else, or cannot be read."""
    image = QImage(window.size() * SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    with painted() as drawn:
        window.render(image)
    leaves = [leaf for leaf in window.findChildren(QWidget) if _bears_text(leaf) and not seen(leaf, window).isEmpty()]
    popups = _popups(window)
    leaves = [leaf for leaf in leaves if not _covered(leaf, popups, window)]
    texts = [text for text in drawn.texts if not _covered(text.widget, popups, window)]
    return [
        *(fault for leaf in leaves if (fault := cut(leaf, window))),
        *(fault for view in window.findChildren(QAbstractItemView) for fault in cells(view, window, image, popups)),
        *(fault for view in window.findChildren(QTextEdit) for fault in documents.faults(view, leaves, window, image)),
        *(fault for bar in leaves for fault in faint_parts(bar, window, image)),
        *over_each_other(leaves, window),
        *paint_faults(texts),
        *(fault for text in texts if (fault := faint_paint(text, window, image))),
        *(fault for leaf in leaves if (fault := faint(leaf, window, image))),
    ]


def _popups(window: QWidget) -> list[QWidget]:
    """The lists that stand over the window."""
    return [w for w in window.findChildren(QWidget) if w.property("card") in ("popup", "drop") and w.isVisible()]


def _covered(widget: QWidget, popups: list[QWidget], window: QWidget) -> bool:
    """Whether a list that is open stands over some of it."""
    area = seen(widget, window) if popups else QRect()
    return any(seen(p, window).intersects(area) for p in popups if p is not widget and not p.isAncestorOf(widget))


def _bears_text(widget: QWidget) -> bool:
    kinds = (QLabel, QAbstractButton, QComboBox, QLineEdit, QTabBar, QHeaderView, QMenuBar, QSlider)
    inside = isinstance(widget.parentWidget(), QComboBox) or isinstance(widget, QScrollBar)
    return isinstance(widget, kinds) and widget.isVisible() and not inside


def place(widget: QWidget, window: QWidget) -> QRect:
    """Where a widget stands in the window, seen or not."""
    return QRect(widget.mapTo(window, QPoint(0, 0)), widget.size())


def seen(widget: QWidget, window: QWidget) -> QRect:
    """The part of it that no ancestor cuts off."""
    area = place(widget, window)
    above = widget.parentWidget()
    while above is not None:
        area = area.intersected(place(above, window) if above is not window else window.rect())
        if above is window:
            break
        above = above.parentWidget()
    return area


def _name(widget: QWidget) -> str:
    text = getattr(widget, "text", lambda: "")() if not isinstance(widget, QComboBox) else widget.currentText()
    return f"{type(widget).__name__} {(text or widget.accessibleName())[:60]!r}"


def _moving(above: QWidget | None) -> bool:
    """Whether it is an area whose scroll bars move what lies on it."""
    bars = [getattr(above, name, lambda: None)() for name in ("verticalScrollBar", "horizontalScrollBar")]
    return any(isinstance(bar, QScrollBar) and bar.maximum() > bar.minimum() for bar in bars)


def _squeezed(widget: QWidget, window: QWidget) -> bool:
    """Whether an ancestor cuts it off that no scroll bar moves it under."""
    area, above = QRect(QPoint(0, 0), widget.size()), widget
    while above is not window:
        parent = above.parentWidget()
        if parent is None or (
            isinstance(parent.parentWidget(), QAbstractScrollArea) and _moving(parent.parentWidget())
        ):
            return False
        area = area.translated(above.pos())
        if not parent.rect().contains(area):
            return True
        above = parent
    return False


def cut(widget: QWidget, window: QWidget) -> str:
    """Why a text cannot be read whole, "" where it can."""
    if seen(widget, window).size() != widget.size() and _squeezed(widget, window):
        return f"{_name(widget)}: {seen(widget, window).getRect()} of {place(widget, window).getRect()} shows"
    need, room = needed(widget)
    if need.width() > room.width() + 1 or need.height() > room.height() + 1:
        return f"{_name(widget)}: needs {need.width()}×{need.height()}, has {room.width()}×{room.height()}"
    return ""


def needed(widget: QWidget) -> tuple[QSize, QSize]:
    """Pixels that a widget's text takes, and those that it has."""
    metrics, room = QFontMetrics(widget.font()), widget.contentsRect().size()
    if isinstance(widget, QLabel):
        if not widget.text() or isinstance(widget, Elided):  # the latter's whole text is its hint
            return QSize(), room
        if widget.wordWrap():
            return QSize(0, widget.heightForWidth(widget.width())), widget.size()
        if widget.textFormat() == Qt.TextFormat.RichText:
            return QSize(), room
        text = widget.text().replace("&", "") if widget.buddy() is not None else widget.text()
        return metrics.size(0, text), room
    if isinstance(widget, QComboBox):
        # drawn with room for an arrow
        return QSize(metrics.horizontalAdvance(widget.currentText()), metrics.height()), room - QSize(20, 0)
    if isinstance(widget, QLineEdit):
        shown = "" if widget.text() else widget.placeholderText()
        margins = widget.textMargins()
        return QSize(metrics.horizontalAdvance(shown), 0), room - QSize(margins.left() + margins.right() + 4, 0)
    if isinstance(widget, QTabBar):
        needs = [metrics.horizontalAdvance(widget.tabText(i).replace("&", "")) for i in range(widget.count())]
        tight = any(need > _tab_room(widget, i) for i, need in enumerate(needs))
        whole = 0 if widget.usesScrollButtons() else max(widget.tabRect(i).right() for i in range(widget.count()))
        return QSize(whole if not tight else whole + 1000, 0), widget.size()
    if isinstance(widget, QHeaderView):
        short = [i for i in range(widget.count()) if _header_needs(widget, i) > widget.sectionSize(i) + 1]
        return QSize(1 if short else 0, 0), QSize(-1 if short else 0, room.height())
    if isinstance(widget, QPushButton | QToolButton):
        text = widget.text().replace("&", "")
        if widget.property("card") or not text or ELLIPSIS in text:  # cut on purpose, whole in its hint
            return QSize(), room
        return metrics.size(0, text), widget.size()
    return QSize(), room


def _tab_room(bar: QTabBar, at: int) -> int:
    """Pixels that the style leaves to a tab's text."""
    option = QStyleOptionTab()
    bar.initStyleOption(option, at)
    return bar.style().subElementRect(QStyle.SubElement.SE_TabBarTabText, option, bar).width()


def _header_needs(header: QHeaderView, section: int) -> int:
    if header.isSectionHidden(section) or header.orientation() != Qt.Orientation.Horizontal:
        return 0
    text = header.model().headerData(section, header.orientation(), Qt.ItemDataRole.DisplayRole)
    arrow = ARROW if header.isSortIndicatorShown() and header.sortIndicatorSection() == section else 0
    return QFontMetrics(header.font()).horizontalAdvance(str(text or "")) + TITLE_MARGIN + arrow


def cells(view: QAbstractItemView, window: QWidget, image: QImage, popups: list[QWidget]) -> list[str]:
    """Cells of a table whose text is cut and that have no hint with the whole of it, or that cannot be read."""
    if not view.isVisible() or seen(view, window).isEmpty() or not isinstance(view, QTableView):
        return []
    found: list[str] = []
    model, shown = view.model(), view.viewport().rect()
    for row in range(model.rowCount()):
        for column in range(model.columnCount()):
            index = model.index(row, column)
            area, text = view.visualRect(index), str(index.data() or "")
            font = index.data(Qt.ItemDataRole.FontRole) or view.font()
            air = AIR if isinstance(view.itemDelegateForIndex(index), Airy) else 0
            need = max(QFontMetrics(font).horizontalAdvance(line) for line in text.split("\n")) + 6 + 2 * air
            hint = str(index.data(Qt.ItemDataRole.ToolTipRole) or "")
            own = type(view.itemDelegateForIndex(index)).paint is not QStyledItemDelegate.paint
            name = f"cell {text[:40]!r} of {view.accessibleName()!r}"
            if area.intersects(shown) and need > area.width() and (text not in hint or text[:1].isdigit()) and not own:
                found.append(f"{name}: needs {need}, has {area.width()}")
            place = area.translated(view.viewport().mapTo(window, QPoint(0, 0)))
            hidden = any(seen(popup, window).intersects(place) for popup in popups if not popup.isAncestorOf(view))
            if (
                text
                and not hidden
                and shown.contains(area)
                and seen(view.viewport(), window).contains(place)
                and view.isEnabled()
            ):
                found += [f"{name}: {why}" for why in _too_faint(place.adjusted(2, 1, -2, -1), image)]
    return found


def over_each_other(leaves: list[QWidget], window: QWidget) -> list[str]:
    """Pairs of widgets with text that share pixels; those in front of others on a ground of their own may."""
    grounds = {id(leaf): _ground(leaf, window) for leaf in leaves}
    found: list[str] = []
    areas = {id(leaf): seen(leaf, window) for leaf in leaves}
    for one, other in combinations(leaves, 2):
        if not areas[id(one)].intersects(areas[id(other)]) or grounds[id(one)] is not grounds[id(other)]:
            continue
        shared = areas[id(one)].intersected(areas[id(other)])
        nested = one.isAncestorOf(other) or other.isAncestorOf(one)
        if shared.width() > 1 and shared.height() > 1 and not nested:
            found.append(f"{_name(one)} and {_name(other)} share {shared.getRect()}")
    return found


def _ground(widget: QWidget, window: QWidget) -> QWidget:
    """The popup that a widget stands on, or the window."""
    above = widget.parentWidget()
    while above is not None and above is not window:
        if above.property("card") in ("popup", "drop"):
            return above
        above = above.parentWidget()
    return window


def paint_faults(texts: list[Drawn]) -> list[str]:
    """Painted texts that leave their room or their widget, or stand on each other."""
    found: list[str] = []
    whole = [text for text in texts if text.text.strip()]
    for text in whole:
        if text.box.width() > text.room.width() + 1.5 or text.box.height() > max(text.room.height(), 1) + 2.5:
            found.append(f"painted {text.text[:60]!r} needs {_size(text.box)}, has {_size(text.room)}")
        elif not _list(text.widget) and not QRectF(text.widget.rect()).adjusted(-1.5, -3, 1.5, 3).contains(text.box):
            found.append(f"painted {text.text[:60]!r} at {text.box.getRect()} leaves {text.widget.size().toTuple()}")
    for one, other in combinations(whole, 2):
        if one.widget is not other.widget or (one.text == other.text and one.box == other.box):
            continue
        shared = one.box.intersected(other.box)
        if shared.width() > 1.5 and shared.height() > 4:  # lines may share the air above their letters
            found.append(f"painted {one.text[:40]!r} and {other.text[:40]!r} share {_size(shared)}")
    return found


def _list(widget: QWidget) -> bool:
    """Whether it is the ground of rows that scroll."""
    return isinstance(widget.parentWidget(), QAbstractItemView)


def _size(box: QRectF) -> str:
    return f"{box.width():.0f}×{box.height():.0f}"


def faint(widget: QWidget, window: QWidget, image: QImage) -> str:
    """That a text is hard to read on what it stands on, "" where it is not; told from the pixels."""
    if isinstance(widget, QSlider | QTabBar | QHeaderView | QMenuBar) or not widget.isEnabled():
        return ""
    if not _has_text(widget) or seen(widget, window).size() != widget.size():
        return ""
    best, ground = _contrast(seen(widget, window).adjusted(2, 2, -2, -2), image)
    return f"{_name(widget)}: contrast {best:.2f} on {ground}" if best < READABLE else ""


def faint_paint(text: Drawn, window: QWidget, image: QImage) -> str:
    """The same of a painted text that can be seen whole."""
    box = text.box.toAlignedRect().translated(text.widget.mapTo(window, QPoint(0, 0)))
    whole = place(text.widget, window).intersected(seen(text.widget, window))
    if not text.text.strip() or not whole.contains(box) or not text.widget.isEnabled():
        return ""
    best, ground = _contrast(box, image)
    return f"painted {text.text[:60]!r}: contrast {best:.2f} on {ground}" if best < READABLE else ""


def faint_parts(widget: QWidget, window: QWidget, image: QImage) -> list[str]:
    """The same of tabs, heads of columns and menus: of each one's text."""
    parts: list[tuple[str, QRect]] = []
    if isinstance(widget, QTabBar):
        parts = [(widget.tabText(at), widget.tabRect(at)) for at in range(widget.count())]
    elif isinstance(widget, QMenuBar):
        parts = [(action.text(), widget.actionGeometry(action)) for action in widget.actions()]
    elif isinstance(widget, QHeaderView) and widget.orientation() == Qt.Orientation.Horizontal:
        texts = [str(widget.model().headerData(i, widget.orientation()) or "") for i in range(widget.count())]
        spots = [(widget.sectionViewportPosition(at), widget.sectionSize(at)) for at in range(widget.count())]
        parts = [(t, QRect(x, 0, wide, widget.height())) for t, (x, wide) in zip(texts, spots, strict=True)]
    found: list[str] = []
    for text, area in parts:
        place = area.translated(widget.mapTo(window, QPoint(0, 0)))
        if text and area.width() > 4 and widget.isEnabled() and seen(widget, window).contains(place):
            found += [f"{text!r} of {_name(widget)}: {why}" for why in _too_faint(place.adjusted(2, 2, -2, -3), image)]
    return found


def _too_faint(area: QRect, image: QImage) -> list[str]:
    best, ground = _contrast(area, image)
    return [f"contrast {best:.2f} on {ground}"] if best < READABLE else []


def _contrast(area: QRect, image: QImage) -> tuple[float, str]:
    """The most that any pixel has against the commonest one, and that one's colour."""
    pixels = image.copy(QRect(area.topLeft() * SCALE, area.size() * SCALE))
    if pixels.isNull():
        return 21.0, ""
    import numpy

    values, counts = numpy.unique(numpy.frombuffer(pixels.constBits(), dtype=numpy.uint32), return_counts=True)
    ground = f"#{int(values[counts.argmax()]) & 0xFFFFFF:06x}"
    light = luminance(ground)
    return max(_ratio(light, value & 0xFFFFFF) for value in values.tolist()), ground


@lru_cache(maxsize=1 << 14)
def _ratio(light: float, value: int) -> float:
    """Contrast of a pixel with a ground of this luminance."""
    other = luminance(f"#{value:06x}")
    return (max(light, other) + 0.05) / (min(light, other) + 0.05)


def _has_text(widget: QWidget) -> bool:
    if isinstance(widget, QComboBox):
        return bool(widget.currentText())
    if isinstance(widget, QLineEdit):
        return bool(widget.text() or widget.placeholderText())
    return bool(getattr(widget, "text", lambda: "")().strip())
