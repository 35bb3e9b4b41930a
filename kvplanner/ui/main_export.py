"""Exports: the plan as a picture, a page, a table, JSON or Markdown, to a file that the user names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.app.storage import write_atomic
from kvplanner.errors import PlannerError
from kvplanner.ui.main_base import WindowBase

if TYPE_CHECKING:
    from kvplanner.engine.base import Plan
    from kvplanner.ui.bars.words import Unit

FILTERS: Final = {
    "png": "PNG picture (*.png)", "svg": "SVG picture (*.svg)", "pdf": "PDF document (*.pdf)",
    "csv": "CSV table (*.csv)", "json": "JSON (*.json)", "md": "Markdown (*.md)",
}  # fmt: skip


class ExportMixin(WindowBase):
    """Each export asks for a file, writes it whole or not at all, and offers its folder."""

    def export_png(self) -> None:
        """A picture for a slide."""
        self._ask_export("png")

    def export_svg(self) -> None:
        """A picture that scales."""
        self._ask_export("svg")

    def export_pdf(self) -> None:
        """A page."""
        self._ask_export("pdf")

    def export_csv(self) -> None:
        """A table for a spreadsheet."""
        self._ask_export("csv")

    def export_json(self) -> None:
        """The plan for a program."""
        self._ask_export("json")

    def export_markdown(self) -> None:
        """The plan for an issue or a wiki."""
        self._ask_export("md")

    def _ask_export(self, kind: str) -> None:
        self.document.flush()
        if self.document.plan is None or self.document.error is not None:
            self.messages.warning("There is no plan of these settings to export: mend the marked field first",
                                  key="export")  # fmt: skip
            return
        folder = self.settings.get(s.EXPORT_FOLDER) or str(Path.home())
        name = f"{self.document.title}.{kind}"
        dialog = QtWidgets.QFileDialog(self, f"Export {kind.upper()}", str(Path(folder) / name), FILTERS[kind])
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(kind)
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda chosen: self.export_to(Path(chosen)))
        dialog.open()

    def export_to(self, path: Path) -> None:
        """Write the plan to a file of the kind that its name ends in."""
        plan = self.document.plan
        kind = path.suffix.lower().removeprefix(".")
        if plan is None or kind not in FILTERS:
            self.messages.warning(f"{path.name}: a name ends in one of {', '.join('.' + k for k in FILTERS)}")
            return
        try:
            self._writer(kind)(plan, path)
        except (PlannerError, OSError) as error:
            self.messages.error(error, f"{path.name} was not written", key="export")
            return
        self.settings.set(s.EXPORT_FOLDER, str(path.parent))
        self.messages.success(f"Exported {path.name}", action=("Open folder", lambda: _show_folder(path)), key="export")

    def _writer(self, kind: str) -> Callable[[Plan, Path], None]:
        from kvplanner.ui import export

        unit = self.unit()
        # Pictures are for light paper and slides whatever the window's theme is.
        writers: dict[str, Callable[[Plan, Path], None]] = {
            "png": lambda plan, path: export.export_png(plan, path, unit=unit),
            "svg": lambda plan, path: export.export_svg(plan, path, unit=unit),
            "pdf": lambda plan, path: export.export_pdf(plan, path, unit=unit),
            "csv": lambda plan, path: export.export_csv(plan, path, unit=unit),
            "json": _write_json,
            "md": lambda plan, path: _write_markdown(plan, path, unit),
        }
        return writers[kind]


def _write_json(plan: Plan, path: Path) -> None:
    from kvplanner.plan import schema

    write_atomic(path, json.dumps(schema.to_json(plan), indent=2) + "\n")


def _write_markdown(plan: Plan, path: Path, unit: Unit) -> None:
    from kvplanner.plan import report

    write_atomic(path, report.markdown(plan, unit=unit))


def _show_folder(path: Path) -> None:
    QtGui.QDesktopServices.openUrl(QtCore.QUrl.fromLocalFile(str(path.parent)))
