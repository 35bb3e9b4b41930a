"""The dock of this machine's GPUs: made when it is first asked for, stopped before the window ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDockWidget

if TYPE_CHECKING:
    from kvplanner.ui.main_base import WindowBase


def make_gpu_dock(window: WindowBase) -> QDockWidget:
    """The dock, below the plan."""
    from kvplanner.ui.gpu_panel.panel import GpuPanel

    panel = GpuPanel()
    dock = QDockWidget("Local GPU", window)
    dock.setObjectName("gpu_dock")
    dock.setWidget(panel)
    dock.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
    window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, dock)
    return dock


def stop_gpu_dock(dock: QDockWidget) -> None:
    """End the sampling."""
    panel = dock.widget()
    stop = getattr(panel, "stop", None)
    if stop is not None:
        stop()
