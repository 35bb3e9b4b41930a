"""The crash report: shown in full, to copy or to save; nothing is ever sent."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFileDialog, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from kvplanner.app import storage
from kvplanner.ui.theme.ink import fixed


class CrashDialog(QDialog):
    """The session was saved before this shows."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Something went wrong — kvplanner")
        self.resize(680, 460)
        intro = QLabel(
            "Something inside kvplanner failed. Your plan was saved and you can go on. "
            "The report below stays on this computer; nothing is sent.",
            self,
        )
        intro.setWordWrap(True)
        self.report = QPlainTextEdit(text, self)
        self.report.setReadOnly(True)
        self.report.setAccessibleName("Crash report")
        self.report.setFont(fixed(self.font()))
        self.result_text = QLabel("", self)
        self.result_text.setProperty("role", "muted")
        buttons = QDialogButtonBox(self)
        copy = buttons.addButton("&Copy", QDialogButtonBox.ButtonRole.ActionRole)
        save = buttons.addButton("&Save…", QDialogButtonBox.ButtonRole.ActionRole)
        buttons.addButton(QDialogButtonBox.StandardButton.Close)
        layout = QVBoxLayout(self)
        for widget in (intro, self.report, self.result_text, buttons):
            layout.addWidget(widget)
        copy.clicked.connect(self._copy)
        save.clicked.connect(self._ask_where)
        buttons.rejected.connect(self.reject)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.report.toPlainText())
        self.result_text.setText("Copied")

    def _ask_where(self) -> None:
        dialog = QFileDialog(self, "Save the report", str(Path.home() / "kvplanner-crash.txt"), "Text (*.txt)")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.fileSelected.connect(self.save_to)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def save_to(self, name: str) -> None:
        """Write the report to a file."""
        try:
            storage.write(Path(name), self.report.toPlainText())
        except OSError as error:
            self.result_text.setText(f"Could not be saved: {error.strerror or error}")
        else:
            self.result_text.setText(f"Saved to {name}")
