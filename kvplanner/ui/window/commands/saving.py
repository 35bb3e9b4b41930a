"""Saving: to the plan's file or another one, and the question before edits are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6 import QtCore, QtWidgets

from kvplanner.app import settings as s
from kvplanner.report.options import in_sentence
from kvplanner.ui.window.commands.opening import PLAN_FILTER, usual_folder

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.app.state import PlanState
    from kvplanner.ui.window.commands.form import Form
    from kvplanner.ui.window.services import Services


class Saving:
    """Writes one document. close(): closes its window without asking; answered before the application ends."""

    def __init__(
        self,
        host: QtWidgets.QWidget,
        document: Document,
        messages: Messages,
        services: Services,
        form: Form,
        close: Callable[[], object],
    ) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services
        self._form = form
        self._close = close
        self._quitting = False
        self._settled_for: PlanState | None = None  # what may go: it was asked for, and saved or given up

    def save(self) -> None:
        """Save to the plan's file, or ask for one."""
        if self._document.path is None:
            self.save_as()
        else:
            self.save_to(self._document.path)

    def save_as(self) -> None:
        """Ask for a file."""
        self._ask_file(then_close=False)

    def _ask_file(self, *, then_close: bool) -> None:
        name = f"{self._document.title}.kvplan.json"
        place = Path(usual_folder(self._document, self._services)) / name
        dialog = QtWidgets.QFileDialog(self._host, "Save plan", str(place), PLAN_FILTER)
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda chosen: self.save_to(_with_suffix(Path(chosen)), then_close=then_close))
        dialog.open()

    def save_to(self, path: Path, *, then_close: bool = False) -> None:
        """Write the plan in the background."""
        from kvplanner.app import planstore

        field, said = self._form.refused()
        if field and then_close:
            self._messages.warning(f"{field} is refused: mend it, or take it back, then save", said, key="save")
            return
        state = self._document.state
        if state.request() is None:
            self._messages.warning("Choose a model and GPUs first: there is no plan to save", key="save")
            return

        def done(result: object) -> None:
            if self._document.state is state:
                self._document.mark_saved(path)
            else:
                self._document.path = path
            self._services.settings.remember(s.RECENT_FILES, str(path))
            self._messages.brief(f"Saved {path.name}")
            self._messages.clear("save")
            if field and self._document.error is None:
                self._messages.warning(f"Saved without {in_sentence(field)}, which is refused: {said}", key="save")
            if then_close:
                self._close_answered(state)

        def failed(error: Exception) -> None:
            self._messages.error(error, "The plan was not saved", key="save")

        self._services.jobs.submit(
            f"Saving {path.name}", lambda c: planstore.save(path, state), done, failed, writes=True
        )

    def ask_to_save(self, *, then_quit: bool = False) -> None:
        """The window is closing and its edits are in no file; then_quit: the other windows follow."""
        self._quitting = then_quit
        box = QtWidgets.QMessageBox(self._host)
        box.setIcon(QtWidgets.QMessageBox.Icon.Question)
        box.setText(f"Save the changes to {self._document.title}?")
        missing = "They are not in the file yet." if self._document.path else "This plan is in no file."
        box.setInformativeText(missing)
        buttons = QtWidgets.QMessageBox.StandardButton
        box.setStandardButtons(buttons.Save | buttons.Discard | buttons.Cancel)
        box.setDefaultButton(buttons.Save)
        box.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        box.finished.connect(self._answered)
        box.open()

    def _answered(self, answer: int) -> None:
        if answer == QtWidgets.QMessageBox.StandardButton.Save.value:
            if self._document.path is not None:
                self.save_to(self._document.path, then_close=True)
            else:
                self._ask_file(then_close=True)
        elif answer == QtWidgets.QMessageBox.StandardButton.Discard.value:
            self._close_answered(self._document.state)

    def _close_answered(self, state: PlanState) -> None:
        """The question before closing is settled for what was planned then."""
        self._settled_for = state
        if self._quitting:
            self._services.windows.quit()
        else:
            self._close()

    @property
    def _settled(self) -> bool:
        """Whether its edits may go: those that it was asked for, and none after them."""
        return self._document.state is self._settled_for

    def holds_back(self) -> bool:
        """Whether the window stays for now: it asks where edits would be lost, and files are being written."""
        if self.loses_edits():
            self.ask_to_save()
            return True
        return self._services.windows.count == 1 and self._services.windows.finishes_first(self._close)

    def loses_edits(self) -> bool:
        """Whether closing this window alone loses edits: the session keeps only windows open at the end."""
        services = self._services
        if self._settled or not self._document.modified or services.windows.ended:
            return False
        return self._document.path is not None or not services.keep or services.windows.count > 1

    def asks_before_quit(self) -> bool:
        """Whether ending the whole application leaves edits in no file, or in no session either."""
        if self._settled or not self._document.modified:
            return False
        return self._document.path is not None or not self._services.keep


def _with_suffix(path: Path) -> Path:
    if path.name.lower().endswith(".kvplan.json"):
        return path
    return path.with_name(path.name.removesuffix(".json") + ".kvplan.json")
