"""The machine of a window's plan: chosen from the catalogue, counted, mixed, or this very machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplanner.app import settings as s
from kvplanner.app.messages import in_window
from kvplanner.errors import PlannerError
from kvplanner.gpu.names import short_name
from kvplanner.units import counted

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.gpu.spec import Machine
    from kvplanner.ui.setup.gpu_section import GpuSection
    from kvplanner.ui.window.services import Services


class Machines:
    """Edits of the devices."""

    def __init__(self, document: Document, services: Services, form: GpuSection) -> None:
        self._document = document
        self._services = services
        self._form = form

    def choose(self, text: str) -> None:
        """Plan for the machine that a text names, for example "2xrtx-4090"."""
        from kvplanner.catalog import gpus

        try:
            machine = gpus.machine(text)
        except PlannerError as error:
            self._refuse_machine(error)
            return
        self._form.set_error("")
        self._set_machine(machine, text, f"Choose {short_name(machine.describe())}")
        self._services.settings.remember(s.RECENT_MACHINES, text)

    def _refuse_machine(self, error: PlannerError) -> None:
        what = error.what[:1].upper() + error.what[1:]
        self._form.set_error(in_window(f"{what}. {error.remedy}" if error.remedy else what))

    def choose_local(self) -> None:
        """Plan for this machine's GPUs as they are now."""
        machine = self._services.library.machine
        if machine is not None:
            self._set_machine(machine, "", "Choose this machine")

    def _set_machine(self, machine: Machine, text: str, label: str) -> None:
        self._document.edit(
            label,
            machine_text=text,
            devices=machine.devices,
            machine_source=machine.source,
            machine_chosen=True,
            unticked=frozenset(),
            given_free={},
        )

    def set_count(self, count: int) -> None:
        """As many of the same GPU."""
        from kvplanner.gpu.spec import Machine

        devices = self._document.state.devices
        if not devices or count == len(devices):
            return
        spec = devices[0].gpu
        machine = Machine(tuple(devices[0]._replace(index=i, gpu=spec) for i in range(count)),
                          self._document.state.machine_source)  # fmt: skip
        text = f"{count}x{spec.id}" if spec.vendor != "custom" else ""
        label = f"Use {counted(count, 'GPU', 'GPUs')}"
        self._edit_devices(machine, text, label, key="gpu count")

    def add(self, text: str) -> None:
        """One or more GPUs beside those that are there."""
        from kvplanner.catalog import gpus
        from kvplanner.gpu.match import MAX_DEVICES
        from kvplanner.gpu.spec import Machine

        state = self._document.state
        try:
            added = gpus.machine(text)
        except PlannerError as error:
            self._refuse_machine(error)
            return
        together = (*state.devices, *added.devices)
        if len(together) > MAX_DEVICES:
            self._form.set_error(f"{len(together)} GPUs are more than a plan has: {MAX_DEVICES} at most")
            return
        self._form.set_error("")
        devices = tuple(device._replace(index=i) for i, device in enumerate(together))
        custom = state.machine_source == "custom" or added.source == "custom"
        self._edit_devices(Machine(devices, "custom" if custom else state.machine_source), "", "Add a GPU")

    def remove(self, index: int) -> None:
        """One GPU less."""
        from kvplanner.gpu.spec import Machine

        state = self._document.state
        kept = [device for device in state.devices if device.index != index]
        if not kept:
            return
        new_index = {device.index: i for i, device in enumerate(kept)}
        self._edit_devices(
            Machine(tuple(d._replace(index=new_index[d.index]) for d in kept), state.machine_source),
            "",
            f"Remove GPU {index}",
            unticked=frozenset(new_index[i] for i in state.unticked if i in new_index),
            given_free={new_index[i]: size for i, size in state.given_free.items() if i in new_index},
        )

    def _edit_devices(self, machine: Machine, text: str, label: str, *, key: str = "", **more: object) -> None:
        from kvplanner.catalog.gpus import machine_words

        state = self._document.state
        known = {device.index for device in machine.devices}
        fields: dict[str, object] = {
            "unticked": frozenset(i for i in state.unticked if i in known),
            "given_free": {i: size for i, size in state.given_free.items() if i in known},
        }
        self._document.edit(
            label,
            key=key,
            machine_text=text or machine_words(machine),
            devices=machine.devices,
            machine_source=machine.source,
            machine_chosen=True,
            **(fields | more),
        )
