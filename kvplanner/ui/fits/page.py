"""The page of what fits: fills while it is read, sorts, filters, and a double click makes a row the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from kvplanner.app import settings as s
from kvplanner.app.jobs import Batches
from kvplanner.gpu.names import short_name
from kvplanner.ui.fits.model import FitsFilter, FitsModel
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import set_pale
from kvplanner.ui.widgets import tables
from kvplanner.ui.widgets.labels import Wrapped, spoken

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.jobs import Job, JobControl, Jobs
    from kvplanner.app.library import Library
    from kvplanner.app.settings import Settings
    from kvplanner.app.state import PlanState
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.model.model import Model
    from kvplanner.report.words import Unit
    from kvplanner.solve.fits import Fit

BATCH: Final = 24
KEY: Final = "what fits"
_MODEL, _GPUS, _CONTEXT, _USERS, _LEFT, _VERDICT = 0, 2, 4, 5, 6, 7
_IN_SIGHT: Final = (_MODEL, _GPUS, _VERDICT, _CONTEXT, _USERS, _LEFT)
_MOST_LOCAL: Final = 60
_STARRED: Final = "is:starred"
_ROW_PADDING: Final = 8
_LEAST_NAME, _MOST_NAME = 22, 44  # letters
_FILLING = 60  # rows: with more, what is in sight has been seen
_REST: Final = 0.001  # after each row, so that the window's own thread comes first
_FORMATS: Final = (None, "FP8", "AWQ 4-bit")
_WAYS: Final = ("Models on this machine", "Machines for this model")


class FitsPage(QWidget):
    """Lists what fits while it is seen; a plan of another machine, model or load begins it anew."""

    segment_selected = Signal(object)
    roomy = True

    def __init__(
        self, document: Document, jobs: Jobs, library: Library, settings: Settings, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._document = document
        self._jobs = jobs
        self._library = library
        self._settings = settings
        self._local: dict[str, tuple[str, Model]] = {}  # by the id of its rows: what opens it, and the model
        self._job: Job | None = None
        self._of: object = None
        self._gpus_need = 0
        self.model = FitsModel(self)
        self.shown = FitsFilter(self.model, self)
        self.way = QComboBox(self)
        self.way.addItems(_WAYS)
        spoken(self.way, "Which way to look")
        self.search = QLineEdit(self)
        self.search.setPlaceholderText("Filter")
        self.search.setClearButtonEnabled(True)
        self.search.setAccessibleName("Filter by name")
        self.search.setToolTip(f"Words of a name; {_STARRED} leaves the models that are starred in the chooser")
        self.formats = QCheckBox("Also as FP8 and 4-bit", self)
        self.everything = QCheckBox("Also what does not fit", self)
        self.status = Wrapped(self)
        self.table = self._make_table()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        for widgets in ((self.way, self.search), (self.formats, self.everything)):
            line = QHBoxLayout()
            for widget in widgets:
                line.addWidget(widget, 1 if widget is self.search else 0)
            if self.search not in widgets:
                line.addStretch(1)
            column.addLayout(line)
        column.addWidget(self.table, 1)
        column.addWidget(self.status)
        self._batches = Batches(self._arrived)
        self.way.currentIndexChanged.connect(self._begin)
        self.formats.toggled.connect(self._begin)
        self.search.textChanged.connect(self._filter)
        self.everything.toggled.connect(self._filter)
        library.models_changed.connect(self._found_local)

    def _make_table(self) -> QTableView:
        table = tables.made(self, "What fits", _ROW_PADDING)
        table.setModel(self.shown)
        tables.sortable(table)
        table.sortByColumn(_VERDICT, Qt.SortOrder.AscendingOrder)
        header = table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        for place, column in enumerate(_IN_SIGHT):  # the answers before what a narrow window leaves to scrolling
            header.moveSection(header.visualIndex(column), place)
        table.activated.connect(self._chosen)
        return table

    # a page ----------------------------------------------------------------------------------------------------

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the table."""
        self.table.setFocus(event.reason())

    def showEvent(self, event: QShowEvent) -> None:
        """Begins when it is first seen."""
        super().showEvent(event)
        self._begin_if_other()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody waits for rows that are not seen."""
        super().hideEvent(event)
        self._end()

    def set_plan(self, plan: Plan | None) -> None:
        """The rows are of the document's state; another plan may mean another machine."""
        if self.isVisible():
            self._begin_if_other()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self.model.set_unit(unit)

    def set_selected(self, position: int, kind: SegmentKind | None) -> None:
        """Rows are of whole plans."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)

    def set_empty(self, text: str) -> None:
        """The table says nothing while there is no plan."""

    # the search ------------------------------------------------------------------------------------------------

    def _subject(self) -> object:
        """What the rows depend on."""
        state = self._document.state
        ask = state.ask
        subject = state.machine if self.way.currentIndex() == 0 else state.model_text
        return (
            self.way.currentIndex(),
            subject,
            ask.engine,
            ask.version,
            ask.load,
            self.formats.isChecked(),
            self._texts(),
        )

    def _texts(self) -> tuple[str, ...]:
        """What opens the models of this computer, as far as they were looked for."""
        return tuple(model.text for model in self._library.models[:_MOST_LOCAL] if not model.problem)

    def _found_local(self) -> None:
        if self.isVisible() and self._of is not None and self._of != self._subject():
            self._begin()

    def _begin_if_other(self) -> None:
        if self._job is None and self._of != self._subject():
            self._begin()

    def _end(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job, self._of = None, None

    def _begin(self) -> None:
        self._end()
        self.model.clear()
        state = self._document.state
        if state.machine is None or state.model is None:
            self.status.setText("Choose a model and GPUs")
            return
        self._of = self._subject()
        local = _opened(self._texts(), self._local)
        rows = _rows(state, local, to_machines=self.way.currentIndex() == 1, formats=self.formats.isChecked())
        self._filter()
        token, batches = object(), self._batches
        self._token = token

        def work(control: JobControl) -> int:
            return _fill(rows, control, lambda batch: batches.found.emit(token, batch))

        self.table.setColumnHidden(_MODEL, self.way.currentIndex() == 1)
        self.table.setColumnHidden(_GPUS, self.way.currentIndex() == 0)
        self.table.setColumnHidden(_USERS, state.ask.load is None)
        self.status.setText("Planning…")
        self._job = self._jobs.submit("What fits", work, self._done, self._failed, key=KEY)

    def _arrived(self, token: object, batch: list[Fit]) -> None:
        if token is not self._token:
            return
        self.model.add(batch)
        if self.shown.rowCount() <= _FILLING:  # what is in sight may be wider than what came before
            self._fit_columns()
        self.status.setText(shown(f"{len(self.model.rows):,} planned, {self.shown.rowCount():,} shown…"))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The names take what the answers leave."""
        super().resizeEvent(event)
        self._fit_names()

    def _fit_columns(self) -> None:
        """As wide as their titles and longest texts: asking the table would measure every cell, which takes long."""
        header, option = self.table.horizontalHeader(), QStyleOptionViewItem()
        self.table.initViewItemOption(option)
        for column in range(self.model.columnCount()):
            cells = self.model.longest(column, everything=self.everything.isChecked())
            needs = (self.table.itemDelegate().sizeHint(option, cell).width() for cell in cells)
            if not self.table.isColumnHidden(column):
                self.table.setColumnWidth(column, max(header.sectionSizeHint(column), *needs, 0))
        self._gpus_need = self.table.columnWidth(_GPUS)  # machines have short names, which show whole
        self._fit_names()

    def _fit_names(self) -> None:
        """Names as long as the answers leave them room, within reason."""
        letter = self.fontMetrics().averageCharWidth()
        names = _GPUS if self.table.isColumnHidden(_MODEL) else _MODEL
        seen = (c for c in _IN_SIGHT if c != names and not self.table.isColumnHidden(c))
        room = self.table.viewport().width() - sum(self.table.columnWidth(column) for column in seen)
        least = self._gpus_need if names == _GPUS else letter * _LEAST_NAME
        wide = min(max(room, least), max(letter * _MOST_NAME, least))
        self.table.setColumnWidth(names, wide)

    def _done(self, count: int) -> None:
        self._job = None
        self._fit_columns()
        said = f"{count:,} planned, {self.shown.rowCount():,} shown. Enter or a double click plans a row"
        self.status.setText(shown(said))

    def _failed(self, error: Exception) -> None:
        self._job = None
        self.status.setText(str(error))

    def _filter(self) -> None:
        words = self.search.text().split()
        stars = self._settings.get(s.STARRED_MODELS) if _STARRED in words else None
        opened = {text: name for name, (text, _) in self._local.items()}
        only = None if stars is None else frozenset(opened.get(text, text) for text in stars)
        text = " ".join(word for word in words if word != _STARRED)
        self.shown.show(text, everything=self.everything.isChecked(), only=only)

    def _chosen(self, index: QModelIndex) -> None:
        fit = self.model.rows[self.shown.mapToSource(index).row()]
        if fit.refused:
            return
        self._end()
        fields = _fields(self._document.state, fit, self._local, to_machines=self.way.currentIndex() == 1)
        self._document.seal()
        self._document.edit(f"Plan {fit.model.rpartition('/')[2]} on {short_name(fit.machine or fit.gpus)}", **fields)

    def row_at(self, row: int) -> QPoint:
        """The middle of a row of the table, for whoever clicks there."""
        return self.table.visualRect(self.shown.index(row, 0)).center()


def _opened(texts: tuple[str, ...], local: dict[str, tuple[str, Model]]) -> Iterator[Model]:
    """Models of this computer, opened one after the other; what cannot be opened says why where it is chosen."""
    from kvplanner.errors import PlannerError
    from kvplanner.source.resolve import open_model

    for text in texts:
        try:
            model = open_model(text)
        except (PlannerError, OSError):
            continue
        local[model.id] = text, model
        yield model


def _rows(state: PlanState, local: Iterator[Model], *, to_machines: bool, formats: bool) -> Iterator[Fit]:
    """The rows of a state, made as they are asked for; options of one model say nothing of another."""
    from kvplanner.catalog import models
    from kvplanner.solve.fits import likely_first, machines_for, models_on, on_any_machine

    asked = _FORMATS if formats else (None,)
    ask = state.ask._replace(weight_format=None, measured={})
    if to_machines:
        assert state.model is not None
        return machines_for(state.model, on_any_machine(ask), formats=asked)
    assert state.machine is not None
    first = likely_first(models.index(), state.machine)
    return models_on(state.machine, ask._replace(options={}), formats=asked, entries=first, also=local)


def _fill(rows: Iterator[Fit], control: JobControl, send: Any) -> int:
    """Send rows in batches until all are there or nobody wants them; the first ones soon."""
    batch: list[Fit] = []
    count, size = 0, 4
    for fit in rows:
        control.check()
        batch.append(fit)
        count += 1
        if len(batch) >= size:
            send(batch)
            batch, size = [], BATCH
        sleep(_REST)
    send(batch)
    return count


def _fields(state: PlanState, fit: Fit, local: Mapping[str, tuple[str, Model]], *, to_machines: bool) -> dict[str, Any]:
    """What makes a row the plan: another model as it was planned here, or another machine."""
    from kvplanner.catalog import gpus, models
    from kvplanner.solve.fits import on_any_machine

    if not to_machines:
        text, model = local[fit.model] if fit.model in local else (fit.model, models.load(fit.model))
        wanted = fit.weight_format if fit.what_if else None
        return {"model": model, "model_text": text, "weight_format": wanted, "options": {}, "measured": {}}
    machine = gpus.machine(fit.gpus)
    return {
        "devices": machine.devices,
        "machine_text": fit.gpus,
        "machine_source": machine.source,
        "machine_chosen": True,
        "unticked": frozenset(),
        "given_free": {},
        "options": on_any_machine(state.ask).options,
        "measured": {},
        "weight_format": fit.weight_format if fit.what_if else None,
    }
