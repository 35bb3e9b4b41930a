"""Exports: the plan as a picture, a page, a table, JSON or Markdown, to a file that the user names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.errors import BadInput

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.engine.plan import Plan
    from kvplanner.report.sheet import Sheet
    from kvplanner.report.words import Unit
    from kvplanner.ui.window.commands.form import Form
    from kvplanner.ui.window.services import Services

FILTERS: Final = {
    "png": "PNG picture (*.png)", "svg": "SVG picture (*.svg)", "pdf": "PDF document (*.pdf)",
    "csv": "CSV table (*.csv)", "json": "JSON (*.json)", "md": "Markdown (*.md)",
}  # fmt: skip

# Of a report: what a dialog offers, with its ending and whether names and paths of this machine are kept.
_KEPT: Final = ", with names and paths of this machine"
REPORTS: Final = {
    "Report, page (*.html)": ("html", False), "Report, document (*.pdf)": ("pdf", False),
    "Report, short (*.md)": ("md", False), f"Report, page{_KEPT} (*.html)": ("html", True),
    f"Report, document{_KEPT} (*.pdf)": ("pdf", True),
}  # fmt: skip


class Exports:
    """Each export asks for a file, writes it whole or not at all, and offers its folder."""

    def __init__(
        self, host: QtWidgets.QWidget, document: Document, messages: Messages, services: Services, form: Form
    ) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services
        self._form = form

    def png(self) -> None:
        """A picture for a slide."""
        self._ask("png")

    def svg(self) -> None:
        """A picture that scales."""
        self._ask("svg")

    def pdf(self) -> None:
        """A page."""
        self._ask("pdf")

    def csv(self) -> None:
        """A table for a spreadsheet."""
        self._ask("csv")

    def json(self) -> None:
        """The plan for a program."""
        self._ask("json")

    def markdown(self) -> None:
        """The plan for an issue or a wiki."""
        self._ask("md")

    def print_plan(self) -> None:
        """The report, on paper."""
        from kvplanner.ui.window.commands.printing import print_report

        lacking = self._form.lacking_for("export")
        plan, state = self._document.plan, self._document.state
        if lacking or plan is None:
            self._messages.warning(lacking or "Nothing is planned yet", key="export")
            return
        make = _sheet(plan, self._services.unit(), state.model_text, private=False)
        print_report(self._host, make, self._services.jobs, self._messages)

    def report(self) -> None:
        """All that is known of the plan, to hand on."""
        lacking = self._form.lacking_for("export")
        if lacking:
            self._messages.warning(lacking, key="export")
            return
        folder = self._services.settings.get(s.EXPORT_FOLDER) or str(Path.home())
        name = f"{self._document.title}.html"
        dialog = QtWidgets.QFileDialog(self._host, "Export Report", str(Path(folder) / name), ";;".join(REPORTS))
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("html")
        dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix(REPORTS[chosen][0]))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)

        def chosen(name: str) -> None:
            self.write_report(Path(name), private=REPORTS[dialog.selectedNameFilter()][1])

        dialog.fileSelected.connect(chosen)
        dialog.open()

    def write_report(self, path: Path, *, private: bool = False) -> None:
        """Write a report of the kind that the name ends in, in the background."""
        plan, state = self._document.plan, self._document.state
        kind = path.suffix.lower().removeprefix(".")
        kinds = dict.fromkeys(kind for kind, _ in REPORTS.values())
        if plan is None or state.model is None or kind not in kinds:
            self._messages.warning(f"{path.name}: a report's name ends in one of {', '.join('.' + k for k in kinds)}")
            return
        render = _report(kind, plan, self._services.unit(), state.model_text, private=private)
        self._write(path, render)

    def _ask(self, kind: str) -> None:
        lacking = self._form.lacking_for("export")
        if lacking:
            self._messages.warning(lacking, key="export")
            return
        folder = self._services.settings.get(s.EXPORT_FOLDER) or str(Path.home())
        name = f"{self._document.title}.{kind}"
        dialog = QtWidgets.QFileDialog(self._host, f"Export {kind.upper()}", str(Path(folder) / name), FILTERS[kind])
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(kind)
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda chosen: self.write_to(Path(chosen)))
        dialog.open()

    def write_to(self, path: Path) -> None:
        """Write the plan to a file of the kind that its name ends in, in the background."""
        plan = self._document.plan
        kind = path.suffix.lower().removeprefix(".")
        if plan is None or kind not in FILTERS:
            self._messages.warning(f"{path.name}: a name ends in one of {', '.join('.' + k for k in FILTERS)}")
            return
        self._write(path, renderer(kind, plan, self._services.unit()))

    def _write(self, path: Path, render: Callable[[], bytes]) -> None:
        from shiboken6 import isValid

        def done(result: object) -> None:
            self._services.settings.set(s.EXPORT_FOLDER, str(path.parent))
            if isValid(self._host):  # the window may have been closed meanwhile
                opened = ("Open folder", lambda: _show_folder(path))
                self._messages.success(f"Exported {path.name}", action=opened, key="export")

        def failed(error: Exception) -> None:
            if isValid(self._host):
                self._messages.error(error, f"{path.name} was not written", key="export")

        title = f"Exporting {path.name}"
        self._services.jobs.submit(title, lambda control: write(path, render()), done, failed, writes=True)


def renderer(kind: str, plan: Plan, unit: Unit) -> Callable[[], bytes]:
    """What makes a file's content, on whichever thread; pictures are for light paper whatever the window's theme is."""
    if kind in ("png", "svg", "pdf"):
        font = QtGui.QFont(QtGui.QGuiApplication.font())
        return lambda: _picture(kind, plan, unit, font)
    return lambda: _text(kind, plan, unit).encode(errors="replace")


def _report(kind: str, plan: Plan, unit: Unit, model_text: str, *, private: bool) -> Callable[[], bytes]:
    """What makes a report's content, on whichever thread."""
    font = QtGui.QFont(QtGui.QGuiApplication.font())

    def render() -> bytes:
        made, day = _sheet(plan, unit, model_text, private=private)()
        if kind == "pdf":
            from kvplanner.ui.export.document import document

            return document(made, when=day, font=font)
        if kind == "md":
            from kvplanner.report.brief import brief

            return brief(made, when=day).encode(errors="replace")
        from kvplanner.report.html import html

        return html(made, when=day).encode(errors="replace")

    return render


def _sheet(plan: Plan, unit: Unit, model_text: str, *, private: bool) -> Callable[[], tuple[Sheet, str]]:
    """What a report says, and of which day, on whichever thread."""

    def make() -> tuple[Sheet, str]:
        from datetime import UTC, datetime

        from kvplanner.report.sheet import sheet
        from kvplanner.solve.others import others
        from kvplanner.solve.remedies import remedies
        from kvplanner.source.resolve import local_path

        ways = () if plan.fits is None else remedies(plan.request, plan, others)
        path = local_path(model_text, plan.request.model)
        return sheet(plan, ways, unit=unit, path=path, private=private), datetime.now(tz=UTC).date().isoformat()

    return make


def _picture(kind: str, plan: Plan, unit: Unit, font: QtGui.QFont) -> bytes:
    from kvplanner.ui.export import pictures as export

    draw = {"png": export.png, "svg": export.svg, "pdf": export.pdf}[kind]
    return draw(plan, unit=unit, font=font)


def _text(kind: str, plan: Plan, unit: Unit) -> str:
    if kind == "json":
        from kvplanner.report import schema

        return json.dumps(schema.to_json(plan), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if kind == "md":
        from kvplanner.report import text as report

        return report.markdown(plan, unit=unit)
    from kvplanner.report.csv import csv_text

    return csv_text(plan, unit)


def write(path: Path, content: bytes) -> None:
    """Writes an export whole or not at all. Raises BadInput that names the file."""
    from kvplanner.files import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot be written: {reason}", str(path), "Choose another folder or name") from error


def _show_folder(path: Path) -> None:
    QtGui.QDesktopServices.openUrl(QtCore.QUrl.fromLocalFile(str(path.parent)))
