"""Inputs for engine options, made from their declarations alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from kvplanner.errors import PlannerError
from kvplanner.report.options import option_label, range_words
from kvplanner.ui.setup import numbers
from kvplanner.ui.setup.field import EDIT_WIDTH, Field
from kvplanner.ui.setup.inputs import TEXT_MARGINS, ComboBox, ValueEdit
from kvplanner.ui.setup.pasted import ELSEWHERE, is_command
from kvplanner.ui.setup.slider import MarkedSlider, Scale, Works
from kvplanner.ui.theme.geometry import grown
from kvplanner.units import LARGEST

# Where a slider begins whose least value is not allowed: less may be typed.
_LEAST_SHARE: Final = 0.05

if TYPE_CHECKING:
    from kvplanner.engine.option import Option, OptionValue, Resolved
    from kvplanner.engine.plan import Handle, WorkingRange

DEFAULT = "\0default"
# A choice with a long name takes room from its label, which may wrap.
BOX_WIDTH: Final = EDIT_WIDTH + 26
WIDEST_BOX: Final = BOX_WIDTH + 74


class OptionField(Field):
    """An option's input. edited(name, value or None, merge key); sealed(): a drag ended.

    allowed(name): the only values that the keyboard steps to, empty for all.
    """

    edited = Signal(str, object, str)
    sealed = Signal()

    def __init__(self, option: Option, inputs: tuple[QWidget, ...], parent: QWidget | None = None) -> None:
        super().__init__(option_label(option), inputs, parent)
        self.label.setWordWrap(True)
        self.line.setStretch(0, 1)
        self.option = option
        self.value: OptionValue | None = None
        self.resolved: Resolved | None = None
        self.range: WorkingRange | None = None
        self.handle: Handle | None = None
        self.allowed: Callable[[str], Sequence[int]] = lambda name: ()
        self._fresh = False
        self.reset_asked.connect(self._reset)
        self.set_hint(self._about())

    def _reset(self) -> None:
        self.set_error("")
        self.edited.emit(self.option.name, None, "")

    def set_value(self, value: OptionValue | None, resolved: Resolved | None) -> None:
        """Show what the user set (None: nothing) and what the plan made of it."""
        if self._fresh and (value, resolved) == (self.value, self.resolved) and self.error.isHidden():
            return
        self._fresh = True
        # What was refused is no longer what stands in the field.
        self.set_error("")
        self.value, self.resolved = value, resolved
        self.set_changed(value is not None)
        self.set_hint(self._about())
        self._show()

    def write_anew(self) -> None:
        """Also what stands in it; what is refused stays as it was typed."""
        super().write_anew()
        if self.error.isHidden():
            self._show()

    def set_range(self, found: WorkingRange | None) -> None:
        """Where the option works, as the engine says; None where it says nothing."""
        if found != self.range:
            self.range = found
            self.set_hint(self._about())
            self._show_range()

    def set_handle(self, found: Handle | None) -> None:
        """What the option comes to in numbers, as the plan has it; None where it has none."""
        self.handle = found

    def _show_range(self) -> None:
        """Fields without a range to draw it on say it in their hint alone."""

    def effective(self) -> OptionValue | None:
        """The value that the plan uses, as far as it is known."""
        if self.value is not None:
            return self.value
        return self.resolved.value if self.resolved else None

    def _show(self) -> None:
        raise NotImplementedError

    def _about(self) -> str:
        option = self.option
        parts = [option.env or option.spelled, option.help]
        if self.value is None and self.resolved is not None and self.resolved.reason:
            parts.append(f"Default: {self.resolved.reason}")
        elif option.default:
            parts.append(f"Default: {option.default}")
        if self.range is not None:
            parts.append(range_words(self.range))
        return "\n".join(parts)

    def _commit_text(self, text: str) -> None:
        self._fresh = False
        if is_command(text):
            self.set_error(ELSEWHERE[:1].upper() + ELSEWHERE[1:])
            return
        try:
            value = numbers.read(self.option, text)
        except PlannerError as error:
            # Whose field it is goes without saying, and one example is enough.
            remedy = "" if "example" in error.what else error.remedy.replace(f"{self.option.spelled} ", "")
            self.set_error(f"{error.what}. {remedy}" if remedy else error.what)
            return
        self.set_error("")
        if value == self.value:
            self._show()
        else:
            self.edited.emit(self.option.name, value, "")


class TextField(OptionField):
    """A number, size or text in one field; Up and Down step numbers."""

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        self.edit = ValueEdit()
        super().__init__(option, (self.edit,), parent)
        self.line.addWidget(self.reset_button)
        self.line.addWidget(self.edit)
        wide = EDIT_WIDTH if option.type != "text" else EDIT_WIDTH + 24
        self.edit.setFixedWidth(grown(wide, self.fontMetrics().height()))
        self.edit.committed.connect(self._commit_text)
        self.edit.stepped.connect(self._step)

    def _show(self) -> None:
        fallback = self.resolved.value if self.resolved else None
        hint = numbers.show(self.option, fallback) if fallback is not None else _short_default(self.option)
        self.edit.show_value(numbers.show(self.option, self.value), hint)

    def _step(self, sign: int) -> None:
        current = self.effective()
        if isinstance(current, bool) or not isinstance(current, int | float):
            return
        value = stepped(self.option, current, sign, self.allowed(self.option.name))
        if value != current:
            self.edited.emit(self.option.name, value, f"step {self.option.name}")


def stepped(option: Option, current: int | float, sign: int, allowed: Sequence[int] = ()) -> int | float:
    """The next value up or down: of those allowed where given, else doubled for tokens and sequences, by one or by a
    hundredth. The current one where there is none."""
    if allowed:
        beyond = [value for value in allowed if (value - current) * sign > 0]
        return min(beyond, key=lambda value: abs(value - current), default=current)
    if option.type == "float":
        value: int | float = round(current + 0.01 * sign, 4)
    elif option.type in ("tokens", "bytes") or current >= 16:
        value = int(current * 2 if sign > 0 else current / 2)
    else:
        value = int(current) + sign
    if option.low is not None:
        value = max(value, type(value)(max(option.low, 1 if option.low == -1 else option.low)))
        value = current if option.above_low and value == option.low else value
    return min(value, type(value)(LARGEST if option.high is None else option.high))


def _short_default(option: Option) -> str:
    return option.default if len(option.default) <= 12 else "default"


class ChoiceField(OptionField):
    """A choice, or on and off; the first entry is the default."""

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        self.box = ComboBox()
        super().__init__(option, (self.box,), parent)
        self.line.addWidget(self.reset_button)
        self.line.addWidget(self.box)
        self.box.setFixedWidth(grown(BOX_WIDTH, self.fontMetrics().height()))
        self.box.addItem("default", DEFAULT)
        if option.type == "bool":
            self.box.addItem("on", True)
            self.box.addItem("off", False)
        else:
            for choice in option.choices:
                self.box.addItem(choice, choice)
        self.box.activated.connect(self._picked)

    def _picked(self, index: int) -> None:
        data = self.box.itemData(index)
        value = None if data == DEFAULT else data
        if value != self.value:
            self.set_error("")
            self.edited.emit(self.option.name, value, "")

    def _show(self) -> None:
        fallback = self.resolved.value if self.resolved else None
        text = numbers.show(self.option, fallback) if fallback is not None else _short_default(self.option)
        self.box.setItemText(0, f"{text} (default)" if text not in ("", "default") else "default")
        index = 0 if self.value is None else self.box.findData(self.value)
        self.box.setCurrentIndex(max(index, 0))
        wide = self.box.fontMetrics().horizontalAdvance(self.box.currentText()) + TEXT_MARGINS
        line = self.fontMetrics().height()
        self.box.setFixedWidth(min(max(wide, grown(BOX_WIDTH, line)), grown(WIDEST_BOX, line)))


class SliderField(OptionField):
    """A number with a sensible range: a slider beside its field."""

    edit_last = True

    def __init__(self, option: Option, scale: Scale, parent: QWidget | None = None) -> None:
        self.slider = MarkedSlider(scale)
        self.edit = ValueEdit()
        super().__init__(option, (self.edit, self.slider), parent)
        self.label.setWordWrap(False)
        self.label.setMinimumWidth(60)
        self.line.setStretch(0, 0)
        self.slider.setAccessibleName(f"{self.title} slider")
        self.line.addWidget(self.slider, 1)
        self.line.addWidget(self.reset_button)
        self.line.addWidget(self.edit)
        wide = EDIT_WIDTH + 8 if option.type == "tokens" else EDIT_WIDTH - 14
        self.edit.setFixedWidth(grown(wide, self.fontMetrics().height()))
        self.edit.committed.connect(self._commit_text)
        self.edit.stepped.connect(self._step)
        self.slider.chosen.connect(self._dragged)
        self.slider.settled.connect(self.sealed)

    def _dragged(self, value: float) -> None:
        self.set_error("")
        number = round(value, 4) if self.option.type == "float" else int(value)
        if number != self.effective():
            self.edited.emit(self.option.name, number, f"drag {self.option.name}")

    def _step(self, sign: int) -> None:
        current = self.effective()
        if not isinstance(current, bool) and isinstance(current, int | float):
            value, top = stepped(self.option, current, sign), self.slider.scale.high
            if current <= top < value:
                value = type(value)(top)  # the longest that the model knows is a step too
            self.edited.emit(self.option.name, value, f"step {self.option.name}")

    def _show(self) -> None:
        effective = self.effective()
        fallback = self.resolved.value if self.resolved else None
        hint = numbers.show(self.option, fallback) if fallback is not None else _short_default(self.option)
        self.edit.show_value(numbers.show(self.option, self.value), hint)
        if isinstance(effective, int | float) and not isinstance(effective, bool):
            self.slider.show_value(effective)

    def _show_range(self) -> None:
        """On the slider."""
        found = self.range
        if found is None or not found.open:
            self.slider.set_works(None)
            return
        assert found.low is not None
        assert found.high is not None
        self.slider.set_works(Works(found.low, found.high, *((found.sure_low, found.sure_high) if found.sure else ())))


def field_for(option: Option, parent: QWidget | None = None) -> OptionField:
    """The input that suits an option's type."""
    if option.type in ("bool", "choice"):
        return ChoiceField(option, parent)
    if option.type == "float" and option.low is not None and option.high is not None:
        low = max(option.low, _LEAST_SHARE * option.high) if option.above_low else option.low
        return SliderField(option, Scale(low, option.high, step=0.01), parent)
    return TextField(option, parent)
