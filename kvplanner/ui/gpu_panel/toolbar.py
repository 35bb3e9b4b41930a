"""The panel's head: watch or not, how often, record, replay, and when the last sample came."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QMenu, QSizePolicy, QToolButton, QWidget

from kvplanner.observe.snapshot import Snapshot
from kvplanner.units import counted


class Toolbar(QWidget):
    """Buttons only; the panel does the work. A button's text says what pressing it does."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.watch_button = self._button("Watch this machine's GPUs while this panel can be seen, or end that")
        self.fast_box = QCheckBox("&10 samples a second", self)
        self.fast_box.setToolTip("Sample memory ten times a second instead of once")
        self.record_button = self._button("Write every sample to a CSV file")
        self.replay_button = self._button("Show a recording again, in its own rhythm")
        self.replay_button.setText("Repla&y…")
        self.more = self._button("Reconnect to the driver, and say which GPU stands for which device of the plan")
        self.more.setText("More ▾")
        self.menu = QMenu(self.more)
        self.more.setMenu(self.menu)
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.state = QLabel(self)
        self.state.setProperty("role", "muted")
        self.state.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.state.setTextFormat(Qt.TextFormat.PlainText)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(8)
        line.addWidget(self.watch_button)
        line.addWidget(self.state, 1)
        for widget in (self.fast_box, self.record_button, self.replay_button, self.more):
            line.addWidget(widget)
        self.set_watching(False)
        self.set_recording(False)
        self.set_replaying(False)

    def _button(self, tip: str) -> QToolButton:
        button = QToolButton(self)
        button.setToolTip(tip)
        button.setAccessibleDescription(tip)
        button.setProperty("button", "true")
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def set_state(self, snapshot: Snapshot | None, watching: bool, age_s: float, recorded: int | None) -> None:
        """The line beside the buttons."""
        text = state_text(snapshot, watching, age_s, recorded)
        if text != self.state.text():
            self.state.setText(text)
            self.state.setToolTip(text)

    def set_watching(self, watching: bool) -> None:
        """Whether the GPUs are watched."""
        self.watch_button.setText("Stop &watching" if watching else "&Watch GPUs")
        self.fast_box.setEnabled(watching)
        self.record_button.setEnabled(watching)

    def set_anything(self, anything: bool, watching: bool) -> None:
        """Whether there is a GPU to watch: what acts on it is offered only then."""
        self.watch_button.setVisible(anything or not watching)
        self.fast_box.setVisible(anything)
        self.record_button.setVisible(anything)

    def set_recording(self, recording: bool) -> None:
        """Whether a recording is being written."""
        self.record_button.setText("End re&cording" if recording else "Re&cord…")

    def set_replaying(self, replaying: bool) -> None:
        """Whether a recording is being played."""
        self.replay_button.setVisible(not replaying)  # the strip of the recording ends it
        for widget in (self.watch_button, self.fast_box, self.record_button, self.more):
            widget.setEnabled(not replaying)  # what acts on the live machine waits


def state_text(snapshot: Snapshot | None, watching: bool, age_s: float, recorded: int | None) -> str:
    """What is watched and how old it is, in words."""
    if snapshot is None:
        return "looking for GPUs…" if watching else "not watching"
    whole = [g for g in snapshot.gpus if g.kind == "gpu"]
    slices = len(snapshot.gpus) - len(whole)
    parts = []
    if whole:
        parts.append(counted(len(whole), "GPU", "GPUs") + (f", {counted(slices, 'slice', 'slices')}" if slices else ""))
    if snapshot.driver:
        parts.append(f"driver {snapshot.driver}")
    if snapshot.cuda:
        parts.append(f"CUDA {snapshot.cuda}")
    if not watching:
        parts.append("not watching")
    elif is_old(snapshot, age_s):
        parts.append(f"last seen {age_s:.0f} s ago")
    if recorded is not None:
        parts.append(f"recording, {recorded:,} samples")
    return " · ".join(parts)


def is_old(snapshot: Snapshot, age_s: float) -> bool:
    """Whether a snapshot is older than three intervals and so no longer "now"."""
    return age_s > max(3.0, 3 * snapshot.interval)
