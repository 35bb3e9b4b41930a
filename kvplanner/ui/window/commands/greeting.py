"""What a new user is told once: a tour of four sentences; and after an update, where it says what is new."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

import kvplanner
from kvplanner.app import settings as s
from kvplanner.ui.widgets.labels import WrappedLabel, quiet_button

if TYPE_CHECKING:
    from kvplanner.ui.window.window import MainWindow

SENTENCES: Final = (
    "Choose a model and GPUs on the left, any GPUs: the line above the bars says whether the server will start, and "
    "how many tokens and users it will hold.",
    "Click any part of a bar: Explain shows its formula, what went into it, and where each figure came from.",
    "Where it does not fit, Ways lists what would make it fit; one click applies it, and Ctrl+Z takes it back.",
    "Ctrl+Shift+P finds every command and option by its name, and nothing leaves this computer unless you ask the Hub.",
)
WIDTH: Final = 460
EDGE: Final = 18


class Tour(QFrame):
    """A card in the window's corner that covers little and stops nothing; closed, it does not come back by itself."""

    def __init__(self, host: QWidget) -> None:
        super().__init__(host)
        self._host = host
        self._at = 0
        self.setProperty("card", "popup")
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName("Short tour")
        self.text = WrappedLabel("", self, exact=True)
        self.count = QLabel(self)
        self.count.setProperty("role", "muted")
        self.back, self.next = QPushButton("Back", self), QPushButton("Next", self)
        self.away = quiet_button("✕", "Close the tour", self)
        self.back.clicked.connect(partial(self._step, -1))
        self.next.clicked.connect(partial(self._step, 1))
        self.away.clicked.connect(self.close)
        line = QHBoxLayout()
        line.addWidget(self.count)
        line.addStretch(1)
        for button in (self.back, self.next, self.away):
            line.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 12, 10)
        column.addWidget(self.text)
        column.addLayout(line)
        host.installEventFilter(self)
        self._tell()

    def _step(self, by: int, _checked: bool = False) -> None:
        if self._at + by >= len(SENTENCES):
            self.close()
            return
        self._at = max(self._at + by, 0)
        self._tell()

    def _tell(self) -> None:
        self.text.setText(SENTENCES[self._at])
        self.count.setText(f"{self._at + 1} of {len(SENTENCES)}")
        self.back.setEnabled(self._at > 0)
        self.next.setText("Next" if self._at + 1 < len(SENTENCES) else "Done")
        self.setAccessibleDescription(SENTENCES[self._at])
        self._place()

    def _place(self) -> None:
        """In the lower right corner, above the status bar."""
        wide = min(WIDTH, self._host.width() - 2 * EDGE)
        self.text.setFixedWidth(wide - 28)
        layout = self.layout()
        high = max(layout.heightForWidth(wide), layout.sizeHint().height()) if layout is not None else 0
        self.setGeometry(self._host.width() - wide - EDGE, self._host.height() - high - 2 * EDGE - 8, wide, high)
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the window's size, and stay over docks that open."""
        if event.type() == QEvent.Type.Resize:
            self._place()
        elif event.type() == QEvent.Type.LayoutRequest:
            self.raise_()
        return False


class Greeting(QObject):
    """Decides what a window that has just been filled says of its own accord, once for all windows and starts."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        settings = window.services.settings
        if not window.services.keep or not settings.saved:
            return
        before, now = settings.get(s.LAST_VERSION), kvplanner.__version__
        if not settings.get(s.TOURED):
            settings.set(s.TOURED, True)
            if not before:
                Tour(window).show()
        elif before and before != now:
            window.messages.info(f"kvplanner is now {now}", action=("What Is New", window.help.news), key="news")
        settings.set(s.LAST_VERSION, now)
