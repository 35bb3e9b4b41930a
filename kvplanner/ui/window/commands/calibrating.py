"""What logs and running servers measured, kept for plans like theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtWidgets

from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.diagnose.attached import Attached
    from kvplanner.diagnose.calibration import Learned
    from kvplanner.diagnose.diagnosis import Diagnosis
    from kvplanner.diagnose.runs import Run
    from kvplanner.engine.plan import Plan
    from kvplanner.observe.engines import EngineLaunch
    from kvplanner.ui.window.services import Services

KEY: Final = "calibration"
OF_ANOTHER: Final = "The plan is of another start than this server's: make it the plan first"


class Calibrating:
    """Of one window."""

    def __init__(self, host: QtWidgets.QWidget, document: Document, messages: Messages, services: Services) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services

    def of_log(self, found: Diagnosis) -> None:
        """Keep what a log measured, on the GPUs of the plan."""
        from kvplanner.diagnose.calibration import learn, run_of_log

        model, machine = self._document.state.model, self._document.state.machine
        if model is None or machine is None:
            return
        self._learn("This log", lambda: learn(found, model, machine, ""),
                    lambda learned: run_of_log(found, learned, model, machine))  # fmt: skip

    def of_server(self, launch: EngineLaunch, seen: Attached) -> None:
        """Keep what a running server's memory and cache tell, where the plan is of its start."""
        from kvplanner.diagnose.attached import learn_running
        from kvplanner.diagnose.calibration import run_of_server

        plan = self._document.plan
        if plan is None or self._document.error is not None or not self._is_of(launch, plan):
            self._messages.warning(OF_ANOTHER, key=KEY)
            return
        self._learn("This server", lambda: learn_running(plan, seen), lambda learned: run_of_server(learned, plan))

    def _is_of(self, launch: EngineLaunch, plan: Plan) -> bool:
        request, state = plan.request, self._document.state
        return (
            request.engine == launch.seen.engine
            and dict(request.options) == dict(launch.options)
            and (not launch.version or request.version == launch.version)
            and launch.model in (state.model_text, state.place, request.model.id)
            and state.ask.weight_format is None
        )

    def _learn(self, what: str, work: Callable[[], Learned], run_of: Callable[[Learned], Run]) -> None:
        from kvplanner.report.calibrations import measured, rule

        def done(learned: Learned) -> None:
            if not learned.calibrations:
                self._messages.warning(f"{what} calibrates nothing: {learned.why}", key=KEY)
                return
            run = run_of(learned)
            try:
                self._services.runs.add((run,))
            except (PlannerError, OSError) as error:
                self._messages.error(error, "The calibration was not kept", key=KEY)
                return
            told = f"Calibrated, for plans of the {rule(run)}: {', '.join(measured(run))}"
            self._messages.success(told, action=("Calibrations…", self.show_runs), key=KEY)

        def failed(error: Exception) -> None:
            self._messages.error(error, f"{what} calibrates nothing", key=KEY)

        self._messages.clear(KEY)
        self._services.jobs.submit("Learning from a run", lambda control: work(), done, failed, key=f"learn {id(self)}")

    def show_runs(self) -> None:
        """The runs that calibrate plans."""
        from kvplanner.ui.dialogs.calibrations import CalibrationsDialog

        dialog = CalibrationsDialog(
            self._services.runs, lambda error, what: self._messages.error(error, what, key="runs"), self._host
        )
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
