"""The Explain view: the arithmetic of the selected segment, its questions and its inputs, in one page that scrolls."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QElapsedTimer, QEvent, QPoint, QSize, QTimer, QUrl, Signal
from PySide6.QtGui import QFocusEvent, QFontMetricsF, QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report.explain import Explanation, as_text, explanation
from kvplanner.report.sentences import summary
from kvplanner.report.words import Unit
from kvplanner.sized_text import sizes_in
from kvplanner.ui.explain.page import ASK, EMPTY, as_html
from kvplanner.ui.theme.figures import shown_html
from kvplanner.ui.theme.ink import set_pale, tokens_of
from kvplanner.ui.widgets.page_text import PageText

# From this width on the inputs stand beside the arithmetic.
WIDE: Final = 760  # for lines of this height:
USUAL_LINE: Final = 15
# While a slider moves the text waits for a pause, but no longer than this.
PAUSE_MS: Final = 90
LONGEST_MS: Final = 500
MOST_TRIMMED: Final = 40
COPY_RIGHT: Final = 14  # from the copy button to the view's edge: the scroll bar's place
COPY_GAP: Final = 8
TOP: Final = 4  # above the title, so that it stands level with the copy button


class ExplainView(QWidget):
    """Shows one segment's explanation; copies it as text. height_changed(): the page is of another height."""

    segment_selected = Signal(object)
    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._selected: tuple[int, SegmentKind | None] = (0, "kv_cache")
        self._told: Explanation | None = None
        self._opened: set[str] = set()
        self._empty = EMPTY
        self._stale = True
        self._wide, self._drawn_at = False, 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._waiting = QElapsedTimer()
        self._timer.timeout.connect(self._show)
        self.text = PageText("Explanation of the selected segment", self)
        self.text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        self.text.anchorClicked.connect(self._ask)
        self.text.document().documentLayout().documentSizeChanged.connect(self.height_changed)
        self.copy = QToolButton(self)
        self.copy.setText("Copy as text")
        self.copy.setToolTip("Puts the explanation with its inputs on the clipboard")
        self.copy.setProperty("quiet", True)
        self.copy.clicked.connect(self.copy_text)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, TOP, 0, 0)
        column.addWidget(self.text)
        QWidget.setTabOrder(self.text, self.copy)
        self.copy.raise_()
        self._show()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the text; a focus proxy would catch Tab for ever."""
        self.text.setFocus(event.reason())

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan."""
        self._empty = text or EMPTY
        if self._plan is None:
            self._show()

    def set_plan(self, plan: Plan | None) -> None:
        """Explains the selected segment of this plan; while plans follow each other, not each of them."""
        self._plan = plan
        if plan is not None and self._selected[0] >= len(plan.devices):
            self._selected = (0, self._selected[1])
        if plan is None or self._told is None or not self.isVisible():
            self._show()
        else:
            self._follow()

    def _follow(self) -> None:
        """Starts the wait for a pause anew, within the longest wait."""
        if not self._timer.isActive():
            self._waiting.start()
        left = LONGEST_MS - self._waiting.elapsed()
        self._timer.start(max(min(PAUSE_MS, left), 0))

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._show()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Explains a device's segment; with kind None its budget."""
        if (device, kind) != self._selected:
            self._selected = (device, kind)
            self._show()

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        if set_pale(self, dimmed):
            self._show()

    def explained(self) -> Explanation | None:
        """What there is to show."""
        plan, (device, kind) = self._plan, self._selected
        usable = plan is not None and device < len(plan.devices)
        return explanation(plan, device, kind, self._unit) if plan is not None and usable else None

    def copy_text(self) -> None:
        """Puts the explanation on the clipboard, every answer included."""
        told = self.explained()
        if told is not None:
            QGuiApplication.clipboard().setText(as_text(told))

    def natural_height(self) -> int:
        """The height at which nothing scrolls, at the present width."""
        return self.text.whole_height() + TOP

    def sizeHint(self) -> QSize:
        """Room for the whole page."""
        return QSize(480, self.natural_height())

    def minimumSizeHint(self) -> QSize:
        """The page scrolls."""
        return QSize(200, 80)

    def _ask(self, address: QUrl) -> None:
        """Opens or closes an answer."""
        number = address.toString().removeprefix(ASK)
        answers = self._told.answers if self._told else ()
        if number.isdecimal() and int(number) < len(answers):
            self._opened ^= {answers[int(number)].question}
            self._show()

    def _show(self) -> None:
        """Renders at once when in sight, else when next shown."""
        self._stale = not self.isVisible()
        if not self._stale:
            self._render()

    def showEvent(self, event: QShowEvent) -> None:
        """Catches up with what changed out of sight."""
        super().showEvent(event)
        if self._stale:
            self._show()

    def _render(self) -> None:
        self._timer.stop()
        self._told = self.explained()
        self.copy.setVisible(self._told is not None)
        self._wide = self._has_width()
        place = self.text.verticalScrollBar().value()
        empty = sizes_in(summary(self._plan), self._unit) if self._plan and self._plan.fits is None else self._empty
        family = self.font().family()
        corner = self.copy.sizeHint().width() + COPY_RIGHT + COPY_GAP
        self._drawn_at = self._text_width()
        page = as_html(
            self._told, tokens_of(self), family, empty, measure=QFontMetricsF(self.text.font()).horizontalAdvance,
            width=self._drawn_at, opened=self._opened, wide=self._wide, corner=corner,
        )  # fmt: skip
        self.text.setHtml(shown_html(page))
        self.text.verticalScrollBar().setValue(place)
        self._trim()

    def _text_width(self) -> int:
        """Pixels of a line, the scroll bar's place left free."""
        return max(self.width() - COPY_RIGHT, 1)

    def _has_width(self) -> bool:
        """Whether the inputs have room beside the arithmetic: the more, the larger the letters."""
        return self.width() >= WIDE * max(self.fontMetrics().height() / USUAL_LINE, 1)

    def _trim(self) -> None:
        """Leaves a gap below the text rather than half a line, as long as nobody scrolls."""
        layout, high, extra = self.layout(), self.height() - TOP, 0
        if layout is None or self.text.verticalScrollBar().value():
            return
        if self.text.whole_height() > high:
            for x in (4, int(self.width() * 0.8)):
                line = self.text.cursorRect(self.text.cursorForPosition(QPoint(x, high - 1)))
                if line.bottom() >= high > line.top():
                    extra = max(extra, high - line.top() + 1)
        layout.setContentsMargins(0, TOP, 0, min(extra, MOST_TRIMMED))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The inputs move beside the arithmetic where there is width."""
        super().resizeEvent(event)
        size = self.copy.sizeHint()
        self.copy.setGeometry(self.width() - size.width() - COPY_RIGHT, 0, size.width(), size.height())
        if self._has_width() != self._wide or self._text_width() != self._drawn_at:
            self._show()
        else:
            self._trim()

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._show()
