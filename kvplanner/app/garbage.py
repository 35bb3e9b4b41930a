"""Garbage that refers to itself, looked for on the main thread alone.

Python looks for it wherever something is made, on a pool's thread too, and takes apart there what it finds. A widget or
a timer that was part of it would end on a thread that is not its own, which Qt does not allow: PySide hands its own
classes over to the main thread, but none that derives from them, no QObject and no timer. So where threads work,
Python's own search is off, and the main thread's event loop looks before it sleeps.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from PySide6.QtCore import QAbstractEventDispatcher, QObject, QTimer

# As Python has them: what was made since the last look, and how many looks at the young precede one at the older.
_YOUNG: Final = 700
_LOOKS: Final = 10
# All of it is gone through in a pause, for nobody is to wait for that, or after so many looks without one; and so long
# after the last time that it takes a fiftieth of the processor at most, however much there is.
_PAUSE_MS: Final = 500
_WAKE_MS: Final = 1000
_MOST_LOOKS: Final = 2000
_SHARE: Final = 50


class Garbage(QObject):
    """Looks for garbage from `begin` to `end`, before the event loop of this thread sleeps."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.active = False
        self._looks = 0
        self._not_before_s = 0.0
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(_PAUSE_MS)
        self._pause.timeout.connect(self._look_everywhere)
        self._while_jobs = QTimer(self)
        self._while_jobs.setInterval(_WAKE_MS)
        self._while_jobs.timeout.connect(self._look)

    def jobs_run(self, run: bool) -> None:
        """Whether jobs run: what they make may be garbage while this thread sleeps, so it wakes for that."""
        if run and not self._while_jobs.isActive():
            self._while_jobs.start()
        elif not run:
            self._while_jobs.stop()

    def begin(self) -> None:
        """Here instead of wherever something is made."""
        dispatcher = QAbstractEventDispatcher.instance()
        if self.active or dispatcher is None:
            return
        self.active = True
        gc.disable()
        dispatcher.aboutToBlock.connect(self._look)

    def end(self) -> None:
        """Wherever something is made, as Python does it by itself."""
        if not self.active:
            return
        self.active = False
        self._pause.stop()
        self._while_jobs.stop()
        dispatcher = QAbstractEventDispatcher.instance()
        if dispatcher is not None:
            dispatcher.aboutToBlock.disconnect(self._look)
        gc.enable()

    def _look(self) -> None:
        if gc.get_count()[0] <= _YOUNG:
            return
        self._looks += 1
        gc.collect(0 if self._looks % _LOOKS else 1)
        if self._looks >= _MOST_LOOKS:
            self._look_everywhere()
        elif self._looks >= _LOOKS * _LOOKS:
            self._pause.start()

    def _look_everywhere(self) -> None:
        started = time.monotonic()
        if started < self._not_before_s:
            return
        gc.collect()
        ended = time.monotonic()
        self._looks, self._not_before_s = 0, ended + _SHARE * (ended - started)
