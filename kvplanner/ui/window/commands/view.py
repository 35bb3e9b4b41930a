"""What shows and where: units, theme, tabs, panels, the dock of this machine's GPUs, the layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.ui.window.tabs import COMPARE, EXPLAIN, FITS, LAUNCH, LOG, STARTUP, WAYS

if TYPE_CHECKING:
    from kvplanner.ui.window.centre import Centre
    from kvplanner.ui.window.gpu_dock import GpuDock
    from kvplanner.ui.window.services import Services
    from kvplanner.ui.window.side import Side

DEFAULT_SIZE: Final = (1280, 800)


class View(QtCore.QObject):
    """Of one window. gpus_shown(on): the dock of GPUs shows, or not. dock: None until it is asked for.

    pin_wanted(): the plan is to be kept for comparison.
    """

    gpus_shown = QtCore.Signal(bool)
    pin_wanted = QtCore.Signal()

    def __init__(
        self,
        host: QtWidgets.QMainWindow,
        services: Services,
        side: Side,
        centre: Centre,
        make_dock: Callable[[], GpuDock],
    ) -> None:
        super().__init__(host)
        self._host = host
        self._settings = services.settings
        self._services = services
        self._side = side
        self._centre = centre
        self._make_dock = make_dock
        self.dock: GpuDock | None = None

    def unit_gib(self) -> None:
        """Show GiB."""
        self._settings.set(s.UNIT, "GiB")

    def unit_gb(self) -> None:
        """Show GB."""
        self._settings.set(s.UNIT, "GB")

    def toggle_unit(self) -> None:
        """The other unit."""
        self._settings.set(s.UNIT, "GB" if self._services.unit() == "GiB" else "GiB")

    def numbers_system(self) -> None:
        """Separators of the system's language."""
        self._settings.set(s.NUMBERS, "system")

    def numbers_comma_point(self) -> None:
        """1,234.5."""
        self._settings.set(s.NUMBERS, "comma_point")

    def numbers_point_comma(self) -> None:
        """1.234,5."""
        self._settings.set(s.NUMBERS, "point_comma")

    def numbers_space_comma(self) -> None:
        """1 234,5."""
        self._settings.set(s.NUMBERS, "space_comma")

    def numbers_apostrophe_point(self) -> None:
        """1’234.5."""
        self._settings.set(s.NUMBERS, "apostrophe_point")

    def theme_system(self) -> None:
        """Follow the system."""
        self._settings.set(s.THEME, "system")

    def theme_light(self) -> None:
        """Light."""
        self._settings.set(s.THEME, "light")

    def theme_dark(self) -> None:
        """Dark."""
        self._settings.set(s.THEME, "dark")

    def theme_contrast(self) -> None:
        """High contrast, as light or dark as the system."""
        self._settings.set(s.THEME, "contrast")

    def show_explain(self) -> None:
        """Show how the selected part came about."""
        self._show_tab(EXPLAIN)

    def show_startup(self) -> None:
        """Show memory over start-up."""
        self._show_tab(STARTUP)

    def show_log(self) -> None:
        """Show what a start-up log says."""
        self._show_tab(LOG)

    def show_ways(self) -> None:
        """Show what to change."""
        self._show_tab(WAYS)

    def show_fits(self) -> None:
        """Show what else would run here, and where this would."""
        self._show_tab(FITS)

    def show_compare(self) -> None:
        """Show plans side by side."""
        self._show_tab(COMPARE)

    def show_launch(self) -> None:
        """Show what starts the plan."""
        self._show_tab(LAUNCH)

    def pin_plan(self) -> None:
        """Keep the plan to compare what is edited with it."""
        self.pin_wanted.emit()

    def _show_tab(self, name: str) -> None:
        details = self._centre.details
        if details is not None and self._centre.show_tab(name):
            details.widget(name).setFocus(QtCore.Qt.FocusReason.ShortcutFocusReason)

    def full_screen(self, on: bool = False) -> None:
        """Fill the screen, or not."""
        window = self._host.window()  # that of the tabs, where plans are tabs
        if on:
            window.showFullScreen()
        else:
            window.showNormal()

    def plan_tabs(self, on: bool = False) -> None:
        """Plans as tabs of one window, or each in its own."""
        self._settings.set(s.PLAN_TABS, on)

    def reduce_motion(self, on: bool = False) -> None:
        """Nothing moves by itself."""
        self._settings.set(s.CALM, on)

    def setup_panel(self, on: bool = True) -> None:
        """Show the form, or fold it away."""
        self._side.show_form(on)

    def add_context_menus(self, actions: Mapping[str, QtGui.QAction]) -> None:
        """What can be done with a segment, a row and the verdict, where they are."""
        canvas, breakdown = self._centre.bars.canvas, self._centre.below.breakdown

        def open_menu(widget: QtWidgets.QWidget, point: QtCore.QPoint, *, explains: bool) -> None:
            menu = QtWidgets.QMenu(widget)
            menu.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
            if explains:
                menu.addAction(actions["show_explain"])
            if widget is breakdown.table.viewport():
                menu.addAction("Copy &Table", breakdown.copy_text)
            for name in ("copy_text", "copy_command", "export_png", "", "choose_gpus", "reset_options"):
                menu.addAction(actions[name]) if name else menu.addSeparator()
            menu.popup(widget.mapToGlobal(point))

        custom = QtCore.Qt.ContextMenuPolicy.CustomContextMenu
        for widget in (canvas, breakdown.table, self._centre.verdict):
            widget.setContextMenuPolicy(custom)
        canvas.customContextMenuRequested.connect(
            lambda point: open_menu(canvas, point, explains=canvas.select_at(point) or self._centre.kind is not None)
        )
        table = breakdown.table
        table.customContextMenuRequested.connect(lambda point: open_menu(table.viewport(), point, explains=True))
        verdict = self._centre.verdict
        verdict.customContextMenuRequested.connect(lambda point: open_menu(verdict, point, explains=False))

    def next_panel(self) -> None:
        """Move the focus on: setup, bars, table, tabs, local GPU."""
        self._step_panel(1)

    def previous_panel(self) -> None:
        """Move the focus back."""
        self._step_panel(-1)

    def _step_panel(self, by: int) -> None:
        from kvplanner.ui.window.focus import Stop, step

        centre, details, dock = self._centre, self._centre.details, self.dock
        if details is None:
            return
        side = self._side
        stops = [Stop(side, side.panel.model.button if side.open else side.rail), Stop(centre.bars, centre.bars.canvas),
                 Stop(details.breakdown, details.breakdown), Stop(details.tabs, details.tabs)]  # fmt: skip
        if details.charted:
            stops.append(Stop(details.chart_card, details.widget(STARTUP)))
        if dock is not None and dock.isVisible():
            stops.append(Stop(dock, dock.panel.toolbar.watch_button))
        step(stops, by)

    def reset_layout(self) -> None:
        """Sizes and docks as at the first start."""
        self._host.window().resize(*DEFAULT_SIZE)
        if self._centre.details is not None:
            self._centre.details.splitter.setSizes([460, 460])
        if self.dock is not None:
            self.dock.forget_place()
        self.gpu_panel(False)

    def gpu_panel(self, on: bool) -> None:
        """Show or hide the dock of this machine's GPUs."""
        if on and self.dock is None:
            self.dock = self._make_dock()
            self.dock.visibilityChanged.connect(self._dock_seen)
        if self.dock is not None:
            self.dock.setVisible(on)
        self._settings.set(s.GPU_PANEL, on)
        self.gpus_shown.emit(on)

    def _dock_seen(self, visible: bool) -> None:
        """Closed by its own button."""
        if self.dock is not None and self.dock.isHidden():
            self.gpus_shown.emit(False)

    def keep_docks(self) -> None:
        """Remember where the user put the dock; one that follows its content needs no memory."""
        if self.dock is not None:
            state = bytes(self._host.saveState().toBase64().data()).decode()
            self._settings.set(s.DOCKS, state if self.dock.placed else "")

    def stop_gpu_panel(self) -> None:
        """End the sampling before the window goes."""
        if self.dock is not None:
            self.dock.stop()
