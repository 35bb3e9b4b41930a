"""Library: what this machine has to offer — its models and its GPUs — found in the background, and models read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject, Signal

from kvplanner.app.jobs import Job, JobControl, Jobs
from kvplanner.engine.base import Model

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Machine


class LocalModel(NamedTuple):
    """A model on this machine. text: what `open_model` reads; detail: where it lies."""

    title: str
    text: str
    detail: str
    size_bytes: int | None
    quantization: str


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

    def probe_gpus(self) -> None:
        """Ask NVML once, in the background."""
        self._jobs.submit("Looking for GPUs", _probe, self._probed, self._probe_failed, key="probe")

    def _probed(self, machine: Machine | None) -> None:
        self.probed = True
        self.machine = machine
        self.machine_found.emit(machine)

    def _probe_failed(self, error: Exception) -> None:
        self._probed(None)

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
            f"Reading {text}", lambda control: open_model(text, allow_network=allow_network), done, failed, key=key
        )


def open_model(text: str, *, allow_network: bool = False) -> Model:
    """The model that a text names, as `kvplanner.source.resolve.open_model`."""
    from kvplanner.source import resolve

    return resolve.open_model(text, allow_network=allow_network)


def _probe(control: JobControl) -> Machine | None:
    from kvplanner.observe.local import probe
    from kvplanner.observe.machine import local_machine

    return local_machine(probe())
