"""Data packs: what is known here and how old it is; a pack of newer data is added or removed with a click."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHeaderView,
    QLabel,
    QMessageBox,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)  # fmt: skip

from kvplanner import packs
from kvplanner.app.jobs import Jobs, error_text
from kvplanner.errors import BadInput
from kvplanner.packs import Added, Unverified
from kvplanner.report import data

_SIZE: Final = (860, 340)
_COLUMNS: Final = ("Data", "Of", "Age", "Holds", "Signed by")
_NAME: Final = Qt.ItemDataRole.UserRole
_INTRO: Final = (
    "What plans are made from. A data pack brings newer models, GPUs and engine constants to a computer without a "
    "network: one file, signed by who publishes it. What is added or removed counts from the next start on."
)


class DataDialog(QDialog):
    """The list, with buttons that change it."""

    def __init__(self, jobs: Jobs, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Data and packs")
        self._jobs = jobs
        intro = QLabel(_INTRO, self)
        intro.setWordWrap(True)
        self.list = QTreeWidget(self)
        self.list.setAccessibleName("Data that are known here")
        self.list.setColumnCount(len(_COLUMNS))
        self.list.setHeaderLabels(list(_COLUMNS))
        self.list.setRootIsDecorated(False)
        self.list.setAlternatingRowColors(True)
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.list.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.rules = QLabel(self)
        self.rules.setWordWrap(True)
        self.rules.setProperty("role", "muted")
        self.result_text = QLabel("", self)
        self.result_text.setWordWrap(True)
        self.result_text.setTextFormat(Qt.TextFormat.PlainText)
        self.result_text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.result_text.setVisible(False)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        self.add_button = buttons.addButton("&Add a pack…", QDialogButtonBox.ButtonRole.ActionRole)
        self.remove_button = buttons.addButton("&Remove", QDialogButtonBox.ButtonRole.ActionRole)
        self.add_button.clicked.connect(self._ask_which)
        self.remove_button.clicked.connect(self._remove)
        buttons.rejected.connect(self.reject)
        self.list.itemSelectionChanged.connect(self._selected)
        layout = QVBoxLayout(self)
        layout.setSpacing(10)
        layout.addWidget(intro)
        layout.addWidget(self.list, 1)
        for widget in (self.rules, self.result_text, buttons):
            layout.addWidget(widget)
        self.resize(*_SIZE)
        self.show_data()

    def show_data(self) -> None:
        """The list anew."""
        self.list.clear()
        for row in data.rows(datetime.now(UTC).astimezone().date()):
            cells = [row.title[:1].upper() + row.title[1:], row.made.isoformat(), row.age, row.what, row.signed]
            item = QTreeWidgetItem(cells)
            item.setData(0, _NAME, row.name)
            item.setToolTip(4, row.signed)
            self.list.addTopLevelItem(item)
        known = "; ".join(f"{title} {versions}" for title, versions in data.engines() if versions)
        self.rules.setText("\n".join([f"Engine rules: {known}", *data.problems()]))
        self._selected()

    def add(self, path: Path, trust: str = "") -> None:
        """Check a pack and keep it; beside the window, since a pack may hold thousands of records."""
        self.add_button.setEnabled(False)
        self._say(f"Checking {path.name} …")
        self._jobs.submit(
            f"Checking {path.name}",
            lambda _: packs.add(path, trust),
            self._added,
            lambda error: self._failed(error, path),
            key="data-pack",
            writes=True,
        )

    def _added(self, added: Added) -> None:
        self.add_button.setEnabled(True)
        self.show_data()
        word = "Replaced" if added.replaced else "Added"
        self._say(f"{word} pack {added.pack.name}: {data.contents(added.pack)}. It counts from the next start on.")

    def _failed(self, error: Exception, path: Path) -> None:
        self.add_button.setEnabled(True)
        if isinstance(error, Unverified):
            self._say("")
            self._ask_trust(error, path)
        else:
            self._say(error_text(error))

    def _ask_trust(self, error: Unverified, path: Path) -> None:
        box = QMessageBox(self)
        box.setIcon(QMessageBox.Icon.Question)
        box.setWindowTitle("Trust this publisher?")
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(f"{path.name} is signed by a key that is not trusted here.")
        box.setInformativeText(
            f"Its owner goes by {error.pack.by}; the key's fingerprint is\n\n{error.key_fingerprint}\n\nTrust it only "
            "if its publisher names the same one. It may then sign further packs."
        )
        trust = box.addButton("&Trust and add", QMessageBox.ButtonRole.AcceptRole)
        box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
        trust.clicked.connect(lambda: self.add(path, error.key_fingerprint))
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()

    def _remove(self) -> None:
        name = self._chosen()
        if name:
            try:
                packs.remove(name)
            except BadInput as error:
                self._say(str(error))
            else:
                self.show_data()
                self._say(f"Removed pack {name}. What it brought is gone from the next start on.")

    def _ask_which(self) -> None:
        dialog = QFileDialog(self, "Add a data pack", str(Path.home()), "Data pack (*.kvpack)")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self.add(Path(name)))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def _chosen(self) -> str:
        items = self.list.selectedItems()
        return str(items[0].data(0, _NAME)) if items else ""

    def _selected(self) -> None:
        self.remove_button.setEnabled(bool(self._chosen()))

    def _say(self, text: str) -> None:
        self.result_text.setText(text)
        self.result_text.setVisible(bool(text))
