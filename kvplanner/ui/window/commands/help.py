"""Help pages and dialogs: about, a model's inspection, data packs, crash reports, the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.files import data_folder

if TYPE_CHECKING:
    from pathlib import Path

    from kvplanner.app.document import Document
    from kvplanner.app.jobs import Jobs
    from kvplanner.app.messages import Messages
    from kvplanner.ui.dialogs.help import HelpViewer


class Help:
    """Of one window. viewer, dialog: what is open of it."""

    def __init__(self, host: QtWidgets.QWidget, document: Document, messages: Messages, jobs: Jobs) -> None:
        self._host = host
        self._jobs = jobs
        self._document = document
        self._messages = messages
        self.viewer: HelpViewer | None = None
        self.dialog: QtWidgets.QDialog | None = None
        self.crash_offered = False

    def open_data_folder(self) -> None:
        """Show where settings and crash reports lie."""
        folder = data_folder()
        folder.mkdir(parents=True, exist_ok=True)
        if not QtGui.QDesktopServices.openUrl(QtCore.QUrl.fromLocalFile(str(folder))):
            self._messages.info(f"The data folder is {folder}")

    def inspect_model(self) -> None:
        """What the chosen model is, whether it can be planned or not."""
        model = self._document.state.model
        if model is None:
            self._messages.info("Choose a model first", key="inspect")
            return
        from kvplanner.ui.dialogs.inspect import InspectDialog

        self._open_dialog(InspectDialog(model, self._host))

    def show_page(self, page: str) -> None:
        """Show a page by its key."""
        from kvplanner.ui.dialogs.help import HelpViewer
        from kvplanner.ui.window.actions import shortcut_table

        if self.viewer is None:
            self.viewer = HelpViewer(self._host, shortcut_table())
        self.viewer.show_page(page)

    def memory(self) -> None:
        """How an engine uses GPU memory."""
        self.show_page("memory")

    def bar(self) -> None:
        """How to read the bar."""
        self.show_page("bar")

    def shortcuts(self) -> None:
        """Every shortcut."""
        self.show_page("shortcuts")

    def news(self) -> None:
        """What changed, newest first."""
        self.show_page("news")

    def tour(self) -> None:
        """The few sentences of the first start, again."""
        from kvplanner.ui.window.commands.greeting import Tour

        Tour(self._host).show()

    def licences(self) -> None:
        """Whose work is inside."""
        self.show_page("licences")

    def data(self) -> None:
        """How old the data are, and packs of newer ones."""
        from kvplanner.ui.dialogs.data import DataDialog

        self._open_dialog(DataDialog(self._jobs, self._host))

    def add_pack(self, path: Path) -> None:
        """Check a pack and keep it; the dialog asks whether its key is to be trusted."""
        from kvplanner.ui.dialogs.data import DataDialog

        dialog = DataDialog(self._jobs, self._host)
        self._open_dialog(dialog)
        dialog.add(path)

    def about(self) -> None:
        """Versions."""
        from kvplanner.ui.dialogs.about import AboutDialog

        self._open_dialog(AboutDialog(self._host))

    def _open_dialog(self, dialog: QtWidgets.QDialog) -> None:
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.finished.connect(self._dialog_closed)
        self.dialog = dialog
        dialog.open()

    def _dialog_closed(self) -> None:
        self.dialog = None

    def show_crash_report(self, text: str) -> None:
        """Something of ours failed: show what, in full."""
        from kvplanner.ui.dialogs.crash import CrashDialog

        self._open_dialog(CrashDialog(text, self._host))

    def offer_crash_report(self, text: str) -> None:
        """The run before ended inside a driver or Qt: say so without standing in the way."""
        self._messages.clear("crashed")  # which says less
        self.crash_offered = True
        self._messages.info("kvplanner ended unexpectedly last time; its report stays on this computer",
                           action=("Show report", lambda: self.show_crash_report(text)), key="crash")  # fmt: skip
