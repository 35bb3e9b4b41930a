"""The Start-up view: a device's memory over the stages of start-up, against its capacity and its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from PySide6.QtCore import QEvent, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvplanner.diagnose.stages import Logged, LoggedStage
from kvplanner.engine.plan import Plan, StageMemory
from kvplanner.engine.segment import SegmentKind
from kvplanner.report import words
from kvplanner.report.words import Unit
from kvplanner.ui.bars.access import Accessible
from kvplanner.ui.startup.drawing import Drawing
from kvplanner.ui.startup.steps import HEADER, Steps, arrange, failure, stage_line
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.geometry import Rect
from kvplanner.ui.theme.ink import Type, colour, set_pale, tokens_of

EMPTY: Final = "Choose a model and GPUs to see memory over start-up"
UNKNOWN: Final = "The stages of start-up are not known for this plan"


def _kind_of_start(plan: Plan | None) -> object:
    """What a choice of a stage holds for: the model, the GPUs, and whether and where the start fails."""
    if plan is None:
        return None
    return plan.request.model.id, tuple(d.device.gpu.id for d in plan.devices), plan.fits, plan.stage


class StartupView(Accessible):
    """The stepped picture; left and right walk the stages, up and down the devices."""

    segment_selected = Signal(object)
    access_title = "Memory over the stages of start-up"

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMouseTracking(True)
        self._plan: Plan | None = None
        self._unit: Unit = "GiB"
        self._position = 0
        self._kind: SegmentKind | None = "kv_cache"
        self._logged: dict[int, dict[str, LoggedStage]] = {}
        self._chosen: str | None = None  # the stage that the user chose
        self._empty = EMPTY
        self._type = Type(self.font())

    def set_empty(self, text: str) -> None:
        """What stands here while there is no plan; "" for what to do first."""
        self._empty = text or EMPTY
        self.update()

    def set_plan(self, plan: Plan | None) -> None:
        """Shows a plan. A stage that the user chose stays chosen while edits leave the start the same in kind."""
        if _kind_of_start(plan) != _kind_of_start(self._plan):
            self._chosen = None
        self._plan = plan
        if plan is None or self._position >= len(plan.devices):
            self._position = 0
        self._changed()

    def set_logged(self, logged: Sequence[Logged]) -> None:
        """What a log of such a start measured, by device: drawn over the planned stages."""
        self._logged = {one.device: {s.stage: s for s in one.stages} for one in logged}
        self._changed()

    def logged(self) -> Mapping[str, LoggedStage]:
        """The log's stages of the device in sight, by the plan's names."""
        return self._logged.get(self._position, {})

    def set_dimmed(self, dimmed: bool) -> None:
        """Pale while the plan is not of what is set."""
        set_pale(self, dimmed)

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        self._changed()

    def set_selected(self, device: int, kind: SegmentKind | None) -> None:
        """Shows a device's stages."""
        if self._plan is None or device < len(self._plan.devices):
            self._position, self._kind = device, kind
            self._changed()

    def _changed(self) -> None:
        self.update()
        self.parts_changed()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Follows the room."""
        super().resizeEvent(event)
        self.parts_changed()

    def steps(self) -> Steps | None:
        """The layout in sight."""
        if self._plan is None:
            return None
        return arrange(self._plan, self._position, self.width(), self.height(), self._header())

    def _header(self) -> float:
        """Room for the longest lines above the picture, so that it stands still while the stages are walked."""
        stages, plan, wide = self.stages(), self._plan, self.width()
        if plan is None or not stages:
            return HEADER
        lines = (self.readout(index) for index in range(len(stages)))
        longest = max(self._type.height(line, "small", wide) for line in lines)
        return max(HEADER, self._type.height(self.failure(), "small", wide) + longest + 6)

    def stages(self) -> tuple[StageMemory, ...]:
        """The stages in sight."""
        return self._plan.devices[self._position].stages if self._plan and self._plan.devices else ()

    def current(self) -> int:
        """The stage told of: the chosen one, else the failing one, else the highest; −1 without any."""
        stages = self.stages()
        chosen = next((i for i, s in enumerate(stages) if s.stage == self._chosen), None)
        if chosen is None:
            chosen = next((i for i, s in enumerate(stages) if s.failing), None)
        return chosen if chosen is not None else max(range(len(stages)), key=lambda i: stages[i].peak_bytes, default=-1)

    def failure(self) -> str:
        """Where start-up fails and what is missing, whatever stage is chosen; "" where it does not."""
        return failure(self._plan, self._position, self._unit) if self._plan and self.stages() else ""

    def readout(self, index: int | None = None) -> str:
        """A stage in a line, by default the one told of."""
        stages, index = self.stages(), self.current() if index is None else index
        if self._plan is None or not 0 <= index < len(stages):
            return ""
        line = stage_line(self._plan, self._position, stages[index], self._unit)
        seen = self.logged().get(stages[index].stage)
        if seen is not None:
            line += f" · the log: {words.size(seen.end_bytes, self._unit)}"
            line += f", peak {words.size(seen.peak_bytes, self._unit)}" if seen.peak_bytes is not None else ""
        highest = stages[index].peak_bytes == max(stage.peak_bytes for stage in stages)
        return f"Highest: {line}" if highest and not any(stage.failing for stage in stages) else line

    def sizeHint(self) -> QSize:
        """Room for the stages' names."""
        return QSize(640, 300)

    def minimumSizeHint(self) -> QSize:
        """Enough to tell the steps apart."""
        return QSize(360, 150)

    def changeEvent(self, event: QEvent) -> None:
        """Follows fonts."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._type = Type(self.font())
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the stages, or why there are none."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=True)
        tokens = tokens_of(self)
        steps = self.steps()
        if self._plan is None or steps is None:
            painter.setPen(colour(tokens.muted))
            painter.drawText(
                self.rect(),
                Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap,
                UNKNOWN if self._plan else self._empty,
            )
        else:
            Drawing(painter, tokens, self._type, self._plan, self._position, self._unit, self.width()).all(
                steps, self.current(), self.failure(), self.readout(), focused=self.hasFocus(), logged=self.logged()
            )
        painter.end()

    def event(self, event: QEvent) -> bool:
        """Tool tips say what the readout would say of the stage under the mouse."""
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            index = self._at(event.pos().x(), event.pos().y())
            QToolTip.showText(event.globalPos(), "" if index is None else shown(self.access_name(index)), self)
            return True
        return super().event(event)

    def _at(self, x: float, y: float) -> int | None:
        steps = self.steps()
        return next((i for i, s in enumerate(steps.steps) if s.column.holds(x, y)), None) if steps else None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Chooses a stage."""
        point = event.position()
        found = self._at(point.x(), point.y())
        if found is not None:
            self._choose(found)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """The walk starts at the stage told of."""
        self.tell_focus()
        self.update()
        super().focusInEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows walk stages and devices."""
        keys = Qt.Key
        count, current = self.access_count(), self.current()
        target = {
            keys.Key_Left: current - 1, keys.Key_Right: current + 1,
            keys.Key_Home: 0, keys.Key_End: count - 1,
        }.get(Qt.Key(event.key()))  # fmt: skip
        if target is not None and count:
            self._choose(min(max(target, 0), count - 1))
        elif event.key() in (keys.Key_Up, keys.Key_Down):
            self._other_device(-1 if event.key() == keys.Key_Up else 1)
        else:
            super().keyPressEvent(event)

    def _choose(self, index: int) -> None:
        stages = self.stages()
        self._chosen = stages[index].stage if 0 <= index < len(stages) else None
        self.update()
        self.tell_focus()

    def _other_device(self, step: int) -> None:
        if self._plan is None:
            return
        all_groups = self._plan.groups
        here = next((i for i, g in enumerate(all_groups) if self._position in g), 0)
        target = all_groups[min(max(here + step, 0), len(all_groups) - 1)][0]
        if target != self._position:
            self._position = target
            self._changed()
            self.segment_selected.emit((target, self._kind or "kv_cache"))

    # Assistive technology

    def access_count(self) -> int:
        """Stages."""
        return len(self.stages())

    def access_name(self, index: int) -> str:
        """For example "GPU 0 · load weights: 15.9 GiB at its end"; before it the failure where it fails there."""
        stage = self.stages()[index]
        line = stage_line(self._plan, self._position, stage, self._unit) if self._plan else ""
        return f"{self.failure()} · {line}" if stage.failing else line

    def access_text(self, index: int) -> str:
        """The stage's note."""
        return self.stages()[index].note

    def access_rect(self, index: int) -> QRect:
        """The stage's column."""
        steps = self.steps()
        column = steps.steps[index].column if steps else Rect(0, 0, 0, 0)
        return QRect(round(column.x), round(column.y), round(column.w), round(column.h))

    def access_current(self) -> int:
        """The stage told of."""
        return self.current()
