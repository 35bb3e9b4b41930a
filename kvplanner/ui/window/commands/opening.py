"""Opening: plans, models, command lines and running servers become the document; they are read in the background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.app import settings as s
from kvplanner.deadline import OutOfTime, in_time
from kvplanner.errors import BadInput
from kvplanner.reading import file_size, is_there
from kvplanner.ui.window.commands.logs import Logs
from kvplanner.ui.window.commands.remarks import Remarks
from kvplanner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.app.state import PlanState
    from kvplanner.model.model import Model
    from kvplanner.observe.engines import EngineLaunch
    from kvplanner.request.words import Built
    from kvplanner.ui.setup.model_section import ModelSection
    from kvplanner.ui.window.services import Services

UNCHANGED: Final = "the plan is unchanged"
MOUNT_S: Final = 0.3
OPENS: Final = "Open a plan, a model's folder, its config.json, a safetensors or a GGUF file, or a start-up log"
PLAN_FILTER: Final = "Plan (*.kvplan.json)"
OPEN_FILTER: Final = (
    "All that can be opened (*.kvplan.json config.json *.safetensors *.gguf *.log *.txt *.kvpack);;"
    f"{PLAN_FILTER};;Model (config.json *.safetensors *.gguf *.json)"
)


def ask_folder(host: QtWidgets.QWidget, title: str, folder: str, chosen: Callable[[str], None]) -> None:
    """Ask for a folder; `chosen` gets its name."""
    dialog = QtWidgets.QFileDialog(host, title, folder)
    dialog.setFileMode(QtWidgets.QFileDialog.FileMode.Directory)
    dialog.setOption(QtWidgets.QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(chosen)
    dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.open()


def usual_folder(document: Document, services: Services) -> str:
    """Where a dialog of files begins."""
    if document.path is not None:
        return str(document.path.parent)
    return services.settings.get(s.EXPORT_FOLDER) or str(Path.home())


_A: Final = {"projector": "a projector", "adapter": "an adapter"}


class Opening:
    """Opens into one document; what is being read shows in its form."""

    def __init__(
        self,
        host: QtWidgets.QWidget,
        document: Document,
        messages: Messages,
        services: Services,
        form: ModelSection,
        open_pack: Callable[[Path], None],
    ) -> None:
        self._host = host
        self._document = document
        self._messages = messages
        self._services = services
        self._form = form
        self._reading = ""
        self._open_pack = open_pack
        self._remarks = Remarks(document, messages)
        self.logs = Logs(host, document, messages, services)

    def new_window(self) -> None:
        """Another window with the same plan to start from."""
        self._services.windows.open(self._document.state, None, self._host)

    def open_file(self) -> None:
        """Ask for a plan or a model file."""
        dialog = QtWidgets.QFileDialog(self._host, "Open", usual_folder(self._document, self._services), OPEN_FILTER)
        dialog.setFileMode(QtWidgets.QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self.open_path(Path(name)))
        dialog.setAttribute(QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def open_folder(self) -> None:
        """Ask for a model folder."""
        folder = usual_folder(self._document, self._services)
        ask_folder(self._host, "Open model folder", folder, lambda name: self.open_path(Path(name)))

    def open_path(self, path: Path) -> None:
        """Open whatever a path is; what cannot be opened is told with the reason."""
        from kvplanner.app.opening import classify

        opening = classify(path)
        if opening.what == "plan":
            self.open_plan(path)
        elif opening.what == "model":
            self.load_model(str(path))
        elif opening.what in ("projector", "adapter"):
            self._load_beside(path, opening.what)
        elif opening.what == "log":
            self.logs.open_path(path)
        elif opening.what == "command":
            self._open_text_of(path)
        elif opening.what == "pack":
            self._open_pack(path)
        else:
            self._messages.error(BadInput(f"{opening.sentence}; {UNCHANGED}", "", OPENS), key="open")

    def _load_beside(self, path: Path, what: str) -> None:
        """A projector or an adapter counts with the model by its size, where the engine loads such files."""
        from kvplanner.engine.beside import option_of
        from kvplanner.engine.registry import engine

        rules = engine(self._document.state.ask.engine).ignored_flags()
        name, size = option_of(rules, encoders=what == "projector"), file_size(path)
        if size is None or not name:
            why = f"{path.name} is a file of {_A[what]}, and this engine loads none"
            self._messages.error(
                BadInput(f"{why}; {UNCHANGED}", "", "Choose an engine of GGUF files first"), key="open"
            )
            return
        self._document.set_option(name, size, label=f"Load the {what} {path.name}")
        self._messages.brief(f"{path.name} counts with the model: {format_bytes(size)}")

    def open_plan(self, path: Path, *, online: bool = False) -> None:
        """Read a plan file; a plan with edits that are in no file keeps its window.

        online: the Hub may be asked for the model that the file names, which the user has to say.
        """
        from kvplanner.app import planstore

        def done(found: tuple[PlanState, tuple[str, ...]]) -> None:
            state, notes = found
            if notes:
                self._messages.warning(notes[0], "\n".join(notes[1:]), key="open")
            if self._document.modified:
                self._services.windows.open(state, path, self._host)
            else:
                self._document.reset(state, path)
            self._services.settings.remember(s.RECENT_FILES, str(path))

        def failed(error: Exception) -> None:
            ask = ("Ask the Hub", lambda: self.open_plan(path, online=True)) if _needs_hub(error) else None
            self._messages.error(error, f"{path.name} was not opened; {UNCHANGED}", action=ask, key="open")

        self._services.jobs.submit(
            f"Opening {path.name}",
            lambda c: (planstore.read(path, allow_network=online), planstore.notes(path)),
            done,
            failed,
            key="open",
        )

    def fill_recent(self, menu: QtWidgets.QMenu) -> None:
        """List the recent files in a menu; missing ones go."""
        menu.clear()
        menu.setToolTipsVisible(True)
        for name in _missing(self._services.settings.get(s.RECENT_FILES)):
            self._services.settings.forget(s.RECENT_FILES, name)
        kept = self._services.settings.get(s.RECENT_FILES)
        for name, label in zip(kept, distinct_names(kept), strict=True):
            action = menu.addAction(label.replace("&", "&&"))
            action.setToolTip(name)
            action.triggered.connect(lambda checked=False, path=name: self.open_plan(Path(path)))
        if menu.isEmpty():
            menu.addAction("No recent plans").setEnabled(False)
            return
        menu.addSeparator()
        menu.addAction("&Clear").triggered.connect(lambda: self._services.settings.set(s.RECENT_FILES, []))

    def load_model(self, text: str, allow_network: bool = False) -> None:
        """Read a model in the background and choose it; on failure the plan stays as it is."""
        name = text.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or text
        self._reading = text
        self._form.set_error("")
        self._messages.clear("open")
        self._form.show_loading(name)

        def done(model: Model) -> None:
            from kvplanner.engine.registry import engine
            from kvplanner.engine.suited import suited

            state = self._document.state
            other = suited(model, state.ask.engine, state.ask.version, state.machine)
            self._document.set_model(text, model, engine=other)
            if other != state.ask.engine:
                said = f"{engine(state.ask.engine).title} does not load {name}: planned for {engine(other).title}"
                self._messages.info(said, key="open")
            self._services.settings.remember(s.RECENT_MODELS, text)

        def failed(error: Exception) -> None:
            self._messages.error(error, f"{name} was not read; {UNCHANGED}", key="open")

        job = self._services.library.load_model(text, done, failed, allow_network=allow_network, key=self._key)
        if job is not None:
            job.finished.connect(lambda: self._reading_ended(text))

    def _reading_ended(self, text: str) -> None:
        """Show what is chosen, also when the reading failed or was cancelled."""
        if self._reading == text:
            self._reading = ""
            state = self._document.state
            self._form.show_model(state.model, state.ask.weight_format, self._services.unit())

    def paste_command(self) -> None:
        """Plan what the text on the clipboard starts; of several lines that start nothing, read the log."""
        text = QtGui.QGuiApplication.clipboard().text().strip()
        lacking = "The clipboard holds no command line that starts a server. Copy one, such as vllm serve MODEL"
        self.open_text(text, lacking)

    def open_text(self, text: str, lacking: str = "") -> None:
        """Plan what a text starts, or read the log that it is. lacking: what to say of neither."""
        from kvplanner.app.opening import classify_text

        found = classify_text(text)
        if found.what == "command":
            self.plan_command(text)
        elif found.what == "log":
            self.logs.read_text(text)
        else:
            self._messages.warning(lacking or f"This was not opened: {found.sentence}", key="open")

    def _open_text_of(self, path: Path) -> None:
        """The text of a file that starts a server."""
        from kvplanner.reading import read_whole
        from kvplanner.request.pasted import MOST

        def work(control: object) -> str:
            return read_whole(path, MOST).decode("utf-8", "replace")

        def failed(error: Exception) -> None:
            self._messages.error(error, f"{path.name} was not read; {UNCHANGED}", key="open")

        self._services.jobs.submit(f"Reading {path.name}", work, self.open_text, failed, key=self._key)

    def _stand_ins(self) -> dict[str, str]:
        """What the user named in the place of paths of other machines."""
        return dict(kept.split("\t", 1) for kept in self._services.settings.get(s.STAND_INS) if "\t" in kept)

    def plan_command(self, text: str, model: str = "") -> None:
        """Plan what a text starts, on the GPUs chosen now. model: what stands in for a path of another machine."""
        state = self._document.state
        here, remembered = state.machine, self._stand_ins()

        def work(control: object) -> Built:
            from kvplanner.app.library import open_model
            from kvplanner.request.named import LOCAL
            from kvplanner.request.words import PlanWords, Sources, build

            sources = Sources(open_model, lambda: here, remembered=remembered)
            return build(PlanWords(model=model, gpu=LOCAL, flags=(f"{text} ",)), sources)

        def done(built: Built) -> None:
            request = built.request
            fields: dict[str, Any] = {
                "model_text": built.model, "model": built.opened, "engine": request.engine, "version": request.version,
                "options": dict(request.options), "weight_format": request.weight_format,
            }  # fmt: skip
            if request.machine is not here:
                fields |= {"devices": request.machine.devices, "unticked": frozenset(), "given_free": {}}
            before = self._document.state
            self._document.edit("Plan a command line", **fields)
            self._remarks.say(built.warnings, before)

        def failed(error: Exception) -> None:
            use = None
            path, chosen = getattr(error, "path", ""), state.model_text
            if path and chosen:

                def stand_in() -> None:
                    self._services.settings.remember(s.STAND_INS, f"{path}\t{chosen}")
                    self.plan_command(text, chosen)

                use = f"It is {chosen.rpartition('/')[2]}", stand_in
            self._messages.error(error, f"The command line was not planned; {UNCHANGED}", action=use, key="open")

        self._messages.clear("open")
        self._services.jobs.submit("Reading the command line", work, done, failed, key=self._key)

    def plan_launch(self, launch: EngineLaunch) -> None:
        """A running server becomes the plan: model, flags, version, and its GPUs as they were before it started."""

        def done(model: Model) -> None:
            state = self._document.state
            machine = launch.machine
            options, said = dict(launch.options), tuple[str, ...]()
            if launch.unasked is not None:
                from kvplanner.engine.registry import engine
                from kvplanner.request.unasked import with_projector

                rules = engine(launch.seen.engine).ignored_flags()
                options, said = with_projector(rules, launch.unasked, options, model)
            fields: dict[str, Any] = {}
            if machine is not None:
                fields = {
                    "machine_text": "", "devices": machine.devices, "machine_source": machine.source,
                    "machine_chosen": True, "unticked": frozenset(), "given_free": {},
                }  # fmt: skip
            self._document.edit(
                f"Plan the running {launch.seen.title}",
                model_text=launch.model,
                model=model,
                engine=launch.seen.engine,
                version=launch.version or state.ask.version,
                options=options,
                weight_format=None,
                **fields,
            )
            self._remarks.say((*launch.warnings, *said), state)

        def failed(error: Exception) -> None:
            self._messages.error(error, f"The running {launch.seen.title} could not be planned", key="launch")

        self._services.library.load_model(launch.model, done, failed, key=self._key)

    @property
    def _key(self) -> str:
        """Of jobs that read what this document is to plan: a later one takes an earlier one's place."""
        return f"model {id(self)}"


def distinct_names(paths: Sequence[str]) -> list[str]:
    """The files' names; of those that are called alike the folder too."""
    names = [Path(path).name for path in paths]
    return [
        f"{name} — {_from_home(Path(path).parent)}" if names.count(name) > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]


def _needs_hub(error: Exception) -> bool:
    """Whether a plan names a model that only the Hub has, and the Hub may be asked at all."""
    if getattr(error, "trouble", "") != "offline":
        return False
    from kvplanner.source.hub.client import is_offline

    return not is_offline()


def _missing(names: Sequence[str]) -> list[str]:
    """Those that are gone; none while one of them lies on a mount that does not answer."""
    try:
        return in_time(lambda: [name for name in names if not is_there(Path(name))], MOUNT_S, lambda: None)
    except OutOfTime:
        return []


def _from_home(folder: Path) -> str:
    """A folder as it is said, the home folder as ~."""
    home = Path.home()
    return str(Path("~", *folder.parts[len(home.parts) :])) if folder.is_relative_to(home) else str(folder)
