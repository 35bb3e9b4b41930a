"""The report of a plan on paper: asks for a printer, gathers what is to be said in the background, then draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6 import QtCore, QtPrintSupport, QtWidgets

if TYPE_CHECKING:
    from kvplanner.app.jobs import Jobs
    from kvplanner.app.messages import Messages
    from kvplanner.report.sheet import Sheet


def print_report(
    host: QtWidgets.QWidget, make: Callable[[], tuple[Sheet, str]], jobs: Jobs, messages: Messages
) -> QtPrintSupport.QPrintDialog:
    """Ask where to print, a file among it; nothing is gathered before that is known."""
    printer = QtPrintSupport.QPrinter(QtPrintSupport.QPrinter.PrinterMode.HighResolution)
    dialog = QtPrintSupport.QPrintDialog(printer, host)
    dialog.setWindowTitle("Print Report")
    dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.accepted.connect(lambda: send(printer, make, jobs, messages))
    QtWidgets.QDialog.open(dialog)
    return dialog


def send(
    printer: QtPrintSupport.QPrinter, make: Callable[[], tuple[Sheet, str]], jobs: Jobs, messages: Messages
) -> None:
    """Gather the report in the background, then put it on paper."""

    def done(made: tuple[Sheet, str]) -> None:
        draw(printer, *made)
        messages.brief("The report was sent to the printer")

    def failed(error: Exception) -> None:
        messages.error(error, "The report was not printed", key="export")

    jobs.submit("Printing the report", lambda control: make(), done, failed, key="print")


def draw(printer: QtPrintSupport.QPrinter, made: Sheet, when: str) -> None:
    """Put a report on paper, whatever size that has."""
    from kvplanner.ui.export.document import write_on
    from kvplanner.ui.export.pictures import DOTS_PER_INCH

    printer.setDocName(made.title)
    printer.setFullPage(True)
    printer.setResolution(DOTS_PER_INCH)
    write_on(printer, made, when=when)
