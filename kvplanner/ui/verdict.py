"""The verdict: one sentence, then the few figures behind it; on failure the stage and what is missing."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontDatabase, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvplanner.engine.base import BUDGET_KINDS, KvCache, Plan, SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.ui.bars import words
from kvplanner.ui.bars.fold import group_of
from kvplanner.ui.bars.ink import colour, sized, tokens_of
from kvplanner.ui.bars.words import Unit
from kvplanner.ui.palette import Tokens
from kvplanner.units import ceil_div, round_to_band

State = Literal["fits", "partly", "fails", "unknown", "empty"]
STATE_NAMES: Final[dict[State, str]] = {
    "fits": "Fits",
    "partly": "Fits, but does not serve the whole load",
    "fails": "Does not fit",
    "unknown": "Cannot be told",
    "empty": "No plan",
}
EMPTY: Final = "Choose a model and GPUs"
NOTES_SHOWN: Final = 2
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
    if plan.fits is None:
        news = tuple(note for note in plan.warnings if note not in plan.summary)
        return Verdict("unknown", plan.summary, _fitting(plan, unit), notes=news)
    if plan.fits:
        details, tightest = _fitting(plan, unit), _tightest_text(plan, unit)
    else:
        details, tightest = _failing(plan, unit), ""
    return Verdict(_state(plan), plan.summary, details, plan.tightest, tightest, plan.engine_message, plan.warnings)


def plain_text(plan: Plan, unit: Unit) -> str:
    """The verdict as lines of text."""
    told = verdict(plan, unit)
    lines = [told.headline, " · ".join(told.details), told.tightest_text, told.engine_message, *told.notes]
    return "\n".join(line for line in lines if line)


def _state(plan: Plan) -> State:
    if not plan.fits:
        return "fails"
    served, load = plan.limits.serves_users, plan.request.load
    return "partly" if load and served is not None and served < load.users else "fits"


def _fitting(plan: Plan, unit: Unit) -> tuple[str, ...]:
    cache = plan.kv_cache
    if cache is None:
        return ()
    said = [f"{_sized(cache.available, unit)} of KV cache per GPU"]
    if " requests of " not in plan.summary:
        said.append(_requests(cache))
    said += _tokens(plan.summary, cache)
    if plan.replicas > 1:
        said.append(f"each of {plan.replicas} replicas")
    load = plan.request.load
    if load and plan.limits.blocks_per_user:
        need = plan.limits.blocks_per_user * cache.bytes_per_block
        users = ceil_div(load.users, plan.replicas)
        said.append(
            f"{load.users:,} users of {load.prompt_tokens:,} + {load.output_tokens:,} tokens take "
            f"{words.size(need * users, unit)}{' per GPU' if len(plan.devices) > 1 else ''}"
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
    """Where least is left: the device, and how much of it the engine leaves alone."""
    device = plan.devices[plan.tightest]
    name = words.device_name(plan, group_of(plan, plan.tightest))
    spare = device.segment("headroom")
    if spare is None:
        return f"tightest: {name}"
    return f"tightest: {name}, {words.size(spare.bytes, unit)} spare"


def _failing(plan: Plan, unit: Unit) -> tuple[str, ...]:
    """The two figures that do not go together; before them what the summary does not say already."""
    members = group_of(plan, plan.tightest)
    where = words.device_name(plan, members)
    missing = words.size(plan.missing_bytes, unit)
    said: list[str] = []
    if missing not in plan.summary:
        said += [f"Start-up fails {words.STAGES[plan.stage]}"] if plan.stage else []
        said += [f"{missing} missing on {where}"] if plan.missing_bytes > 0 else []
    elif len(members) > 1:
        said.append(f"alike on {where}")
    said += _against(plan, unit)
    cache = plan.kv_cache
    if cache and cache.estimated_max_model_len:
        said.append(f"a context of {cache.estimated_max_model_len:,} tokens would fit")
    return tuple(said)


def _against(plan: Plan, unit: Unit) -> list[str]:
    device = plan.devices[plan.tightest]
    size = {s.kind: s.bytes for s in device.segments}
    sees = words.size(device.cuda_total_bytes, unit)
    if plan.stage == "free_memory_check" and device.budget:
        free = device.cuda_total_bytes - size.get("other", 0) - size.get("runtime_outside", 0)
        return [
            f"{words.size(free, unit)} of {sees} are free, the budget asks for {words.size(device.budget.value, unit)}",
            f"other programs hold {words.size(size.get('other', 0), unit)}",
        ]
    if plan.stage == "kv_cache_sizing" and device.budget:
        inside = sum(b for k, b in size.items() if k in BUDGET_KINDS)
        return [f"{words.size(inside, unit)} are needed before any cache, the budget is "
                f"{words.size(device.budget.value, unit)}"]  # fmt: skip
    if plan.stage == "kv_cache_too_small" and plan.kv_cache:
        return [f"{words.size(plan.kv_cache.available.value, unit)} of KV cache per GPU"]
    if plan.stage in ("weights", "profile"):
        return [f"weights {words.size(size.get('weights', 0), unit)} per GPU, CUDA sees {sees}"]
    return []


def _kept_together(text: str) -> str:
    """Rich text of which no number is left alone at a line's end."""
    return _BEFORE_UNIT.sub("&nbsp;", words.rich(text)).replace("≈ ", "≈&nbsp;")


class StatusIcon(QWidget):
    """A disc with a tick, an exclamation mark, a cross or a question mark: told by shape and by colour."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedSize(QSize(28, 28))
        self._state: State = "empty"
        self.set_state("empty")

    def set_state(self, state: State) -> None:
        """Shows a state."""
        self._state = state
        self.setAccessibleName(STATE_NAMES[state])
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the disc and its sign."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        paint_status(painter, QRectF(self.rect()), self._state, tokens_of(self))
        painter.end()


def paint_status(painter: QPainter, box: QRectF, state: State, tokens: Tokens) -> None:
    """A state's disc and sign, also for pictures."""
    grounds = {"fits": tokens.success, "partly": tokens.warning, "fails": tokens.danger}
    side = min(box.width(), box.height())
    painter.save()
    painter.translate(box.center())
    painter.scale(side / 28, side / 28)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour(grounds.get(state, tokens.outline)))
    painter.drawEllipse(QPointF(0, 0), 13.5, 13.5)
    pen = QPen(colour(tokens.on_status), 2.6)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if state == "fits":
        painter.drawPolyline(QPolygonF([QPointF(-5.5, 0.5), QPointF(-1.8, 4.2), QPointF(5.8, -4.2)]))
    elif state == "fails":
        painter.drawLine(QPointF(-4.5, -4.5), QPointF(4.5, 4.5))
        painter.drawLine(QPointF(-4.5, 4.5), QPointF(4.5, -4.5))
    elif state == "partly":
        painter.drawLine(QPointF(0, -6), QPointF(0, 1.5))
        painter.drawPoint(QPointF(0, 6))
    else:
        painter.drawPolyline(
            QPolygonF([QPointF(-3.5, -3), QPointF(-2, -6), QPointF(2, -6), QPointF(3.6, -3), QPointF(0, 1.2)])
        )
        painter.drawPoint(QPointF(0, 6))
    painter.restore()


class VerdictView(QWidget):
    """The verdict above the bars; a link leads to the tightest device."""

    segment_selected = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._open_notes = False
        self.icon = StatusIcon(self)
        self.headline = self._label()
        self.details = self._label()
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

    def _label(self) -> QLabel:
        label = QLabel(self)
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        return label

    def _arrange(self) -> None:
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(3)
        for part in (self.headline, self.details, self.message, self.notes):
            column.addWidget(part)
        column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.icon, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(column, 1)
        self._fonts()

    def _fonts(self) -> None:
        self.headline.setFont(sized(self.font(), 1.32, bold=True))
        fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        fixed.setPointSizeF(sized(self.font(), 0.92).pointSizeF()) if self.font().pointSizeF() > 0 else (
            fixed.setPixelSize(sized(self.font(), 0.92).pixelSize())
        )
        self.message.setFont(fixed)

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan's verdict."""
        self._plan = plan
        self._show()

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
            kind = "kv_cache" if device.segment("kv_cache") else "weights"
            self.segment_selected.emit((self._plan.tightest, kind))

    def _toggle_notes(self) -> None:
        self._open_notes = not self._open_notes
        self._show()

    def _show(self) -> None:
        told = verdict(self._plan, self._unit)
        tokens = tokens_of(self)
        self.icon.set_state(told.state)
        self.headline.setText(told.headline.replace("≈ ", "≈\u00a0"))
        parts = [_kept_together(detail) for detail in told.details]
        if told.tightest_text:
            style = f"color:{tokens.accent};text-decoration:none"
            parts.append(f'<a href="tightest" style="{style}">{_kept_together(told.tightest_text)}</a>')
        self.details.setText(f'<span style="color:{tokens.muted}">{" · ".join(parts)}</span>')
        self.details.setVisible(bool(parts))
        self.message.setText(told.engine_message)
        self.message.setVisible(bool(told.engine_message))
        self.message.setStyleSheet(
            f"background:{tokens.danger_soft};color:{tokens.text};border-left:3px solid {tokens.danger}"
        )
        self._show_notes(told, tokens.warning, tokens.muted)
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
