"""The Explain view: the arithmetic of the selected segment beside the table of its inputs."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QElapsedTimer, QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QSplitter,
    QTableWidget,
    QTableWidgetItem,
    QTextBrowser,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.engine.base import Plan, SegmentKind
from kvplanner.ui.bars.ink import colour, tokens_of
from kvplanner.ui.bars.words import Unit, rich
from kvplanner.ui.explain.content import Explanation, as_text, explanation
from kvplanner.ui.palette import Tokens

EMPTY: Final = "Select a segment in the bars or in the table to see how it was calculated."
HEADS: Final = ("input", "value", "", "from")
# Below this width the inputs stand under the arithmetic.
NARROW: Final = 640
# While a slider moves the text waits for a pause, but no longer than this.
PAUSE_MS: Final = 90
LONGEST_MS: Final = 500


class ExplainView(QWidget):
    """Shows one segment's explanation; copies it as text."""

    segment_selected = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._selected: tuple[int, SegmentKind | None] = (0, "kv_cache")
        self._told: Explanation | None = None
        self._stale = True
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._waiting = QElapsedTimer()
        self._timer.timeout.connect(self._show)
        self.text = QTextBrowser(self)
        self.text.setOpenLinks(False)
        self.text.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.text.setAccessibleName("Explanation of the selected segment")
        self.text.document().setDocumentMargin(2)
        self.inputs = QTableWidget(0, len(HEADS), self)
        self._set_up_table()
        self.copy = QToolButton(self)
        self.copy.setText("Copy as text")
        self.copy.setToolTip("Puts the explanation with its inputs on the clipboard")
        self.copy.setProperty("quiet", True)
        self.copy.clicked.connect(self.copy_text)
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(self.text)
        self.splitter.addWidget(self._right())
        self.splitter.setStretchFactor(0, 6)
        self.splitter.setStretchFactor(1, 5)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.splitter)
        self.setFocusProxy(self.text)
        self._show()

    def _right(self) -> QWidget:
        right = QWidget(self)
        column = QVBoxLayout(right)
        column.setContentsMargins(8, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.inputs, 1)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(self.copy)
        column.addLayout(foot)
        return right

    def _set_up_table(self) -> None:
        table = self.inputs
        table.setAccessibleName("Inputs of the formula")
        table.setHorizontalHeaderLabels(HEADS)
        table.setShowGrid(False)
        table.setFrameShape(QTableWidget.Shape.NoFrame)
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        header = table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        header.setMinimumSectionSize(24)
        for column in range(len(HEADS)):
            item = table.horizontalHeaderItem(column)
            if item is not None:
                item.setTextAlignment(_side(column))

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

    def explained(self) -> Explanation | None:
        """What there is to show."""
        plan, (device, kind) = self._plan, self._selected
        usable = plan is not None and device < len(plan.devices)
        return explanation(plan, device, kind, self._unit) if plan is not None and usable else None

    def copy_text(self) -> None:
        """Puts the explanation on the clipboard."""
        told = self.explained()
        if told is not None:
            QGuiApplication.clipboard().setText(as_text(told))

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
        self.copy.setEnabled(self._told is not None)
        place = self.text.verticalScrollBar().value()
        empty = self._plan.summary if self._plan is not None and self._plan.fits is None else EMPTY
        self.text.setHtml(as_html(self._told, tokens_of(self), self.font().family(), empty))
        self.text.verticalScrollBar().setValue(place)
        self._show_inputs()

    def _show_inputs(self) -> None:
        rows = self._told.inputs if self._told else ()
        tokens = tokens_of(self)
        table = self.inputs
        table.setRowCount(len(rows))
        height = self.fontMetrics().height() + 7
        for line, row in enumerate(rows):
            table.setRowHeight(line, height)
            for column, text in enumerate(row):
                item = table.item(line, column)
                if item is None:
                    item = QTableWidgetItem()
                    item.setTextAlignment(_side(column))
                    table.setItem(line, column, item)
                if item.text() != text:
                    item.setText(text)
                    item.setToolTip(text if column == 3 else "")
                item.setForeground(colour(tokens.muted if column > 1 else tokens.text))
        table.horizontalHeader().setVisible(bool(rows))

    def resizeEvent(self, event: QEvent) -> None:
        """Stacks the halves where there is little width."""
        narrow = self.width() < NARROW
        wanted = Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal
        if self.splitter.orientation() != wanted:
            self.splitter.setOrientation(wanted)

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._show()


def _side(column: int) -> Qt.AlignmentFlag:
    return Qt.AlignmentFlag.AlignVCenter | (Qt.AlignmentFlag.AlignRight if column == 1 else Qt.AlignmentFlag.AlignLeft)


def as_html(told: Explanation | None, tokens: Tokens, family: str, empty: str = EMPTY) -> str:
    """The explanation as rich text in a theme's colours."""
    if told is None:
        return f'<p style="color:{tokens.muted}">{rich(empty)}</p>'
    muted = f"color:{tokens.muted}"
    mono = "font-family:monospace"
    out = [
        f'<p style="margin:0"><b>{rich(told.title)}</b></p>',
        f'<p style="margin:1px 0 6px 0;{muted}">{rich(told.where)} · {rich(told.meaning)}</p>',
        f'<p style="margin:0 0 2px 0;font-weight:600">{rich(told.value)}</p>',
        f'<p style="margin:0 0 6px 0;{muted}">{rich(told.band)}</p>',
    ]
    for formula in told.formulas:
        head, *numbers = formula.lines()
        out.append(f'<p style="margin:0;{muted}">{rich(head)}</p>')
        out += [f'<p style="margin:0 0 5px 0;{mono}">{rich(line)}</p>' for line in numbers]
    out += [f'<p style="margin:0 0 3px 0">{rich(note)}.</p>' for note in (n.rstrip(".") for n in told.notes)]
    for answer in told.answers:
        out.append(f'<p style="margin:7px 0 1px 0;color:{tokens.accent}"><b>{rich(answer.question)}</b></p>')
        out.append(f'<p style="margin:0">{rich(answer.text)}</p>')
    out.append(f'<p style="margin:7px 0 0 0;{muted}">{rich(told.rules)}</p>')
    return f"<div style=\"font-family:'{family}';color:{tokens.text}\">{''.join(out)}</div>"
