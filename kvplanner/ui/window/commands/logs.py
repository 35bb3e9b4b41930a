"""Start-up logs: read in the background, shown in their tab, and made the plan when wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.errors import PlannerError
from kvplanner.ui.window.commands.calibrating import Calibrating

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.diagnose.diagnosis import Diagnosis
    from kvplanner.diagnose.implied import Implied
    from kvplanner.engine.plan import Plan
    from kvplanner.gpu.spec import Machine
    from kvplanner.model.model import Model
    from kvplanner.observe.stages import EngineEnd
    from kvplanner.solve.remedies import Remedy
    from kvplanner.ui.bars.widget import MemoryBars
    from kvplanner.ui.log.view import LogView
    from kvplanner.ui.window.details import Details
    from kvplanner.ui.window.services import Services

LOG_FILTER: Final = "Logs (*.log *.log.* *.txt *.json *.jsonl *.out);;All files (*)"
UNCHANGED: Final = "the plan is unchanged"


class Logs(QtCore.QObject):
    """Of one window. Before `attach` a log waits until the tabs are there. logged(found, beside): a log is the plan."""

    logged = QtCore.Signal(object, object)

    def __init__(self, host: QtWidgets.QWidget, document: Document, messages: Messages, services: Services) -> None:
        super().__init__(host)
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services
        self.calibrating = Calibrating(host, document, messages, services)
        self._details: Details | None = None
        self._bars: MemoryBars | None = None
        self._reveal: Callable[[str], bool] = lambda name: False
        self._laid = False
        self._over: tuple[Diagnosis, str] | None = None  # the log that lies over the plan, and its model
        self._named = "", ""  # what names its model, and where that lies

    def attach(self, details: Details, bars: MemoryBars, reveal: Callable[[str], bool]) -> None:
        """The tabs are there. reveal: brings one to the front, and in sight."""
        self._details, self._bars, self._reveal = details, bars, reveal
        details.page_made.connect(self._page_made)
        self._document.planned.connect(self._lay_over)

    def _page_made(self, key: str, page: object) -> None:
        from kvplanner.ui.log.view import LogView
        from kvplanner.ui.startup.view import StartupView

        if isinstance(page, StartupView):
            self._lay_over(self._document.plan)
        if isinstance(page, LogView):
            page.open_wanted.connect(self.ask_file)
            page.paste_wanted.connect(self.paste)
            page.plan_wanted.connect(self.make_plan)
            page.calibrate_wanted.connect(self.calibrate)
            page.report_wanted.connect(self.ask_report)
            page.remedy_wanted.connect(self.apply)

    def _view(self) -> LogView | None:
        """The page of logs, in front."""
        from kvplanner.ui.window.tabs import LOG

        if self._details is None:
            return None
        self._reveal(LOG)
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

    def offer(self, ended: EngineEnd, path: Path | None) -> None:
        """Say at which stage a watched server ended, and offer its log: the file it wrote, else one to be chosen."""
        text = ended.text(self._services.unit())
        if path is not None:
            action = f"Read {path.name}", lambda: self.open_path(path)
        else:
            text += ". Its terminal or container has the log: paste it here, or open it"
            action = "Open log…", self.ask_file
        self._messages.info(text, action=action, key="engine ended")

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
                self._ask(shown, found, name)

        def failed(error: Exception) -> None:
            shown = self._view()
            if shown is not None:
                shown.set_log(None)
            self._messages.error(error, "The log was not read", key="log")

        self._services.jobs.submit("Reading a log", lambda control: work(), done, failed, key=f"log {id(self)}")

    def _ask(self, view: LogView, found: Diagnosis, name: str) -> None:
        """Show a log, and ask for what a plan of it needs: what is planned now or what it hints at is proposed."""
        from kvplanner.diagnose.diagnosis import places_seen, unstated
        from kvplanner.diagnose.implied import missing
        from kvplanner.request.standin import is_elsewhere, stand_in

        state = self._document.state
        here = {"model": state.model_text, "gpus": self._gpus_for(found), "version": ""}
        wanted = {field: here[field] for field in missing(found)}
        if found.model and is_elsewhere(found.model):
            wanted["model"] = stand_in(found.model) or ""
        seen = {option: str(count) for option, count in places_seen(found).items()}
        open_ = unstated(found)
        view.set_log(found, name, wanted, open_, seen)
        if not wanted and not open_ and found.model:
            self._look_beside(view, found, found.model)

    def _look_beside(self, view: LogView, found: Diagnosis, text: str) -> None:
        """Find what helps at once, where nothing is to be asked: the plan stays as it is."""
        from kvplanner.app.planstore import placed
        from kvplanner.diagnose.implied import machine_of

        def opened(model: Model) -> None:
            place, name = _public(text, model)
            try:
                machine = machine_of(found)
            except PlannerError:
                return
            if machine is not None and view.found is found:
                self._named = name, place
                self._compare(view, found, placed(model) if place else model, machine)

        self._services.library.load_model(text, opened, _told_already, key=f"log model {id(self)}")

    def _compare(self, view: LogView, found: Diagnosis, model: Model, machine: Machine) -> None:
        """Plan what a log started in the background, and what helps."""
        from kvplanner.diagnose.implied import implied

        def compared(beside: Implied) -> None:
            if view.found is not None and view.found.reading is found.reading:
                view.set_beside(beside)
                if beside.other_total_bytes is not None:
                    view.asking.ask("gpus", self._gpus_for(found))
                if view.compared:
                    self.logged.emit(found, beside)

        self._services.jobs.submit(
            "Comparing a log with its plan", lambda control: implied(found, model, machine), compared, _told_already,
            key=f"log beside {id(self)}",
        )  # fmt: skip

    def _gpus_for(self, found: Diagnosis) -> str:
        """The GPUs chosen now, where they may be those of the log; else as many of the memory that it states."""
        from kvplanner.diagnose.implied import gpus_of_its_size, has_memory_of

        state = self._document.state
        if state.machine is None or not has_memory_of(found, state.machine):
            return gpus_of_its_size(found) or state.machine_text
        return state.machine_text

    def make_plan(self) -> None:
        """What the log started becomes the plan, on the GPUs that it names, else on those chosen now."""
        view = self._view()
        found = view.found if view is not None else None
        if view is None or found is None:
            return
        said = view.asking.answers()
        name = said.get("model") or found.model or ""
        if not name:
            self._messages.warning("Name the model that it ran: the log does not", key="log")
            view.asking.fields["model"].setFocus()
            return
        try:
            found = self._completed(found, said, view.asking.chosen())
        except PlannerError as error:
            self._messages.error(error, f"The log is not planned; {UNCHANGED}", key="log")
            return

        def failed(error: Exception) -> None:
            model, text = self._document.state.model, self._document.state.model_text
            use = None if model is None else (
                f"Use {text.rpartition('/')[2]}", lambda: self._apply(found, text, model, view, said)
            )  # fmt: skip
            self._messages.error(error, f"The log's model was not read; {UNCHANGED}", action=use, key="log")
            view.asking.ask("model", text)

        self._services.library.load_model(
            name, lambda model: self._apply(found, name, model, view, said), failed, key=f"log model {id(self)}"
        )

    @staticmethod
    def _completed(found: Diagnosis, said: dict[str, str], chosen: dict[str, str]) -> Diagnosis:
        """The log with what the user says of what it leaves out. Raises PlannerError."""
        from kvplanner.diagnose.diagnosis import unstated, with_options
        from kvplanner.engine.values import parse_value

        asked = {option.name: option for option in unstated(found)}
        found = found._replace(version=said.get("version") or found.version)
        return with_options(found, {name: parse_value(asked[name], text) for name, text in chosen.items()})

    def _apply(self, found: Diagnosis, text: str, model: Model, view: LogView, said: dict[str, str]) -> None:
        from kvplanner.app.planstore import placed
        from kvplanner.catalog import gpus
        from kvplanner.diagnose.diagnosis import request_of
        from kvplanner.diagnose.implied import machine_of

        state = self._document.state
        here, asked = state.machine, said.get("gpus", "")
        try:
            if asked and asked != state.machine_text:
                here = gpus.machine(asked)
            machine = machine_of(found, here)
            request = request_of(found, model, machine) if machine is not None else None
        except PlannerError as error:
            self._messages.error(error, f"The log's GPUs are not known; {UNCHANGED}", key="log")
            return
        if machine is None or request is None:
            return
        place, text = _public(text, model) if text == found.model else ("", text)
        model = placed(model) if place else model
        request = request._replace(model=model)
        fields: dict[str, Any] = _chosen(machine) if machine is not state.machine else {}
        self._document.edit(
            "Plan a log",
            model_text=text,
            model_place=place,
            model=model,
            engine=request.engine,
            version=request.version,
            options=dict(request.options),
            weight_format=request.weight_format,
            measured={},
            **fields,
        )
        if place:
            self._messages.info(
                f"The plan names the model {text}, and keeps where the log says that it lies out of its file",
                action=("Keep the path", lambda: self._keep_path(text, place)), key="log place",
            )  # fmt: skip
        view.set_compared(found)
        self._over, self._named = (found, model.id), (text, place)
        self._lay_over(self._document.plan)

        self._compare(view, found, model, machine)

    def _keep_path(self, text: str, place: str) -> None:
        """The user wants the path in the plan."""
        if (self._document.state.model_text, self._document.state.model_place) == (text, place):
            self._document.edit("Keep the model's path", model_text=place)

    def apply(self, remedy: Remedy) -> None:
        """Make what helps the plan, with the log's own figures in place of estimates: one step that undo takes back."""
        from kvplanner.report.remedies import title
        from kvplanner.solve.change import MODEL
        from kvplanner.ui.remedies.applying import whole_fields

        text, place = self._named
        view = self._view()
        if view is not None and view.found is not None and view.beside is not None:
            self._over = view.found, view.beside.request.model.id
        if any(change.option == MODEL for change in remedy.changes):
            text, place = remedy.request.model.id, ""
        self._document.seal()
        self._document.edit(title(remedy), **whole_fields(remedy.request, text), model_place=place)

    def _lay_over(self, plan: Plan | None) -> None:
        """The log's figures over the plan's bars and stages, while the plan is of its model and engine."""
        if self._details is None or self._bars is None or (self._over is None and not self._laid):
            return
        from kvplanner.diagnose.stages import over
        from kvplanner.ui.bars.logged import strips
        from kvplanner.ui.startup.view import StartupView
        from kvplanner.ui.window.tabs import STARTUP

        here = self._over if plan is not None and self._over is not None and (
            plan.request.engine, plan.request.model.id) == (self._over[0].engine, self._over[1]) else None  # fmt: skip
        logged = over(here[0], plan) if here is not None and plan is not None else ()
        self._laid = bool(logged)
        self._bars.set_logged(strips(logged, self._services.unit()))
        if self._details.has_page(STARTUP):
            page = self._details.page(STARTUP)
            if isinstance(page, StartupView):
                page.set_logged(logged)

    # what a log teaches ----------------------------------------------------------------------------------------

    def calibrate(self) -> None:
        """Keep what the log measured, for plans like its own."""
        view = self._view()
        if view is not None and view.found is not None:
            self.calibrating.of_log(view.found)

    def ask_report(self) -> None:
        """Save what the log says, to hand on."""
        dialog = QtWidgets.QFileDialog(self._host, "Save report", str(Path.home() / "kvplanner-log.md"), "*.md")
        dialog.setAcceptMode(QtWidgets.QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("md")
        dialog.fileSelected.connect(lambda name: self.save_report(Path(name)))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def save_report(self, path: Path) -> None:
        """Write what the log says, without paths, names of machines and keys."""
        from kvplanner.files import write_whole
        from kvplanner.report.findings import markdown

        view = self._view()
        if view is None or view.found is None:
            return
        found, beside = view.found, view.beside

        def done(_: object) -> None:
            self._messages.info(f"Saved {path.name}: it holds no path, host or key", key="log")

        def failed(error: Exception) -> None:
            self._messages.error(error, "The report was not saved", key="log")

        self._services.jobs.submit(
            f"Saving {path.name}", lambda control: write_whole(path, markdown(found, beside).encode()), done, failed,
            writes=True,
        )  # fmt: skip


def _public(text: str, model: Model) -> tuple[str, str]:
    """Where a model lies that a log names by a path, and its name: the catalogue's of the same one, else its folder's.

    No path comes from a log into a plan.
    """
    from kvplanner.catalog import models
    from kvplanner.diagnose.privacy import looks_like_path, public_name
    from kvplanner.request.standin import stand_in

    if not looks_like_path(text):
        return "", text
    name = stand_in(text)
    if name and models.load(name).spec == model.spec:
        return "", name
    return text, public_name(text)


def _told_already(error: Exception) -> None:
    """Why there is no such plan stands where the plan does."""


def _chosen(machine: Machine) -> dict[str, Any]:
    """The fields of a state for another machine."""
    return {
        "machine_text": "", "devices": machine.devices, "machine_source": machine.source, "machine_chosen": True,
        "unticked": frozenset(), "given_free": {},
    }  # fmt: skip
