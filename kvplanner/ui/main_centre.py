"""The centre of the window: messages, verdict, memory bars, breakdown, tabs; one selection over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QTabWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.app.messages import Messages
from kvplanner.ui.message_bar import MessageBar

if TYPE_CHECKING:
    from kvplanner.engine.base import Plan, SegmentKind
    from kvplanner.ui.bars.words import Unit

BARS_SHARE: Final = 0.42
DETAILS_AFTER_MS: Final = 60
LOWER_HEIGHT: Final = 232
CARD_WIDTH: Final = 240
BUTTON_WIDTH: Final = 118
BUTTON_HEIGHT: Final = 29
STACK_BELOW: Final = 780
TAB_NAMES: Final = {"explain": "Explain", "startup": "Start-up"}


class View(Protocol):
    """What every view of a plan offers."""

    def set_plan(self, plan: Plan | None) -> None:
        """Show a plan."""

    def set_unit(self, unit: Any) -> None:
        """Show GiB or GB."""

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Mark a segment."""


def card(*widgets: QWidget, margins: int = 10) -> QFrame:
    """A framed ground with widgets on it."""
    frame = QFrame()
    frame.setProperty("card", "true")
    layout = QVBoxLayout(frame)
    layout.setContentsMargins(margins, margins, margins, margins)
    layout.setSpacing(6)
    for widget in widgets:
        layout.addWidget(widget)
    return frame


class Ground(QWidget):
    """Needs the height that its texts take at its present width; Qt would ask for that of the narrowest one."""

    def minimumSizeHint(self) -> QSize:
        """At the present width."""
        layout = self.layout()
        height = layout.minimumHeightForWidth(max(self.width(), 2 * CARD_WIDTH)) if layout is not None else 0
        return QSize(2 * CARD_WIDTH, height)


class Centre(QWidget):
    """Assembles the views. selected(position, kind). Without `build` it is an empty ground: the first frame."""

    selected = Signal(int, object)

    def __init__(self, messages: Messages, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Plan")
        self.messages = MessageBar(messages, self)
        self._make_header()
        self._make_ground()
        self.tabs: QTabWidget | None = None
        self.splitter: QSplitter | None = None
        self._views: list[View] = []
        self._details: list[View] = []
        self._stale: set[int] = set()
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.setInterval(DETAILS_AFTER_MS)
        self._later.timeout.connect(self.show_details)
        self._plan: Plan | None = None
        self.position = 0
        self.kind: SegmentKind | None = None
        self._chosen_by_user = False
        self._unit: Unit = "GiB"

    def _make_header(self) -> None:
        """The place of the verdict, and the two buttons beside it."""
        self.export_button = QToolButton(self)
        self.export_button.setText("Export ▾")
        self.export_button.setProperty("button", "true")
        self.export_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.export_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.export_button.setAccessibleName("Export")
        self.copy_button = QPushButton("Copy command", self)
        self.copy_button.setProperty("primary", "true")
        self._buttons = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._buttons.setSpacing(8)
        for button in (self.export_button, self.copy_button):
            self._buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)
            button.setMinimumSize(BUTTON_WIDTH, BUTTON_HEIGHT)
        self._header = QHBoxLayout()
        self._header.setSpacing(10)
        self._before = QWidget(self)  # holds the place of the verdict
        self._header.addWidget(self._before, 1)
        self._header.addLayout(self._buttons)
        self._header.setAlignment(self._buttons, Qt.AlignmentFlag.AlignTop)

    def _make_ground(self) -> None:
        """Messages above a ground that scrolls."""
        # What does not fit a low window scrolls; nothing is squeezed until it cannot be read.
        self._scroll = QScrollArea(self)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        ground = Ground()
        ground.setMinimumWidth(2 * CARD_WIDTH)
        self._outer = QVBoxLayout(ground)
        self._outer.setContentsMargins(14, 10, 14, 12)
        self._outer.setSpacing(10)
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
        """Make the verdict and the bars, after the first frame; what details them follows with `build_details`."""
        from kvplanner.ui.bars.widget import MemoryBars
        from kvplanner.ui.verdict import VerdictView

        if self._views:
            return
        self.verdict, self.bars = VerdictView(self), MemoryBars(self)
        self._header.insertWidget(0, self.verdict, 1)
        self._before.hide()
        self._bars_card = card(self.bars, margins=8)
        self._outer.insertWidget(1, self._bars_card)
        self._views = [self.verdict, self.bars]
        for view in (self.verdict, self.bars):
            view.set_unit(self._unit)
            view.segment_selected.connect(self._segment_selected)
        if self._plan is not None:
            self.set_plan(self._plan)

    def build_details(self) -> None:
        """Make the table and the tabs."""
        from kvplanner.ui.breakdown import BreakdownView
        from kvplanner.ui.explain.view import ExplainView
        from kvplanner.ui.startup import StartupView

        if self.tabs is not None:
            return
        self.breakdown, self.explain, self.startup = BreakdownView(self), ExplainView(self), StartupView(self)
        self.tabs = QTabWidget(self)
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.explain, TAB_NAMES["explain"])
        self.tabs.addTab(self.startup, TAB_NAMES["startup"])
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(10)
        for page in (self.breakdown, self.tabs):
            frame = card(page, margins=6)
            frame.setMinimumWidth(CARD_WIDTH)
            self.splitter.addWidget(frame)
        self.splitter.setSizes([460, 460])
        self.splitter.setMinimumHeight(LOWER_HEIGHT)
        # It takes the room that is left, however much its pages would like.
        self.splitter.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        self._below.hide()
        self._outer.addWidget(self.splitter, 1)
        self._details = [self.breakdown, self.explain, self.startup]
        for view in (self.breakdown, self.explain, self.startup):
            view.set_unit(self._unit)
            view.segment_selected.connect(self._segment_selected)
        self.tabs.currentChanged.connect(self.show_details)
        self._stale = set(range(len(self._details)))
        self.show_details()

    @property
    def built(self) -> bool:
        """Whether all views are there."""
        return self.tabs is not None

    def set_plan(self, plan: Plan | None) -> None:
        """Show a plan; the selection stays where it can.

        The verdict and the bars follow at once; table and tabs when edits pause, so that a drag stays smooth.
        """
        waited = self._plan is None
        self._plan = plan
        for view in self._views:
            view.set_plan(plan)
        self._stale = set(range(len(self._details)))
        if plan is not None:
            if not self._chosen_by_user or self.position >= len(plan.devices):
                self.position = min(plan.tightest, len(plan.devices) - 1)
            kinds = [segment.kind for segment in plan.devices[self.position].segments] if plan.devices else []
            if self.kind not in kinds:
                self.kind = "kv_cache" if "kv_cache" in kinds else "weights" if "weights" in kinds else None
            for view in self._views:
                view.set_selected(self.position, self.kind)
            if self._views:
                self._fit_bars()
        if waited:
            self.show_details()
        elif not self._later.isActive():
            self._later.start()

    def show_details(self) -> None:
        """Bring the views that can be seen up to date; a hidden tab follows when it is opened."""
        self._later.stop()
        for index in sorted(self._stale):
            view = self._details[index]
            hidden = isinstance(view, QWidget) and self.tabs is not None and self.tabs.indexOf(view) not in (
                -1, self.tabs.currentIndex()
            )  # fmt: skip
            if not hidden:
                view.set_plan(self._plan)
                view.set_selected(self.position, self.kind)
                self._stale.discard(index)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        for view in (*self._views, *self._details):
            view.set_unit(unit)

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
        for view in (*self._views, *self._details):
            view.set_selected(self.position, self.kind)

    def show_tab(self, name: str) -> bool:
        """Show a tab by its key or title; False when there is none."""
        if self.tabs is None:
            return False
        for i in range(self.tabs.count()):
            if name.lower().replace("-", "") == self.tabs.tabText(i).lower().replace("-", ""):
                self.tabs.setCurrentIndex(i)
                return True
        return False

    def _fit_bars(self) -> None:
        """The bars take the height that they need, up to their share of the window; then they scroll."""
        wanted = self.bars.sizeHint().height() + 18
        self._bars_card.setFixedHeight(max(96, min(wanted, int(self.height() * BARS_SHARE))))

    def resizeEvent(self, event: Any) -> None:
        """The bars' share changes with the window."""
        super().resizeEvent(event)
        narrow = self.width() < STACK_BELOW
        self._buttons.setDirection(QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight)
        if self._views:
            self._fit_bars()

    def save_layout(self) -> str:
        """The splitter's position as text."""
        return bytes(self.splitter.saveState().toBase64().data()).decode() if self.splitter else ""

    def restore_layout(self, text: str) -> None:
        """Put the splitter back; text that makes no sense changes nothing."""
        if self.splitter is not None and text:
            self.splitter.restoreState(QByteArray.fromBase64(text.encode()))
