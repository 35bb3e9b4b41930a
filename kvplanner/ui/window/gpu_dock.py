"""The dock of this machine's GPUs: made when it is first asked for, joined to the plan, stopped before the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QDockWidget, QHBoxLayout, QLabel, QMainWindow, QWidget

from kvplanner.app import settings as s
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.ui.theme.ink import sized
from kvplanner.ui.widgets.labels import quiet_button

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.library import Library
    from kvplanner.observe.engines import EngineLaunch
    from kvplanner.ui.bars.widget import MemoryBars
    from kvplanner.ui.window.services import Services


FIT_AFTER_MS: Final = 30
SHARE: Final = 0.3  # of the window's height: the plan's table stays usable above it


def lost_in_words(labels: Sequence[str], since: str) -> tuple[str, str]:
    """For the status bar and for the verdict: that planned GPUs do not answer; "" where all do."""
    if not labels:
        return "", ""
    names, many = ", ".join(labels), len(labels) > 1
    notice = (
        f"{names} {'do' if many else 'does'} not answer since {since}: what is measured is from before then; the plan "
        f"still counts on {'them' if many else 'it'}"
    )
    return f"{names} lost, {since}", notice


class GpuDock(QDockWidget):
    """Holds the panel and passes what it finds to the window.

    lost_changed(labels, since): planned GPUs that no longer answer. engine_ended(EngineEnd, path or None): a server
    that was watched is gone. run_measured(EngineLaunch, Attached): what a server measures is to calibrate plans.
    placed: the user gave it a place or a size of its own, which no longer follows its content.
    """

    lost_changed = Signal(object, str)
    engine_ended = Signal(object, object)
    run_measured = Signal(object, object)

    def __init__(
        self,
        window: QMainWindow,
        document: Document,
        services: Services,
        bars: MemoryBars,
        plan_launch: Callable[[EngineLaunch], None],
    ) -> None:
        super().__init__("Local GPU", window)
        self.setObjectName("gpu_dock")
        self._window = window
        self._document = document
        self.panel = GpuPanel(self)
        self.setWidget(self.panel)
        self._make_title()
        self.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
        window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self)
        self.panel.set_unit(services.unit())
        self.panel.set_plan(document.plan)
        self._connect(services.library, bars, plan_launch)
        self.dockLocationChanged.connect(self._moved)
        self.topLevelChanged.connect(self._moved)
        self._fitting = QTimer(self)
        self._fitting.setSingleShot(True)
        self._fitting.setInterval(FIT_AFTER_MS)
        self._fitting.timeout.connect(self._fit)
        self.panel.height_wanted.connect(self._fitting.start)
        kept = services.settings.get(s.DOCKS)
        self.placed = bool(kept) and window.restoreState(QByteArray.fromBase64(kept.encode()))
        self._place = self._now()
        window.installEventFilter(self)
        self._fit()

    def _make_title(self) -> None:
        """The panel's buttons are the dock's title: a line of its own would only repeat what they are about."""
        bar = self.panel.toolbar
        title = QWidget(self)
        line = QHBoxLayout(title)
        line.setContentsMargins(12, 6, 8, 0)
        name = QLabel("Local GPU", title)
        name.setFont(sized(name.font(), 1.0, bold=True))
        line.addWidget(name)
        line.addWidget(bar, 1)
        apart = quiet_button("Undock", "A window of its own, or back below the plan", title)
        apart.clicked.connect(lambda: self.setFloating(not self.isFloating()))
        self.topLevelChanged.connect(lambda floating: apart.setText("Dock" if floating else "Undock"))
        shut = quiet_button("✕", "Close the Local GPU panel", title)
        shut.clicked.connect(self.close)
        line.addWidget(apart)
        line.addWidget(shut)
        self.setTitleBarWidget(title)

    def _connect(self, library: Library, bars: MemoryBars, plan_launch: Callable[[EngineLaunch], None]) -> None:
        panel = self.panel
        panel.machine_seen.connect(library.show_machine)
        panel.plan_from_process.connect(plan_launch)
        panel.overlay_changed.connect(bars.set_overlays)
        panel.fill_changed.connect(bars.set_fill)
        panel.free_measured.connect(self._take_free)
        panel.lost_changed.connect(self.lost_changed)
        panel.engine_ended.connect(self.engine_ended)
        panel.run_measured.connect(self.run_measured)
        self._document.planned.connect(panel.set_plan)

    def _now(self) -> tuple[object, ...]:
        return self._window.dockWidgetArea(self), self.isFloating(), self.width(), self.height()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The window draws the line between itself and the dock: a drag of it begins and ends with these events."""
        if event.type() == QEvent.Type.MouseButtonPress:
            self._place = self._now()
        elif event.type() == QEvent.Type.MouseButtonRelease and self.isVisible() and self._now() != self._place:
            self.placed = True
        elif event.type() == QEvent.Type.Resize:
            self._fitting.start()
        return super().eventFilter(watched, event)

    def _moved(self) -> None:
        """Dragged to another side, or out of the window."""
        if self._window.dockWidgetArea(self) != Qt.DockWidgetArea.BottomDockWidgetArea or self.isFloating():
            self.placed = True

    def forget_place(self) -> None:
        """Back below the plan, as high as its content."""
        self.setFloating(False)
        self._window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self)
        self.placed = False
        self._fit()

    def _fit(self) -> None:
        """As high as the panel has to say, up to its share of the window."""
        if self.placed:
            return
        share = max(int(self._window.height() * SHARE), self.minimumSizeHint().height())
        self._window.resizeDocks([self], [min(self.panel.sizeHint().height(), share)], Qt.Orientation.Vertical)

    def _take_free(self, free: dict[int, int]) -> None:
        """What is free now becomes what the plan starts from."""
        document = self._document
        known = {device.index for device in document.state.devices}
        given = {index: size for index, size in free.items() if index in known}
        document.edit("Take free memory from the GPUs", key="measured free memory", given_free=given)

    def stop(self) -> None:
        """End the sampling."""
        self._fitting.stop()
        self.panel.stop()
