"""The strip that explains what is strange: no driver, a lost GPU, a helper that ended; with the one thing to do."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Signal
from PySide6.QtGui import QAccessible, QAccessibleEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from kvplanner.observe.sampler import SamplerStatus
from kvplanner.observe.snapshot import Snapshot
from kvplanner.record import NamedTuple
from kvplanner.ui.theme.ink import sized
from kvplanner.ui.widgets.labels import WrappedLabel

Level = Literal["info", "warning", "error"]
_WORDS: dict[Level, str] = {"info": "Note", "warning": "Warning", "error": "Error"}


class Notice(NamedTuple):
    """What to say; button: what it offers ("" for none)."""

    text: str = ""
    level: Level = "info"
    button: str = ""


def notice_for(status: SamplerStatus, snapshot: Snapshot | None, problem: str = "") -> Notice:
    """The one thing worth saying now, the most pressing first."""
    if status.state == "waiting":
        return Notice(f"{status.message} Trying again in {status.retry_in:.0f} s.", "warning", "Try now")
    if status.state == "stalled":
        return Notice(f"{status.message} The window goes on without it.", "warning", "Try now")
    if problem:
        return Notice(problem, "error", "Dismiss")
    if snapshot is None or status.state == "off":
        return Notice()
    if snapshot.state != "ok":
        quiet = snapshot.state in ("no_driver", "no_devices", "asleep")
        button = "" if snapshot.state == "asleep" else "Look again"
        return Notice(f"{snapshot.message} {snapshot.remedy}".strip(), "info" if quiet else "warning", button)
    lost = [g for g in snapshot.gpus if g.status in ("lost", "stalled")]
    if lost:
        names = ", ".join(g.label for g in lost)
        verb = "have" if len(lost) > 1 else "has"
        return Notice(f"{names} {verb} stopped answering; the others go on.", "warning", "Reconnect")
    return Notice(" ".join(snapshot.notes))


class NoticeStrip(QFrame):
    """Shows a notice; hidden while there is none. pressed(text of the button)."""

    pressed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown = Notice()
        self.word = QLabel(self)
        self.word.setFont(sized(self.word.font(), 1.0, bold=True))
        self.text = WrappedLabel("", self)
        self.button = QPushButton(self)
        self.button.clicked.connect(lambda: self.pressed.emit(self._shown.button))
        line = QHBoxLayout(self)
        line.setContentsMargins(12, 6, 8, 6)
        line.addWidget(self.word)
        line.addWidget(self.text, 1)
        line.addWidget(self.button)
        self.hide()

    def set_notice(self, notice: Notice) -> None:
        """Shows it, or hides the strip when it says nothing."""
        if notice == self._shown:
            return
        if notice.level != self._shown.level or not self.property("level"):
            self.setProperty("level", notice.level)
            self.style().unpolish(self)
            self.style().polish(self)
        self._shown = notice
        self.word.setText(_WORDS[notice.level])
        self.text.setText(notice.text)
        self.button.setText(notice.button)
        self.button.setVisible(bool(notice.button))
        self.setAccessibleName(f"{_WORDS[notice.level]}: {notice.text}")
        self.setVisible(bool(notice.text))
        if notice.text and QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.Alert))

    def notice(self) -> Notice:
        """What is shown."""
        return self._shown
