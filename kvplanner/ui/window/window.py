"""The main window: setup on the left, the plan in the centre, menus above, the state of things below.

The first window is made in steps, so that each can be seen early: its grounds; once those are painted the plan; the
menus, the form and the details after that. Further windows are made whole.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets
from PySide6.QtCore import Signal

from kvplanner.app import settings as s
from kvplanner.files import shipped
from kvplanner.ui.setup.width import GRIP_WIDTH, RAIL_WIDTH, folds, panel_width
from kvplanner.ui.window.arguments import SMALLEST
from kvplanner.ui.window.ground import Ground, menu_strip

if TYPE_CHECKING:
    from kvplanner.app.drafts import DraftReader
    from kvplanner.app.state import PlanState
    from kvplanner.engine.draft import DraftWish
    from kvplanner.engine.plan import Plan
    from kvplanner.errors import PlannerError
    from kvplanner.report.words import Unit
    from kvplanner.ui.window.commands.finder import Finder
    from kvplanner.ui.window.commands.form import Form
    from kvplanner.ui.window.commands.help import Help
    from kvplanner.ui.window.commands.mending import Mending
    from kvplanner.ui.window.commands.saving import Saving
    from kvplanner.ui.window.gpu_dock import GpuDock
    from kvplanner.ui.window.services import Services

DEFAULT_SIZE: Final = (1280, 800)
BRIEF_MS: Final = 4000
REST_AFTER_MS: Final = 400


class MainWindow(QtWidgets.QMainWindow):
    """One plan. closed(window); ready(): a plan can be shown; planned_once(): it is; filled(): all is there.

    Right after construction it is a titled ground of its size. assembled: it has a document and shows plans;
    furnished: it has its menus, form and status bar; filled: the form's rows and the details too.
    """

    closed = Signal(object)
    ready = Signal()
    filled = Signal()
    planned_once = Signal()

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        self.assembled = self.furnished = self._begun = self._planned = False
        self._drafts: DraftReader | None = None
        self._finder: Finder | None = None
        self.setMinimumSize(*SMALLEST)
        self.setWindowTitle("kvplanner")
        self.setMenuWidget(menu_strip(self))
        self._ground = Ground(self)
        self.setCentralWidget(self._ground)
        geometry = services.settings.get(s.GEOMETRY)
        if not geometry or not self.restoreGeometry(QtCore.QByteArray.fromBase64(geometry.encode())):
            self.resize(*DEFAULT_SIZE)
        usual = panel_width(services.settings.get(s.PANEL_WIDTH), self.fontMetrics().height())
        away = folds(self.width()) or services.settings.get(s.SETUP_FOLDED)
        self._ground.keep_for_form(RAIL_WIDTH if away else usual + GRIP_WIDTH)

    def assemble(self) -> None:
        """Make the document and the views that show its plan."""
        from kvplanner.app.document import Document
        from kvplanner.app.messages import Messages
        from kvplanner.ui.window.centre import Centre

        if self.assembled:
            return
        self.assembled = True
        self.document = document = Document(self)
        self.messages = Messages(self)
        self.centre = Centre(self.messages, self)
        self._ground.put_plan(self.centre)
        self.centre.set_unit(self.services.unit())
        document.changed.connect(self._state_changed)
        document.planned.connect(self._show_plan)
        document.failed.connect(self._plan_failed)
        document.draft_wanted.connect(self._read_draft)
        document.follow(self.services.runs)

    def furnish(self) -> None:
        """Make menus, form, pickers and status bar."""
        from kvplanner.ui.setup.panel import SetupPanel
        from kvplanner.ui.setup.pickers import Pickers
        from kvplanner.ui.window.side import Side
        from kvplanner.ui.window.status import Status

        if self.furnished:
            return
        self.assemble()
        self.furnished = True
        self.services.theme.complete()
        self.centre.build_buttons()
        services, document = self.services, self.document
        if QtWidgets.QApplication.windowIcon().isNull():
            icon = QtGui.QIcon(str(shipped("icons", "kvplanner.svg")))
            QtWidgets.QApplication.setWindowIcon(icon)
        self.panel = SetupPanel(document, self)
        self.side = Side(self.panel, services.settings, self)
        self.side.fit(self.width())
        self._ground.put_form(self.side)
        self.status = Status(self, services.jobs, services.library)
        self.pickers = Pickers(
            self, self.panel, document, services.library, services.settings, services.unit, services.jobs
        )
        self._make_commands()
        self.unit_button = self.actions_of_window.unit_button(self)
        self.menuBar().setCornerWidget(self.unit_button)
        self._connect()
        self.setAcceptDrops(True)
        self.apply_unit()
        self.apply_numbers(again=False)
        self._theme_changed()
        self._show_changes()
        self.panel.model.button.setFocus(QtCore.Qt.FocusReason.OtherFocusReason)
        if document.plan is not None:
            self.status.show_plan(document.plan)
        if document.error is not None:
            self._plan_failed(document.error)

    @cached_property
    def form(self) -> Form:
        """Whether the plan is of what the form shows."""
        from kvplanner.ui.window.commands.form import Form

        return Form(self.document, lambda: self.panel if self.furnished else None)

    @cached_property
    def mending(self) -> Mending:
        """Only what is refused needs it."""
        from kvplanner.ui.window.commands.mending import Mending

        return Mending(self.document, self.centre, self.services, self)

    @cached_property
    def saving(self) -> Saving:
        """A window may close before it has menus."""
        from kvplanner.ui.window.commands.saving import Saving

        return Saving(self, self.document, self.messages, self.services, self.form, self.close)

    @cached_property
    def help(self) -> Help:
        """A crash may be told before there are menus."""
        from kvplanner.ui.window.commands.help import Help

        return Help(self, self.document, self.messages, self.services.jobs)

    def _make_commands(self) -> None:
        """What the menus do, and the menus."""
        from kvplanner.ui.window.actions import Actions, Commands
        from kvplanner.ui.window.commands.copying import Copying
        from kvplanner.ui.window.commands.drops import Drops
        from kvplanner.ui.window.commands.export import Exports
        from kvplanner.ui.window.commands.machine import Machines
        from kvplanner.ui.window.commands.opening import Opening
        from kvplanner.ui.window.commands.search import Search
        from kvplanner.ui.window.commands.view import View

        services, document, messages = self.services, self.document, self.messages
        self.opening = Opening(self, document, messages, services, self.panel.model, self.help.add_pack)
        self.machines = Machines(document, services, self.panel.gpus)
        self.copying = Copying(document, messages, services, self.form)
        self.exports = Exports(self, document, messages, services, self.form)
        self.search = Search(self, document, messages, services)
        self.view = View(self, services, self.side, self.centre, self._make_gpu_dock)
        self.drops = Drops(self, self.opening.open_path, self.opening.open_text)
        self.actions_of_window = Actions(
            self,
            Commands(
                document=document,
                services=services,
                panel=self.panel,
                pickers=self.pickers,
                opening=self.opening,
                saving=self.saving,
                search=self.search,
                copying=self.copying,
                exports=self.exports,
                view=self.view,
                help=self.help,
                find=self._find,
                close=self.close,
            ),
        )

    def adopt_machine(self) -> None:
        """Plan for this machine's GPUs while none were chosen."""
        from kvplanner.app.start import adopt

        told = adopt(self.document, self.services.library.machine)
        if told:
            self.messages.info(told, key="start")

    def _find(self) -> None:
        """Open the list of all commands and options."""
        from kvplanner.ui.window.actions import COMMANDS
        from kvplanner.ui.window.commands.finder import Finder

        if self._finder is None:
            self._finder = Finder(self, self.document, self.side, COMMANDS, self.actions_of_window.by_name)
        self._finder.open(self.menuBar())

    def _make_gpu_dock(self) -> GpuDock:
        from kvplanner.ui.window.gpu_dock import GpuDock, lost_in_words

        def lost(labels: tuple[str, ...], since: str) -> None:
            short, notice = lost_in_words(labels, since)
            self.status.show_lost(short)
            self.centre.verdict.set_notice(notice)

        self.fill()
        dock = GpuDock(self, self.document, self.services, self.centre.bars, self.opening.plan_launch)
        dock.lost_changed.connect(lost)
        dock.engine_ended.connect(self.opening.logs.offer)
        dock.run_measured.connect(self.opening.logs.calibrating.of_server)
        return dock

    def _connect(self) -> None:
        document, pickers, machines, actions = self.document, self.pickers, self.machines, self.actions_of_window
        document.history_changed.connect(self._show_changes)
        self.messages.briefed.connect(lambda text: self.statusBar().showMessage(text, BRIEF_MS))
        self.panel.error_elsewhere.connect(lambda error: self.messages.error(error, key="plan"))
        self.mending.panel, self.mending.pickers = self.panel, pickers
        self.panel.refusals_changed.connect(self.mending.show)
        self.panel.gpus.counted.connect(machines.set_count)
        self.panel.gpus.removed.connect(machines.remove)
        pickers.model_wanted.connect(self.opening.load_model)
        pickers.command_wanted.connect(self.opening.plan_command)
        pickers.file_wanted.connect(lambda folder: self.opening.open_folder() if folder else self.opening.open_file())
        pickers.search_folder_wanted.connect(self.search.add_folder)
        pickers.machine_wanted.connect(machines.choose)
        pickers.local_wanted.connect(machines.choose_local)
        pickers.gpu_added.connect(machines.add)
        library = self.services.library
        library.machine_found.connect(self.adopt_machine)
        library.machine_found.connect(self.panel.gpus.show_found)
        if library.probed:
            self.panel.gpus.show_found(library.machine)
        pickers.scan_failed.connect(lambda error: self.messages.error(error, "Looking for models", key="scan"))
        self.centre.copy_button.clicked.connect(self.copying.copy_command)
        self.centre.export_button.setMenu(actions.menus["File/Export"])
        recent = actions.menus["recent"]
        recent.aboutToShow.connect(lambda: self.opening.fill_recent(recent))
        self.view.gpus_shown.connect(actions.by_name["gpu_panel"].setChecked)
        actions.by_name["setup_panel"].setChecked(self.side.open)
        self.side.shown.connect(actions.by_name["setup_panel"].setChecked)
        self.services.theme.changed.connect(self._theme_changed)

    def _read_draft(self, wish: DraftWish) -> None:
        """Read the draft model that the plan needs; only one that was typed here may be asked for online."""
        from kvplanner.app.drafts import DraftReader

        if self._drafts is None:
            self._drafts = DraftReader(self.document, self.services.jobs)
        self._drafts.read(wish, allow_network=self.furnished and wish.name in self.panel.edits.typed_models)
        if self.furnished:
            self.panel.model.show_draft(f"Reading the draft model {wish.name}…")

    # start -----------------------------------------------------------------------------------------------------

    def showEvent(self, event: QtGui.QShowEvent) -> None:
        """A window that is never painted (it starts minimised) begins all the same."""
        super().showEvent(event)
        QtCore.QTimer.singleShot(0 if self.assembled else REST_AFTER_MS, self, self._begin)

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        """The grounds show first; what stands on them follows in the next turn."""
        super().paintEvent(event)
        if not self._begun:
            QtCore.QTimer.singleShot(0, self, self._begin)

    def _begin(self) -> None:
        """The verdict and the bars; the form and the details follow once the first plan shows, or after a while."""
        if self._begun:
            return
        self._begun = True
        self.assemble()
        if self._planned:
            self.fill()
            return
        self.planned_once.connect(lambda: self.centre.bars.canvas.installEventFilter(self))
        self.ready.emit()
        self.centre.build()
        QtCore.QTimer.singleShot(REST_AFTER_MS, self, self.fill)

    def eventFilter(self, watched: QtCore.QObject, event: QtCore.QEvent) -> bool:
        """The first plan's bars show before anything else is made."""
        if event.type() == QtCore.QEvent.Type.Paint:
            watched.removeEventFilter(self)
            QtCore.QTimer.singleShot(0, self, self.fill)
        return super().eventFilter(watched, event)

    def fill(self) -> None:
        """Make everything that is not there yet."""
        self._begun = True
        self.furnish()
        if self.centre.built:
            return
        self.centre.build()
        self.panel.build()
        self.centre.build_details()
        self.opening.logs.attach(self.centre.below, self.centre.bars, self.centre.show_tab)
        self.view.add_context_menus(self.actions_of_window.by_name)
        self.centre.restore_layout(self.services.settings.get(s.SPLITTER))
        advanced = self.panel.advanced
        if advanced is not None:
            if self.services.settings.get(s.ADVANCED_OPEN):
                advanced.toggle.setChecked(True)
            advanced.opened.connect(lambda on: self.services.settings.set(s.ADVANCED_OPEN, on))
        if self.services.settings.get(s.GPU_PANEL):
            self.view.gpu_panel(True)
        self.filled.emit()

    # from the document -----------------------------------------------------------------------------------------

    def _state_changed(self, state: PlanState) -> None:
        self.services.session.touch()
        for key in ("copy", "export", "save", "limit"):  # what was said of other settings
            self.messages.clear(key)

    def _show_plan(self, plan: Plan) -> None:
        self.messages.clear("plan")
        self.centre.set_plan(plan)
        if self.furnished:
            self.status.show_plan(plan)
        if not self._planned:
            self._planned = True
            self.planned_once.emit()

    def _plan_failed(self, error: PlannerError) -> None:
        self.mending.failed(error)
        if self.furnished:
            self.status.show_failed(self.centre.plan is not None)

    def _show_changes(self) -> None:
        document, actions = self.document, self.actions_of_window.by_name
        undo, redo = document.undo_label, document.redo_label
        actions["undo"].setEnabled(bool(undo))
        actions["undo"].setText(f"&Undo {undo}" if undo else "&Undo")
        actions["redo"].setEnabled(bool(redo))
        actions["redo"].setText(f"&Redo {redo}" if redo else "&Redo")
        self.status.show_undo(document.undo_count)
        self.setWindowTitle(f"{document.title}[*] — kvplanner")
        self.setWindowModified(document.modified and document.path is not None)

    # unit and theme --------------------------------------------------------------------------------------------

    def apply_unit(self) -> None:
        """Show the chosen unit everywhere at once."""
        unit = self.services.unit()
        self.unit_button.setText(f"{unit} ▾")
        self.actions_of_window.by_name["unit_gib" if unit == "GiB" else "unit_gb"].setChecked(True)
        self._show_unit(unit)

    def _show_unit(self, unit: Unit) -> None:
        self.panel.set_unit(unit)
        self.centre.set_unit(unit)
        if self.view.dock is not None:
            self.view.dock.panel.set_unit(unit)

    def apply_numbers(self, *, again: bool) -> None:
        """Mark how figures are written, and where that is new (again) write all of them anew."""
        self.actions_of_window.by_name[f"numbers_{self.services.settings.get(s.NUMBERS)}"].setChecked(True)
        if again:
            own = self.services.unit()
            self._show_unit("GB" if own == "GiB" else "GiB")  # each view writes all that it shows for a new unit
            self._show_unit(own)
            self.panel.write_anew()
            self._show_changes()

    def _theme_changed(self) -> None:
        self.actions_of_window.by_name[f"theme_{self.services.theme.choice}"].setChecked(True)

    def changeEvent(self, event: QtCore.QEvent) -> None:
        """The system's language may have changed, and how it writes figures."""
        super().changeEvent(event)
        if event.type() == QtCore.QEvent.Type.LocaleChange and self.furnished:
            self.services.windows.choose_numbers()

    # keys, drops, end ------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QtGui.QResizeEvent) -> None:
        """The form folds in a narrow window."""
        super().resizeEvent(event)
        if self.furnished:
            self.side.fit(event.size().width())

    def keyPressEvent(self, event: QtGui.QKeyEvent) -> None:
        """Escape closes what is open. Before there is a form that could take them, keys wait for it."""
        if not self.furnished:
            from kvplanner.ui.window.early_keys import keep

            keep(event, self)
            return
        escape = event.key() == QtCore.Qt.Key.Key_Escape
        closed = escape and ((self._finder is not None and self._finder.close()) or self.pickers.close_choosers())
        if not closed:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QtGui.QDragEnterEvent) -> None:
        """Say what dropping would do."""
        self.drops.entered(event)

    def dragMoveEvent(self, event: QtGui.QDragMoveEvent) -> None:
        """The answer holds for the whole window."""
        self.drops.moved(event)

    def dragLeaveEvent(self, event: QtGui.QDragLeaveEvent) -> None:
        """Nothing will be dropped."""
        self.drops.left()

    def dropEvent(self, event: QtGui.QDropEvent) -> None:
        """Do what was said."""
        self.drops.dropped(event)

    def closeEvent(self, event: QtGui.QCloseEvent) -> None:
        """Ask where edits would be lost (no file or session has them), and wait for files that are being written."""
        if self.assembled and self.saving.holds_back():
            event.ignore()
            return
        self.keep_layout()
        event.accept()
        self.closed.emit(self)

    def keep_layout(self) -> None:
        """Remember where things are."""
        if self.services.keep and self.assembled:
            self.services.settings.set(s.GEOMETRY, bytes(self.window().saveGeometry().toBase64().data()).decode())
            self.services.settings.set(s.SPLITTER, self.centre.save_layout())
            if self.furnished:
                self.view.keep_docks()

    def stop(self) -> None:
        """The first step of the end: no timer of this window runs any more."""
        if self.furnished:
            self.view.stop_gpu_panel()
        for timer in self.findChildren(QtCore.QTimer):
            timer.stop()
