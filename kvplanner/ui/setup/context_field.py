"""The context length: a logarithmic slider with the trained length and the largest that fits marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QObject, QPoint, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QToolButton, QWidget

from kvplanner.ui.setup.option_field import SliderField
from kvplanner.ui.setup.slider import MarkedSlider, Scale
from kvplanner.ui.theme.figures import shown
from kvplanner.ui.widgets.labels import quiet_button
from kvplanner.units import format_count

if TYPE_CHECKING:
    from kvplanner.engine.option import Option

SHORTEST: Final = 256
LONGEST_UNKNOWN: Final = 131_072
GAP: Final = 2


class Marks(QWidget):
    """A line of buttons below a slider, each under the tick that it names, moved only as far as they would overlap."""

    def __init__(self, slider: MarkedSlider, parent: QWidget) -> None:
        super().__init__(parent)
        self._row = parent
        self._slider = slider
        self._placed: tuple[tuple[QToolButton, float], ...] = ()
        slider.installEventFilter(self)
        policy = self.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # the rows below stand still while another model's marks are looked for
        self.setSizePolicy(policy)

    def place(self, *marks: tuple[QToolButton, float]) -> None:
        """Show these buttons, from the left, at their values; the buttons are this widget's children."""
        self._placed = marks
        buttons = self.findChildren(QToolButton)
        for button in buttons:
            button.setVisible(any(button is shown for shown, _ in marks))
        self.setVisible(bool(marks))
        self.setFixedHeight(max(button.sizeHint().height() for button in buttons))
        self._arrange()

    def _arrange(self) -> None:
        buttons = [button for button, _ in self._placed]
        for button in buttons:
            button.setText(button.property("long"))
        if sum(button.sizeHint().width() + GAP for button in buttons) - GAP > self.width():
            for button in buttons:
                button.setText(button.property("short"))
        lefts: list[int] = []
        right = self.width()
        for button, value in reversed(self._placed):
            width = button.sizeHint().width()
            tick = self._slider.mapTo(self._row, QPoint(round(self._slider.x_of(value)), 0)).x() - self.x()
            lefts.append(min(tick - width // 2, right - width))
            right = lefts[-1] - GAP
        free = 0
        for (button, _), wanted in zip(self._placed, reversed(lefts), strict=True):
            size = button.sizeHint()
            left = max(wanted, free)
            button.setGeometry(left, 0, size.width(), size.height())
            free = left + size.width() + GAP

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The ticks moved."""
        super().resizeEvent(event)
        self._arrange()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the slider."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move, QEvent.Type.Show):
            self._arrange()
        return super().eventFilter(watched, event)


def _say(button: QToolButton, text: str, short: str) -> None:
    """The text of a mark, and that for where the marks have no room beside each other."""
    button.setProperty("long", shown(text))
    button.setProperty("short", shown(short))
    button.setText(shown(text))


class ContextField(SliderField):
    """As SliderField; the marks are also buttons that set their value.

    longest_asked(): the longest that fits was chosen, and it is asked what keeps it from being longer.
    """

    longest_asked = Signal()

    def __init__(self, option: Option, parent: QWidget | None = None) -> None:
        self._trained: int | None = None
        self._largest: int | None = None
        super().__init__(option, Scale(SHORTEST, LONGEST_UNKNOWN, logarithmic=True), parent)
        self.label.setText("Context")
        self._marks = Marks(self.slider, self)
        self.largest_button = quiet_button("largest", "Use the largest context length that fits", self._marks)
        self.trained_button = quiet_button("trained", "Use the trained context length", self._marks)
        self.outer.insertWidget(1, self._marks)
        self.trained_button.clicked.connect(self._use_trained)
        self.largest_button.clicked.connect(self._use_largest)
        self.set_marks(None, None)

    def set_marks(
        self, trained: int | None, largest: int | None, *, sure: bool = True, maybe: int | None = None
    ) -> None:
        """The model's own limit and the longest request that the KV cache can hold (None: not known).

        sure: that length works at the unfavourable end of every range; without that no length is said to fit.
        maybe: the longest by the values, a tick of its own where it is longer.
        """
        self._trained, self._largest = trained, largest
        top = max(trained or LONGEST_UNKNOWN, SHORTEST * 2)
        self.slider.set_scale(Scale(SHORTEST, top, logarithmic=True))
        longer = maybe if maybe and largest and maybe > largest else None
        self.slider.set_marks(*(float(m) for m in (trained, largest, longer) if m and m <= top))
        tip = "Use the largest context length that fits"
        self.largest_button.setToolTip(shown(f"{tip}; {format_count(longer)} may fit" if longer else tip))
        placed: list[tuple[QToolButton, float]] = []
        if largest and (trained is None or largest < trained):
            word = "fits" if sure else "may fit"
            _say(self.largest_button, f"largest that {word} {format_count(largest)}", f"{format_count(largest)} {word}")
            placed.append((self.largest_button, min(largest, top)))
        if trained is not None:
            fits = sure and largest is not None and largest >= trained
            text = f"trained {format_count(trained)}"
            _say(self.trained_button, f"{text}: fits" if fits else text, text)
            placed.append((self.trained_button, trained))
        self._marks.place(*placed)
        self._show()

    def marks(self) -> tuple[QWidget, ...]:
        """The marks in the order in which they are read."""
        return *super().marks(), self.largest_button, self.trained_button

    def _use_trained(self) -> None:
        if self._trained is not None:
            self.edited.emit(self.option.name, self._trained, "")

    def _use_largest(self) -> None:
        if self._largest is not None:
            self.edited.emit(self.option.name, self._largest, "")
            self.longest_asked.emit()
