"""The painted memory bars: hover, click, keyboard walk, folding, the ghost of the last edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFont,
    QFontInfo,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import words
from kvplanner.report.segments import meaning_of
from kvplanner.report.words import Unit
from kvplanner.ui.bars.access import Accessible
from kvplanner.ui.bars.layout import arrange, height_of
from kvplanner.ui.bars.painter import Marks, paint
from kvplanner.ui.bars.shapes import COMFORT, COMPACT, MEDIUM, THICK, Cell, Density, Layout, Measured, View
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import Type, colour, set_pale, tokens_of

# How long the bar before the last edit stays in sight.
GHOST_MS: Final = 2500
# Bars are laid out for fonts up to this size; larger ones enlarge everything.
USUAL_PIXELS: Final = 15
EMPTY: Final = "Choose a model and GPUs to see where the memory goes"


def _zoom_and_type(font: QFont) -> tuple[float, Type]:
    """How much larger than usual a font is, and the fonts to draw with before that zoom."""
    pixels = QFontInfo(font).pixelSize()
    if pixels <= USUAL_PIXELS:
        return 1.0, Type(font)
    base = QFont(font)
    base.setPixelSize(USUAL_PIXELS)
    return pixels / USUAL_PIXELS, Type(base)


class BarsCanvas(Accessible):
    """The painted bars; emits segment_selected((device, kind)) with the device's position in plan.devices."""

    segment_selected = Signal(object)
    height_changed = Signal()
    access_title = "Memory per GPU"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._plan: Plan | None = None
        self._before: Plan | None = None
        self._unit: Unit = "GiB"
        self._opened: frozenset[int] = frozenset()
        self._measured: tuple[Measured, ...] = ()
        self._fill: float | None = None
        self._selected: tuple[int, SegmentKind | None] | None = None
        self._hovered: Cell | None = None
        self._layout: Layout | None = None
        self._heights: dict[Density, int] = {}
        self._wanted = -1
        self._empty = EMPTY
        self.calm = False  # whether no trace of the last edit shows
        self._zoom, self._type = _zoom_and_type(self.font())
        self._ghost_timer = QTimer(self)
        self._ghost_timer.setSingleShot(True)
        self._ghost_timer.setInterval(GHOST_MS)
        self._ghost_timer.timeout.connect(self._end_ghost)

    # What the window sets

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan; the one before it stays as a ghost for a moment, from the first of a run of edits."""
        if plan is self._plan:
            return
        if self._plan is None or plan is None:
            self._end_ghost()
        elif plan.devices != self._plan.devices and not self.calm:
            if not self._ghost_timer.isActive():
                self._before = self._plan
            self._ghost_timer.start()
        self._plan = plan
        self._hovered = None
        if plan is not None:
            self._opened = frozenset(p for p in self._opened if p < len(plan.devices))
            if self._selected is not None and self._selected[0] >= len(plan.devices):
                self._selected = None
        self._changed()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._changed()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Marks a segment; kind None marks none."""
        self._selected = (device, kind)
        self.update()

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan; "" for what to do first."""
        self._empty = text or EMPTY
        self.update()

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)

    def set_measured(self, measured: Sequence[Measured]) -> None:
        """Measured use to draw under the bars, one entry per device at most."""
        if tuple(measured) != self._measured:
            self._measured = tuple(measured)
            self._changed()

    def set_fill(self, fill: float | None) -> None:
        """How full a running server's KV cache is, 0 to 1; None for not known."""
        if fill != self._fill:
            self._fill = fill
            self._changed()

    def set_opened(self, position: int, opened: bool) -> None:
        """Opens or closes a group of devices that are alike."""
        self._opened = self._opened | {position} if opened else self._opened - {position}
        self._changed()

    def plan(self) -> Plan | None:
        """The plan in sight."""
        return self._plan

    def view(self) -> View:
        """What is shown besides the plan."""
        return View(self._unit, self._opened, self._before, self._measured, self._delta(), self._fill)

    def arranged(self) -> Layout | None:
        """The layout in sight, None without a plan."""
        if self._layout is None and self._plan is not None:
            room = self.width() / self._zoom, self.height() / self._zoom
            self._layout = arrange(self._plan, *room, self._type.width, self.view())
        return self._layout

    def _delta(self) -> str:
        """The change of tokens; none where either plan fails and so serves nobody."""
        before, now = self._before, self._plan
        if before is None or now is None or before.fits is False or now.fits is False:
            return ""
        return words.change_of_tokens(before.kv_cache, now.kv_cache) if before.kv_cache and now.kv_cache else ""

    def _end_ghost(self) -> None:
        self._ghost_timer.stop()
        if self._before is not None:
            self._before = None
            self._layout = None
            self.update()

    def _changed(self) -> None:
        self._layout = None
        self._heights.clear()
        if self._plan is not None:
            needed = self._height(COMPACT)
            if needed != self.minimumHeight():
                self.setMinimumHeight(needed)
                self.height_changed.emit()
        wanted = self.sizeHint().height()
        if wanted != self._wanted:  # else every step of a drag would lay out all that is around
            self._wanted = wanted
            self.updateGeometry()
        self.update()
        self.parts_changed()

    # Qt

    def sizeHint(self) -> QSize:
        """Room for comfortable bars."""
        if self._plan is None:
            return QSize(640, 120)
        return QSize(640, self._height(COMFORT))

    def natural_heights(self) -> tuple[int, ...]:
        """The heights that the bars take from comfortable to dense."""
        if self._plan is None:
            return (self.sizeHint().height(),)
        return tuple(self._height(density) for density in (COMFORT, MEDIUM, COMPACT))

    def thick_height(self) -> int:
        """The height that bars for a tall window take."""
        return self._height(THICK) if self._plan is not None else self.sizeHint().height()

    def _height(self, density: Density) -> int:
        """Pixels that the bars take at a density."""
        known = self._heights.get(density)
        if known is None:
            height = height_of(self._plan, self.view(), density) if self._plan else 0.0
            known = self._heights[density] = int(height * self._zoom) + 1
        return known

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lays out anew."""
        self._layout = None
        self.parts_changed()
        super().resizeEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Follows fonts."""
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._zoom, self._type = _zoom_and_type(self.font())
            self._changed()
        super().changeEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the layout, or a sentence where there is no plan."""
        painter = QPainter(self)
        tokens = tokens_of(self)
        layout = self.arranged()
        if layout is None:
            painter.setPen(colour(tokens.muted))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, self._empty)
        else:
            if self._zoom != 1:
                painter.scale(self._zoom, self._zoom)
            marks = Marks(self._selected, self._hovered, self.hasFocus(), self.readout())
            paint(painter, layout, tokens, self._type, marks)
        painter.end()

    def readout(self) -> str:
        """The hovered segment in a line, else the selected one, else what the picture shows."""
        plan = self._plan
        if plan is None:
            return ""
        shown = self._hovered or self._current()
        return self._line(shown.device, shown.kind) if shown else f"Memory per GPU, {self._unit}"

    def _line(self, device: int, kind: SegmentKind) -> str:
        layout = self.arranged()
        row = layout.row_of(device) if layout else None
        if self._plan is None or row is None:
            return ""
        return words.segment_line(self._plan, row.positions, kind, self._unit)

    def event(self, event: QEvent) -> bool:
        """Tool tips say what the readout says and what the segment is."""
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), shown(self.tip_at(event.pos())), self)
            return True
        return super().event(event)

    def tip_at(self, point: QPoint) -> str:
        """What a tool tip adds: what the segment is, or which device the bar is of; "" hides it."""
        cell = self._at(point)
        if cell is not None and self._plan is not None:
            return f"{self._line(cell.device, cell.kind)}\n{meaning_of(self._plan, cell.device, cell.kind)}"
        layout = self.arranged()
        row = layout.row_at(point.y() / self._zoom) if layout else None
        if self._plan is None or layout is None or row is None or point.x() / self._zoom >= layout.x0:
            return ""
        device = self._plan.devices[row.positions[0]]
        size = words.size(device.total_bytes, self._unit)
        name = f"{words.device_name(self._plan, row.positions)} · {device.device.gpu.name} · {size}"
        return "\n".join(line for line in (name, words.identity(self._plan, row.positions)) if line)

    def _at(self, point: QPoint) -> Cell | None:
        layout = self.arranged()
        return layout.cell_at(point.x() / self._zoom, point.y() / self._zoom) if layout else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Shows the value under the mouse."""
        point = event.position().toPoint()
        cell = self._at(point)
        row = self._toggle_at(point)
        self.setCursor(Qt.CursorShape.PointingHandCursor if cell or row is not None else Qt.CursorShape.ArrowCursor)
        if cell != self._hovered:
            self._hovered = cell
            self.update()

    def leaveEvent(self, event: QEvent) -> None:
        """Forgets the mouse."""
        self._hovered = None
        self.update()
        super().leaveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Selects a segment, or opens and closes a group."""
        if event.button() != Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)
            return
        point = event.position().toPoint()
        toggle = self._toggle_at(point)
        cell = self._at(point)
        if toggle is not None:
            self.set_opened(toggle, toggle not in self._opened)
        elif cell is not None:
            self._select(cell.device, cell.kind)

    def select_at(self, point: QPoint) -> bool:
        """Select the segment at a point, as a click does; False where there is none."""
        cell = self._at(point)
        if cell is not None:
            self._select(cell.device, cell.kind)
        return cell is not None

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Belongs to the press."""
        event.accept()

    def _toggle_at(self, point: QPoint) -> int | None:
        layout = self.arranged()
        if layout is None:
            return None
        x, y = point.x() / self._zoom, point.y() / self._zoom
        found = (r for r in layout.rows if r.toggle and r.toggle.holds(x, y))
        return next((r.positions[0] for r in found), None)

    def _select(self, device: int, kind: SegmentKind) -> None:
        self._selected = (device, kind)
        self.update()
        self.segment_selected.emit((device, kind))
        self.tell_focus()

    # Keyboard

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The walk starts at the KV cache, or wherever it was."""
        cells = self.cells()
        if cells and self._current() is None:
            start = next((c for c in cells if c.kind == "kv_cache"), cells[-1])
            self._select(start.device, start.kind)
        super().focusInEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows walk, Enter opens and closes a group or shows the segment again."""
        keys = Qt.Key
        moves: dict[int, Literal["left", "right", "up", "down", "first", "last"]] = {
            keys.Key_Left: "left", keys.Key_Right: "right", keys.Key_Up: "up", keys.Key_Down: "down",
            keys.Key_Home: "first", keys.Key_End: "last",
        }  # fmt: skip
        move = moves.get(event.key())
        if move is not None:
            self.walk(move)
        elif event.key() in (keys.Key_Return, keys.Key_Enter, keys.Key_Space, keys.Key_Plus, keys.Key_Minus):
            self._open_or_show(event.key())
        else:
            super().keyPressEvent(event)

    def _open_or_show(self, key: int) -> None:
        cell = self._current()
        layout = self.arranged()
        row = layout.row_of(cell.device) if layout and cell else None
        if row is None or cell is None:
            return
        folds = row.toggle is not None and key != Qt.Key.Key_Return and key != Qt.Key.Key_Enter
        if folds:
            opened = not row.opened if key == Qt.Key.Key_Space else key == Qt.Key.Key_Plus
            self.set_opened(row.positions[0], opened)
        elif key not in (Qt.Key.Key_Plus, Qt.Key.Key_Minus):
            self.segment_selected.emit((cell.device, cell.kind))

    def cells(self) -> list[Cell]:
        """All segments in the order of the walk."""
        layout = self.arranged()
        return [cell for row in layout.rows for cell in row.cells] if layout else []

    def _current(self) -> Cell | None:
        layout = self.arranged()
        row = layout.row_of(self._selected[0]) if layout and self._selected else None
        if row is None or self._selected is None:
            return None
        return next((c for c in row.cells if c.kind == self._selected[1]), None)

    def walk(self, move: Literal["left", "right", "up", "down", "first", "last"]) -> None:
        """Selects the next segment that way; stays at the ends."""
        cells = self.cells()
        if not cells:
            return
        current = self._current()
        if current is None:
            target = cells[0]
        elif move in ("up", "down"):
            target = self._in_other_row(current, 1 if move == "down" else -1)
        else:
            here = cells.index(current)
            index = {"left": max(here - 1, 0), "right": here + 1, "first": 0}.get(move, len(cells) - 1)
            target = cells[min(index, len(cells) - 1)]
        self._select(target.device, target.kind)

    def _in_other_row(self, current: Cell, step: int) -> Cell:
        layout = self.arranged()
        rows = [row for row in layout.rows if row.cells] if layout else []
        here = next(i for i, row in enumerate(rows) if current in row.cells)
        row = rows[min(max(here + step, 0), len(rows) - 1)]
        middle = current.rect.x + current.rect.w / 2
        same = next((c for c in row.cells if c.kind == current.kind), None)
        return same or min(row.cells, key=lambda c: abs(c.rect.x + c.rect.w / 2 - middle))

    # Assistive technology

    def access_count(self) -> int:
        """The segments of all bars."""
        return len(self.cells())

    def access_name(self, index: int) -> str:
        """For example "GPU 0, weights, 14.96 GiB"."""
        cell = self.cells()[index]
        layout = self.arranged()
        row = layout.row_of(cell.device) if layout else None
        if self._plan is None or row is None:
            return ""
        return words.segment_name(self._plan, row.positions, cell.kind, self._unit)

    def access_text(self, index: int) -> str:
        """What the segment is, and its place in the bar."""
        cell = self.cells()[index]
        if self._plan is None:
            return ""
        return f"{self._line(cell.device, cell.kind)}. {meaning_of(self._plan, cell.device, cell.kind)}"

    def access_rect(self, index: int) -> QRect:
        """Where the segment is drawn."""
        rect = self.cells()[index].rect
        x, y, w, h = (round(side * self._zoom) for side in rect)
        return QRect(x, y, max(w, 1), h)

    def reveal_rect(self, device: int) -> QRect | None:
        """Where a device's bar is, to scroll to."""
        layout = self.arranged()
        row = layout.row_of(device) if layout else None
        return QRect(*(round(side * self._zoom) for side in row.rect)) if row else None

    def access_current(self) -> int:
        """The selected segment."""
        current = self._current()
        return self.cells().index(current) if current else -1
