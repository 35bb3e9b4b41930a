"""Files of a window: plans opened and saved, models read, pictures and tables exported, things dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.errors import BadInput
from kvplanner.ui.setup.labels import breakable, in_sentence
from kvplanner.ui.window.commands.export import ExportMixin
from kvplanner.ui.window.commands.machine import MachineMixin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvplanner.app.drafts import DraftReader
    from kvplanner.app.opening import Opening
    from kvplanner.app.state import PlanState
    from kvplanner.engine.option import OptionValue
    from kvplanner.model.model import Model
    from kvplanner.ui.window.window import MainWindow

DROP_MARGIN: Final = 20
UNCHANGED: Final = "the plan is unchanged"
OPENS: Final = "Open a plan, a model's folder, its config.json, a safetensors or a GGUF file"
PLAN_FILTER: Final = "Plan (*.kvplan.json)"
OPEN_FILTER: Final = (
    "All that can be opened (*.kvplan.json config.json *.safetensors *.gguf);;"
    f"{PLAN_FILTER};;Model (config.json *.safetensors *.gguf *.json)"
)


class FilesMixin(MachineMixin, ExportMixin):
    """Open, save, export, drop."""

    _drop: Opening | None = None
    _reading: str = ""
    _quitting: bool = False
    _closing: bool = False
    _drafts: DraftReader | None = None

    def new_window(self) -> None:
        """Another window with the same plan to start from."""
        state = self.document.state
        window = self.application.new_window()
        window.document.reset(state)
        self._show_beside(window)

    def _show_beside(self, window: MainWindow) -> None:
        """Show another window, whole from the first moment on."""
        from kvplanner.ui.window.window import MainWindow

        assert isinstance(self, MainWindow)
        self.application.cascade(window, self)
        window.fill()
        window.document.flush()
        window.show()

    def quit(self) -> None:
        """Close all windows; one whose file lacks edits asks."""
        self.application.quit()

    # open ------------------------------------------------------------------------------------------------------

    def open_file(self) -> None:
        """Ask for a plan or a model file."""
        dialog = QtWidgets.QFileDialog(self, "Open", self._folder(), OPEN_FILTER)
        dialog.setFileMode(QtWidgets.QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self.open_path(Path(name)))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def open_folder(self) -> None:
        """Ask for a model folder."""
        dialog = QtWidgets.QFileDialog(self, "Open model folder", self._folder())
        dialog.setFileMode(QtWidgets.QFileDialog.FileMode.Directory)
        dialog.setOption(QtWidgets.QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(lambda name: self.open_path(Path(name)))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def add_model_folder(self) -> None:
        """Ask for a folder that the search for models on this machine looks through from now on."""
        dialog = QtWidgets.QFileDialog(self, "Search a folder for models", self._folder())
        dialog.setFileMode(QtWidgets.QFileDialog.FileMode.Directory)
        dialog.setOption(QtWidgets.QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(self.search_folder)
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def search_folder(self, folder: str) -> None:
        """Look for models in a folder too, now and at every later search."""
        self.settings.remember(s.MODEL_FOLDERS, folder)
        self.rescan_models()
        self.messages.info(
            f"{folder} is searched for models", action=("Leave it out", lambda: self.leave_folder(folder)), key="scan"
        )

    def leave_folder(self, folder: str) -> None:
        """No longer look for models there."""
        self.settings.forget(s.MODEL_FOLDERS, folder)
        self.rescan_models()

    def rescan_models(self) -> None:
        """Search this machine again."""
        folders = tuple(Path(folder) for folder in self.settings.get(s.MODEL_FOLDERS))
        self.application.library.scan_models(
            lambda error: self.messages.error(error, "Looking for models", key="scan"), folders
        )

    def _folder(self) -> str:
        if self.document.path is not None:
            return str(self.document.path.parent)
        return self.settings.get(s.EXPORT_FOLDER) or str(Path.home())

    def open_path(self, path: Path) -> None:
        """Open whatever a path is; what cannot be opened is told with the reason."""
        from kvplanner.app.opening import classify

        opening = classify(path)
        if opening.what == "plan":
            self.open_plan(path)
        elif opening.what == "model":
            self.load_model(str(path))
        else:
            self.messages.error(BadInput(f"{opening.sentence}; {UNCHANGED}", "", OPENS), key="open")

    def open_plan(self, path: Path) -> None:
        """Read a plan file; a plan with edits that are in no file keeps its window."""
        from kvplanner.app import planstore

        def done(state: PlanState) -> None:
            if self.document.modified:
                window = self.application.new_window()
                window.document.reset(state, path)
                self._show_beside(window)
            else:
                self.document.reset(state, path)
            self.settings.remember(s.RECENT_FILES, str(path))

        def failed(error: Exception) -> None:
            self.messages.error(error, f"{path.name} was not opened; {UNCHANGED}", key="open")

        self.application.jobs.submit(f"Opening {path.name}", lambda c: planstore.read(path), done, failed, key="open")

    def fill_recent(self) -> None:
        """The recent files; missing ones go."""
        menu = self.actions_of_window.menus["recent"]
        menu.clear()
        menu.setToolTipsVisible(True)
        for name in self.settings.get(s.RECENT_FILES):
            if not Path(name).exists():
                self.settings.forget(s.RECENT_FILES, name)
        kept = self.settings.get(s.RECENT_FILES)
        for name, label in zip(kept, told_apart(kept), strict=True):
            action = menu.addAction(label.replace("&", "&&"))
            action.setToolTip(name)
            action.triggered.connect(lambda checked=False, path=name: self.open_plan(Path(path)))
        if menu.isEmpty():
            menu.addAction("No recent plans").setEnabled(False)
            return
        menu.addSeparator()
        menu.addAction("&Clear").triggered.connect(lambda: self.settings.set(s.RECENT_FILES, []))

    def load_model(self, text: str, allow_network: bool = False) -> None:
        """Read a model in the background and choose it; on failure the plan stays as it is."""
        name = text.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or text
        self._reading = text
        self.panel.model.set_error("")
        self.messages.clear("open")
        self.panel.model.show_loading(name)

        def done(model: Model) -> None:
            self.document.set_model(text, model)
            self.settings.remember(s.RECENT_MODELS, text)

        def failed(error: Exception) -> None:
            self.messages.error(error, f"{name} was not read; {UNCHANGED}", key="open")

        job = self.application.library.load_model(
            text, done, failed, allow_network=allow_network, key=f"model {id(self)}"
        )
        if job is not None:
            job.finished.connect(lambda: self._reading_ended(text))

    def _reading_ended(self, text: str) -> None:
        """Show what is chosen, also when the reading failed or was cancelled."""
        if self._reading == text:
            self._reading = ""
            state = self.document.state
            self.panel.model.show_model(state.model, state.ask.weight_format, self.unit())

    def read_draft(self, name: str, options: Mapping[str, OptionValue]) -> None:
        """Read the draft model that the plan needs; only one that was typed here may be asked for online."""
        from kvplanner.app.drafts import DraftReader

        if self._drafts is None:
            self._drafts = DraftReader(self.document, self.application.jobs)
        self._drafts.read(name, options, allow_network=self.furnished and name in self.panel.typed_models)
        if self.furnished:
            self.panel.model.show_draft(f"Reading the draft model {name}…")

    # save ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Save to the plan's file, or ask for one."""
        if self.document.path is None:
            self.save_as()
        else:
            self.save_to(self.document.path)

    def save_as(self) -> None:
        """Ask for a file."""
        self._ask_file(then_close=False)

    def _ask_file(self, *, then_close: bool) -> None:
        name = f"{self.document.title}.kvplan.json"
        dialog = QtWidgets.QFileDialog(self, "Save plan", str(Path(self._folder()) / name), PLAN_FILTER)
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda chosen: self.save_to(_with_suffix(Path(chosen)), then_close=then_close))
        dialog.open()

    def save_to(self, path: Path, *, then_close: bool = False) -> None:
        """Write the plan in the background."""
        from kvplanner.app import planstore

        field, said = self.refused_input()
        if field and then_close:
            self.messages.warning(f"{field} is refused: mend it, or take it back, then save", said, key="save")
            return
        state = self.document.state
        if state.request() is None:
            self.messages.warning("Choose a model and GPUs first: there is no plan to save", key="save")
            return

        def done(result: object) -> None:
            if self.document.state is state:
                self.document.mark_saved(path)
            else:
                self.document.path = path
            self.settings.remember(s.RECENT_FILES, str(path))
            self.statusBar().showMessage(f"Saved {path.name}", 4000)
            self.messages.clear("save")
            if field and self.document.error is None:
                self.messages.warning(f"Saved without {in_sentence(field)}, which is refused: {said}", key="save")
            if then_close:
                self._close_answered()

        def failed(error: Exception) -> None:
            self.messages.error(error, "The plan was not saved", key="save")

        self.application.jobs.submit(f"Saving {path.name}", lambda c: planstore.save(path, state), done, failed)

    def ask_to_save(self, *, then_quit: bool = False) -> None:
        """The window is closing and its edits are in no file; then_quit: the other windows follow."""
        self._quitting = then_quit
        box = QtWidgets.QMessageBox(self)
        box.setIcon(QtWidgets.QMessageBox.Icon.Question)
        box.setText(f"Save the changes to {self.document.title}?")
        missing = "They are not in the file yet." if self.document.path else "This plan is in no file."
        box.setInformativeText(missing)
        buttons = QtWidgets.QMessageBox.StandardButton
        box.setStandardButtons(buttons.Save | buttons.Discard | buttons.Cancel)
        box.setDefaultButton(buttons.Save)
        box.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        box.finished.connect(self._answered)
        box.open()

    def _answered(self, answer: int) -> None:
        if answer == QtWidgets.QMessageBox.StandardButton.Save.value:
            if self.document.path is not None:
                self.save_to(self.document.path, then_close=True)
            else:
                self._ask_file(then_close=True)
        elif answer == QtWidgets.QMessageBox.StandardButton.Discard.value:
            self._close_answered()

    def _close_answered(self) -> None:
        """The question before closing is settled."""
        if self._quitting:
            self._closing = True
            self.application.quit()
        else:
            self.close_now()

    # drops -----------------------------------------------------------------------------------------------------

    def drag_entered(self, event: QtGui.QDragEnterEvent) -> None:
        """Look at what hangs on the mouse, and say what would happen."""
        from kvplanner.app.opening import classify

        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        if not paths:
            event.ignore()
            return
        self._drop = classify(paths[0])
        if len(paths) > 1 and self._drop.what != "refused":
            more = f" (the first of {len(paths)})"
            self._drop = self._drop._replace(sentence=self._drop.sentence + more)
        self._show_drop_sheet(self._drop)
        event.acceptProposedAction()

    def drag_moved(self, event: QtGui.QDragMoveEvent) -> None:
        """Refused things stay refused all over the window."""
        if self._drop is None or self._drop.what == "refused":
            event.ignore()
        else:
            event.acceptProposedAction()

    def drag_left(self) -> None:
        """Take the sentence away."""
        self._drop = None
        if self._drop_sheet is not None:
            self._drop_sheet.hide()

    def dropped(self, event: QtGui.QDropEvent) -> None:
        """Open the first path."""
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        self.drag_left()
        if paths:
            event.acceptProposedAction()
            self.open_path(paths[0])

    def _show_drop_sheet(self, opening: Opening) -> None:
        if self._drop_sheet is None:
            self._drop_sheet = QtWidgets.QLabel(self)
            self._drop_sheet.setProperty("card", "drop")
            self._drop_sheet.setFrameShape(QtWidgets.QLabel.Shape.StyledPanel)
            self._drop_sheet.setAlignment(QtCore.Qt.AlignmentFlag.AlignCenter)
            self._drop_sheet.setWordWrap(True)
            self._drop_sheet.setMargin(DROP_MARGIN)
            self._drop_sheet.setAttribute(QtCore.Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            font = self._drop_sheet.font()
            font.setPointSizeF(font.pointSizeF() * 1.3)
            self._drop_sheet.setFont(font)
        sheet = self._drop_sheet
        said = opening.sentence if opening.what != "refused" else f"Cannot open this: {opening.sentence}"
        sheet.setText(breakable(said))
        width = min(620, self.width() - 80)
        height = max(150, sheet.heightForWidth(width))
        sheet.setGeometry((self.width() - width) // 2, (self.height() - height) // 2, width, height)
        sheet.show()
        sheet.raise_()


def told_apart(paths: Sequence[str]) -> list[str]:
    """The files' names; of those that are called alike the folder too."""
    from kvplanner.app.crash import without_home

    names = [Path(path).name for path in paths]
    return [
        f"{name} — {without_home(str(Path(path).parent))}" if names.count(name) > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]


def _with_suffix(path: Path) -> Path:
    if path.name.lower().endswith(".kvplan.json"):
        return path
    return path.with_name(path.name.removesuffix(".json") + ".kvplan.json")
