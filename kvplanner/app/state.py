"""PlanState: everything that the user has said about one plan, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplanner.engine.request import Ask
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from kvplanner.engine.request import PlanRequest
    from kvplanner.gpu.spec import Device, Machine
    from kvplanner.model.model import Model


class PlanState(NamedTuple):
    """What is set, and nothing that follows from it.

    model_text, machine_text: what `open_model` and `parse_machine` read ("" for devices that only this machine knows).
    devices: every device on offer; unticked: the indices of those that the plan leaves out.
    given_free: free bytes that the user stated, by device index. machine_chosen: False while the machine is only the
    start assumption. ask: engine, options, load and the like. extra: fields of a plan file that this version does not
    know. model_place: where the model lies on this machine, where nobody but a log or another program named that: kept
    with the session, and out of plan files.
    """

    model_text: str = ""
    model: Model | None = None
    machine_text: str = ""
    devices: tuple[Device, ...] = ()
    unticked: frozenset[int] = frozenset()
    machine_source: str = "catalogue"
    machine_chosen: bool = False
    given_free: Mapping[int, int] = {}
    ask: Ask = Ask()
    extra: Mapping[str, object] = {}
    model_place: str = ""

    @property
    def place(self) -> str:
        """What opens the model on this machine."""
        return self.model_place or self.model_text

    @property
    def machine(self) -> Machine | None:
        """The devices that the plan uses, None when there are none."""
        from kvplanner.gpu.spec import Machine

        ticked = tuple(self._with_free(device) for device in self.devices if device.index not in self.unticked)
        return Machine(ticked, self.machine_source) if ticked else None

    def _with_free(self, device: Device) -> Device:
        given = self.given_free.get(device.index)
        return device if given is None else device._replace(free_bytes=given, free_source="--free")

    def request(self) -> PlanRequest | None:
        """The request that an engine plans, None while a model or a machine is missing."""
        machine = self.machine
        if self.model is None or machine is None:
            return None
        return self.ask.request(self.model, machine)

    def changed(self, **fields: Any) -> PlanState:
        """The state with other fields, its own or those of what it asks for."""
        if "model_text" in fields:  # another model lies elsewhere
            fields.setdefault("model_place", "")
        asked = {name: fields.pop(name) for name in Ask._fields if name in fields}
        state = self._replace(**fields) if fields else self
        return state._replace(ask=state.ask._replace(**asked)) if asked else state
