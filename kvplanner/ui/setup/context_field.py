"""The context length: a logarithmic slider with the trained length and the largest that fits marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtWidgets import QHBoxLayout, QWidget

from kvplanner.ui.setup import numbers
from kvplanner.ui.setup.field import quiet_button
from kvplanner.ui.setup.option_field import SliderField
from kvplanner.ui.setup.slider import Scale

if TYPE_CHECKING:
    from kvplanner.engine.base import Option

SHORTEST: Final = 256
LONGEST_UNKNOWN: Final = 131_072


class ContextField(SliderField):
    """As SliderField; the marks are also buttons that set their value."""

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        self._trained: int | None = None
        self._largest: int | None = None
        super().__init__(option, Scale(SHORTEST, LONGEST_UNKNOWN, logarithmic=True), parent)
        self._trained_button = quiet_button("", "Use the trained context length", self)
        self._largest_button = quiet_button("", "Use the largest context length that fits", self)
        below = QHBoxLayout()
        below.setContentsMargins(0, 0, 0, 0)
        below.setSpacing(2)
        below.addStretch(1)
        below.addWidget(self._trained_button)
        below.addWidget(self._largest_button)
        self.outer.insertLayout(1, below)
        self._trained_button.clicked.connect(self._use_trained)
        self._largest_button.clicked.connect(self._use_largest)
        self.set_marks(None, None)

    def set_marks(self, trained: int | None, largest: int | None) -> None:
        """The model's own limit and the longest request that the KV cache can hold (None: not known)."""
        self._trained, self._largest = trained, largest
        top = max(trained or LONGEST_UNKNOWN, SHORTEST * 2)
        self.slider.set_scale(Scale(SHORTEST, top, logarithmic=True))
        self.slider.set_marks(*(float(m) for m in (trained, largest) if m and m <= top))
        self._trained_button.setVisible(trained is not None)
        if trained is not None:
            self._trained_button.setText(f"trained {numbers.count(trained)}")
        cut = largest is not None and largest > 0 and (trained is None or largest < trained)
        self._largest_button.setVisible(cut or (largest is not None and trained is not None and largest >= trained))
        self._largest_button.setEnabled(cut)
        if largest is not None:
            self._largest_button.setText(f"largest that fits {numbers.count(largest)}" if cut else "fits")
        self._show()

    def _use_trained(self) -> None:
        if self._trained is not None:
            self.edited.emit(self.option.name, self._trained, "")

    def _use_largest(self) -> None:
        if self._largest is not None:
            self.edited.emit(self.option.name, self._largest, "")
