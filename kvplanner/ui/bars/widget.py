"""The memory bars in a frame that scrolls: what the window puts into its centre."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report.words import Unit
from kvplanner.ui.bars.canvas import BarsCanvas
from kvplanner.ui.bars.shapes import Measured, MeasuredPart

if TYPE_CHECKING:
    from kvplanner.observe.overlay import Overlay


def _measured(overlay: Overlay, unit: Unit) -> Measured:
    parts = tuple(MeasuredPart(part.kind, part.bytes, part.name) for part in overlay.parts)
    return Measured(overlay.device, parts, overlay.text(unit) + (" · no longer answers" if overlay.stale else ""))


class MemoryBars(QScrollArea):
    """The bars in a frame that scrolls where many bars meet little room."""

    segment_selected = Signal(object)
    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.canvas = BarsCanvas(self)
        self._overlays: tuple[Overlay, ...] = ()
        self._logged: tuple[Measured, ...] = ()
        self._hints: tuple[QSize, QSize] | None = None
        # Without a ground of its own, so that the card shows through. (Asking for the usual viewport costs 10 ms at
        # start: to wrap what it did not make itself, PySide makes the Python types of all widget classes.)
        self.setViewport(QWidget())
        self.setWidget(self.canvas)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusProxy(self.canvas)
        self.setAccessibleName("Memory bars")
        self.canvas.setAutoFillBackground(False)
        self.canvas.segment_selected.connect(self._reveal)
        self.canvas.segment_selected.connect(self.segment_selected)
        self.canvas.height_changed.connect(self.height_changed)

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan, or a sentence where there is none."""
        self.canvas.set_plan(plan)
        self._fit()

    def _fit(self) -> None:
        """Has the layout around look again where another height is wanted."""
        hints = self.sizeHint(), self.minimumSizeHint()
        if hints != self._hints:
            self._hints = hints
            self.updateGeometry()

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan; "" for what to do first."""
        self.canvas.set_empty(text)

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        self.canvas.set_dimmed(dimmed)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self.canvas.set_unit(unit)
        self.set_overlays(self._overlays)

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Marks a segment; emits nothing."""
        self.canvas.set_selected(device, kind)

    def set_overlays(self, overlays: Sequence[Overlay]) -> None:
        """Measured use to draw under the bars of the devices it is known for."""
        unit = self.canvas.view().unit
        self._overlays = tuple(overlays)
        seen = {overlay.device for overlay in overlays}
        logged = [one for one in self._logged if one.device not in seen]
        self.canvas.set_measured([*(_measured(overlay, unit) for overlay in overlays), *logged])
        self._fit()

    def set_logged(self, logged: Sequence[Measured]) -> None:
        """What a log measured, to draw under the bars of devices that nothing else is measured of."""
        self._logged = tuple(logged)
        self.set_overlays(self._overlays)

    def set_fill(self, fill: float | None) -> None:
        """How full a running server's KV cache is, 0 to 1, to draw inside that segment."""
        self.canvas.set_fill(fill)

    def natural_heights(self) -> tuple[int, ...]:
        """The heights that the bars take from comfortable to dense, without scrolling."""
        return self.canvas.natural_heights()

    def sizeHint(self) -> QSize:
        """Room for comfortable bars."""
        hint = self.canvas.sizeHint()
        return QSize(hint.width(), hint.height() + 2)

    def minimumSizeHint(self) -> QSize:
        """Room for two dense bars."""
        return QSize(320, min(self.canvas.minimumHeight() + 2, 130))

    def _reveal(self, selected: object) -> None:
        rect = self.canvas.reveal_rect(selected[0]) if isinstance(selected, tuple) else None
        if rect is not None:
            self.ensureVisible(0, rect.center().y(), 0, rect.height())
