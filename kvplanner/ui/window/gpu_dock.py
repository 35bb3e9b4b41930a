"""The dock of this machine's GPUs: made when it is first asked for, joined to the plan, stopped before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QDockWidget

from kvplanner.ui.gpu_panel.panel import GpuPanel

if TYPE_CHECKING:
    from kvplanner.model.model import Model
    from kvplanner.observe.engines import EngineLaunch
    from kvplanner.ui.window.window import MainWindow


FIT_AFTER_MS: Final = 30
SHARE: Final = 0.27  # of the window's height: the plan's table stays usable above it


class GpuDock(QDockWidget):
    """Holds the panel and passes what it finds to the window.

    placed: the user gave it a place or a size of its own, which no longer follows its content.
    """

    def __init__(self, window: MainWindow) -> None:
        super().__init__("Local GPU", window)
        self.setObjectName("gpu_dock")
        self._window = window
        self.panel = GpuPanel(self)
        self.setWidget(self.panel)
        self.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
        window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self)
        self.panel.set_unit(window.unit())
        self.panel.set_plan(window.document.plan)
        self._connect(self.panel, window)
        self.dockLocationChanged.connect(self._moved)
        self.topLevelChanged.connect(self._moved)
        self._fitting = QTimer(self)
        self._fitting.setSingleShot(True)
        self._fitting.setInterval(FIT_AFTER_MS)
        self._fitting.timeout.connect(self._fit)
        self.panel.height_wanted.connect(self._fitting.start)
        self.placed = window.restore_docks()
        self._place = self._now()
        window.installEventFilter(self)
        self._fit()

    def _connect(self, panel: GpuPanel, window: MainWindow) -> None:
        library = window.application.library
        panel.machine_seen.connect(library.show_machine)
        panel.plan_from_process.connect(self._take_launch)
        panel.overlay_changed.connect(window.centre.bars.set_overlays)
        panel.fill_changed.connect(window.centre.bars.set_fill)
        panel.free_measured.connect(self._take_free)
        window.document.planned.connect(panel.set_plan)

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
        document = self._window.document
        known = {device.index for device in document.state.devices}
        given = {index: size for index, size in free.items() if index in known}
        document.edit("Take free memory from the GPUs", key="measured free memory", given_free=given)

    def _take_launch(self, launch: EngineLaunch) -> None:
        """A running server becomes the plan: model, flags, version, and its GPUs as they were before it started."""
        window = self._window

        def done(model: Model) -> None:
            state = window.document.state
            machine = launch.machine
            fields: dict[str, Any] = {}
            if machine is not None:
                fields = {
                    "machine_text": "", "devices": machine.devices, "machine_source": machine.source,
                    "machine_chosen": True, "unticked": frozenset(), "given_free": {},
                }  # fmt: skip
            window.document.edit(
                f"Plan the running {launch.seen.title}",
                model_text=launch.model,
                model=model,
                engine=launch.seen.engine,
                version=launch.version or state.ask.version,
                options=dict(launch.options),
                weight_format=None,
                **fields,
            )
            for warning in launch.warnings:
                window.messages.warning(warning, key=warning)

        def failed(error: Exception) -> None:
            window.messages.error(error, f"The running {launch.seen.title} could not be planned", key="launch")

        window.application.library.load_model(launch.model, done, failed, key=f"model {id(window)}")

    def stop(self) -> None:
        """End the sampling."""
        self._fitting.stop()
        self.panel.stop()
