"""The setup panel: sections over the document, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QPalette
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QVBoxLayout, QWidget

from kvplanner.app.document import Document
from kvplanner.app.messages import in_window
from kvplanner.app.state import PlanState
from kvplanner.errors import PlannerError
from kvplanner.report.options import option_label
from kvplanner.ui.setup.edits import Edits
from kvplanner.ui.setup.engine_section import EngineSection
from kvplanner.ui.setup.field import Field, tab_stops
from kvplanner.ui.setup.gpu_section import GpuSection
from kvplanner.ui.setup.model_section import ModelSection
from kvplanner.ui.setup.section import Section
from kvplanner.ui.setup.width import PANEL_WIDTH
from kvplanner.units import ByteUnit

if TYPE_CHECKING:
    from kvplanner.engine.option import Option, Resolved
    from kvplanner.engine.plan import Plan
    from kvplanner.model.model import Model
    from kvplanner.ui.setup.advanced import AdvancedSection
    from kvplanner.ui.setup.load_field import LoadField
    from kvplanner.ui.setup.option_field import OptionField

SCROLL_BAR = 12
TOP = QPoint(0, -10)
PARALLEL, CONTEXT, REST = "Parallelism", "Context and load", "Memory and cache"
# Where an error belongs, by what planner errors name.
MODEL_NAMES = frozenset({"model", "MODEL", "model catalogue"})
FORMAT_NAME = "--weight-format"
GPU_NAMES = frozenset({"--gpu", "--free", "gpu"})


class SetupPanel(QScrollArea):
    """Everything that the user sets.

    error_elsewhere(PlannerError): one that belongs to no field here. refusals_changed(): `refused` is another one.
    """

    error_elsewhere = Signal(object)
    refusals_changed = Signal()

    def __init__(self, document: Document, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self.edits = Edits(document)
        self._unit: ByteUnit = "GiB"
        self.setAccessibleName("Setup")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        content = QWidget()
        content.setBackgroundRole(QPalette.ColorRole.Base)
        content.setAutoFillBackground(True)
        self._layout = QVBoxLayout(content)
        self._layout.setContentsMargins(12, 10, 12, 8)
        self._layout.setSpacing(7)
        self.model = ModelSection(content)
        self.gpus = GpuSection(content)
        self.engine = EngineSection(content)
        self.context = Section(CONTEXT, content)
        self.rest = Section(REST, content)
        self.load: LoadField | None = None
        self.advanced: AdvancedSection | None = None
        self.fields: dict[str, OptionField] = {}
        self._made: dict[Option, OptionField] = {}
        self._options: tuple[Option, ...] = ()
        self._wrong: list[Field | Section] = []
        self._unseen: Field | Section | None = None
        self._seeking = False
        self._asked_formats: tuple[object, ...] = ()
        for section in (self.model, self.gpus, self.engine, self.context, self.rest):
            self._layout.addWidget(section)
        self._layout.addStretch(1)
        self.setWidget(content)
        self.set_width(PANEL_WIDTH)
        self._connect()

    def set_width(self, width: int) -> None:
        """Be so wide: long names wrap or are cut within the panel, they never make it scroll sideways."""
        self.setFixedWidth(width)
        content = self.widget()
        if content is not None:
            content.setMinimumWidth(width - SCROLL_BAR)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Undo and redo that a field had no use for: a field takes these keys before any menu sees them."""
        if event.matches(QKeySequence.StandardKey.Undo):
            self._document.undo()
        elif event.matches(QKeySequence.StandardKey.Redo):
            self._document.redo()
        else:
            super().keyPressEvent(event)

    def _connect(self) -> None:
        document = self._document
        edits = self.edits
        self.model.format_chosen.connect(edits.choose_format)
        self.gpus.ticked.connect(self._tick)
        self.gpus.free_given.connect(edits.give_free)
        self.engine.engine_chosen.connect(edits.choose_engine)
        self.engine.version_chosen.connect(edits.choose_version)
        self.verticalScrollBar().rangeChanged.connect(self._seek)
        document.changed.connect(self.show_state)
        document.planned.connect(self.show_plan)
        document.failed.connect(self.show_error)

    # from the document -----------------------------------------------------------------------------------------

    def set_unit(self, unit: ByteUnit) -> None:
        """GiB or GB."""
        self._unit = unit
        self.show_state(self._document.state)

    def write_anew(self) -> None:
        """Figures look otherwise now."""
        for field in (*self.fields.values(), *([self.load] if self.load is not None else [])):
            field.write_anew()
        if self.advanced is not None:
            for entry in self.advanced.entries.values():
                entry.write_anew()
        if self._options:
            self.show_limits()

    def show_state(self, state: PlanState) -> None:
        """Show what is set."""
        self.model.show_model(state.model, state.ask.weight_format, self._unit)
        self.gpus.show_state(state, self._unit)
        if self._document.plan is not None and self._document.error is None:
            self._show_draft(self._document.plan.request.draft)
        if self.load is not None:
            self.load.set_load(state.ask.load)
        if self._options:
            self._show_engine(state)

    def _show_engine(self, state: PlanState) -> None:
        from kvplanner.engine.registry import engine

        plan = self._document.plan
        self.engine.show_engine(engine(state.ask.engine), state.ask.version, plan.rules if plan else "")
        self._show_refused(state)
        self._set_options(self._document.options())
        self._show_values(state, plan.options if plan else {})

    def _show_refused(self, state: PlanState) -> None:
        """Grey the weight formats that cannot be planned; which ones, no option changes."""
        from kvplanner.engine.registry import engine
        from kvplanner.engine.whatif import refused

        asked = (state.model, state.ask.engine, state.ask.version, state.devices, state.unticked)
        if state.model is not None and self.model.built and asked != self._asked_formats:
            self._asked_formats = asked
            self.model.show_refused(refused(state.model, engine(state.ask.engine), state.ask.version, state.machine))

    def _show_values(self, state: PlanState, values: Mapping[str, Resolved]) -> None:
        plan = self._document.plan
        ranges = {found.option: found for found in plan.ranges} if plan is not None else {}
        handles = {found.option: found for found in plan.handles} if plan is not None else {}
        for name, field in self.fields.items():
            field.set_range(ranges.get(name))
            field.set_handle(handles.get(name))
            field.set_value(state.ask.options.get(name), values.get(name))
        if self.advanced is not None:
            self.advanced.show_values(state.ask.options, values)

    def build(self) -> None:
        """Make the option fields; separate from the constructor so that the window shows first."""
        from kvplanner.engine.registry import titles
        from kvplanner.model.whatif import WHATIF_FORMATS
        from kvplanner.ui.setup.advanced import AdvancedSection
        from kvplanner.ui.setup.load_field import LoadField

        if self.advanced is not None:
            return
        document = self._document
        self.load = LoadField(self.context)
        self.load.edited.connect(self.edits.set_load)
        self.load.error_changed.connect(self.refusals_changed)
        self.load.set_load(document.state.ask.load)
        self.advanced = AdvancedSection(self.widget())
        self.advanced.allowed = self._allowed
        self.advanced.edited.connect(self.edits.set_option)
        self.advanced.sealed.connect(document.seal)
        self.advanced.error_changed.connect(self.refusals_changed)
        self.advanced.opened.connect(self.order_tabs)
        self.advanced.opened.connect(self._bring_up_advanced)
        self.advanced.filled.connect(self._rows_stand)
        self.advanced.reset_all.connect(self.edits.reset_options)
        self._layout.insertWidget(self._layout.count() - 1, self.advanced)
        self.model.build(WHATIF_FORMATS)
        self.gpus.build()
        self.gpus.count_field.error_changed.connect(self.refusals_changed)
        self.gpus.row_error_changed.connect(self.refusals_changed)
        self.gpus.rows_changed.connect(self.order_tabs)
        self.engine.build(titles())
        self.show_state(document.state)
        self._show_engine(document.state)
        self.show_limits()

    def _set_options(self, options: tuple[Option, ...]) -> None:
        if options == self._options:
            return
        first = not self._options
        self._options = options
        everyday = {o.name: o for o in options if o.everyday}
        for name in [n for n in self.fields if n not in everyday]:
            self.fields.pop(name).hide()
        for option in everyday.values():
            old = self.fields.get(option.name)
            if old is not None and old.option == option:
                continue
            if old is not None:
                old.hide()
            if option not in self._made:
                self._made[option] = self._make_field(option)
            self.fields[option.name] = self._made[option]
            self.fields[option.name].show()
        if first and self.load is not None:
            self.context.add(self.load)
        if self.advanced is not None:
            self.advanced.set_options(options)
        self.order_tabs()

    def _make_field(self, option: Option) -> OptionField:
        from kvplanner.ui.setup.context_field import ContextField
        from kvplanner.ui.setup.handle_fields import LayersField, SharesField
        from kvplanner.ui.setup.option_field import field_for

        made = {"context": ContextField, "layer_count": LayersField, "device_shares": SharesField}.get(option.role)
        section: Section = {PARALLEL: self.engine, CONTEXT: self.context}.get(option.section, self.rest)
        field: OptionField = made(option, section) if made is not None else field_for(option, section)
        field.allowed = self._allowed
        field.edited.connect(self.edits.set_option)
        field.sealed.connect(self._document.seal)
        field.error_changed.connect(self.refusals_changed)
        section.add(field)
        return field

    def order_tabs(self) -> None:
        """Down the form, in the order in which it is read; rows that are made later come into their place."""
        chain: list[QWidget] = [self.model.button, *tab_stops(self.model.format_field), *self.gpus.tab_stops(),
                                *tab_stops(self.engine.field)]  # fmt: skip
        for section in (self.engine, self.context, self.rest):
            for widget in section.fields:
                if isinstance(widget, Field) and widget is not self.engine.field:
                    chain += tab_stops(widget)
        if self.advanced is not None:
            chain += self.advanced.tab_stops()
        for before, after in pairwise(chain):
            QWidget.setTabOrder(before, after)

    def show_plan(self, plan: Plan) -> None:
        """Show what the engine settled on."""
        self.clear_errors()
        self._show_draft(plan.request.draft)
        if self._options:
            self.show_limits()
            self._show_engine(self._document.state)

    def _show_draft(self, draft: Model | None) -> None:
        """Name the model that drafts tokens beside the one that checks them."""
        from kvplanner.ui.setup.model_section import draft_text

        self.model.show_draft(draft_text(draft, self._unit) if draft else "")

    def show_limits(self) -> None:
        """Mark the trained context and the largest that fits."""
        from kvplanner.ui.setup.context_field import ContextField

        model, plan = self._document.state.model, self._document.plan
        trained = model.spec.context_length if model else None
        if plan is not None and model is not None and plan.request.model.id != model.id:
            plan = None  # what fits is another model's
        for field in self.fields.values():
            if isinstance(field, ContextField):
                surely = plan.limits.sure_max_context_length if plan else None
                maybe = plan.limits.max_context_length if plan else None
                field.set_marks(trained, surely or maybe, sure=plan is None or _surely(plan), maybe=maybe)

    def _all_fields(self) -> list[Field]:
        fields: list[Field] = [*self.fields.values()]
        if self.load is not None and self.advanced is not None:
            advanced = (entry.field for entry in self.advanced.entries.values())
            fields += [self.load, self.gpus.count_field, *advanced]
        return fields

    @property
    def refused(self) -> tuple[str, str]:
        """Name and message of the first input whose text was refused and so is not in the plan; "" for none."""
        said = next(
            ((field.title, field.error.message) for field in self._all_fields() if field.error.message), ("", "")
        )
        return said if said[0] else self.gpus.refused_row()

    # errors ----------------------------------------------------------------------------------------------------

    def clear_errors(self) -> None:
        """Take every message of a refused plan back."""
        wrong, self._wrong = self._wrong, []
        for place in wrong:
            place.set_error("")

    def show_error(self, error: PlannerError) -> None:
        """Say what is wrong at the field that it belongs to."""
        self.clear_errors()
        self.model.show_draft("")
        self.show_limits()
        place = self.place_of(error.where)
        if place is None:
            self.error_elsewhere.emit(error)
            return
        self._wrong = [place]
        first, _, rest = error.what.partition(" ")
        # A flag or a name of the engine's keeps its spelling.
        what = f"{first[:1].upper()}{first[1:]} {rest}" if first.isalpha() and rest else error.what
        place.set_error(in_window(f"{what}. {error.remedy}" if error.remedy else what))
        self.ensureWidgetVisible(place)
        self._unseen = place if self.advanced is not None and self.advanced.filling else None
        self.refusals_changed.emit()

    def _rows_stand(self) -> None:
        """The rows of Advanced have their places: what was to be seen among them can be."""
        self.order_tabs()
        if self._unseen in self._wrong:
            self.ensureWidgetVisible(self._unseen)
        self._unseen = None

    def _bring_up_advanced(self, on: bool) -> None:
        """Opened by the mouse, its rows may lie below what can be seen."""
        if on and self.isVisible():
            self._seeking = True
            QTimer.singleShot(0, self, self._seek)

    def show_search(self) -> None:
        """Bring the search of options to the top, its results below it."""
        advanced, ground = self.advanced, self.widget()
        if advanced is None or ground is None:
            return
        advanced.toggle.setChecked(True)
        advanced.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        advanced.search.selectAll()
        # There is no room to scroll yet for the rows that opening makes.
        self._seeking = True
        QTimer.singleShot(0, self, self._seek)

    def _seek(self) -> None:
        """Scroll on to the search, as far as there is room by now."""
        advanced, ground, bar = self.advanced, self.widget(), self.verticalScrollBar()
        if self._seeking and advanced is not None and ground is not None:
            wanted = advanced.search.mapTo(ground, TOP).y()
            bar.setValue(wanted)
            self._seeking = bar.value() != wanted and advanced.filling

    def go_to(self, where: str) -> None:
        """Lead to the field that an error names."""
        place = self.place_of(where)
        if place is None:
            return
        self.ensureWidgetVisible(place)
        target = place.inputs[0] if isinstance(place, Field) and place.inputs else place.nextInFocusChain()
        if target is not None:
            target.setFocus(Qt.FocusReason.OtherFocusReason)

    def go_to_refused(self) -> None:
        """Lead to the first input whose text is refused."""
        for field in self._all_fields():
            if field.error.message:
                self.ensureWidgetVisible(field)
                field.inputs[-1].setFocus(Qt.FocusReason.OtherFocusReason)
                return

    def label_of(self, option: Option) -> str:
        """What the form calls an option."""
        return option_label(option)

    def place_of(self, where: str) -> Field | Section | None:
        """The field or section that an error belongs to, by what it names; None for none here."""
        words = where.split("=")[0].strip()
        if words in MODEL_NAMES:
            return self.model
        if words == FORMAT_NAME:
            return self.model.format_field if self.model.built else self.model
        if words in GPU_NAMES or words.lower().startswith("gpu"):
            return self.gpus
        if words == "--engine-version":
            return self.engine
        option = self.option_at(words)
        if option is not None:
            field, advanced = self.fields.get(option.name), self.advanced
            row = advanced.entries.get(option.name) if advanced is not None else None
            focus = QApplication.focusWidget()
            if row is not None and focus is not None and row.isVisible() and row.isAncestorOf(focus):
                return row.field  # where it was typed
            return field or (advanced.field(option.name) if advanced is not None else None)
        if words == "--load":
            return self.context
        return self.model if self._document.state.model and words == self._document.state.model.id else None

    def option_at(self, words: str) -> Option | None:
        """The option that an error names: its name, a flag, a variable, its place in JSON, or the JSON flag alone."""
        parts: list[Option] = []
        for option in self._options:
            if words in (option.name, option.spelled, *option.flags) or (option.env and words == option.env):
                return option
            if option.json and option.spelled.startswith(f"{words}."):
                parts.append(option)
        given = self._document.state.ask.options
        return next((o for o in parts if o.name in given), parts[0] if parts else None)

    def _allowed(self, name: str) -> tuple[int, ...]:
        """The values of an option that the model allows, empty for all."""
        from kvplanner.engine.registry import engine

        state = self._document.state
        return engine(state.ask.engine).allowed(name, state.model) if state.model is not None else ()

    def _tick(self, index: int, on: bool) -> None:
        refused = self.edits.tick(index, on=on)
        self.gpus.set_error(refused)
        if refused:
            self.gpus.show_state(self._document.state, self._unit)


def _surely(plan: Plan) -> bool:
    """Whether a length that is told surely works: not where nothing can be told of the engine on these GPUs."""
    return plan.fits is not None and plan.limits.sure_max_context_length is not None
