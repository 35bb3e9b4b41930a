"""The verdict: one sentence, then the few figures behind it; on failure the stage and what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from PySide6.QtCore import QEvent, QRect, Qt, Signal
from PySide6.QtGui import QFontDatabase, QFontMetrics, QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.engine.base import DevicePlan, KvCache, Plan, SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.plan.held import budget_kinds, cache_is_given, drawn
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import group_of, telling_kind
from kvplanner.ui.bars.ink import colour, sized, tokens_of
from kvplanner.ui.bars.words import Unit
from kvplanner.ui.verdict_icon import STATE_NAMES, State, StatusIcon
from kvplanner.units import ceil_div, round_to_band

EMPTY: Final = "Choose a model and GPUs"
# How the engine's sentences begin where the ranges include a failure, and where nothing can be told.
DOUBTS: Final = ("A narrow fit", "May not fit")
UNTOLD: Final = "Cannot tell"
NOTES_SHOWN: Final = 2
CORNER_GAP: Final = 12
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=GiB|GB|MiB|MB|tokens)")


class Verdict(NamedTuple):
    """What the verdict says. details: short facts, in order; tightest: a position in plan.devices, or None."""

    state: State
    headline: str
    details: tuple[str, ...] = ()
    tightest: int | None = None
    tightest_text: str = ""
    engine_message: str = ""
    notes: tuple[str, ...] = ()


def verdict(plan: Plan | None, unit: Unit) -> Verdict:
    """The verdict of a plan in words; every figure with no more digits than its band allows."""
    if plan is None:
        return Verdict("empty", EMPTY)
    if plan.fits is None or plan.summary.startswith(UNTOLD):
        news = tuple(note for note in plan.warnings if note not in plan.summary)
        return Verdict("unknown", plan.summary, _fitting(plan, unit), notes=news)
    if plan.fits:
        details, tightest = _fitting(plan, unit), _tightest_text(plan, unit)
    else:
        details, tightest = _failing(plan, unit), ""
    return Verdict(_state(plan), plan.summary, details, plan.tightest, tightest, plan.engine_message, plan.warnings)


def _state(plan: Plan) -> State:
    if not plan.fits:
        return "fails"
    if plan.summary.startswith(DOUBTS) or any(note.startswith(DOUBTS) for note in plan.warnings):
        return "narrow"
    served, load = plan.limits.serves_users, plan.request.load
    return "partly" if load and served is not None and served < load.users else "fits"


def no_plan(why: str) -> str:
    """The headline where there is no plan."""
    first = why.split(" ")[0]
    plain = first.isalpha() and (first[1:].islower() or len(first) == 1)  # no name and no abbreviation
    return f"No plan: {why[:1].lower() if plain else why[:1]}{why[1:]}"


def _refused(told: Verdict, why: str, remedy: str) -> Verdict:
    """What is said while an older plan is in sight, since there is none of what is set."""
    which = "could be made" if told.state == "fails" else "worked"
    shown = f"Shown: the last plan that {which} ({told.headline})"
    return Verdict("stale", no_plan(why), (remedy, shown) if remedy else (shown,))


def _fitting(plan: Plan, unit: Unit) -> tuple[str, ...]:
    cache = plan.kv_cache
    if cache is None:
        return ()
    said = [f"{_sized(cache.available, unit)} of KV cache per GPU"]
    per = " per replica" if plan.replicas > 1 else ""
    if " requests of " not in plan.summary:
        said.append(f"{_requests(cache)}{per}")
    said += [f"{text}{per}" for text in _tokens(plan.summary, cache)]
    if per and "replicas" not in plan.summary:
        said.append(f"{plan.replicas} replicas")
    load = plan.request.load
    if load and plan.limits.blocks_per_user:
        need = plan.limits.blocks_per_user * cache.bytes_per_block
        users = ceil_div(load.users, plan.replicas)
        said.append(
            f"{load.users:,} users of {load.prompt_tokens:,} + {load.output_tokens:,} tokens take "
            f"{words.size(need * users, unit)}{' per GPU' if len(plan.devices) * plan.replicas > 1 else ''}"
        )
    return tuple(said)


def _tokens(summary: str, cache: KvCache) -> list[str]:
    """The tokens, or only their range where the summary has them."""
    near, low, high = (
        f"{round_to_band(value, cache.tokens_low, cache.tokens_high):,}"
        for value in (cache.tokens, cache.tokens_low, cache.tokens_high)
    )
    if near not in summary:
        return [words.tokens(cache.tokens, cache.tokens_low, cache.tokens_high)]
    return [f"range {low}–{high} tokens"] if low != high else []


def _requests(cache: KvCache) -> str:
    """How many full-length requests are held at once, no finer than the tokens' band allows."""
    value = cache.max_concurrency
    spread = (cache.tokens_high - cache.tokens_low) / max(cache.context_length, 1)
    small = f"{'≈ ' if spread else ''}{value:,.{1 if spread < 2 else 0}f}"
    shown = f"≈ {_near(cache):,}" if value >= 100 else small
    return f"{shown} full-length requests of {cache.context_length:,} tokens"


def _near(cache: KvCache) -> int:
    per = max(cache.context_length, 1)
    low, high = cache.tokens_low // per, cache.tokens_high // per
    value = round(cache.max_concurrency)
    return round_to_band(value, min(low, value), max(high, value))


def _sized(estimate: Estimate, unit: Unit) -> str:
    reach = words.band(estimate, unit)
    digits = words.band_digits(estimate, unit)
    return f"{words.size(estimate.value, unit, digits)}" + (f" ({reach})" if reach else "")


def _tightest_text(plan: Plan, unit: Unit) -> str:
    """Where least is left: the device, and its headroom."""
    device = plan.devices[plan.tightest]
    name = words.device_name(plan, group_of(plan, plan.tightest))
    headroom = device.segment("headroom")
    if headroom is None:
        return f"tightest: {name}"
    return f"tightest: {name}, {words.size(headroom.bytes, unit)} headroom"


def _failing(plan: Plan, unit: Unit) -> tuple[str, ...]:
    """The two figures that do not go together; before them what the summary does not say already."""
    members = group_of(plan, plan.tightest)
    where = words.device_name(plan, members)
    missing = words.size(plan.missing_bytes, unit)
    said: list[str] = []
    if missing not in plan.summary:
        said += [f"Fails {words.STAGES[plan.stage]}"] if plan.stage else []
        said += [f"{missing} missing on {where}"] if plan.missing_bytes > 0 else []
    elif len(members) > 1:
        said.append(f"alike on {where}")
    said += _against(plan, unit)
    longest = _longest(plan)
    if longest:
        said.append(f"a context of {longest:,} tokens would fit")
    return tuple(said)


def _longest(plan: Plan) -> int | None:
    """The longest context that would fit: of all ranks where that is known, else what the engine suggests."""
    if plan.stage != "kv_cache_too_small":
        return None
    if plan.limits.max_context_length is not None:
        return plan.limits.max_context_length
    return plan.kv_cache.estimated_max_model_len if plan.kv_cache else None


def _against(plan: Plan, unit: Unit) -> list[str]:
    device = plan.devices[plan.tightest]
    size = {s.kind: s.bytes for s in device.segments}

    def told(value: float) -> str:
        return words.size(value, unit)

    if plan.stage == "free_memory_check" and device.budget:
        return _at_the_check(device, size, unit)
    if plan.stage == "kv_cache_sizing" and device.budget:
        inside = sum(size.get(kind, 0) for kind in budget_kinds(plan, device) if kind != "kv_cache")
        return [f"{told(inside)} are needed before any cache, the budget is {told(device.budget.value)}"]
    if plan.stage == "kv_cache_too_small" and plan.kv_cache:
        left = told(size.get("kv_cache", plan.kv_cache.available.value))
        return [] if left in plan.summary else [f"{left} of KV cache per GPU"]
    sees = f"CUDA sees {told(device.cuda_total_bytes)}"
    if plan.stage in ("weights", "profile"):
        weights = told(size.get("weights", 0))
        return [sees if weights in plan.summary else f"weights {weights} per GPU, {sees}"]
    if plan.stage in ("kv_cache_allocation", "graph_capture", "runtime"):
        used = sum(s.bytes for s in drawn(plan, device) if s.kind not in ("driver_reserved", "headroom"))
        cache = f"KV cache {told(size.get('kv_cache', 0))}{' as given' if cache_is_given(plan) else ''}"
        return [f"{told(used)} are needed with the {cache}, {sees}"]
    return []


def _at_the_check(device: DevicePlan, size: Mapping[SegmentKind, int], unit: Unit) -> list[str]:
    """The free memory as a sum that can be followed, against the budget."""
    other, outside = size.get("other", 0), size.get("runtime_outside", 0)
    free = device.cuda_total_bytes - other
    number = words.number
    asks = f"the budget asks for {words.size(device.budget.value, unit)}" if device.budget else ""
    less = f"{words.size(free, unit)} less {number(outside, unit)} CUDA context = {number(free - outside, unit)} free"
    return [f"{less}, {asks}", *([f"other programs hold {words.size(other, unit)}"] if other else [])]


def _kept_together(text: str) -> str:
    """Rich text of which no number is left alone at a line's end."""
    return _BEFORE_UNIT.sub("&nbsp;", words.rich(text)).replace("≈ ", "≈&nbsp;")


def balanced_width(text: str, metrics: QFontMetrics, room: int) -> int:
    """The least width at which a text takes no more lines than in `room`: so no word stands alone on the last one."""

    def height(width: int) -> int:
        return metrics.boundingRect(QRect(0, 0, width, 10_000), Qt.TextFlag.TextWordWrap, text).height()

    wanted = height(room)
    if wanted <= metrics.height() * 1.5:
        return room
    low, high = room // 3, room
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (low, middle) if height(middle) <= wanted else (middle, high)
    return high


class Headline(QLabel):
    """A sentence whose lines are about equally long; it takes the height of any other label."""

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the words at the least width that needs no more lines."""
        painter = QPainter(self)
        box, metrics = QRect(self.rect()), self.fontMetrics()
        text = _BEFORE_UNIT.sub("\u00a0", self.text())
        needed = metrics.boundingRect(box, Qt.TextFlag.TextWordWrap, text).height()
        text = text if needed <= box.height() + metrics.leading() else self.text()
        box.setWidth(balanced_width(text, metrics, max(box.width(), 1)))
        painter.setPen(self.palette().color(self.foregroundRole()))
        flags = Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(box, int(flags), text)
        painter.end()


class VerdictView(QWidget):
    """The verdict above the bars; a link leads to the tightest device."""

    segment_selected = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._open_notes = False
        self._problem: tuple[str, str] | None = None
        self._stale: tuple[str, str] | None = None
        self._corner: QWidget | None = None
        self.icon = StatusIcon(self)
        self.headline, self.details = self._label(Headline(self)), self._label()
        self.details.setTextFormat(Qt.TextFormat.RichText)
        self.details.linkActivated.connect(self._to_tightest)
        self.details.setTextInteractionFlags(
            Qt.TextInteractionFlag.LinksAccessibleByMouse
            | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
            | Qt.TextInteractionFlag.TextSelectableByMouse
        )
        self.message = self._label()
        self.message.setFrameShape(QFrame.Shape.NoFrame)
        self.message.setMargin(7)
        self.message.setAutoFillBackground(True)
        self.notes = self._label()
        self.notes.setTextFormat(Qt.TextFormat.RichText)
        self.more = QToolButton(self)
        self.more.setProperty("quiet", True)
        self.more.clicked.connect(self._toggle_notes)
        self._arrange()
        self.set_plan(None)

    def _label(self, label: QLabel | None = None) -> QLabel:
        label = label or QLabel(self)
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        return label

    def _arrange(self) -> None:
        self._top, self._second = QHBoxLayout(), QHBoxLayout()
        for line, part in ((self._top, self.headline), (self._second, self.details)):
            line.setSpacing(CORNER_GAP)
            line.addWidget(part, 1)
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(3)
        column.addLayout(self._top)
        column.addLayout(self._second)
        for part in (self.message, self.notes):
            column.addWidget(part)
        column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.icon, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(column, 1)
        self._fonts()

    def set_corner(self, corner: QWidget) -> None:
        """Takes buttons for the right: beside the headline where that has room, else beside the details."""
        self._corner = corner
        self._top.addWidget(corner, 0, Qt.AlignmentFlag.AlignTop)
        self._place_corner()

    def _place_corner(self) -> None:
        corner = self._corner
        if corner is None:
            return
        room = self.width() - self.icon.width() - 12
        wide = QFontMetrics(self.headline.font()).horizontalAdvance(self.headline.text()) + 4
        beside = wide + CORNER_GAP + corner.sizeHint().width() <= room or self.details.isHidden()
        if (self._top.indexOf(corner) >= 0) != beside:
            (self._second if beside else self._top).removeWidget(corner)
            (self._top if beside else self._second).addWidget(corner, 0, Qt.AlignmentFlag.AlignTop)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The buttons find their place anew."""
        super().resizeEvent(event)
        self._place_corner()
        self._hold_height()

    def showEvent(self, event: QShowEvent) -> None:
        """Takes its height as soon as it is seen."""
        super().showEvent(event)
        self._hold_height()

    def _hold_height(self) -> None:
        """No other part of the window may take the lines away that the texts need at this width."""
        layout = self.layout()
        if layout is not None:
            self.setMinimumHeight(layout.heightForWidth(self.width()) if self.isVisible() else 0)

    def _fonts(self) -> None:
        self.headline.setFont(sized(self.font(), 1.32, bold=True))
        fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        fixed.setPointSizeF(sized(self.font(), 0.92).pointSizeF()) if self.font().pointSizeF() > 0 else (
            fixed.setPixelSize(sized(self.font(), 0.92).pixelSize())
        )
        self.message.setFont(fixed)

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan's verdict; a problem or what was stale is over."""
        self._plan, self._problem, self._stale = plan, None, None
        self._show()

    def set_problem(self, text: str, remedy: str) -> None:
        """Says why nothing is planned, and what to do."""
        self._plan, self._problem, self._stale = None, (text, remedy), None
        self._show()

    def set_stale(self, reason: str | None, remedy: str = "") -> None:
        """Says that there is no plan of what is set, why, and what to do; None when there is."""
        stale = (reason, remedy) if reason is not None else None
        if stale != self._stale:
            self._stale = stale
            self._show()

    def told(self) -> Verdict:
        """What is shown."""
        if self._problem is not None:
            text, remedy = self._problem
            return Verdict("stale", no_plan(text), (remedy,) if remedy else ())
        told = verdict(self._plan, self._unit)
        return told if self._stale is None or self._plan is None else _refused(told, *self._stale)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        if unit != self._unit:
            self._unit = unit
            self._show()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """The verdict is of the whole plan: nothing to mark."""

    def _to_tightest(self, _link: str) -> None:
        if self._plan is not None:
            device = self._plan.devices[self._plan.tightest]
            self.segment_selected.emit((self._plan.tightest, telling_kind(self._plan, device) or "weights"))

    def _toggle_notes(self) -> None:
        self._open_notes = not self._open_notes
        self._show()

    def _show(self) -> None:
        told, tokens = self.told(), tokens_of(self)
        self.icon.set_state(told.state)
        self.headline.setText(told.headline.replace("≈ ", "≈\u00a0"))
        palette = self.palette()
        palette.setColor(self.headline.foregroundRole(), colour(tokens.text))
        self.headline.setPalette(palette)
        parts = [_kept_together(detail) for detail in told.details]
        if told.tightest_text:
            style = f"color:{tokens.accent};text-decoration:none"
            parts.append(
                f'<a href="tightest" style="{style}">{words.rich(told.tightest_text).replace(" ", "&nbsp;")}</a>'
            )
        said = f'<span style="color:{tokens.muted}">{("<br>" if told.state == "stale" else " · ").join(parts)}</span>'
        self.details.setText(said)
        self.details.setVisible(bool(parts))
        self.message.setText(told.engine_message)
        self.message.setVisible(bool(told.engine_message))
        self.message.setStyleSheet(
            f"background:{tokens.danger_soft};color:{tokens.text};border-left:3px solid {tokens.danger}"
        )
        self._show_notes(told, tokens.warning, tokens.muted)
        self._place_corner()
        self._hold_height()
        self.setAccessibleName(f"{STATE_NAMES[told.state]}. {told.headline}")

    def _show_notes(self, told: Verdict, mark: str, ink: str) -> None:
        shown = told.notes if self._open_notes else told.notes[:NOTES_SHOWN]
        lines = [f'<span style="color:{mark}">▲</span> <span style="color:{ink}">{words.rich(n)}</span>' for n in shown]
        self.notes.setText("<br>".join(lines))
        self.notes.setVisible(bool(lines))
        hidden = len(told.notes) - NOTES_SHOWN
        self.more.setVisible(hidden > 0)
        self.more.setText("Fewer notes" if self._open_notes else f"{hidden} more notes")

    def changeEvent(self, event: QEvent) -> None:
        """Follows theme and font."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._show()
        elif event.type() == QEvent.Type.FontChange:
            self._fonts()
