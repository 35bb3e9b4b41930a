"""The Log view: what a start-up log says, its sizes beside the plan's, and the buttons that bring one here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.diagnose.implied import Implied
from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import diagnosis as report
from kvplanner.report.remedies import title
from kvplanner.report.words import Unit, rich
from kvplanner.sized_text import sizes_in
from kvplanner.ui.log.asking import Asking
from kvplanner.ui.theme.ink import set_pale, tokens_of
from kvplanner.ui.theme.palette import Tokens

EMPTY: Final = (
    "Open, paste or drop a server's start-up log to see how far it came, why it failed, and what it measured."
)
MOST_WAYS: Final = 3
WAYS: Final = "What helps, by the log's own figures"
READING: Final = "Reading the log …"


class LogView(QWidget):
    """One log. open_wanted(), paste_wanted(): another one; plan_wanted(): what it started is to be the plan.

    calibrate_wanted(): what it measured is to speak for plans like it; report_wanted(): what it says, to hand on.
    """

    segment_selected = Signal(object)
    open_wanted = Signal()
    paste_wanted = Signal()
    plan_wanted = Signal()
    calibrate_wanted = Signal()
    report_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._found: Diagnosis | None = None
        self._name = ""
        self._plan: Plan | None = None
        self._compared = False
        self._beside: Implied | None = None
        self._reading = False
        self._unit: Unit = "GiB"
        self.open_button = QPushButton("Open Log…", self)
        self.paste_button = QPushButton("Paste Log", self)
        self.plan_button = QPushButton("Make It the Plan", self)
        self.plan_button.setToolTip("Plans the log's model, engine and options on the GPUs that it names")
        self.calibrate_button = QPushButton("Calibrate Plans", self)
        self.calibrate_button.setToolTip("Plans like this one take what this start measured in place of estimates")
        self.report_button = QPushButton("Save Report…", self)
        self.report_button.setToolTip("What the log says, without paths, names of machines and keys, to hand on")
        self.asking = Asking(self)
        self.asking.entered.connect(self.plan_wanted)
        self.text = QTextBrowser(self)
        self.text.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.text.setAccessibleName("What the log says")
        self.text.viewport().setAutoFillBackground(False)
        for button, signal in (
            (self.open_button, self.open_wanted), (self.paste_button, self.paste_wanted),
            (self.plan_button, self.plan_wanted), (self.calibrate_button, self.calibrate_wanted),
            (self.report_button, self.report_wanted),
        ):  # fmt: skip
            button.clicked.connect(signal)
        row = QHBoxLayout()
        row.addWidget(self.open_button)
        row.addWidget(self.paste_button)
        row.addStretch(1)
        row.addWidget(self.plan_button)
        self.handing = QWidget(self)
        below = QHBoxLayout(self.handing)
        below.setContentsMargins(0, 0, 0, 0)
        below.addStretch(1)
        below.addWidget(self.report_button)
        below.addWidget(self.calibrate_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(row)
        column.addWidget(self.asking)
        column.addWidget(self.text, 1)
        column.addWidget(self.handing)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._show()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the first button."""
        self.open_button.setFocus(event.reason())

    @property
    def found(self) -> Diagnosis | None:
        """The log that shows, None without one."""
        return self._found

    def set_reading(self) -> None:
        """A log is on its way."""
        self._reading = True
        self._show()

    def set_log(self, found: Diagnosis | None, name: str = "", proposed: Mapping[str, str] = {}) -> None:
        """Shows a log; it is compared with the plan once that was made from it. None: the reading failed.

        proposed: what a plan of it still needs, with a proposal for each.
        """
        self._reading = False
        if found is not None:
            self._found, self._name, self._compared, self._beside = found, name, False, None
            self.asking.set_missing(proposed)
        self._show()

    @property
    def beside(self) -> Implied | None:
        """The plan that the log implies, once it was made."""
        return self._beside

    def set_beside(self, beside: Implied) -> None:
        """What comparing the log with its plan found."""
        self._beside = beside
        self._show()

    def set_compared(self) -> None:
        """The plan is of this log now."""
        self._compared = True
        self.asking.set_missing({})
        self._show()

    def set_plan(self, plan: Plan | None) -> None:
        """The plan beside the log."""
        self._plan = plan
        self._show()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._show()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """A log has no selection."""

    def set_empty(self, text: str) -> None:
        """A log stands here without a plan too."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        if set_pale(self, dimmed):
            self._show()

    def changeEvent(self, event: QEvent) -> None:
        """Another theme has other colours."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "text"):
            self._show()

    def _show(self) -> None:
        there = self._found is not None and not self._reading
        self.plan_button.setEnabled(there)
        self.report_button.setEnabled(there)
        self.calibrate_button.setEnabled(there and self._compared)
        self.handing.setVisible(self._found is not None)
        tokens = tokens_of(self)
        if self._found is None or self._reading:
            words = READING if self._reading else EMPTY
            self.text.setHtml(f'<p style="color:{tokens.muted}">{rich(words)}</p>')
            return
        plan = self._plan if self._compared and self._matches(self._found, self._plan) else None
        self.text.setHtml(as_html(self._found, self._name, plan, self._unit, tokens, self._beside))

    @staticmethod
    def _matches(found: Diagnosis, plan: Plan | None) -> bool:
        return plan is not None and plan.request.engine == found.engine


def as_html(
    found: Diagnosis, name: str, plan: Plan | None, unit: Unit, tokens: Tokens, beside: Implied | None = None
) -> str:
    """The headline, what was started, the sizes beside the plan's, and notes, in a theme's colours."""
    muted = f"color:{tokens.muted}"
    lines = [
        f'<p style="margin:0"><b>{rich(sizes_in(report.headline(found), unit))}</b></p>',
        f'<p style="margin:2px 0 6px 0;{muted}">{rich(" · ".join(filter(None, (name, report.about(found)))))}</p>',
    ]
    rows = list(report.rows(found, plan, unit))
    if rows:
        heads = ("", f"measured, {unit}", *(("planned", "difference") if plan else ()))
        cells = [_row(heads, muted), *(_row(row) for row in rows)]
        lines.append(f'<table cellspacing="0" cellpadding="0">{"".join(cells)}</table>')
    said = [*report.notes(found), *(report.comparison(found, beside) if beside is not None else ())]
    lines += [f'<p style="margin:6px 0 0 0">{rich(sizes_in(note, unit))}</p>' for note in said]
    if beside is not None and beside.remedies and (found.stage is not None or beside.measured.fits is False):
        ways = (f"<li>{rich(sizes_in(title(remedy), unit))}</li>" for remedy in beside.remedies[:MOST_WAYS])
        lines.append(f'<p style="margin:8px 0 0 0"><b>{WAYS}</b></p><ol style="margin:2px 0 0 0">{"".join(ways)}</ol>')
    if beside is not None and beside.findings:
        for words in report.finding_words(beside.findings):
            lines.append(f'<p style="margin:8px 0 0 0"><b>Finding:</b> {rich(sizes_in(words, unit))}</p>')
    return f'<div style="color:{tokens.text}">{"".join(lines)}</div>'


def _row(cells: tuple[str, ...], style: str = "") -> str:
    sides = ("left", *("right" for _ in cells[1:]))
    return "<tr>" + "".join(
        f'<td align="{side}" style="padding:1px 14px 1px 0;{style}">{rich(cell)}</td>'
        for cell, side in zip(cells, sides, strict=True)
    ) + "</tr>"  # fmt: skip
