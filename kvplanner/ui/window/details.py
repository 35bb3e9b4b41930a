"""Below the bars: the table, the tabs beside it, and in a tall window the start-up chart under both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from PySide6.QtCore import QByteArray, QEvent, QSize, Qt, Signal
from PySide6.QtWidgets import QApplication, QSizePolicy, QSplitter, QTabWidget, QVBoxLayout, QWidget

from kvplanner.ui.breakdown.view import BreakdownView
from kvplanner.ui.theme.geometry import TAB_AIR, TAB_TIGHT, TIGHT, grown
from kvplanner.ui.widgets.card import Card
from kvplanner.ui.widgets.labels import heading
from kvplanner.ui.window.tabs import STARTUP, TABS, Detail, Page, Tab

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.report.words import Unit

CARD_WIDTH: Final = 240
CARD_MARGIN: Final = 6
PAGE_MARGINS: Final = (6, 6, 6, 4)  # of a page within its card
GAP: Final = 10
STACK_BELOW: Final = 830  # of the centre's width: table and tabs stand below each other in windows below 1,160
CHART_HEIGHT: Final = 330
CHART_LEAST: Final = 260  # so much must be left below table and tabs for a chart of its own
CHART_SHAPE: Final = 0.5  # in a wide window the chart keeps this much of its width as height
CHART_MOST: Final = 0.36  # a taller chart says no more
UPPER_SHARE: Final = 0.45  # of a tall window's room table and tabs take at most, once their own height is met
UPPER_MOST: Final = 460
GRID_SHARE: Final = 0.6  # a page of tables and plots takes more of it
TABLE_WIDTH: Final = 460
LOW: Final = 700


class Details(QWidget):
    """Shows one plan's table and pages, those that can be seen at once, the others when they are.

    segment_selected((position, kind)); height_changed(): lay it out again with `fit`; page_made(key, page): for the
    first time.
    """

    segment_selected = Signal(object)
    height_changed = Signal()
    page_made = Signal(str, object)

    def __init__(self, parent: QWidget | None = None, tabs: Sequence[Tab] = TABS) -> None:
        super().__init__(parent)
        self.breakdown = BreakdownView(self)
        self.tabs = QTabWidget(self)
        self.tabs.setDocumentMode(True)
        self.tabs.setAccessibleName("Pages about the plan")
        self._declared: dict[str, Tab] = {}
        self._places: dict[str, QWidget] = {}
        self._pages: dict[str, Page] = {}
        self._stale: set[str] = set()
        self._plan: Plan | None = None
        self._position = 0
        self._kind: SegmentKind | None = None
        self._unit: Unit = "GiB"
        self._dimmed = False
        self._empty = ""
        self._chart_in_front = False
        self._upper, self._upper_at = 0, (0, 0, "")
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(GAP)
        self.splitter.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        self.table_card = Card(self.breakdown, margins=CARD_MARGIN)
        self.tabs_card = Card(self.tabs, margins=CARD_MARGIN)
        self._chart_title = heading("Start-up", self)
        self.chart_card = Card(self._chart_title, margins=CARD_MARGIN + 4)
        self.chart_card.hide()
        self._beside = beside = QWidget()  # the table is as high as its rows, however high the tabs are
        column = QVBoxLayout(beside)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.table_card, 1)
        column.addStretch(0)
        for place, stretch in ((beside, 0), (self.tabs_card, 1)):
            place.setMinimumWidth(CARD_WIDTH)
            self.splitter.addWidget(place)
            self.splitter.setStretchFactor(self.splitter.count() - 1, stretch)
        self.splitter.setSizes([TABLE_WIDTH, TABLE_WIDTH - 20])
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(GAP)
        whole.addWidget(self.splitter, 1)
        whole.addWidget(self.chart_card, 1)
        self.breakdown.height_changed.connect(self.height_changed)
        self.breakdown.segment_selected.connect(self.segment_selected)
        for tab in tabs:
            self.add_tab(tab)
        self.tabs.currentChanged.connect(self._tab_changed)
        self._tab_changed()

    # pages -----------------------------------------------------------------------------------------------------

    def add_tab(self, tab: Tab) -> None:
        """One more tab at the end."""
        place = QWidget()
        place.setAccessibleName(tab.title)
        QVBoxLayout(place).setContentsMargins(*PAGE_MARGINS)
        self._declared[tab.key], self._places[tab.key] = tab, place
        self.tabs.addTab(place, tab.title)

    def page(self, key: str) -> Page:
        """A page, made if need be."""
        found = self._pages.get(key)
        if found is not None:
            return found
        place = self._places[key]
        made = self._pages[key] = self._declared[key].make(place)
        layout = place.layout()
        assert layout is not None
        layout.addWidget(cast(QWidget, made))
        place.setFocusProxy(cast(QWidget, made))
        made.segment_selected.connect(self.segment_selected)
        changed = getattr(made, "height_changed", None)
        if changed is not None:
            changed.connect(self.height_changed)
        made.set_unit(self._unit)
        made.set_empty(self._empty)
        made.set_dimmed(self._dimmed)
        self._stale.add(key)
        self.page_made.emit(key, made)
        return made

    def has_page(self, key: str) -> bool:
        """Whether a page was made already."""
        return key in self._pages

    @property
    def current(self) -> Page:
        """The page of the tab in front."""
        return self.page(self._current_key())

    def _current_key(self) -> str:
        front = self.tabs.currentWidget()
        return next(key for key, place in self._places.items() if place is front)

    def show_tab(self, name: str) -> QWidget | None:
        """Bring a page to the front by its key or title, and tell where it stands; None when there is none."""
        wanted = _plain(name)
        for key, tab in self._declared.items():
            if wanted in (_plain(key), _plain(tab.title)):
                if key == STARTUP and self.charted:
                    return self.chart_card
                self.tabs.setCurrentWidget(self._places[key])
                return self.tabs_card
        return None

    def widget(self, key: str) -> QWidget:
        """A page as the widget that it is."""
        return cast(QWidget, self.page(key))

    def _tab_changed(self) -> None:
        self.page(self._current_key())
        self.bring_up_to_date()
        self.height_changed.emit()

    @property
    def charted(self) -> bool:
        """Whether the start-up chart stands below, not behind a tab."""
        return not self.chart_card.isHidden()

    def _set_charted(self, on: bool) -> None:
        """Move the chart between its tab and its own card."""
        if on == self.charted or STARTUP not in self._places:
            return
        place, card = self._places[STARTUP], self.chart_card.layout()
        assert card is not None
        if on:
            self.page(STARTUP)
            self._chart_in_front = self.tabs.currentWidget() is place
            self.tabs.removeTab(self.tabs.indexOf(place))
            card.addWidget(place)
            place.setContentsMargins(*(-margin for margin in PAGE_MARGINS))  # the card has its own
            place.show()
            self.chart_card.show()
        else:
            self.chart_card.hide()
            card.removeWidget(place)
            place.setContentsMargins(0, 0, 0, 0)
            at = list(self._declared).index(STARTUP)
            self.tabs.insertTab(at, place, self._declared[STARTUP].title)
            if self._chart_in_front:
                self.tabs.setCurrentWidget(place)
        self.bring_up_to_date()

    # the plan --------------------------------------------------------------------------------------------------

    def _views(self) -> list[Detail]:
        return [self.breakdown, *self._pages.values()]

    def set_plan(self, plan: Plan | None) -> None:
        """Another plan, shown by `bring_up_to_date`."""
        self._plan = plan
        self._stale = {"", *self._pages}

    def bring_up_to_date(self) -> None:
        """Show the plan where it can be seen; a hidden page follows when it is opened."""
        seen = {"", self._current_key(), *([STARTUP] if self.charted else [])}
        for key in sorted(self._stale & seen):
            view: Detail = self._pages[key] if key else self.breakdown
            view.set_plan(self._plan)
            view.set_selected(self._position, self._kind)
            self._stale.discard(key)

    def set_selected(self, position: int, kind: SegmentKind | None) -> None:
        """Mark a segment; `show` tells views that are not up to date."""
        self._position, self._kind = position, kind

    def show_selected(self) -> None:
        """Mark it everywhere."""
        for view in self._views():
            view.set_selected(self._position, self._kind)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        for view in self._views():
            view.set_unit(unit)

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        self._dimmed = dimmed
        for view in self._views():
            view.set_dimmed(dimmed)

    def set_empty(self, text: str) -> None:
        """What the pages say while there is no plan; "" for their usual words."""
        self._empty = text
        for page in self._pages.values():
            page.set_empty(text)

    # layout ----------------------------------------------------------------------------------------------------

    def fit(self, window_height: int, room: int) -> None:
        """Share the room: as high as the content, beside each other or, in a narrow window, below each other.

        window_height: of the whole centre; room: of it, what is left below the bars.
        """
        splitter = self.splitter
        stacked = self.width() < grown(STACK_BELOW, self.fontMetrics().height())
        wanted = Qt.Orientation.Vertical if stacked else Qt.Orientation.Horizontal
        if splitter.orientation() != wanted:
            splitter.setOrientation(wanted)
            splitter.setSizes([TABLE_WIDTH, max(splitter.width() - TABLE_WIDTH - GAP, CARD_WIDTH)])
        frame = 2 * CARD_MARGIN + 2
        least, table = self.breakdown.least_height() + frame, self.breakdown.natural_height() + frame
        rows = self.breakdown.model.rowCount()
        self._beside.setVisible(rows > 0)
        self.table_card.setMaximumHeight(table)
        self._fit_widths(stacked=stacked)
        if stacked:
            table = least if window_height < LOW else table
            above = table + GAP if rows else 0
            page = max(self._page_height(stacked=True), room - above)  # of a short page no part of the ground is bare
            self._set_charted(False)
            for place, height in ((self._beside, table), (self.tabs_card, page)):
                place.setFixedHeight(height)
            self._limit(above + page, above + page)
            return
        for place in (self._beside, self.tabs_card):  # the splitter takes its own limits from these
            place.setMinimumHeight(least)
            place.setMaximumHeight(_ANY)
        own = max(table if rows else 0, self._least_page())
        known = self._plan is not None and self._plan.fits is not None
        self._set_charted(known and room - GAP - own >= CHART_LEAST)
        if self.charted:
            # What is selected next may take less: the chart below is not to jump about.
            most = min(int(room * UPPER_SHARE), UPPER_MOST)
            if self._roomy():  # tables and plots of a page say more than the chart below them
                most = max(most, min(int(room * GRID_SHARE), room - GAP - CHART_LEAST))
            size = (self.width(), room, self._current_key() if self._roomy() else "")
            before = self._upper if size == self._upper_at else 0
            spare = room - GAP - int(self.width() * CHART_MOST)  # what the chart makes nothing of
            upper = max(own, before, min(self._page_height(stacked=False), most), spare)
            self._upper, self._upper_at = upper, size
            self._limit(upper, upper)
        else:
            # Below this the whole ground scrolls: nothing is cut off where nothing leads to it.
            self._limit(max(least if rows else 0, self._least_page()), _ANY)

    def _limit(self, least: int, most: int) -> None:
        splitter = self.splitter
        if self.charted:
            for place in (self._beside, self.tabs_card):  # the splitter takes its own limits from these
                place.setMaximumHeight(most)
        if (splitter.minimumHeight(), splitter.maximumHeight()) != (least, most):
            splitter.setMinimumHeight(least)
            splitter.refresh()
        self.setMinimumHeight(least + (GAP + CHART_LEAST if self.charted else 0))
        layout = self.layout()
        if layout is not None:
            layout.activate()  # else a frame would show the new limits in the old room

    def _bar(self) -> int:
        return self.tabs.tabBar().sizeHint().height() + 2 * CARD_MARGIN + 2 + 4 + PAGE_MARGINS[1] + PAGE_MARGINS[3]

    def _fit_widths(self, *, stacked: bool) -> None:
        """All tabs and all columns show at once: the air around the tabs' titles gives way first, then columns do."""
        frame, metrics = 2 * CARD_MARGIN + 2, self.tabs.tabBar().fontMetrics()
        table = 0 if stacked else self.breakdown.whole_width() + frame + GAP
        titles = [metrics.horizontalAdvance(tab.title) for tab in self._declared.values()]
        easy, tight = (sum(titles) + len(titles) * (2 * air + 1) + frame for air in (TAB_AIR, TAB_TIGHT))
        crowded = easy + table > self.width()
        if crowded != bool(self.tabs.tabBar().property(TIGHT)):
            self.tabs.tabBar().setProperty(TIGHT, crowded)
            QApplication.sendEvent(self.tabs.tabBar(), QEvent(QEvent.Type.StyleChange))  # it measures its tabs anew
        tabs = min(tight if crowded else easy, self.width())
        self.tabs_card.setMinimumWidth(max(CARD_WIDTH, tabs))
        self._beside.setMinimumWidth(CARD_WIDTH if stacked else max(CARD_WIDTH, min(table, self.width() - tabs) - GAP))

    def _roomy(self) -> bool:
        """Whether the page in front says more in more room."""
        return bool(getattr(self.current, "roomy", False))

    def _page_height(self, *, stacked: bool) -> int:
        """The height at which the page in front shows whole."""
        natural: Any = getattr(self.current, "natural_height", None)
        usual = grown(CHART_HEIGHT, self.fontMetrics().height(), 1.0)
        chart = usual if stacked else max(usual, int(self.tabs.width() * CHART_SHAPE))
        return self._bar() + (natural() if natural is not None else chart)

    def _least_page(self) -> int:
        """The height below which the page in front says nothing any more; one that scrolls has none."""
        page = cast(QWidget, self.current)
        scrolls = getattr(page, "natural_height", None) is not None
        return self._bar() + (0 if scrolls else page.minimumSizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """What `fit` said."""
        return QSize(2 * CARD_WIDTH, self.minimumHeight())

    def save_layout(self) -> str:
        """The splitter's position as text."""
        return bytes(self.splitter.saveState().toBase64().data()).decode()

    def restore_layout(self, text: str) -> None:
        """Put the splitter back; text that makes no sense changes nothing."""
        self.splitter.restoreState(QByteArray.fromBase64(text.encode()))


_ANY: Final = (1 << 24) - 1  # Qt's own largest height of a widget


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace(" ", "")
