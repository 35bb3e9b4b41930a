"""The page of pinned plans: what differs from the one that is edited, as it is edited; and a sweep of one setting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QGuiApplication, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.ui.compare.bars import ComparedBars
from kvplanner.ui.compare.model import CompareModel, heading
from kvplanner.ui.compare.pins import told_apart
from kvplanner.ui.theme.ink import set_pale, sized, tokens_of
from kvplanner.ui.widgets import tables
from kvplanner.ui.widgets.buttons import ShortButton
from kvplanner.ui.widgets.labels import Elided, Wrapped
from kvplanner.ui.widgets.pages import Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.report.words import Unit
    from kvplanner.ui.compare.pins import Pins

EMPTY: Final = (
    "Pin this plan, then go on editing: what differs shows here as you change model, GPUs, engine, release or options."
)
SAME: Final = "Nothing differs from what is pinned."
_LEAST_ROWS: Final = 5
_LEAST_COLUMN: Final = 60


class Swept(Protocol):
    """A widget that shows a sweep. measure: the choice of what is drawn, which stands beside the switch."""

    measure: QComboBox

    def set_plan(self, plan: Plan | None) -> None:
        """Of another plan."""


class Together(Protocol):
    """A widget that shows servers on the same GPUs."""

    def set_plan(self, plan: Plan | None) -> None:
        """Beside another plan."""

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""


class ComparePage(QWidget):
    """pin_wanted(): keep the edited plan. back_wanted(position): make a pinned plan the edited one.

    height_changed(): another page of it is in front, which needs another height.

    make_sweep(parent), make_together(parent): their pages, made when they are first asked for.
    """

    segment_selected = Signal(object)
    roomy = True
    pin_wanted = Signal()
    back_wanted = Signal(int)
    height_changed = Signal()

    def __init__(
        self,
        pins: Pins,
        make_sweep: Callable[[QWidget], Swept],
        make_together: Callable[[QWidget], Together],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._pins = pins
        self._make_sweep, self._make_together = make_sweep, make_together
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._dimmed = False
        self.sweep: Swept | None = None
        self.together: Together | None = None
        self._of_pins: list[QWidget] = []
        self._chipped: tuple[str, ...] = ()
        self.model = CompareModel(self)
        self.pages = Pages(self)
        self.plans_button, self.sweep_button = self._switch("Plans"), self._switch("Sweep")
        self.together_button = self._switch("Together")
        self.plans_button.setChecked(True)
        self.plans_button.setToolTip("Pinned plans beside this one")
        self.sweep_button.setToolTip("One setting over its range, or two against each other")
        self.together_button.setToolTip("These plans as servers on the same GPUs, in every order of start")
        self.pin_button = ShortButton("Pin this plan", self)
        self.pin_button.setToolTip("Keep this plan to compare what you edit next with it (Ctrl+D)")
        self.everything = QCheckBox("All rows", self)
        self.everything.setToolTip("Also what does not differ")
        self._top = top = QHBoxLayout()
        top.setSpacing(2)
        top.addWidget(self.plans_button)
        top.addWidget(self.sweep_button)
        top.addWidget(self.together_button)
        top.addStretch(1)
        top.addWidget(self.everything)
        top.addSpacing(8)
        top.addWidget(self.pin_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(top)
        column.addWidget(self.pages, 1)
        self.pages.addWidget(self._make_plans())
        self.pages.currentChanged.connect(self.height_changed)
        self.plans_button.clicked.connect(partial(self.show_sweep, on=False))
        self.sweep_button.clicked.connect(partial(self.show_sweep, on=True))
        self.together_button.clicked.connect(self.show_together)
        self.pin_button.clicked.connect(self.pin_wanted)
        self.everything.toggled.connect(self._set_everything)
        pins.changed.connect(self._show)
        self._colour()
        self._show()

    def _switch(self, text: str) -> QToolButton:
        made = QToolButton(self)
        made.setText(text)
        made.setCheckable(True)
        made.setAutoExclusive(True)
        made.setProperty("quiet", "true")
        made.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return made

    def _make_plans(self) -> QWidget:
        place = QWidget(self)
        self._chips = QVBoxLayout()
        self._chips.setSpacing(0)
        self.bars = ComparedBars(place)
        self.words = Wrapped(place)
        self.words.setProperty("role", "muted")
        self.table = table = tables.made(place, "What differs")
        table.setModel(self.model)
        table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        table.setMinimumHeight((self.fontMetrics().height() + tables.ROW_PADDING) * _LEAST_ROWS)
        copy = QShortcut(QKeySequence(QKeySequence.StandardKey.Copy), table, self.copy_table)
        copy.setContext(Qt.ShortcutContext.WidgetShortcut)
        column = QVBoxLayout(place)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self._chips)
        column.addWidget(self.bars)
        column.addWidget(self.words)
        column.addWidget(table, 1)
        column.addStretch(0)
        return place

    # a page ----------------------------------------------------------------------------------------------------

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the switch."""
        buttons = (self.plans_button, self.sweep_button, self.together_button)
        next(button for button in buttons if button.isChecked()).setFocus(event.reason())

    def showEvent(self, event: QShowEvent) -> None:
        """What was planned meanwhile."""
        super().showEvent(event)
        self._show()

    def set_plan(self, plan: Plan | None) -> None:
        """The edited plan."""
        self._plan = plan
        if self.isVisible():
            self._show()
        for page in (self.sweep, self.together):
            if page is not None:
                page.set_plan(plan)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self.model.set_unit(unit)
        if self.together is not None:
            self.together.set_unit(unit)
        self._show()

    def set_selected(self, position: int, kind: SegmentKind | None) -> None:
        """Rows are of whole plans."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)
        self._dimmed = dimmed
        self._colour()

    def set_empty(self, text: str) -> None:
        """Pinned plans stand for themselves."""

    def changeEvent(self, event: QEvent) -> None:
        """Follows the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "model"):
            self._colour()

    def _colour(self) -> None:
        tokens = tokens_of(self)
        self.model.title = sized(self.font(), 0.94, bold=True)
        self.model.gain, self.model.loss = QColor(tokens.success), QColor(tokens.danger)

    def show_sweep(self, _checked: bool = False, *, on: bool = True) -> None:
        """The sweep in front, or the pinned plans."""
        (self.sweep_button if on else self.plans_button).setChecked(True)
        if on and self.sweep is None:
            self.sweep = self._make_sweep(self.pages)
            self.sweep.set_plan(self._plan)
            self.pages.addWidget(cast(QWidget, self.sweep))
            self._top.addWidget(self.sweep.measure)
        self._bring(self.sweep if on else None)

    def show_together(self) -> None:
        """The plans as servers on the same GPUs."""
        self.together_button.setChecked(True)
        if self.together is None:
            self.together = self._make_together(self.pages)
            self.together.set_unit(self._unit)
            self.pages.addWidget(cast(QWidget, self.together))
        self._bring(self.together)

    def _bring(self, page: Swept | Together | None) -> None:
        """A page in front, the pinned plans where there is none."""
        swept = page is not None and page is self.sweep
        self.pages.setCurrentIndex(0 if page is None else self.pages.indexOf(cast(QWidget, page)))
        self.everything.setVisible(page is None)
        self.pin_button.setVisible(not swept)
        if self.sweep is not None:
            self.sweep.measure.setVisible(swept)

    def _set_everything(self, on: bool) -> None:
        self.model.set_everything(on)
        self._show_titles()

    def copy_table(self) -> None:
        """All rows, for a spreadsheet."""
        QGuiApplication.clipboard().setText(self.model.as_text())

    # what is pinned --------------------------------------------------------------------------------------------

    def _show(self) -> None:
        sides = self._pins.sides(self._plan) if self._plan is not None and self._pins.kept else ()
        self.model.set_sides(sides)
        self.bars.set_sides(sides, self._unit)
        self._show_chips()
        self._show_titles()
        there = bool(self.model.lines)
        self.table.setVisible(there)
        self.words.setVisible(not there)
        self.words.setText(SAME if sides else EMPTY)
        self.pin_button.setEnabled(self._plan is not None and not self._pins.full)
        self.everything.setEnabled(len(sides) > 1)

    def _show_titles(self) -> None:
        self.table.clearSpans()
        header = self.table.horizontalHeader()
        if self.model.columnCount() > 1:
            header.setMinimumSectionSize(_LEAST_COLUMN)
            self._fit_names()
        for at, line in enumerate(self.model.lines):
            if line.row is None:
                self.table.setSpan(at, 0, 1, self.model.columnCount())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The names take what the values leave."""
        super().resizeEvent(event)
        self._fit_names()

    def _fit_names(self) -> None:
        """Names are never cut: where values leave them no room, the table scrolls sideways."""
        header, columns = self.table.horizontalHeader(), range(self.model.columnCount())
        wanted = sum(max(self.table.sizeHintForColumn(at), header.sectionSizeHint(at)) for at in columns)
        modes = QHeaderView.ResizeMode
        if len(columns) > 1:
            bar = self.table.verticalScrollBar()
            wide = wanted + (0 if bar.isVisible() else bar.sizeHint().width()) <= self.table.viewport().width()
            header.setSectionResizeMode(0, modes.Stretch if wide else modes.ResizeToContents)

    def _show_chips(self) -> None:
        names = told_apart([pin.plan for pin in self._pins.kept])
        if names == self._chipped:
            return
        self._chipped = names
        for chip in self._of_pins:
            self._chips.removeWidget(chip)
            chip.hide()
            chip.deleteLater()
        self._of_pins = [self._chip(at, name) for at, name in enumerate(names)]
        for chip in self._of_pins:
            self._chips.addWidget(chip)

    def _chip(self, at: int, name: str) -> QWidget:
        """A pinned plan: its letter and name, back to it, away with it."""
        letter = heading(at, len(self._pins.kept) + 1)
        place = QWidget(self)
        label = Elided(f"{letter}   {name}", place)
        label.hint = name
        back, away = QToolButton(place), QToolButton(place)
        for button, text, tip, act in (
            (back, "Edit", f"Go back to plan {letter}", self.back_wanted.emit),
            (away, "Remove", f"No longer compare plan {letter}", self._pins.remove),
        ):
            button.setText(text)
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setProperty("quiet", "true")
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.clicked.connect(partial(_with, act, at))
        line = QHBoxLayout(place)
        line.setContentsMargins(2, 0, 0, 0)
        line.addWidget(label, 1)
        line.addWidget(back)
        line.addWidget(away)
        return place


def _with(act: Callable[[int], None], at: int, _checked: bool = False) -> None:
    act(at)
