"""Commands of the Edit, View, Tools and Help menus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.app.storage import data_folder
from kvplanner.sized_text import sizes_in
from kvplanner.ui.setup.labels import in_sentence
from kvplanner.ui.window.base import WindowBase

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan
    from kvplanner.ui.dialogs.help import HelpViewer
    from kvplanner.ui.window.gpu_dock import GpuDock


class CommandsMixin(WindowBase):
    """Undo, copy, choose, show, look again, help."""

    _gpu_dock: GpuDock | None = None
    _help: HelpViewer | None = None
    _dialog: QtWidgets.QDialog | None = None

    # Edit ------------------------------------------------------------------------------------------------------

    def undo(self) -> None:
        """Take the last edit back; text that is being typed comes first."""
        self.document.undo()

    def redo(self) -> None:
        """Bring it back."""
        self.document.redo()

    def _copy(self, text: str, what: str) -> None:
        QtGui.QGuiApplication.clipboard().setText(text)
        self.statusBar().showMessage(f"Copied {what}", 4000)

    def _plan_to_copy(self) -> Plan | None:
        """The plan of what is set now; the last good one would not be what the user means."""
        lacking = self.plan_lacking_for("copy")
        if lacking:
            self.messages.warning(lacking, key="copy")
            return None
        return self.document.plan

    def copy_text(self) -> None:
        """The plan as text."""
        from kvplanner.report import text as report

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(report.text(plan, unit=self.unit()), "the plan as text")

    def copy_markdown(self) -> None:
        """The plan as Markdown."""
        from kvplanner.report import text as report

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(report.markdown(plan, unit=self.unit()), "the plan as Markdown")

    def copy_json(self) -> None:
        """The plan as JSON."""
        from kvplanner.report import schema

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(json.dumps(schema.to_json(plan), indent=2), "the plan as JSON")

    def copy_command(self) -> None:
        """The command that starts the engine as planned, with what the plan settled on; says so when that fails."""
        from kvplanner.engine.command import format_command
        from kvplanner.engine.registry import engine

        field, said = self.refused_input()
        plan, error = self.document.plan, self.document.error
        made = plan is not None and error is None and not self.document.waiting
        request = plan.request if plan is not None and made else self.document.state.request()
        if request is None:
            self.messages.warning("Choose a model and GPUs first", key="copy")
            return
        command = format_command(engine(request.engine), request)
        if request.weight_format is not None:
            command = f"# needs a checkpoint in {request.weight_format}\n{command}"
        self._copy(command, command if len(command) < 90 else "the engine's command line")
        self.messages.clear("copy")
        if plan is None or not made:
            self.messages.warning(
                f"Copied; but these settings have no plan: {error or 'none was made yet'}", key="copy"
            )
        elif field:
            self.messages.warning(f"Copied, without {in_sentence(field)}, which is refused: {said}", key="copy")
        elif plan.fits is None:
            reason = sizes_in(plan.warnings[0] if plan.warnings else plan.summary, self.unit())
            self.messages.warning(f"Copied; but whether this plan fits cannot be told: {reason}", key="copy")
        elif not plan.fits:
            self.messages.warning(
                f"Copied; but this plan does not fit: {_without_verdict(sizes_in(plan.summary, self.unit()))}",
                key="copy",
            )

    def choose_model(self) -> None:
        """Open the chooser of models."""
        self.pickers.open_models()

    def choose_gpus(self) -> None:
        """Open the chooser of GPUs."""
        self.pickers.open_gpus()

    def find_option(self) -> None:
        """Go to the search of options."""
        self.panel.show_search()

    def reset_options(self) -> None:
        """Give every option back to its default."""
        self.document.set_options({}, "Reset all options")

    # View ------------------------------------------------------------------------------------------------------

    def unit_gib(self) -> None:
        """Show GiB."""
        self.settings.set(s.UNIT, "GiB")

    def unit_gb(self) -> None:
        """Show GB."""
        self.settings.set(s.UNIT, "GB")

    def toggle_unit(self) -> None:
        """The other unit."""
        self.settings.set(s.UNIT, "GB" if self.unit() == "GiB" else "GiB")

    def theme_system(self) -> None:
        """Follow the system."""
        self.settings.set(s.THEME, "system")

    def theme_light(self) -> None:
        """Light."""
        self.settings.set(s.THEME, "light")

    def theme_dark(self) -> None:
        """Dark."""
        self.settings.set(s.THEME, "dark")

    def show_explain(self) -> None:
        """Show how the selected part came about."""
        self._show_tab("Explain")

    def show_startup(self) -> None:
        """Show memory over start-up."""
        self._show_tab("Start-up")

    def _show_tab(self, name: str) -> None:
        if self.centre.show_tab(name) and self.centre.tabs is not None:
            page = self.centre.tabs.currentWidget()
            page.setFocus(QtCore.Qt.FocusReason.ShortcutFocusReason)

    def full_screen(self, on: bool = False) -> None:
        """Fill the screen, or not."""
        if on:
            self.showFullScreen()
        else:
            self.showNormal()

    def next_panel(self) -> None:
        """Move the focus on: setup, bars, table, tabs, local GPU."""
        self._step_panel(1)

    def previous_panel(self) -> None:
        """Move the focus back."""
        self._step_panel(-1)

    def _step_panel(self, by: int) -> None:
        from kvplanner.ui.window.focus import Stop, step

        centre, dock = self.centre, self._gpu_dock
        if centre.tabs is None:
            return
        stops = [Stop(self.panel, self.panel.model.button), Stop(centre.bars, centre.bars.canvas),
                 Stop(centre.breakdown, centre.breakdown), Stop(centre.tabs, centre.tabs)]  # fmt: skip
        if dock is not None and dock.isVisible():
            stops.append(Stop(dock, dock.panel.toolbar.watch_button))
        step(stops, by)

    def reset_layout(self) -> None:
        """Sizes and docks as at the first start."""
        self.resize(1280, 800)
        if self.centre.splitter is not None:
            self.centre.splitter.setSizes([460, 460])
        if self._gpu_dock is not None:
            self._gpu_dock.forget_place()
        self.gpu_panel(False)

    def gpu_panel(self, on: bool) -> None:
        """Show or hide the dock of this machine's GPUs."""
        action = self.actions_of_window.by_name["gpu_panel"]
        if on and self._gpu_dock is None:
            self._gpu_dock = self._make_gpu_dock()
        if self._gpu_dock is not None:
            self._gpu_dock.setVisible(on)
        action.setChecked(on)
        self.settings.set(s.GPU_PANEL, on)

    def _make_gpu_dock(self) -> GpuDock:
        from kvplanner.ui.window.gpu_dock import GpuDock
        from kvplanner.ui.window.window import MainWindow

        assert isinstance(self, MainWindow)
        self.fill()
        dock = GpuDock(self)
        dock.visibilityChanged.connect(self._gpu_dock_seen)
        return dock

    def _gpu_dock_seen(self, visible: bool) -> None:
        if self._gpu_dock is not None and self._gpu_dock.isHidden():
            self.actions_of_window.by_name["gpu_panel"].setChecked(False)

    def restore_docks(self) -> bool:
        """Put the dock where the user left it; whether there was such a place."""
        kept = self.settings.get(s.DOCKS)
        return bool(kept) and self.restoreState(QtCore.QByteArray.fromBase64(kept.encode()))

    def keep_docks(self) -> None:
        """Remember where the user put the dock; one that follows its content needs no memory."""
        if self._gpu_dock is not None:
            state = bytes(self.saveState().toBase64().data()).decode()
            self.settings.set(s.DOCKS, state if self._gpu_dock.placed else "")

    def stop_gpu_panel(self) -> None:
        """End the sampling before the window goes."""
        if self._gpu_dock is not None:
            self._gpu_dock.stop()

    # Tools -----------------------------------------------------------------------------------------------------

    def rescan_gpus(self) -> None:
        """Ask NVML again."""
        self.application.library.probe_gpus()

    def open_data_folder(self) -> None:
        """Show where settings and crash reports lie."""
        folder = data_folder()
        folder.mkdir(parents=True, exist_ok=True)
        if not QtGui.QDesktopServices.openUrl(QtCore.QUrl.fromLocalFile(str(folder))):
            self.messages.info(f"The data folder is {folder}")

    def inspect_model(self) -> None:
        """What the chosen model is, whether it can be planned or not."""
        model = self.document.state.model
        if model is None:
            self.messages.info("Choose a model first", key="inspect")
            return
        from kvplanner.ui.dialogs.inspect import InspectDialog

        self._open_dialog(InspectDialog(model, self))

    # Help ------------------------------------------------------------------------------------------------------

    def _show_help(self, page: str) -> None:
        from kvplanner.ui.dialogs.help import HelpViewer

        if self._help is None:
            self._help = HelpViewer(self)
        self._help.show_page(page)

    def help_memory(self) -> None:
        """How an engine uses GPU memory."""
        self._show_help("memory")

    def help_bar(self) -> None:
        """How to read the bar."""
        self._show_help("bar")

    def help_shortcuts(self) -> None:
        """Every shortcut."""
        self._show_help("shortcuts")

    def licences(self) -> None:
        """Whose work is inside."""
        self._show_help("licences")

    def about(self) -> None:
        """Versions."""
        from kvplanner.ui.dialogs.about import AboutDialog

        self._open_dialog(AboutDialog(self))

    def _open_dialog(self, dialog: QtWidgets.QDialog) -> None:
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.finished.connect(self._dialog_closed)
        self._dialog = dialog
        dialog.open()

    def _dialog_closed(self) -> None:
        self._dialog = None

    def show_crash_report(self, text: str) -> None:
        """Something of ours failed: show what, in full."""
        from kvplanner.ui.dialogs.crash import CrashDialog

        self._open_dialog(CrashDialog(text, self))

    def offer_crash_report(self, text: str) -> None:
        """The run before ended inside a driver or Qt: say so without standing in the way."""
        self.messages.info("kvplanner ended unexpectedly last time; the report stays on this computer",
                           action=("Show report", lambda: self.show_crash_report(text)), key="crash")  # fmt: skip


def _without_verdict(summary: str) -> str:
    """What follows "Does not fit: " or "Probably does not fit: "."""
    head, _, rest = summary.partition(": ")
    return rest if rest and head.lower().endswith("does not fit") else summary
