"""The page of servers that share GPUs: pinned plans and the edited one, started one after the other, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFocusEvent, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from kvplanner.errors import PlannerError
from kvplanner.report.together import finds, holds, outcome, verdict
from kvplanner.solve.compare import Side
from kvplanner.ui.compare.bars import ComparedBars
from kvplanner.ui.compare.model import heading
from kvplanner.ui.theme.ink import set_pale
from kvplanner.ui.widgets import tables
from kvplanner.ui.widgets.labels import Wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvplanner.app.document import Document
    from kvplanner.app.jobs import Job, JobControl
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.request import PlanRequest
    from kvplanner.gpu.spec import Machine
    from kvplanner.report.words import Unit
    from kvplanner.solve.together import Placed
    from kvplanner.ui.compare.pins import Pins
    from kvplanner.ui.window.services import Services

EMPTY: Final = (
    "Pin this plan, then choose another model on the same GPUs: what each server finds, and whether it starts, shows "
    "here for every order of start."
)
HEADS: Final = ("Server", "What it comes to")
_NAME_SHARE: Final = 3  # of the table's width, the part of one that names take at most
AFTER_MS: Final = 250
_ROWS: Final = 4


class TogetherPage(QWidget):
    """Follows the edited plan while it is seen. orders: every order of start, the pinned plans first."""

    def __init__(self, document: Document, services: Services, pins: Pins, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document, self._services, self._pins = document, services, pins
        self._job: Job | None = None
        self._of: object = None
        self._unit: Unit = "GiB"
        self.orders: tuple[tuple[Placed, ...], ...] = ()
        self.order = QComboBox(self)
        self.order.setAccessibleName("Order of start")
        self.order.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.bars = ComparedBars(self)
        self.words = Wrapped(self)
        self.words.setProperty("role", "muted")
        self.table = table = QTableWidget(0, len(HEADS), self)
        table.setHorizontalHeaderLabels(HEADS)
        tables.flat(table, "Servers in their order of start")
        table.setWordWrap(True)
        header = table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Interactive)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        table.setMinimumHeight((self.fontMetrics().height() + tables.ROW_PADDING) * _ROWS)
        self._line = QWidget(self)
        line = QHBoxLayout(self._line)
        line.setContentsMargins(0, 0, 0, 0)
        label = QLabel("Order", self._line)
        label.setBuddy(self.order)
        line.addWidget(label)
        line.addWidget(self.order, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 2, 0, 0)
        column.addWidget(self._line)
        column.addWidget(self.bars)
        column.addWidget(self.words)
        column.addWidget(table, 1)
        column.addStretch(0)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(AFTER_MS)
        self._soon.timeout.connect(self._begin)
        self.order.currentIndexChanged.connect(self._show_order)
        pins.changed.connect(self._changed)
        self._say(EMPTY)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the order."""
        self.order.setFocus(event.reason())

    def showEvent(self, event: QShowEvent) -> None:
        """What was planned meanwhile."""
        super().showEvent(event)
        self._begin()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody waits for what is not seen."""
        super().hideEvent(event)
        self._soon.stop()
        self._end()

    def set_plan(self, plan: Plan | None) -> None:
        """Beside another plan, once edits pause."""
        self._changed()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._show_order()

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)

    # the work --------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self.isVisible():
            self._soon.start()

    def _servers(self) -> tuple[tuple[str, PlanRequest], ...]:
        """The pinned plans by their letters, then the edited one."""
        plan = self._document.plan
        if plan is None or not self._pins.kept:
            return ()
        requests = (*(pin.plan.request for pin in self._pins.kept), plan.request)
        return tuple((heading(at, len(requests)), request) for at, request in enumerate(requests))

    def _begin(self) -> None:
        from kvplanner.gpu.spec import Machine

        servers = self._servers()
        machine = Machine(self._document.state.devices)
        if (servers, machine) == self._of:
            return
        self._end()
        self._of = servers, machine
        if not servers:
            self._say(EMPTY)
            return

        def work(control: JobControl) -> tuple[tuple[Placed, ...], ...]:
            return _every_order(servers, machine, control)

        self._job = self._services.jobs.submit(
            "Starting servers on paper", work, self._found, self._failed, key=f"together {id(self)}"
        )

    def _end(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job, self._of = None, None

    def _failed(self, error: Exception) -> None:
        self._job = None
        text = f"{error.where}: {error.what}. {error.remedy}" if isinstance(error, PlannerError) else str(error)
        self._say(text)

    def _found(self, orders: tuple[tuple[Placed, ...], ...]) -> None:
        self._job = None
        self.orders = orders
        chosen = max(self.order.currentIndex(), 0)
        self.order.blockSignals(True)
        self.order.clear()
        for order in orders:
            self.order.addItem(f"{' → '.join(one.name for one in order)}: {_outcome(order)}")
        self.order.setCurrentIndex(chosen if chosen < len(orders) else 0)
        self.order.blockSignals(False)
        self._show_order()

    # what shows ------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        """Words in the table's place."""
        self.orders = ()
        self.words.setText(text)
        self._show_order()

    def _show_order(self, _index: int = 0) -> None:
        there = 0 <= self.order.currentIndex() < len(self.orders)
        self._line.setVisible(there)
        self.table.setVisible(there)
        self.words.setVisible(not there)
        order = self.orders[self.order.currentIndex()] if there else ()
        self.bars.set_sides([Side(one.name, one.plan if not isinstance(one.plan, str) else None) for one in order],
                            self._unit, in_turn=True)  # fmt: skip
        self.table.setRowCount(len(order))
        for row, one in enumerate(order):
            letters = {mate.number: mate.name for mate in order}
            here = [f"unloads {' and '.join(letters[number] for number in one.unloads)}"] if one.unloads else []
            here += [f"finds {text}" for text in (finds(one, self._unit),) if text]
            here += [f"holds {text}" for text in (holds(one, self._unit),) if text]
            told = "\n".join((verdict(one, self._unit), *([", ".join(here)] if here else [])))
            cells = (f"{row + 1}. {one.name}\n{self._name(one)}", told)
            for column, text in enumerate(cells):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                item.setTextAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
                self.table.setItem(row, column, item)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Rows as high as their words."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        table = self.table
        table.setColumnWidth(0, min(table.sizeHintForColumn(0) + 8, table.viewport().width() // _NAME_SHARE + 40))
        table.resizeRowsToContents()
        for row in range(table.rowCount()):
            table.setRowHeight(row, table.rowHeight(row) + tables.ROW_PADDING)

    def _name(self, one: Placed) -> str:
        plan = self._document.plan
        models = [pin.plan.request.model.id for pin in self._pins.kept] + ([plan.request.model.id] if plan else [])
        at = one.number - 1
        return models[at].rpartition("/")[2] if at < len(models) else one.name


def _outcome(order: Sequence[Placed]) -> str:
    """What an order comes to, servers by their letters."""
    failed = [one.name for one in order if not one.fits]
    if failed:
        return f"{' and '.join(failed)} does not start" if len(failed) == 1 else f"{' and '.join(failed)} do not start"
    if any(one.unloads for one in order):
        return "all start, not all at once" if all(one.sure for one in order) else "all may start, not all at once"
    return "all start" if outcome(order) == "all" else "all may start"


def _every_order(
    servers: tuple[tuple[str, PlanRequest], ...], machine: Machine, control: JobControl
) -> tuple[tuple[Placed, ...], ...]:
    """Every order of start; ends early once nobody wants them. Raises PlannerError."""
    from kvplanner.solve.together import orders

    found = []
    for order in orders(servers, machine):
        control.check()
        found.append(order)
    return tuple(found)
