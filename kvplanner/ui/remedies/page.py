"""The page of ways: every change that makes the plan fit, or serve more, with what it costs and a way to apply it.

Of settings that have no plan it lists the ways back to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QUrl, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvplanner.report import words
from kvplanner.report.remedies import heading, outcome, title, without
from kvplanner.sized_text import sizes_in
from kvplanner.ui.theme.figures import shown_html
from kvplanner.ui.theme.ink import set_pale, tokens_of
from kvplanner.ui.widgets.page_text import PageText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvplanner.engine.plan import Plan
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.report.words import Unit
    from kvplanner.solve.remedies import Remedy
    from kvplanner.ui.remedies.back import Back
    from kvplanner.ui.remedies.finder import RemedyFinder

EMPTY: Final = "Choose a model and GPUs"
SEARCHING: Final = "Looking for ways…"
BACK: Final = "Ways back to a plan"
UNKNOWN: Final = "Ways are looked for once it can be told whether the plan fits"
_LEAST: Final = 220


class RemedyPage(QWidget):
    """Lists the finder's remedies as links that apply them. height_changed(): the page is of another height."""

    segment_selected = Signal(object)
    height_changed = Signal()

    def __init__(self, finder: RemedyFinder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._finder = finder
        self._unit: Unit = "GiB"
        self._empty = EMPTY
        self._plan: Plan | None = None
        self._dimmed, self._why_refused = False, ""
        self._ways: Sequence[Back] = ()
        self.text = PageText("Ways to change the plan", self)
        self.text.anchorClicked.connect(self._clicked)
        self.text.document().documentLayout().documentSizeChanged.connect(self.height_changed)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.text)
        finder.changed.connect(self._show)
        self._show()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Whoever leads the focus here means the text."""
        self.text.setFocus(event.reason())

    def natural_height(self) -> int:
        """As high as the list, within reason: it scrolls."""
        return max(self.text.whole_height(), _LEAST)

    def set_plan(self, plan: Plan | None) -> None:
        """The finder follows the document by itself."""
        self._plan = plan
        self._show()

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._show()

    def set_selected(self, position: int, kind: SegmentKind | None) -> None:
        """Ways are of the whole plan."""

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set; the ways back to one are of it."""
        self._dimmed = dimmed
        set_pale(self, dimmed and not self._backing)

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan."""
        self._empty = text or EMPTY
        self._show()

    def show_back(self, why: str, ways: Sequence[Back]) -> None:
        """Why what is set has no plan, and the ways back to one: shown until it has."""
        self._why_refused, self._ways = why, ways
        self._show()

    @property
    def _backing(self) -> bool:
        """Whether ways back to a plan are what shows."""
        return self._finder.refused and bool(self._why_refused)

    def _show(self) -> None:
        self.set_dimmed(self._dimmed)
        tokens = tokens_of(self)
        remedies, plan = self._finder.remedies, self._finder.plan
        if self._backing:
            rows = "".join(self._row_back(number, way) for number, way in enumerate(self._ways))
            why = f'<p style="margin:0 0 8px 0;color:{tokens.muted}">{words.rich(self._why_refused)}</p>'
            self._set(f'<p style="margin:0 0 2px 0"><b>{BACK}</b></p>{why}{rows}')
            return
        if self._plan is None:
            instead = words.rich(self._empty)
        elif plan is not None and plan.fits is None:
            instead = UNKNOWN
        elif remedies is None or plan is None:
            instead = SEARCHING
        elif not remedies:
            instead = words.rich(sizes_in(without(plan), self._unit))
        else:
            rows = "".join(self._row(number, remedy) for number, remedy in enumerate(remedies))
            self._set(f'<p style="margin:0 0 8px 0"><b>{heading(plan)}</b></p>{rows}')
            return
        self.text.setHtml(f'<p style="color:{tokens.muted}">{shown_html(instead)}</p>')

    def _set(self, html: str) -> None:
        self.text.setHtml(f'<div style="color:{tokens_of(self).text}">{shown_html(html)}</div>')

    def _link(self, number: int, text: str) -> str:
        return f'<a href="#{number}" style="color:{tokens_of(self).accent};text-decoration:none">{text}</a>'

    def _row_back(self, number: int, way: Back) -> str:
        comes = way.tip.removeprefix(f"{way.text}: ")  # what its link says already
        tip = f'<span style="color:{tokens_of(self).muted}">{words.rich(comes[:1].upper() + comes[1:])}</span>'
        return f'<p style="margin:0 0 8px 0">{self._link(number, words.rich(way.text))}<br>{tip}</p>'

    def _row(self, number: int, remedy: Remedy) -> str:
        tokens = tokens_of(self)
        facts = words.rich(" · ".join(outcome(remedy, self._unit)))
        costs = words.rich("; ".join(remedy.costs))
        link = self._link(number, "Apply")
        return (
            f'<p style="margin:0 0 8px 0"><b>{words.rich(title(remedy))}</b>&nbsp;&nbsp;{link}<br>'
            f'{facts}<br><span style="color:{tokens.muted}">{costs}</span></p>'
        )

    def _clicked(self, url: QUrl) -> None:
        number = int(url.fragment() or -1)
        if self._backing:
            if 0 <= number < len(self._ways):
                self._ways[number].run()
            return
        remedies = self._finder.remedies or ()
        if 0 <= number < len(remedies):
            self._finder.apply(remedies[number])

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._show()
