"""A sweep over one setting as a curve with its band; pyqtgraph is imported when the plot is first seen."""

from __future__ import annotations

from typing import Any, Final

from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QColor, QPen, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.app.jobs import Jobs
from kvplanner.report.sweep import label_of
from kvplanner.ui.compare.measure import few, labelled, round_steps, short_value
from kvplanner.ui.compare.points import PointsView
from kvplanner.ui.theme import figures
from kvplanner.ui.theme.geometry import grown
from kvplanner.ui.theme.ink import tokens_of
from kvplanner.ui.widgets.focus_frame import FocusFrame
from kvplanner.ui.widgets.plot import PlotPlace, load, room_for

_LABEL: Final = 64
_LEFT: Final = 46
_BAND_ALPHA: Final = 70
_STEPS: Final = {
    Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_PageUp: -8, Qt.Key.Key_PageDown: 8,
}  # fmt: skip


class SweepPlot(PointsView):
    """A curve through the points, with its band."""

    def __init__(self, jobs: Jobs, parent: QWidget | None = None) -> None:
        super().__init__("The setting over its range", parent)
        self._jobs = jobs
        self._plot: Any = None
        self._items: list[Any] = []
        self._cursor: Any = None
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(1, 1, 1, 1)
        self._space = PlotPlace(self)
        self._column.addWidget(self._space, 1)
        FocusFrame(self)

    @property
    def made(self) -> bool:
        """Whether the plot has been built."""
        return self._plot is not None

    def _points_changed(self) -> None:
        self._draw()

    # building --------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Builds the plot when it is first seen; the library is imported off the window's thread."""
        super().showEvent(event)
        if self._plot is None:
            self._jobs.submit("Load the plot", load, self._build, self._space.failed, key=f"sweep plot {id(self)}")

    def _build(self, pyqtgraph: Any) -> None:
        if self._plot is not None:
            return
        plot = self._plot = self._space.give_way(pyqtgraph, self._column, name="The setting over its range", left=_LEFT)
        plot.scene().sigMouseClicked.connect(self._clicked)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Another theme or font."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange, QEvent.Type.FontChange):
            self._draw()
        super().changeEvent(event)

    def resizeEvent(self, event: Any) -> None:
        """As many labels as there is room for."""
        super().resizeEvent(event)
        self._label_values()

    # drawing ---------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        if self._plot is None or self._request is None:
            return
        import numpy as np
        import pyqtgraph

        plot, tokens = self._plot, tokens_of(self)
        plot.setBackground(QColor(tokens.panel))
        for name in ("left", "bottom"):
            axis = plot.getAxis(name)
            axis.setPen(QColor(tokens.border))
            axis.setTextPen(QColor(tokens.muted))
            axis.setStyle(tickFont=self.font(), tickLength=-4)
        for item in self._items:
            plot.removeItem(item)
        bands = [self._measure.band(point) for point in self._points]
        x = np.arange(len(bands), dtype=float)
        value, low, high = (np.array([band[i] if band else np.nan for band in bands], dtype=float) for i in range(3))
        top = max((band[2] for band in bands if band), default=1.0) or 1.0
        accent = QColor(tokens.accent)
        soft = QColor(accent)
        soft.setAlpha(_BAND_ALPHA)
        clear = QPen(Qt.PenStyle.NoPen)
        ends = [pyqtgraph.PlotDataItem(x, np.nan_to_num(edge), pen=clear) for edge in (low, high)]
        band = pyqtgraph.FillBetweenItem(*ends, brush=soft)
        curve = pyqtgraph.PlotDataItem(x, value, pen=pyqtgraph.mkPen(accent, width=2), connect="finite")
        self._items = [*ends, band, curve]
        for symbol, fill, found in self._symbols(tokens, value):
            if found:
                spots = pyqtgraph.ScatterPlotItem(
                    [p[0] for p in found], [p[1] for p in found], symbol=symbol, size=7, brush=QColor(fill),
                    pen=pyqtgraph.mkPen(QColor(tokens.danger if symbol == "x" else tokens.accent), width=1.4),
                )  # fmt: skip
                self._items.append(spots)
        self._cursor = pyqtgraph.InfiniteLine(self.at, angle=90, pen=pyqtgraph.mkPen(QColor(tokens.text), width=1))
        self._items.append(self._cursor)
        for item in self._items:
            plot.addItem(item)
        last = max(len(bands) - 1, 1)
        plot.setXRange(-0.035 * last, 1.02 * last, padding=0)
        plot.setYRange(0, top * 1.06, padding=0)
        ticks = [(step, figures.shown_figures(few(step)) if step else "0") for step in round_steps(top)]
        plot.getAxis("left").setWidth(room_for((text for _, text in ticks), self.fontMetrics(), _LEFT))
        plot.getAxis("left").setTicks([ticks])
        plot.setLabel("bottom", label_of(self._axes[0], self._request), color=tokens.muted)
        self._label_values()

    def _symbols(self, tokens: Any, value: Any) -> list[tuple[str, str, list[tuple[int, float]]]]:
        """Marks by verdict: surely fits, may fit, does not."""
        sure: list[tuple[int, float]] = []
        may: list[tuple[int, float]] = []
        fails: list[tuple[int, float]] = []
        for at, point in enumerate(self._points):
            if point.fits and value[at] == value[at]:
                (sure if point.sure else may).append((at, float(value[at])))
            else:
                fails.append((at, 0.0))
        return [("o", tokens.accent, sure), ("o", tokens.panel, may), ("x", tokens.danger, fails)]

    def _label_values(self) -> None:
        if self._plot is None or not self._axes or not self._points:
            return
        most = max((self.width() - _LEFT) // grown(_LABEL, self.fontMetrics().height(), 1.0), 1)
        values = [point.values[0] for point in self._points]
        ticks = [(at, figures.shown_figures(short_value(values[at]))) for at in labelled(len(values), most)]
        self._plot.getAxis("bottom").setTicks([ticks])

    # keys and mouse --------------------------------------------------------------------------------------------

    def _mark_moved(self) -> None:
        if self._cursor is not None:
            self._cursor.setValue(self.at)

    def _led_to(self, key: Qt.Key) -> int | None:
        """Arrows lead to the next point, pages over several, Home and End to the ends."""
        if key in _STEPS:
            return self.at + _STEPS[key]
        return {Qt.Key.Key_Home: 0, Qt.Key.Key_End: len(self._points) - 1}.get(key)

    def _clicked(self, event: Any) -> None:
        place: QPointF = self._plot.getPlotItem().vb.mapSceneToView(event.scenePos())
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        self.mark(round(place.x()))
        if event.double():
            self.chosen.emit(self.at)
