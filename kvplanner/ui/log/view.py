"""The Log view: what a start-up log says, its sizes beside the plan's, what helps, and buttons that bring one here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from PySide6.QtCore import QEvent, Qt, QUrl, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.diagnose.implied import Implied
from kvplanner.engine.option import Option
from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import diagnosis as report
from kvplanner.report.remedies import outcome, title
from kvplanner.report.words import Unit, rich
from kvplanner.sized_text import sizes_in
from kvplanner.solve.remedies import Remedy
from kvplanner.ui.log.asking import Asking
from kvplanner.ui.theme.figures import shown_html
from kvplanner.ui.theme.ink import set_pale, tokens_of
from kvplanner.ui.theme.palette import Tokens
from kvplanner.ui.widgets.page_text import PageText

EMPTY: Final = (
    "Open, paste or drop a server's start-up log to see how far it came, why it failed, and what it measured."
)
MOST_WAYS: Final = 5
WAYS: Final = "What helps, by the log's own figures"
READING: Final = "Reading the log…"
_LEAST: Final = 160
_GAPS: Final = 8


class LogView(QWidget):
    """One log. open_wanted(), paste_wanted(): another one; plan_wanted(): what it started is to be the plan.

    calibrate_wanted(): what it measured is to speak for plans like it; report_wanted(): what it says, to hand on.
    remedy_wanted(Remedy): a change that helps is to be the plan. height_changed(): the page is of another height.
    """

    segment_selected = Signal(object)
    height_changed = Signal()
    open_wanted = Signal()
    paste_wanted = Signal()
    plan_wanted = Signal()
    calibrate_wanted = Signal()
    report_wanted = Signal()
    remedy_wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._found: Diagnosis | None = None
        self._name = ""
        self._plan: Plan | None = None
        self._compared = False
        self._beside: Implied | None = None
        self._reading = False
        self._unit: Unit = "GiB"
        self.open_button = QPushButton("Open log…", self)
        self.paste_button = QPushButton("Paste log", self)
        self.plan_button = QPushButton("Make it the plan", self)
        self.plan_button.setToolTip("Plans the log's model, engine and options on the GPUs that it names")
        self.calibrate_button = QPushButton("Calibrate plans", self)
        self.calibrate_button.setToolTip("Plans like this one take what this start measured in place of estimates")
        self.report_button = QPushButton("Save report…", self)
        self.report_button.setToolTip("What the log says, without paths, names of machines and keys, to hand on")
        self.asking = Asking(self)
        self.asking.entered.connect(self.plan_wanted)
        self.text = PageText("What the log says", self)
        self.text.anchorClicked.connect(self._clicked)
        self.text.document().documentLayout().documentSizeChanged.connect(self.height_changed)
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

    def natural_height(self) -> int:
        """The height at which nothing scrolls, at the present width."""
        shown = [widget for widget in (self.asking, self.handing) if not widget.isHidden()]
        above = self.open_button.sizeHint().height() + sum(widget.sizeHint().height() for widget in shown)
        return max(above + int(self.text.document().size().height()) + _GAPS * (len(shown) + 2), _LEAST)

    @property
    def found(self) -> Diagnosis | None:
        """The log that shows, None without one."""
        return self._found

    @property
    def name(self) -> str:
        """The file's name, "" for a pasted log."""
        return self._name

    @property
    def compared(self) -> bool:
        """Whether what it started was made the plan."""
        return self._compared

    def set_reading(self) -> None:
        """A log is on its way."""
        self._reading = True
        self._show()

    def set_log(
        self, found: Diagnosis | None, name: str = "", proposed: Mapping[str, str] | None = None,
        options: Sequence[Option] = (), seen: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Shows a log; it is compared with the plan once that was made from it. None: the reading failed.

        proposed: what a plan of it still needs, with a proposal for each. options: what it leaves open; seen: what of
        them it lets guess.
        """
        self._reading = False
        if found is not None:
            self._found, self._name, self._compared, self._beside = found, name, False, None
            self.asking.set_missing(proposed or {}, options, seen)
        self._show()

    @property
    def beside(self) -> Implied | None:
        """The plan that the log implies, once it was made."""
        return self._beside

    def set_beside(self, beside: Implied) -> None:
        """What comparing the log with its plan found."""
        self._beside = beside
        self._show()

    def set_compared(self, found: Diagnosis) -> None:
        """The plan is of this log now, with what the user said of what it leaves out."""
        self._found, self._compared = found, True
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
        self.height_changed.emit()
        tokens = tokens_of(self)
        if self._found is None or self._reading:
            words = READING if self._reading else EMPTY
            self.text.setHtml(f'<p style="color:{tokens.muted}">{rich(words)}</p>')
            return
        bar = self.text.verticalScrollBar()
        at = bar.value()
        plan = self._beside_plan(self._found)
        told = as_html(self._found, self._name, plan, self._unit, tokens, self._beside, self._plan)
        self.text.setHtml(shown_html(told))
        bar.setValue(at)

    def _beside_plan(self, found: Diagnosis) -> Plan | None:
        """The plan that the log's figures stand beside: the window's while that is of what the log started."""
        shown, own = self._plan, self._beside.plan if self._beside is not None else None
        if own is None:
            same = self._compared and shown is not None and shown.request.engine == found.engine
            return shown if same else None
        return shown if shown is not None and _same_start(shown, own) else own

    def remedies(self) -> tuple[Remedy, ...]:
        """What helps, as it is listed."""
        beside, found = self._beside, self._found
        if beside is None or found is None or (found.stage is None and beside.measured.fits is not False):
            return ()
        return beside.remedies[:MOST_WAYS]

    def _clicked(self, url: QUrl) -> None:
        number, listed = int(url.fragment() or -1), self.remedies()
        if 0 <= number < len(listed):
            self.remedy_wanted.emit(listed[number])


def _same_start(shown: Plan, own: Plan) -> bool:
    mine, its = shown.request, own.request
    return mine.model.id == its.model.id and mine.ask._replace(load=None) == its.ask and mine.measured == its.measured


def applied(remedy: Remedy, plan: Plan | None) -> bool:
    """Whether a plan is of what a remedy asks."""
    if plan is None:
        return False
    mine, its = plan.request, remedy.request
    gpus = [[device.gpu.id for device in request.machine.devices] for request in (mine, its)]
    return mine.model.id == its.model.id and gpus[0] == gpus[1] and mine.ask._replace(load=its.load) == its.ask


def as_html(
    found: Diagnosis, name: str, plan: Plan | None, unit: Unit, tokens: Tokens, beside: Implied | None = None,
    shown: Plan | None = None,
) -> str:  # fmt: skip
    """The headline, what was started, the sizes beside the plan's, what helps and notes, in a theme's colours.

    plan: of what the log started. shown: the window's.
    """
    muted = f"color:{tokens.muted}"
    lines = [
        f'<p style="margin:0"><b>{rich(sizes_in(report.headline(found), unit))}</b></p>',
        f'<p style="margin:2px 0 6px 0;{muted}">{rich(" · ".join(filter(None, (name, report.about(found)))))}</p>',
    ]
    rows = list(report.rows(found, plan, unit))
    if rows:
        beside_plan = any(cell for row in rows for cell in row[2:])
        heads = ("", f"measured, {unit}", *(("planned", "difference") if beside_plan else ()))
        cells = [_row(heads, muted), *(_row(row[: len(heads)]) for row in rows)]
        lines.append(f'<table cellspacing="0" cellpadding="0" style="margin-bottom:8px">{"".join(cells)}</table>')
    said = [*report.notes(found), *(report.comparison(found, beside) if beside is not None else ())]
    lines += [f'<p style="margin:6px 0 0 0">{rich(sizes_in(_sentence(note), unit))}</p>' for note in said]
    if beside is not None and beside.remedies and (found.stage is not None or beside.measured.fits is False):
        ways = [_way(number, remedy, unit, tokens, shown) for number, remedy in enumerate(beside.remedies[:MOST_WAYS])]
        lines.append(f'<p style="margin:10px 0 4px 0"><b>{WAYS}</b></p>{"".join(ways)}')
    if beside is not None and beside.findings:
        for words in report.finding_words(beside.findings):
            lines.append(f'<p style="margin:8px 0 0 0"><b>Finding:</b> {rich(sizes_in(words, unit))}</p>')
    return f'<div style="color:{tokens.text}">{"".join(lines)}</div>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _way(number: int, remedy: Remedy, unit: Unit, tokens: Tokens, shown: Plan | None) -> str:
    """A change with a link that makes it the plan, what comes of it, and what it costs."""
    link = f'<a href="#{number}" style="color:{tokens.accent};text-decoration:none">Apply</a>'
    done = f'<span style="color:{tokens.muted}">is the plan now</span>'
    facts, costs = rich(" · ".join(outcome(remedy, unit))), rich("; ".join(remedy.costs))
    return (
        f'<p style="margin:0 0 6px 0"><b>{rich(sizes_in(title(remedy), unit))}</b>&nbsp;&nbsp;'
        f"{done if applied(remedy, shown) else link}<br>{facts}<br>"
        f'<span style="color:{tokens.muted}">{costs}</span></p>'
    )


def _row(cells: tuple[str, ...], style: str = "") -> str:
    sides = ("left", *("right" for _ in cells[1:]))
    return "<tr>" + "".join(
        f'<td align="{side}" style="padding:1px 14px 1px 0;{style}">{rich(cell)}</td>'
        for cell, side in zip(cells, sides, strict=True)
    ) + "</tr>"  # fmt: skip
