"""The verdict: one sentence, then the few figures behind it; on failure the stage and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import words
from kvplanner.report.devices import telling_kind
from kvplanner.report.verdict import Verdict, no_plan, refused, verdict
from kvplanner.report.words import Unit
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import sized, tokens_of
from kvplanner.ui.verdict.icon import STATE_NAMES, StatusIcon
from kvplanner.ui.verdict.sentences import Details, Headline
from kvplanner.ui.widgets.labels import Wrapped
from kvplanner.units import counted

if TYPE_CHECKING:
    from PySide6.QtWidgets import QPushButton

    from kvplanner.ui.verdict.message import EngineMessage
    from kvplanner.ui.verdict.offer import Offer

NOTES_SHOWN: Final = 2
LEAST_DETAILS: Final = 0.55  # of the width: with less beside them, the buttons stand below the details
CORNER_GAP: Final = 12
LOOKING: Final = "Looking for ways…"
MORE_AIR: Final = 6  # pixels beside the words of a link: it begins where the text above it does


def _call(run: Callable[[], object], checked: bool = False) -> None:
    run()


class VerdictView(QWidget):
    """The verdict above the bars; a link leads to the tightest device."""

    segment_selected = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._open_notes = False
        self._low = False
        self._notice = ""
        self._offered: list[QPushButton] = []
        self._looking = True
        self._problem: tuple[str, str] | None = None
        self._stale: tuple[str, str, str] | None = None
        self._corner: QWidget | None = None
        self.icon = StatusIcon(self)
        self.headline, self.details = Headline(self), Details(self)
        for label in (self.headline, self.details):
            self._label(label)
        self.details.setTextFormat(Qt.TextFormat.RichText)
        self.details.linkActivated.connect(self._to_tightest)
        self.details.setTextInteractionFlags(
            Qt.TextInteractionFlag.LinksAccessibleByMouse
            | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
            | Qt.TextInteractionFlag.TextSelectableByMouse
        )
        self._message: EngineMessage | None = None
        self.notes = self._label()
        self.notes.setTextFormat(Qt.TextFormat.RichText)
        self.more = QToolButton(self)
        self.more.setProperty("quiet", True)
        self.more.clicked.connect(self._toggle_notes)
        self._arrange()
        self.set_plan(None)

    def _label(self, label: Wrapped | None = None) -> Wrapped:
        label = label or Wrapped(self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        return label

    def _arrange(self) -> None:
        self._top, self._second = QHBoxLayout(), QHBoxLayout()
        first: tuple[tuple[QHBoxLayout, QLabel], ...] = ((self._top, self.headline), (self._second, self.details))
        for line, label in first:
            line.setSpacing(CORNER_GAP)
            line.addWidget(label, 1)
        self._column = column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(3)
        column.addLayout(self._top)
        column.addLayout(self._second)
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(6)
        self._buttons.addStretch(1)
        self._kept: QLabel | None = None
        column.addLayout(self._buttons)
        self._cards = QVBoxLayout()
        self._cards.setSpacing(6)
        column.addLayout(self._cards)
        column.addWidget(self.notes)
        column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.icon, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(column, 1)
        self._fonts()

    def set_corner(self, corner: QWidget) -> None:
        """Takes buttons for the right: beside the headline where that has room, else beside the details, or below."""
        self._corner = corner
        self._top.addWidget(corner, 0, Qt.AlignmentFlag.AlignTop)
        self._place_corner()

    def _place_corner(self) -> bool:
        """Whether they moved."""
        corner = self._corner
        if corner is None:
            return False
        room = self.width() - self.icon.width() - 12
        wide = QFontMetrics(self.headline.font()).horizontalAdvance(self.headline.text()) + 4
        taken = corner.sizeHint().expandedTo(corner.minimumSize()).width()  # at first it is an empty place of a size
        beside = wide + CORNER_GAP + taken <= room or self.details.isHidden()
        narrow = room - taken < LEAST_DETAILS * room
        place = self._top if beside else self._buttons if narrow else self._second
        if place.indexOf(corner) >= 0:
            return False
        for other in (self._top, self._second, self._buttons):
            other.removeWidget(corner)
        place.addWidget(corner, 0, Qt.AlignmentFlag.AlignTop)
        return True

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The buttons find their place anew."""
        super().resizeEvent(event)
        layout, moved = self.layout(), self._place_corner()
        self._hold_height()
        if moved and layout is not None:
            layout.activate()  # the texts were laid out for the place before; the next frame is not to show that

    def showEvent(self, event: QShowEvent) -> None:
        """Takes its height as soon as it is seen."""
        super().showEvent(event)
        self._hold_height()

    def _hold_height(self) -> None:
        """No other part of the window may take the lines away that the texts need at this width."""
        layout = self.layout()
        if layout is not None:
            # A label with another text tells only the outermost layout, a moved button only its own: the others
            # would answer for what was there before.
            for stale in (self._top, self._second, self._buttons, self._column, layout):
                stale.invalidate()
            self.setMinimumHeight(layout.heightForWidth(self.width()) if self.isVisible() else 0)

    def _fonts(self) -> None:
        self.headline.setFont(sized(self.font(), 1.14 if self._low else 1.32, bold=True))

    def add_card(self, card: QWidget) -> None:
        """Put a card between what is said and the notes: what can be done about it."""
        self._cards.addWidget(card)

    def set_notice(self, text: str) -> None:
        """What stands before all notes, "" for nothing: something outside the plan makes it doubtful."""
        if text != self._notice:
            self._notice = text
            self._show()

    def set_low(self, low: bool) -> None:
        """Take less height: smaller letters, one line of the engine's words, notes when asked for."""
        if low != self._low:
            self._low = low
            self._fonts()
            self._show()

    @property
    def message(self) -> EngineMessage:
        """The engine's own words."""
        if self._message is None:
            from kvplanner.ui.verdict.message import EngineMessage

            self._message = EngineMessage(self)
            self._label(self._message)
            self._message.hide()
            self._column.insertWidget(2, self._message)  # under headline and details
        return self._message

    def _show_message(self, text: str) -> None:
        if not text and self._message is None:
            return
        self.message.show_words(text, short=self._low and not self._open_notes)
        self.message.setVisible(bool(text))

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan's verdict; a problem or what was stale is over."""
        self._plan, self._problem, self._stale = plan, None, None
        self._show()

    def set_problem(self, text: str, remedy: str) -> None:
        """Says why nothing is planned, and what to do."""
        self._plan, self._problem, self._stale = None, (text, remedy), None
        self._show()

    def set_stale(self, reason: str | None, remedy: str = "", of: str = "") -> None:
        """Says that there is no plan of what is set, why, and what to do; None when there is.

        of: what the plan in sight is of, where that is not what is set.
        """
        stale = (reason, remedy, of) if reason is not None else None
        if stale != self._stale:
            self._stale = stale
            self._show()

    def set_actions(self, actions: Sequence[Offer], *, looking: bool = False) -> None:
        """Buttons under what is said; looking: they are still looked for."""
        if not actions and not self._offered and looking == self._looking:
            return
        self._looking = looking
        from kvplanner.ui.widgets.buttons import ShortButton

        for old in self._offered:
            self._buttons.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._offered = [ShortButton(offer.text, self, short=offer.short) for offer in actions]
        for at, (button, offer) in enumerate(zip(self._offered, actions, strict=True)):
            button.setToolTip(shown(offer.tip))
            button.clicked.connect(partial(_call, offer.run))
            self._buttons.insertWidget(at, button)
            button.show()
        self._keep_room(self._seeks(self.shown().state))
        self._hold_height()

    def shown(self) -> Verdict:
        """What is shown."""
        if self._problem is not None:
            text, remedy = self._problem
            return Verdict("stale", no_plan(text), (remedy,) if remedy else ())
        found = verdict(self._plan, self._unit)
        # Why it cannot be told is the headline already.
        found = found._replace(notes=tuple(note for note in found.notes if note not in found.headline))
        if self._stale is None or self._plan is None:
            return found
        reason, remedy, of = self._stale
        return refused(found._replace(headline=f"{of}: {found.headline}") if of else found, reason, remedy)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._show()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """The verdict is of the whole plan: nothing to mark."""

    def _to_tightest(self, _link: str) -> None:
        if (plan := self._plan) is not None:
            self.segment_selected.emit((plan.tightest, telling_kind(plan, plan.devices[plan.tightest]) or "weights"))

    def _toggle_notes(self) -> None:
        self._open_notes = not self._open_notes
        self._show()

    def _show(self) -> None:
        found, tokens = self.shown(), tokens_of(self)
        self.icon.set_state(found.state)
        self.headline.setText(found.headline.replace("≈ ", "≈\u00a0"))
        self.details.show_facts(found.details, found.tightest_text, apart=found.state == "stale")
        self.details.setVisible(bool(found.details or found.tightest_text))
        self._show_message(found.engine_message)
        self._show_notes(found, tokens.warning, tokens.muted)
        self._place_corner()
        self._keep_room(self._seeks(found.state))
        self._hold_height()
        self.setAccessibleName(shown(f"{STATE_NAMES[found.state]}. {found.headline}"))

    def _seeks(self, state: str) -> bool:
        """Whether ways are looked for and offered here: a low window has no room for those that are not needed."""
        return state == "fails" or (state in ("narrow", "partly") and not self._low)

    def _keep_room(self, wanted: bool) -> None:
        """Says in the line of buttons that they are looked for, so that nothing below moves when they are found."""
        if wanted and self._kept is None:
            from PySide6.QtWidgets import QPushButton

            like = QPushButton("Apply", self)
            like.hide()
            self._kept = QLabel(LOOKING, self)
            self._kept.setProperty("role", "muted")
            self._kept.setFixedHeight(like.sizeHint().height())
            like.deleteLater()
            self._buttons.insertWidget(0, self._kept)
        if self._kept is not None:
            self._kept.setVisible(wanted and self._looking and not self._offered)

    def _show_notes(self, found: Verdict, mark: str, ink: str) -> None:
        few = 0 if self._low else NOTES_SHOWN
        notes = [*([self._notice] if self._notice else []), *(found.notes if self._open_notes else found.notes[:few])]
        lines = [f'<span style="color:{mark}">▲</span> <span style="color:{ink}">{words.rich(n)}</span>' for n in notes]
        self.notes.setText("<br>".join(lines))
        self.notes.setVisible(bool(lines))
        hidden = len(found.notes) - few
        self.more.setVisible(hidden > 0)
        count = counted(hidden, "more note", "more notes") if few else counted(hidden, "note", "notes")
        self.more.setText("Fewer notes" if self._open_notes else count)
        self.more.setFixedWidth(self.more.fontMetrics().horizontalAdvance(self.more.text()) + MORE_AIR)
        self._place_more()

    def _place_more(self) -> None:
        """In a low window the notes' link stands in the line of buttons."""
        there = self._buttons.indexOf(self.more) >= 0
        if self._low and not there:
            self._column.removeWidget(self.more)
            self._buttons.insertWidget(len(self._offered) + int(self._kept is not None), self.more)
        elif there and not self._low:
            self._buttons.removeWidget(self.more)
            self._column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._show()
        elif event.type() == QEvent.Type.FontChange:
            self._fonts()
