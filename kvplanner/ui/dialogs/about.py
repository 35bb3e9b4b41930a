"""About: what this is, which versions run, whose work is inside."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QVBoxLayout, QWidget

import kvplanner
from kvplanner.app.crash import versions
from kvplanner.engine.registry import engine, names
from kvplanner.ui.theme.geometry import grown

_WIDTH: Final = 460
_MARGIN: Final = 14
PARTS = (
    ("pyqtgraph", "pyqtgraph"), ("numpy", "numpy"), ("nvidia-ml-py", "NVML binding"),
    ("huggingface_hub", "huggingface_hub"), ("psutil", "psutil"), ("prometheus-client", "prometheus-client"),
    ("PyYAML", "PyYAML"), ("PyNaCl", "PyNaCl"),
)  # fmt: skip


def all_versions() -> tuple[tuple[str, str], ...]:
    """What runs, the libraries that are there, and the newest engine rules."""
    from importlib import metadata

    rows = list(versions())
    for package, title in PARTS:
        try:
            rows.append((title, metadata.version(package)))
        except metadata.PackageNotFoundError:
            rows.append((title, "not installed"))
    for name in names():
        known = engine(name)
        rows.append((f"{known.title} rules", f"{known.versions[-1]} to {known.versions[0]}" if known.versions else ""))
    return tuple(rows)


class AboutDialog(QDialog):
    """Versions with a button that copies them."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("About kvplanner")
        title = QLabel(f"kvplanner {kvplanner.__version__}", self)
        font = title.font()
        font.setPointSizeF(font.pointSizeF() * 1.5)
        font.setBold(True)
        title.setFont(font)
        text = QLabel(
            "Plans an engine's GPU memory before the server is started. It works on this computer and sends nothing "
            "anywhere; only a model asked for as hub:org/name is looked up online.\n\n"
            "Apache Licence 2.0. Qt is used under the LGPL 3; Help > Licences lists everything inside.",
            self,
        )
        text.setWordWrap(True)
        wide = grown(_WIDTH, self.fontMetrics().height(), 1.0)
        text.setFixedHeight(text.heightForWidth(wide - 2 * _MARGIN))
        grid = QGridLayout()
        grid.setHorizontalSpacing(18)
        rows = all_versions()
        for row, (name, version) in enumerate(rows):
            label = QLabel(name, self)
            label.setProperty("role", "muted")
            value = QLabel(version, self)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            label.setMinimumHeight(label.sizeHint().height())
            grid.addWidget(label, row, 0)
            grid.addWidget(value, row, 1)
        grid.setColumnStretch(1, 1)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        copy = buttons.addButton("&Copy versions", QDialogButtonBox.ButtonRole.ActionRole)
        copy.clicked.connect(
            lambda: QGuiApplication.clipboard().setText("\n".join(f"{name}: {version}" for name, version in rows))
        )
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setSpacing(12)
        layout.addWidget(title)
        layout.addWidget(text)
        layout.addLayout(grid)
        layout.addWidget(buttons)
        layout.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        self.setFixedWidth(wide)
