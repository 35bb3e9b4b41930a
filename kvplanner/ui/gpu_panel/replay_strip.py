"""The strip over a recording that is played: when it was recorded, pause, speed, and where in it one is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QLabel, QPushButton, QSlider, QWidget

from kvplanner.observe.snapshot import Snapshot
from kvplanner.ui.widgets.labels import Elided, spoken

SPEEDS: Final = (("½ ×", 0.5), ("1 ×", 1.0), ("4 ×", 4.0), ("16 ×", 16.0))
STEPS: Final = 1000


class ReplayStrip(QFrame):
    """paused(on); speed(times); sought(share of the recording); ended()."""

    paused = Signal(bool)
    speed = Signal(float)
    sought = Signal(float)
    ended = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("level", "info")
        self.setAccessibleName("Replay of a recording")
        word = QLabel("Replay", self)
        font = word.font()
        font.setBold(True)
        word.setFont(font)
        self.text = Elided("", self)
        self.pause = QPushButton("&Pause", self)
        self.pause.setCheckable(True)
        self.pause.toggled.connect(self._pause)
        self.times = QComboBox(self)
        spoken(self.times, "Speed of the replay")
        for name, factor in SPEEDS:
            self.times.addItem(name, factor)
        self.times.setCurrentIndex(1)
        self.times.currentIndexChanged.connect(lambda: self.speed.emit(float(self.times.currentData())))
        self.place = QSlider(Qt.Orientation.Horizontal, self)
        self.place.setRange(0, STEPS)
        self.place.setPageStep(STEPS // 20)
        self.place.setAccessibleName("Place in the recording")
        self.place.setMinimumWidth(120)
        self.place.sliderReleased.connect(self._seek)
        self.place.actionTriggered.connect(self._stepped)
        end = QPushButton("End repla&y", self)
        end.clicked.connect(self.ended)
        line = QHBoxLayout(self)
        line.setContentsMargins(12, 4, 8, 4)
        line.setSpacing(8)
        line.addWidget(word)
        line.addWidget(self.text, 1)
        line.addWidget(self.pause)
        line.addWidget(self.times)
        line.addWidget(self.place, 1)
        line.addWidget(end)
        self.hide()

    def begin(self, path: Path) -> None:
        """A recording starts."""
        self.text.setText(path.name)
        self.place.setValue(0)
        self.pause.setChecked(False)
        self.times.setCurrentIndex(1)
        self.show()

    def show_place(self, snapshot: Snapshot, share: float, name: str) -> None:
        """What is played now: when it was recorded, and how much of the recording lies behind."""
        when = time.strftime("%d %b %Y, %H:%M:%S", time.localtime(snapshot.wall))
        self.text.setText(f"{when} · {name}")
        if not self.place.isSliderDown():
            blocked = self.place.blockSignals(True)
            self.place.setValue(round(share * STEPS))
            self.place.blockSignals(blocked)

    def _pause(self, on: bool) -> None:
        self.pause.setText("Go &on" if on else "&Pause")
        self.paused.emit(on)

    def _stepped(self, action: int) -> None:
        """By keyboard, or by a click beside the handle; a drag seeks when it ends."""
        if action != QSlider.SliderAction.SliderMove.value:
            self.sought.emit(self.place.sliderPosition() / STEPS)

    def _seek(self) -> None:
        self.sought.emit(self.place.value() / STEPS)
