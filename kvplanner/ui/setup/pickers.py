"""The two choosers of a window: made when first opened, filled from the catalogues and from this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from kvplanner.app import settings as s
from kvplanner.app.document import Document
from kvplanner.app.library import Library
from kvplanner.gpu.names import short_name
from kvplanner.ui.setup.marks import Marks, of_machines, of_models
from kvplanner.ui.setup.panel import SetupPanel
from kvplanner.units import ByteUnit, format_bytes

if TYPE_CHECKING:
    from kvplanner.app.jobs import Jobs
    from kvplanner.gpu.spec import Machine
    from kvplanner.ui.setup.chooser import Chooser
    from kvplanner.ui.setup.rows import Row
    from kvplanner.ui.setup.wish import Wish

LOCAL = "\0this machine"
MODEL_HINT = (
    "Type name, size, kind (vision, moe), format, licence, or paste a command line · ↑↓ walk · Enter chooses · "
    "Ctrl+T stars · hub:org/name asks the Hub (online)"
)
GPU_HINT = (
    "Type a name, a count (2), both (2x4090), a mix (2x3090 + 4090), a slice (H100 3g.40gb) or a size (48GB) · "
    "↑↓ walk · Enter chooses · Ctrl+T stars"
)

NO_MODEL = "No model says that. Drop a folder or a file, or type hub:org/name to ask the Hub."


class Pickers(QObject):
    """What was chosen: a model (and whether to go online), a command line, a file or folder, a machine, another GPU."""

    model_wanted = Signal(str, bool)
    command_wanted = Signal(str)
    file_wanted = Signal(bool)
    machine_wanted = Signal(str)
    local_wanted = Signal()
    gpu_added = Signal(str)
    scan_failed = Signal(object)
    search_folder_wanted = Signal()

    def __init__(
        self,
        window: QWidget,
        panel: SetupPanel,
        document: Document,
        library: Library,
        settings: s.Settings,
        unit: Callable[[], ByteUnit],
        jobs: Jobs,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._panel = panel
        self._document = document
        self._library = library
        self._settings = settings
        self._unit = unit
        self._models: Chooser | None = None
        self._gpus: Chooser | None = None
        self._adding = False
        self._wish: Wish | None = None
        self._model_marks, self._gpu_marks = Marks(jobs, "marks of models", self), Marks(jobs, "marks of GPUs", self)
        panel.model.pick.connect(self.open_models)
        panel.gpus.pick.connect(self.open_gpus)
        panel.gpus.add_gpu.connect(self.open_add_gpu)
        library.models_changed.connect(self._refresh_models)
        library.machine_found.connect(self._refresh_gpus)

    @property
    def model_chooser(self) -> Chooser:
        """The chooser of models."""
        if self._models is None:
            from kvplanner.ui.setup.chooser import Chooser
            from kvplanner.ui.setup.model_rows import FILTERS

            chooser = Chooser(self._window, "Choose a model", self._model_rows, MODEL_HINT, lambda text: NO_MODEL,
                              filters=FILTERS, stars=True)  # fmt: skip
            chooser.chosen.connect(self._model_chosen)
            chooser.closed.connect(self._model_marks.end)
            chooser.starred.connect(lambda data: self._settings.star(s.STARRED_MODELS, str(data)))
            self._model_marks.changed.connect(lambda: chooser.set_marks(self._model_marks.found))
            self._models = chooser
        return self._models

    @property
    def gpu_chooser(self) -> Chooser:
        """The chooser of GPUs."""
        if self._gpus is None:
            from kvplanner.ui.setup import gpu_rows
            from kvplanner.ui.setup.chooser import Chooser

            chooser = Chooser(self._window, "Choose GPUs", self._gpu_rows, GPU_HINT, gpu_rows.nothing_found,
                              filters=gpu_rows.FILTERS, stars=True)  # fmt: skip
            chooser.chosen.connect(self._gpu_chosen)
            chooser.closed.connect(self._gpu_marks.end)
            chooser.starred.connect(lambda data: self._settings.star(s.STARRED_MACHINES, str(data)))
            self._gpu_marks.changed.connect(lambda: chooser.set_marks(self._gpu_marks.found))
            self._gpus = chooser
        return self._gpus

    def open_models(self, text: str = "") -> None:
        """Open the chooser of models with a search begun; local models are looked for when they are first wanted."""
        folders = tuple(Path(folder) for folder in self._settings.get(s.MODEL_FOLDERS))
        self._library.scan_once(self._scan_failed, folders)
        self._mark_models()
        self.model_chooser.open(self._panel.model.button, text)

    def open_gpus(self, text: str = "") -> None:
        """Open the chooser of GPUs with a search begun."""
        self._adding = False
        self.gpu_chooser.open(self._panel.gpus.button, text)

    def open_add_gpu(self) -> None:
        """Open the chooser of GPUs to add to the machine."""
        self._adding = True
        self.gpu_chooser.open(self._panel.gpus.button)

    def _scan_failed(self, error: Exception) -> None:
        self.scan_failed.emit(error)

    def close_choosers(self) -> bool:
        """Close what is open; False when nothing was."""
        opened = [c for c in (self._models, self._gpus) if c is not None and c.isVisible()]
        for chooser in opened:
            chooser.close_chooser()
        return bool(opened)

    def _mark_models(self) -> None:
        local = tuple(model.text for model in self._library.models if not model.problem)
        wanted = of_models(self._document.state, local)
        if wanted is not None:
            self._model_marks.begin(*wanted)
            self.model_chooser.set_marks(self._model_marks.found)

    def _mark_gpus(self, rows: Sequence[Row]) -> None:
        """Marks of the machines that are listed: their count is a part of what is typed."""
        texts = tuple(dict.fromkeys(str(row.data) for row in rows if row.kind == "item" and row.data != LOCAL))
        wanted = of_machines(self._document.state) if texts and not self._adding else None
        if wanted is not None:
            self._gpu_marks.begin(*wanted, texts)

    def _refresh_models(self) -> None:
        if self._models is not None and self._models.isVisible():
            self._mark_models()
            self._models.refresh()

    def _refresh_gpus(self) -> None:
        if self._gpus is not None and self._gpus.isVisible():
            self._gpus.refresh()

    # rows ------------------------------------------------------------------------------------------------------

    def _model_rows(self, text: str) -> list[Row]:
        from kvplanner.catalog import models
        from kvplanner.ui.setup import model_rows

        recent = self._settings.get(s.RECENT_MODELS)
        state = self._document.state
        chosen = state.model
        current = chosen.id if chosen is not None and chosen.source_kind == "catalogue" else state.model_text
        shelf = model_rows.Shelf(
            models.index(), recent, self._library.models, current, self._unit(), self._settings.get(s.STARRED_MODELS),
            self._model_marks.found, self._models.filtered if self._models is not None else frozenset(),
        )  # fmt: skip
        return model_rows.search(text, shelf, models.search(text))

    def _gpu_rows(self, text: str) -> list[Row]:
        from kvplanner.catalog import gpus
        from kvplanner.ui.setup import gpu_rows, wish
        from kvplanner.ui.setup.rows import Row

        state = self._document.state
        text, self._wish = wish.split(text) if "," in text and not self._adding else (text, None)
        rows: list[Row] = [Row("heading", wish.words_of(self._wish, state.ask.load))] if self._wish else []
        machine = self._library.machine
        if machine is not None and not self._adding and _matches(text, machine):
            local = state.machine_source == "this machine"
            rows += [Row("heading", "This machine"), local_row(machine, self._unit(), current=local)]
        recent = [] if self._adding else self._settings.get(s.RECENT_MACHINES)
        starred = [] if self._adding else self._settings.get(s.STARRED_MACHINES)
        stock = gpu_rows.Stock(gpus.index(), recent, state.machine_text, self._unit(), starred)
        rows += gpu_rows.search(text, stock)
        self._mark_gpus(rows)
        only = self._gpus.filtered if self._gpus is not None else frozenset()
        return gpu_rows.filtered(rows, only, self._gpu_marks.found) if only else rows

    # choices ---------------------------------------------------------------------------------------------------

    def _model_chosen(self, data: object) -> None:
        from kvplanner.ui.setup import model_rows

        text = str(data)
        if text in (model_rows.OPEN_FILE, model_rows.OPEN_FOLDER):
            self.file_wanted.emit(text == model_rows.OPEN_FOLDER)
            return
        if text == model_rows.ADD_FOLDER:
            self.search_folder_wanted.emit()
            return
        if text.startswith(model_rows.COMMAND):
            self.command_wanted.emit(text.removeprefix(model_rows.COMMAND))
            return
        if not self._document.state.machine_chosen:
            # The machine is still an assumption: it is the next question.
            self._panel.gpus.button.setFocus(Qt.FocusReason.OtherFocusReason)
        self.model_wanted.emit(text, text.startswith("hub:"))

    def _gpu_chosen(self, data: object) -> None:
        text = str(data)
        if self._adding:
            self.gpu_added.emit(text)
        elif text == LOCAL:
            self.local_wanted.emit()
        else:
            self.machine_wanted.emit(text)
        if self._wish:
            from kvplanner.ui.setup.wish import ask

            ask(self._document, self._wish)


def _matches(text: str, machine: Machine) -> bool:
    from kvplanner.ui.setup import gpu_rows

    words = gpu_rows.parse_query(text).words.lower().split()
    name = f"this machine local {machine.describe()}".lower()
    return all(word in name for word in words)


def local_row(machine: Machine, unit: ByteUnit, *, current: bool) -> Row:
    """This machine's GPUs as one choice, with what other programs hold."""
    from kvplanner.ui.setup.gpu_section import sizes_each, used_by_others
    from kvplanner.ui.setup.rows import Row

    held = sum(used_by_others(device) for device in machine.devices)
    total = sum(d.gpu.total.value for d in machine.devices if d.gpu.total)
    detail = sizes_each(machine, unit)
    note = f"used by others: {format_bytes(held, unit)}" if held else "nothing else runs there"
    name = short_name(machine.describe())
    return Row("item", name, detail, format_bytes(total, unit), note, LOCAL, current)
