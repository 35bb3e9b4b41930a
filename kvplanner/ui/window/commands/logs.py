"""Start-up logs: read in the background, shown in their tab, and made the plan when wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from PySide6 import QtCore, QtGui, QtWidgets

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.diagnose.diagnosis import Diagnosis
    from kvplanner.gpu.spec import Machine
    from kvplanner.model.model import Model
    from kvplanner.ui.log.view import LogView
    from kvplanner.ui.window.details import Details
    from kvplanner.ui.window.services import Services

LOG_FILTER: Final = "Logs (*.log *.txt *.json *.jsonl *.out);;All files (*)"
UNCHANGED: Final = "the plan is unchanged"


class Logs:
    """Of one window. Before `attach` a log waits until the tabs are there."""

    def __init__(self, host: QtWidgets.QWidget, document: Document, messages: Messages, services: Services) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services
        self._details: Details | None = None

    def attach(self, details: Details) -> None:
        """The tabs are there."""
        self._details = details
        details.page_made.connect(self._page_made)

    def _page_made(self, key: str, page: object) -> None:
        from kvplanner.ui.log.view import LogView

        if isinstance(page, LogView):
            page.open_wanted.connect(self.ask_file)
            page.paste_wanted.connect(self.paste)
            page.plan_wanted.connect(self.make_plan)

    def _view(self) -> LogView | None:
        """The page of logs, in front."""
        from kvplanner.ui.window.tabs import LOG

        if self._details is None:
            return None
        self._details.show_tab(LOG)
        return cast("LogView", self._details.page(LOG))

    def ask_file(self) -> None:
        """Ask for a log."""
        dialog = QtWidgets.QFileDialog(self._host, "Open log", str(Path.home()), LOG_FILTER)
        dialog.setFileMode(QtWidgets.QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self.open_path(Path(name)))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def paste(self) -> None:
        """Read the log that lies on the clipboard."""
        self.read_text(QtGui.QGuiApplication.clipboard().text())

    def open_path(self, path: Path) -> None:
        """Read a log file."""
        from kvplanner.diagnose.diagnosis import diagnose_file

        self._read(path.name, lambda: diagnose_file(path))

    def read_text(self, text: str) -> None:
        """Read a log that was pasted."""
        from io import BytesIO

        from kvplanner.diagnose.diagnosis import diagnose

        self._read("", lambda: diagnose(BytesIO(text.encode("utf-8", "replace")).read, "the clipboard"))

    def _read(self, name: str, work: Callable[[], Diagnosis]) -> None:
        view = self._view()
        if view is not None:
            view.set_reading()
        self._messages.clear("log")

        def done(found: Diagnosis) -> None:
            shown = self._view()
            if shown is not None:
                shown.set_log(found, name)

        def failed(error: Exception) -> None:
            shown = self._view()
            if shown is not None:
                shown.set_log(None)
            self._messages.error(error, "The log was not read", key="log")

        self._services.jobs.submit("Reading a log", lambda control: work(), done, failed, key=f"log {id(self)}")

    def make_plan(self) -> None:
        """What the log started becomes the plan, on the GPUs that it names, else on those chosen now."""
        view = self._view()
        found = view.found if view is not None else None
        if view is None or found is None:
            return
        state = self._document.state
        if not found.model:
            if state.model is not None:
                self._apply(found, state.model_text, state.model, view)
            return
        name = found.model

        def failed(error: Exception) -> None:
            model, text = self._document.state.model, self._document.state.model_text
            use = None if model is None else (
                f"Use {text.rpartition('/')[2]}", lambda: self._apply(found, text, model, view)
            )  # fmt: skip
            self._messages.error(error, f"The log's model was not read; {UNCHANGED}", action=use, key="log")

        self._services.library.load_model(
            name, lambda model: self._apply(found, name, model, view), failed, key=f"log model {id(self)}"
        )

    def _apply(self, found: Diagnosis, text: str, model: Model, view: LogView) -> None:
        from kvplanner.diagnose.diagnosis import request_of
        from kvplanner.diagnose.implied import machine_of
        from kvplanner.errors import PlannerError

        state = self._document.state
        here = state.machine
        try:
            machine = machine_of(found, here)
        except PlannerError as error:
            self._messages.error(error, f"The log's GPUs are not known; {UNCHANGED}", key="log")
            return
        fields: dict[str, Any] = {}
        if machine is not None and machine is not here:
            fields = _chosen(machine)
        if machine is None:
            return
        request = request_of(found, model, machine)
        self._document.edit(
            "Plan a log",
            model_text=text,
            model=model,
            engine=request.engine,
            version=request.version,
            options=dict(request.options),
            weight_format=request.weight_format,
            **fields,
        )
        view.set_compared()


def _chosen(machine: Machine) -> dict[str, Any]:
    """The fields of a state for another machine."""
    return {
        "machine_text": "", "devices": machine.devices, "machine_source": machine.source, "machine_chosen": True,
        "unticked": frozenset(), "given_free": {},
    }  # fmt: skip
