"""What plots have in common: pyqtgraph is loaded when one is first seen, off the window's thread (half a second)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from kvplanner.app.jobs import error_text
from kvplanner.ui.theme import figures

if TYPE_CHECKING:
    from kvplanner.app.jobs import JobControl


_BESIDE: Final = 12  # of a label: the tick and the air


def load(control: JobControl) -> Any:
    """Imports pyqtgraph: it makes no Qt objects while it is imported, so any thread may do it."""
    import pyqtgraph

    return pyqtgraph


def room_for(labels: Iterable[str], metrics: QFontMetrics, least: int) -> int:
    """Pixels for the values of a vertical axis: pyqtgraph leaves out those that have no room."""
    return max(least, max((metrics.horizontalAdvance(label) for label in labels), default=0) + _BESIDE)


class PlotPlace(QLabel):
    """Stands where a plot will be, and says why where none comes."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("Preparing the plot…", parent)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setProperty("role", "muted")

    def failed(self, error: Exception) -> None:
        """Nothing can be drawn."""
        self.setText(f"The plot cannot be shown: {error_text(error)}")

    def give_way(self, pyqtgraph: Any, column: QVBoxLayout, *, name: str, left: int) -> Any:
        """Make the plot, as one looks at it and does not move it, and put it here. left: pixels of its values."""
        plot = pyqtgraph.PlotWidget(self.parentWidget(), enableMenu=False)
        plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        plot.setMouseEnabled(x=False, y=False)
        plot.hideButtons()
        plot.setFrameShape(plot.Shape.NoFrame)
        axis = plot.getAxis("left")
        axis.setWidth(left)
        texts = axis.tickStrings
        axis.tickStrings = lambda *of_ticks: [figures.shown_figures(text) for text in texts(*of_ticks)]
        plot.setAccessibleName(name)
        column.replaceWidget(self, plot)
        self.hide()
        self.deleteLater()
        return plot
