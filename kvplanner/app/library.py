"""Library: what this machine has to offer — its models and its GPUs — found in the background, and models read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject, Signal

from kvplanner.app.jobs import Job, JobControl, Jobs
from kvplanner.files import data_folder
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Machine
    from kvplanner.model.model import Model
    from kvplanner.source.stores.found import Control, Found


# A model's header is read in seconds, and cancelled when another one is chosen.
LONGEST_S: Final = 600.0


class LocalModel(NamedTuple):
    """A model on this machine. text: what `open_model` reads; detail: where it lies."""

    title: str
    text: str
    detail: str
    size_bytes: int | None
    quantization: str
    problem: str = ""


class Library(QObject):
    """models_changed(): other local models. machine_found(Machine or None): what NVML answered."""

    models_changed = Signal()
    machine_found = Signal(object)

    def __init__(self, jobs: Jobs, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._jobs = jobs
        self.models: tuple[LocalModel, ...] = ()
        self.machine: Machine | None = None
        self.probed = False
        self._scan: Job | None = None
        self._scan_folders: tuple[Path, ...] = ()
        self._scanned_once = False

    def probe_gpus(self) -> None:
        """Ask NVML once, in the background."""
        self._jobs.submit("Looking for GPUs", _probe, self._probed, self._probe_failed, key="probe")

    def show_machine(self, machine: Machine) -> None:
        """Take a newer answer from someone who watches the GPUs."""
        self._probed(machine)

    def _probed(self, machine: Machine | None) -> None:
        self.probed = True
        self.machine = machine
        self.machine_found.emit(machine)

    def _probe_failed(self, error: Exception) -> None:
        self._probed(None)

    def scan_models(self, failed: Callable[[Exception], None], folders: tuple[Path, ...] = ()) -> Job | None:
        """Look for models on this machine in the background. What the last search found shows at once."""
        if self._scan is not None and folders == self._scan_folders:
            return None
        self._scan_folders = folders
        job = self._jobs.submit(
            "Looking for models on this machine",
            lambda control: _scan(control, folders),
            self._scanned,
            failed,
            key="scan",
        )
        self._scan = job
        if job is not None:
            job.finished.connect(lambda: self._scan_ended(job))
        return job

    def scan_once(self, failed: Callable[[Exception], None], folders: tuple[Path, ...] = ()) -> None:
        """The first time that local models are wanted: show the remembered ones, then search."""
        if self._scanned_once:
            return
        self._scanned_once = True
        self._jobs.submit("Reading what the last search found", _remembered, self._remembered, failed, key="memory")
        self.scan_models(failed, folders)

    def _remembered(self, found: tuple[LocalModel, ...]) -> None:
        if not self.models:
            self._show_models(found)

    def _scanned(self, found: tuple[LocalModel, ...]) -> None:
        self._show_models(found)

    def _scan_ended(self, job: Job) -> None:
        if self._scan is job:
            self._scan = None

    def _show_models(self, found: tuple[LocalModel, ...]) -> None:
        if found != self.models:
            self.models = found
            self.models_changed.emit()

    def load_model(
        self,
        text: str,
        done: Callable[[Model], None],
        failed: Callable[[Exception], None],
        *,
        allow_network: bool = False,
        key: str = "model",
    ) -> Job | None:
        """Read a model in the background; a later one of the same key takes its place."""
        return self._jobs.submit(
            f"Reading {text}", lambda control: _read(text, control, allow_network=allow_network), done, failed, key=key
        )


def open_model(text: str, *, allow_network: bool = False, control: Control | None = None) -> Model:
    """The model that a text names, as `kvplanner.source.resolve.open_model`."""
    from kvplanner.source import resolve

    return resolve.open_model(text, allow_network=allow_network, control=control)


def _read(text: str, control: JobControl, *, allow_network: bool) -> Model:
    """As open_model, given up once nobody wants it: a folder on a mount that never answers keeps no worker."""
    from kvplanner.deadline import in_time

    return in_time(lambda: open_model(text, allow_network=allow_network, control=control), LONGEST_S, control.check)


def _probe(control: JobControl) -> Machine | None:
    from kvplanner.observe.local import probe
    from kvplanner.observe.machine import local_machine

    return local_machine(probe())


def _remembered(control: JobControl) -> tuple[LocalModel, ...]:
    from kvplanner.source.stores import local

    return tuple(_local(found) for found in local.remembered(data_folder()))


def _scan(control: JobControl, folders: tuple[Path, ...]) -> tuple[LocalModel, ...]:
    from kvplanner.source.stores import local

    found = local.scan(local.places(folders), remember_in=data_folder(), control=control)
    return tuple(_local(model) for model in found)


def _local(found: Found) -> LocalModel:
    facts = [found.store, found.architecture]
    if found.context_length:
        facts.append(f"context {found.context_length:,}")
    detail = " · ".join(fact for fact in facts if fact)
    return LocalModel(found.name, found.key, detail, found.bytes or None, found.format, found.problem)
