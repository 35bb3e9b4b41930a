"""The page of a sweep: one setting over its range as a plot, or two against each other as a map."""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.errors import PlannerError
from kvplanner.solve.axis import USERS
from kvplanner.solve.sweep import home
from kvplanner.ui.compare.heat import HeatMap
from kvplanner.ui.compare.measure import MEASURES
from kvplanner.ui.compare.plot import SweepPlot
from kvplanner.ui.compare.points import PointsView
from kvplanner.ui.theme.ink import set_pale
from kvplanner.ui.widgets.labels import Wrapped
from kvplanner.ui.widgets.pages import Pages

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.jobs import Job, JobControl
    from kvplanner.app.messages import Messages
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.axis import Axis
    from kvplanner.solve.choices import Choice
    from kvplanner.solve.sweep import Point
    from kvplanner.ui.window.services import Services

POINTS: Final = 64
MAP_POINTS: Final = 32
KEY: Final = "sweep"
AFTER_MS: Final = 250  # once edits pause
_REST: Final = 0.0002  # after each point, so that the window's own thread comes first
_ALONE: Final = "nothing else"


class SweepPage(QWidget):
    """Follows the edited plan while it is seen. sweep: (axes, points, request) of what shows, None before."""

    done = Signal()

    def __init__(
        self, document: Document, services: Services, messages: Messages, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._document, self._services, self._messages = document, services, messages
        self._job: Job | None = None
        self._of: object = None
        self._drawn: list[str] = []
        self._choices: tuple[Choice, ...] = ()
        self.axes: tuple[Axis, ...] = ()
        self.points: tuple[Point, ...] = ()
        self.request: PlanRequest | None = None
        self.first, self.second = QComboBox(self), QComboBox(self)
        self.span, self.other_span = QLineEdit(self), QLineEdit(self)
        for widget, name in (
            (self.first, "Setting"), (self.span, "Its values"), (self.second, "Second setting"),
            (self.other_span, "Values of the second setting"),
        ):  # fmt: skip
            widget.setAccessibleName(name)
        for field in (self.span, self.other_span):
            field.setToolTip("A range such as 4k..128k, a list such as 1,2,4, or nothing for all that it may be")
            field.editingFinished.connect(self._begin_if_other)
        self.measure = QComboBox(self)
        for measure in MEASURES:
            self.measure.addItem(measure.title)
        self.measure.setAccessibleName("What is drawn")
        self.export = QPushButton("Export CSV…", self)
        self.plan_it = QPushButton("Plan this point", self)
        self.plan_it.setToolTip("Set what the marked point has (Enter)")
        self.readout = Wrapped(self)
        self.readout.setAccessibleName("The marked point")
        self.plot = SweepPlot(services.jobs, self)
        self.heat = HeatMap(self)
        self.pages = Pages(self)
        self.pages.addWidget(self.plot)
        self.pages.addWidget(self.heat)
        lines = QVBoxLayout(self)
        lines.setContentsMargins(0, 2, 0, 0)
        rows: tuple[tuple[QWidget, ...], ...]
        rows = (self.first, self.span), (QLabel("and", self), self.second, self.other_span)
        for row in rows:
            line = QHBoxLayout()
            for place in row:
                line.addWidget(place, 0 if isinstance(place, QLabel) else 1)
            lines.addLayout(line)
        lines.addWidget(self.pages, 1)
        lines.addWidget(self.readout)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(self.plan_it)
        foot.addWidget(self.export)
        lines.addLayout(foot)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(AFTER_MS)
        self._soon.timeout.connect(self._begin_if_other)
        for view in (self.plot, self.heat):
            view.marked.connect(self._tell)
            view.chosen.connect(self._plan_point)
        self.plan_it.clicked.connect(lambda: self._plan_point(self._view.at))
        self.export.clicked.connect(self._ask_file)
        self.first.currentIndexChanged.connect(partial(self._changed, self.first, self.span))
        self.second.currentIndexChanged.connect(partial(self._changed, self.second, self.other_span))
        self.measure.currentIndexChanged.connect(self._show_measure)

    @property
    def _view(self) -> PointsView:
        return self.heat if len(self.axes) == 2 else self.plot

    # what is asked ---------------------------------------------------------------------------------------------

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the points."""
        self._view.setFocus(event.reason())

    def showEvent(self, event: QShowEvent) -> None:
        """Begins when it is first seen."""
        super().showEvent(event)
        self._fill_choices()
        self._begin_if_other()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody waits for points that are not seen."""
        super().hideEvent(event)
        self._soon.stop()
        self._end()

    def set_plan(self, plan: Plan | None) -> None:
        """Points of another plan, once edits pause."""
        if self.isVisible():
            self._fill_choices()
            self._soon.start()

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)

    def _request(self) -> PlanRequest | None:
        plan = self._document.plan
        return plan.request if plan is not None else None

    def _fill_choices(self) -> None:
        """The settings that this engine's plan has; what was chosen stays."""
        from kvplanner.report.sweep import title_of
        from kvplanner.solve.choices import choices

        request = self._request()
        found = choices(request) if request is not None else ()
        if found == self._choices:
            return
        names = [choice.name for choice in self._choices]
        kept = [
            names[i] if 0 <= i < len(names) else "" for i in (self.first.currentIndex(), self.second.currentIndex() - 1)
        ]
        spans = [choice.span for choice in self._choices if choice.name in kept]
        self._choices = found
        names = [choice.name for choice in found]
        for box, field, name in ((self.first, self.span, kept[0]), (self.second, self.other_span, kept[1])):
            box.blockSignals(True)
            box.clear()
            if box is self.second:
                box.addItem(_ALONE)
            box.addItems([title_of(choice.of, request) for choice in found] if request is not None else [])
            box.setCurrentIndex(names.index(name) + (box is self.second) if name in names else 0)
            box.blockSignals(False)
            if name not in names or field.text() in (*spans, ""):
                self._usual_span(box, field)

    def _choice(self, box: QComboBox) -> Choice | None:
        at = box.currentIndex() - (box is self.second)
        return self._choices[at] if 0 <= at < len(self._choices) else None

    def _usual_span(self, box: QComboBox, field: QLineEdit) -> None:
        choice = self._choice(box)
        field.setText(choice.span if choice is not None else "")
        field.setVisible(choice is not None)
        field.setPlaceholderText("all")

    def _changed(self, box: QComboBox, field: QLineEdit, _index: int) -> None:
        self._usual_span(box, field)
        self._begin_if_other()

    # the work --------------------------------------------------------------------------------------------------

    def _words(self) -> tuple[str, ...]:
        """The settings as `sweep --over` takes them."""
        found = []
        for box, field in ((self.first, self.span), (self.second, self.other_span)):
            choice = self._choice(box)
            if choice is not None:
                text = field.text().strip()
                found.append(f"{choice.name}={text}" if text else choice.name)
        return tuple(found)

    def _begin_if_other(self) -> None:
        request, words = self._request(), self._words()
        if request is None or not words or not self.isVisible() or (request, words) == self._of:
            return
        self._end()
        self._of = request, words
        count = POINTS if len(words) == 1 else MAP_POINTS

        def work(control: JobControl) -> tuple[tuple[Axis, ...], tuple[Point, ...]]:
            return _swept(request, words, count, control)

        def finished(found: tuple[tuple[Axis, ...], tuple[Point, ...]]) -> None:
            self._job = None
            self._show(request, *found)

        self._job = self._services.jobs.submit("Sweeping", work, finished, self._failed, key=f"{KEY} {id(self)}")

    def _end(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job, self._of = None, None

    def _failed(self, error: Exception) -> None:
        self._job = None
        text = f"{error.what}. {error.remedy}" if isinstance(error, PlannerError) else str(error)
        self.readout.setText(text[:1].upper() + text[1:])

    def _show(self, request: PlanRequest, axes: tuple[Axis, ...], points: tuple[Point, ...]) -> None:
        self.request, self.axes, self.points = request, axes, points
        self.pages.setCurrentWidget(self._view)
        served = any(point.users is not None for point in points)
        other = [axis.name for axis in axes] != self._drawn
        self._drawn = [axis.name for axis in axes]
        self.measure.setVisible(served)
        if other or not served:
            self.measure.setCurrentIndex(1 if served and USERS in self._drawn else 0)
        self._show_measure()
        plan = self._document.plan
        if other and plan is not None:
            self._view.mark(home(plan, axes, points))
        self.done.emit()

    def _show_measure(self, _index: int = 0) -> None:
        if self.request is not None:
            self._view.set_points(self.request, self.axes, self.points, MEASURES[self.measure.currentIndex()])

    def _tell(self, at: int) -> None:
        from kvplanner.report.sweep import point_words

        if self.request is not None and 0 <= at < len(self.points):
            self.readout.setText(point_words(self.axes, self.points[at], self.request))

    # what follows ----------------------------------------------------------------------------------------------

    def _plan_point(self, at: int) -> None:
        """Make a point the plan, in one step that can be undone."""
        if self.request is None or not 0 <= at < len(self.points):
            return
        point = self.points[at]
        fields = _fields(self._document, self.request, self.axes, point)
        self._document.seal()
        self._document.edit("Plan a point of the sweep", **fields)

    def _ask_file(self) -> None:
        from pathlib import Path

        from PySide6.QtWidgets import QFileDialog

        from kvplanner.app import settings as s

        folder = self._services.settings.get(s.EXPORT_FOLDER) or str(Path.home())
        dialog = QFileDialog(self, "Export CSV", str(Path(folder) / "sweep.csv"), "CSV table (*.csv)")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("csv")
        dialog.fileSelected.connect(self.write_to)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def write_to(self, name: str) -> None:
        """Write the points as CSV, whole or not at all."""
        from kvplanner.files import write_whole
        from kvplanner.report.sweep import to_csv

        if self.request is None:
            return
        data = to_csv(self.axes, self.points, self.request).encode()

        def done(_: object) -> None:
            self._messages.brief("Exported the sweep")

        def failed(error: Exception) -> None:
            self._messages.error(error, "The sweep was not written", key="export")

        title = "Exporting the sweep"
        self._services.jobs.submit(title, lambda control: write_whole(name, data), done, failed, writes=True)


def _swept(
    request: PlanRequest, words: tuple[str, ...], count: int, control: JobControl
) -> tuple[tuple[Axis, ...], tuple[Point, ...]]:
    """The axes and all points; ends early once nobody wants them. Raises PlannerError."""
    from kvplanner.solve.axis import axis
    from kvplanner.solve.sweep import sweep

    axes = tuple(axis(request, text, count) for text in words)
    found = []
    for point in sweep(request, axes):
        control.check()
        found.append(point)
        sleep(_REST)
    return axes, tuple(found)


def _fields(document: Document, request: PlanRequest, axes: tuple[Axis, ...], point: Point) -> dict[str, Any]:
    """The fields of a document that a point's values are."""
    from kvplanner.solve.sweep import changed

    wanted = changed(request, axes, point.values)
    state = document.state
    names = {axis.name for axis in axes}
    options = {**state.ask.options, **{name: wanted.options[name] for name in names if name in wanted.options}}
    fields: dict[str, Any] = {
        "options": options, "load": wanted.load, "version": wanted.version, "weight_format": wanted.weight_format,
    }  # fmt: skip
    if wanted.machine != request.machine:
        from kvplanner.catalog.gpus import machine_words

        fields |= {
            "machine_text": machine_words(wanted.machine), "devices": wanted.machine.devices, "machine_chosen": True,
            "machine_source": wanted.machine.source, "unticked": frozenset(), "given_free": {},
        }  # fmt: skip
    return fields
