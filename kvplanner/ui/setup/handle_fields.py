"""Inputs for options that a plan says in numbers: a slider for a count of layers, grips between the shares of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from kvplanner.ui.setup import numbers
from kvplanner.ui.setup.option_field import SliderField, TextField
from kvplanner.ui.setup.slider import Scale
from kvplanner.ui.setup.split_bar import SplitBar

if TYPE_CHECKING:
    from kvplanner.engine.option import Option
    from kvplanner.engine.plan import Handle


_DIGITS = 10


class LayersField(SliderField):
    """A number of layers: the slider ends where the model does."""

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        super().__init__(option, Scale(0, 1), parent)
        self.slider.setEnabled(False)

    def set_handle(self, found: Handle | None) -> None:
        """Where the slider stands, and how far it goes."""
        super().set_handle(found)
        self.slider.setEnabled(found is not None)
        if found is not None:
            self.slider.set_scale(Scale(0, found.whole))
            self.slider.show_value(self._count())

    def _show(self) -> None:
        """The slider stands at what is set, the plan may come later; else at what the plan came to."""
        super()._show()
        if self.handle is not None:
            self.slider.show_value(self._count())

    def _count(self) -> int:
        """Layers, as set or as planned."""
        assert self.handle is not None
        text = "" if self.value is None else str(self.value)
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
        return self.handle.parts[0] if number is None else min(number, self.handle.whole)

    def _emit(self, count: int, verb: str) -> None:
        if self.handle is not None and count != self._count():
            value = str(count) if self.option.type == "text" else count
            self.edited.emit(self.option.name, value, f"{verb} {self.option.name}")

    def _dragged(self, value: float) -> None:
        self.set_error("")
        self._emit(round(value), "drag")

    def _step(self, sign: int) -> None:
        if self.handle is not None:
            self._emit(min(max(self._count() + sign, 0), self.handle.whole), "step")


class SharesField(TextField):
    """Shares of several GPUs: as text, and below it as a bar whose parts can be moved."""

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        super().__init__(option, parent)
        self.bar = SplitBar(self)
        self.outer.insertWidget(1, self.bar)
        self.bar.hide()
        self.bar.chosen.connect(self._dragged)
        self.bar.settled.connect(self.sealed)

    def set_handle(self, found: Handle | None) -> None:
        """What each GPU has; without several of them there is nothing to share."""
        super().set_handle(found)
        self._show()

    def _show(self) -> None:
        """Where nothing is set, what the plan came to; the bar stands at what is set, the plan may come later."""
        handle = self.handle
        hint = ",".join(map(str, handle.parts)) if handle is not None else ""
        self.edit.show_value(numbers.show(self.option, self.value), hint)
        several = handle is not None and len(handle.parts) > 1
        self.bar.setVisible(several)
        if handle is not None and several and not self.bar.dragged:
            self.bar.set_parts(self._moved_to(handle) or handle.parts)

    def _moved_to(self, handle: Handle) -> tuple[int, ...]:
        """The parts that a grip was moved to; () for shares that were written in other numbers."""
        texts = str(self.value).split(",") if self.value is not None else []
        if not all(text.isascii() and text.isdecimal() and len(text) < _DIGITS for text in texts):
            return ()
        parts = tuple(map(int, texts))
        return parts if (len(parts), sum(parts)) == (len(handle.parts), handle.whole) else ()

    def _dragged(self, parts: object) -> None:
        self.set_error("")
        assert isinstance(parts, tuple)
        self.edited.emit(self.option.name, ",".join(map(str, parts)), f"drag {self.option.name}")

    def marks(self) -> tuple[QWidget, ...]:
        """The grips, from the left."""
        return tuple(self.bar.grips)
