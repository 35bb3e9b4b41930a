"""The centre of the window: messages, verdict, memory bars, breakdown, tabs; one selection over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QCoreApplication, QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from kvplanner.app.messages import Messages
from kvplanner.report.devices import telling_kind
from kvplanner.ui.widgets.card import Card
from kvplanner.ui.widgets.message_bar import MessageBar

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.report.words import Unit
    from kvplanner.ui.verdict.offer import Offer
    from kvplanner.ui.window.details import Details
    from kvplanner.ui.window.tabs import View

BARS_SHARE: Final = 0.42
TALL: Final = 1200
TALL_SHARE: Final = 0.25  # so much of a tall window thick bars may take
BARS_MARGINS: Final = 20
LEAST_BARS: Final = 96
DENSE_BARS: Final = 260  # so much the bars may take of a low window before they scroll: four dense ones
DETAILS_AFTER_MS: Final = 60
DRAG_DETAILS_MS: Final = 180  # while edits follow each other
BUTTONS_WIDTH: Final = 196  # of both, until they are made
BUTTON_HEIGHT: Final = 29
BUTTON_GAP: Final = 8
GAP: Final = 10
LEAST_WIDTH: Final = 480
LOW: Final = 640  # pixels of centre: the verdict takes less of a lower one
REVEAL_MS: Final = 20
NO_PLAN: Final = "Nothing is planned: the reason stands above"


class Ground(QWidget):
    """Needs the height that its texts take at its present width; Qt would ask for that of the narrowest one."""

    def minimumSizeHint(self) -> QSize:
        """At the present width."""
        layout = self.layout()
        height = layout.minimumHeightForWidth(max(self.width(), LEAST_WIDTH)) if layout is not None else 0
        return QSize(LEAST_WIDTH, height)


def _one_drag(before: Plan | None, plan: Plan | None) -> bool:
    """Whether two plans may be steps of one drag: the same model on the same machine."""
    if before is None or plan is None:
        return False
    return (before.request.model, before.request.machine) == (plan.request.model, plan.request.machine)


class Centre(QWidget):
    """Assembles the views. selected(position, kind). Without `build` it is an empty ground: the first frame."""

    selected = Signal(int, object)

    def __init__(self, messages: Messages, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Plan")
        self.messages = MessageBar(messages, self)
        self._make_header()
        self._make_ground()
        self.details: Details | None = None
        self._views: list[View] = []
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._detailed_at = 0.0
        self._later.timeout.connect(self.show_details)
        self._fit_soon = QTimer(self)
        self._fit_soon.setSingleShot(True)
        self._fit_soon.setInterval(0)
        self._fit_soon.timeout.connect(self._fit_lower)
        self._plan: Plan | None = None
        self._problem: tuple[str, str] | None = None
        self._refusal: tuple[str, str] | None = None
        self.position = 0
        self.kind: SegmentKind | None = None
        self._chosen_by_user = False
        self._unit: Unit = "GiB"

    def _make_header(self) -> None:
        """The place of the verdict, and that of the two buttons beside it."""
        self._buttons = QWidget(self)
        self._buttons.setMinimumSize(BUTTONS_WIDTH, BUTTON_HEIGHT)
        self._header = QHBoxLayout()
        self._header.setSpacing(GAP)
        self._before = QWidget(self)  # holds the place of the verdict
        self._header.addWidget(self._before, 1)
        self._header.addWidget(self._buttons, 0, Qt.AlignmentFlag.AlignTop)

    def _make_ground(self) -> None:
        """Messages above a ground that scrolls."""
        # What does not fit a low window scrolls; nothing is squeezed until it cannot be read.
        self._scroll = QScrollArea(self)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._ground = ground = Ground()
        ground.setMinimumWidth(LEAST_WIDTH)
        self._outer = QVBoxLayout(ground)
        self._outer.setContentsMargins(14, 10, 14, 12)
        self._outer.setSpacing(GAP)
        self._outer.addLayout(self._header)
        self._below = QWidget()  # holds the place of the details
        self._outer.addWidget(self._below, 1)
        self._scroll.setWidget(ground)
        self._messages_line = QHBoxLayout()
        self._messages_line.setContentsMargins(14, 8, 14, 0)
        self._messages_line.addWidget(self.messages)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addLayout(self._messages_line)
        whole.addWidget(self._scroll, 1)

    def build(self) -> None:
        """Make the verdict and the bars, after the first frame; what details them follows with `build_details`.

        They show once there is something to say, or when all the rest is there: a start is not to flash their empty
        state, nor to pay for it.
        """
        from kvplanner.ui.bars.widget import MemoryBars
        from kvplanner.ui.verdict.view import VerdictView

        if self._views:
            return
        self.verdict, self.bars = VerdictView(self), MemoryBars(self)
        self._header.insertWidget(0, self.verdict, 1)
        self.verdict.hide()
        self._header.removeWidget(self._buttons)
        self.verdict.set_corner(self._buttons)
        self.bars.height_changed.connect(self._fit_bars)
        self._bars_card = Card(self.bars, margins=8)
        self._bars_card.hide()
        self._outer.insertWidget(1, self._bars_card)
        self.verdict.set_low(self.height() < LOW)
        self._views = [self.verdict, self.bars]
        for view in (self.verdict, self.bars):
            view.set_unit(self._unit)
            view.segment_selected.connect(self._segment_selected)
        if self._plan is not None:
            self.set_plan(self._plan)
        elif self._problem is not None:
            self.set_problem(*self._problem)

    def _reveal(self) -> None:
        self._before.hide()
        self.verdict.show()
        self._bars_card.show()

    def build_buttons(self) -> None:
        """Make the buttons beside the verdict."""
        from PySide6.QtWidgets import QPushButton, QToolButton

        self.export_button = QToolButton(self._buttons)
        self.export_button.setText("Export ▾")
        self.export_button.setProperty("button", "true")
        self.export_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.export_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.export_button.setAccessibleName("Export")
        self.copy_button = QPushButton("Copy command", self._buttons)
        self.copy_button.setProperty("primary", "true")
        line = QHBoxLayout(self._buttons)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(BUTTON_GAP)
        for button in (self.export_button, self.copy_button):
            line.addWidget(button)
            button.setMinimumSize(button.sizeHint().width(), BUTTON_HEIGHT)
        self._buttons.setMinimumWidth(max(self._buttons.minimumWidth(), line.minimumSize().width()))

    def build_details(self) -> None:
        """Make the table and the tabs."""
        from kvplanner.ui.window.details import Details

        if self.details is not None:
            return
        self._reveal()
        self.details = details = Details(self)
        self._below.hide()
        self._outer.addWidget(details, 1)
        self._outer.addStretch(0)
        details.height_changed.connect(self._fit_later)
        details.segment_selected.connect(self._segment_selected)
        details.set_unit(self._unit)
        details.set_plan(self._plan)
        self.show_details()
        self._dim()
        self.settle()

    def settle(self) -> None:
        """Lay the details out now, so that they have their heights from the first frame that shows them."""
        if self.details is None or self._plan is None or not self.isVisible():
            self._fit_later()
            return
        self.details.show()
        self._outer.activate()
        self._fit_lower()

    @property
    def built(self) -> bool:
        """Whether all views are there."""
        return self.details is not None

    @property
    def below(self) -> Details:
        """Table and tabs; once built."""
        assert self.details is not None, "the details are not made yet"
        return self.details

    def set_plan(self, plan: Plan | None) -> None:
        """Show a plan; the selection stays where it can.

        The verdict and the bars follow at once; table and tabs when edits pause, so that a drag stays smooth.
        """
        waited, dragged = self._plan is None, _one_drag(self._plan, plan)
        self._plan, self._problem, self._refusal = plan, None, None
        for view in self._views:
            view.set_plan(plan)
        if self._views:
            self._say_empty("")
        if self.details is not None:
            self.details.set_plan(plan)
        if plan is not None:
            if not self._chosen_by_user or self.position >= len(plan.devices):
                self.position = min(plan.tightest, len(plan.devices) - 1)
            kinds = [segment.kind for segment in plan.devices[self.position].segments] if plan.devices else []
            if plan.devices and (self.kind not in kinds or not self._chosen_by_user):
                self.kind = telling_kind(plan, plan.devices[self.position])
            for view in self._views:
                view.set_selected(self.position, self.kind)
            if self._views:
                self._reveal()
                self._fit_bars()
        if waited:
            self.show_details()
            if plan is not None and self.details is not None:  # read later than the details were made
                self.settle()
        elif not self._later.isActive():
            recent = monotonic() - self._detailed_at < 2 * DRAG_DETAILS_MS / 1000
            self._later.start(DRAG_DETAILS_MS if recent and dragged else DETAILS_AFTER_MS)

    def set_problem(self, text: str, remedy: str) -> None:
        """Say why nothing is planned, and what to do; a plan ends it."""
        self.set_plan(None)
        self._problem = text, remedy
        if self._views:
            self._reveal()
            self.verdict.set_problem(text, remedy)
            self._say_empty(NO_PLAN)

    @property
    def plan(self) -> Plan | None:
        """The plan in sight."""
        return self._plan

    def set_stale(self, reason: str | None, remedy: str = "", of: str = "") -> None:
        """Say why there is no plan of what is set and dim the one in sight; None or another plan ends it.

        of: what the plan in sight is of, where that is not what is set.
        """
        self._refusal = (reason, remedy) if reason is not None and self._plan is not None else None
        if self._views:
            self.verdict.set_stale(reason, remedy, of)
            self._dim()

    def set_actions(self, actions: Sequence[Offer], *, looking: bool = False) -> None:
        """Buttons of the verdict: text, what it is for, what it does; looking: others are looked for."""
        if self._views:
            self.verdict.set_actions(actions, looking=looking)

    def _dim(self) -> None:
        """Every view is pale while its plan is not of what is set."""
        for view in (self.bars, self.details) if self.details is not None else (self.bars,):
            view.set_dimmed(self._refusal is not None)

    def _say_empty(self, text: str) -> None:
        """What the views say while there is no plan; "" for their usual words."""
        self.bars.set_empty(text)
        self._dim()
        if self.details is not None:
            self.details.set_empty(text)

    def show_details(self) -> None:
        """Bring the views that can be seen up to date; a hidden tab follows when it is opened."""
        self._later.stop()
        self._detailed_at = monotonic()
        if self.details is not None:
            self.details.set_selected(self.position, self.kind)
            self.details.bring_up_to_date()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        for view in self._views:
            view.set_unit(unit)
        if self.details is not None:
            self.details.set_unit(unit)

    def _segment_selected(self, chosen: object) -> None:
        if isinstance(chosen, tuple) and len(chosen) == 2:
            self.select(chosen[0], chosen[1])

    def select(self, position: int, kind: SegmentKind | None) -> None:
        """Select a segment everywhere."""
        self._chosen_by_user = True
        self.position, self.kind = position, kind
        self._show_selection()
        self.selected.emit(position, kind)

    def _show_selection(self) -> None:
        self.show_details()
        for view in self._views:
            view.set_selected(self.position, self.kind)
        if self.details is not None:
            self.details.show_selected()

    def show_tab(self, name: str) -> bool:
        """Show a page by its key or title; False when there is none."""
        card = self.details.show_tab(name) if self.details is not None else None
        if card is None:
            return False
        QTimer.singleShot(0, self, lambda: self._reveal_card(card))
        return True

    def _reveal_card(self, card: QWidget) -> None:
        """Scroll to what was asked for."""
        self._fit_lower()
        self._outer.activate()
        QTimer.singleShot(REVEAL_MS, self, lambda: self._scroll.ensureWidgetVisible(card, 0, GAP))

    def _fit_bars(self) -> None:
        """The bars take the height that they need up to their share of the window; then they get dense, then scroll."""
        share, heights = int(self.height() * BARS_SHARE), [h + BARS_MARGINS for h in self.bars.natural_heights()]
        best = next((height for height in heights if height <= share), min(heights[-1], max(share, DENSE_BARS)))
        if self.height() >= TALL:
            thick = self.bars.canvas.thick_height() + BARS_MARGINS
            best = thick if thick <= self.height() * TALL_SHARE else best
        self._bars_card.setFixedHeight(max(best, LEAST_BARS))

    def _fit_later(self) -> None:
        """Once what changes now has changed."""
        if not self._fit_soon.isActive():
            self._fit_soon.start()

    def _fit_lower(self) -> None:
        """Table and tabs, and in a tall window the chart, in the room below the bars."""
        if self.details is None or not self._views:
            return
        margins = self._outer.contentsMargins()
        width = max(self._scroll.viewport().width(), LEAST_WIDTH) - margins.left() - margins.right()
        above = self.verdict.heightForWidth(width) if self.verdict.hasHeightForWidth() else self.verdict.height()
        above += self._bars_card.maximumHeight() + 2 * GAP + margins.top() + margins.bottom()
        self.details.fit(self.height(), self._scroll.viewport().height() - above)
        self._outer.invalidate()  # it may remember what was there before
        least = max(self._scroll.viewport().height(), self._outer.minimumHeightForWidth(self._ground.width()))
        if self._ground.height() != least:  # a layout activated by hand tells the scroll area nothing
            QCoreApplication.postEvent(self._ground, QEvent(QEvent.Type.LayoutRequest))

    def resizeEvent(self, event: Any) -> None:
        """The bars' share changes with the window."""
        super().resizeEvent(event)
        if self._views:
            self.verdict.set_low(self.height() < LOW)
            self._fit_bars()
        self._fit_later()

    def save_layout(self) -> str:
        """The table's share of the width as text."""
        return self.details.save_layout() if self.details is not None else ""

    def restore_layout(self, text: str) -> None:
        """Put it back; text that makes no sense changes nothing."""
        if self.details is not None and text:
            self.details.restore_layout(text)
            self.settle()
