"""Several servers on the same GPUs, started one after the other: each sees what those before it have left.

An engine's share is of the whole memory, whoever else is there (vLLM's utilisation, SGLang's fraction of what is free),
so that the order of start decides who fits: each plan is made on the devices as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device, Machine
from kvplanner.record import NamedTuple
from kvplanner.solve.sweep import planned

MOST: Final = 4
# What a plan counts that is no server's own.
_NOT_ITS_OWN: Final = frozenset({"driver_reserved", "other", "headroom"})


class Placed(NamedTuple):
    """A server in its turn. free_bytes: of each device before it starts, None where nothing was taken or told.

    plan: made with what the others take by their values, and why there is none where it is refused; worst: with what
    they take at most, which says whether it is sure.
    """

    name: str
    plan: Plan | str
    worst: Plan | str
    free_bytes: tuple[int | None, ...]

    @property
    def fits(self) -> bool | None:
        """Whether it starts, None where that cannot be told."""
        return self.plan.fits if isinstance(self.plan, Plan) else False

    @property
    def sure(self) -> bool:
        """Whether it starts at the worse end of every band, its own and the others'."""
        return isinstance(self.worst, Plan) and self.worst.sure

    @property
    def stage(self) -> str | None:
        """Where it fails, None where it does not."""
        return self.plan.stage if isinstance(self.plan, Plan) else None


def together(servers: Sequence[tuple[str, PlanRequest]], machine: Machine) -> tuple[Placed, ...]:
    """The servers in their order of start. One that fails leaves nothing behind.

    Raises BadInput for none, for more than MOST, and for one that takes GPUs of its own choice.
    """
    if not 1 <= len(servers) <= MOST:
        raise BadInput(f"{len(servers)} servers cannot be placed", "together", f"Give 1 to {MOST}")
    for name, request in servers:
        if len(request.machine.devices) != len(machine.devices):
            raise BadInput("chooses GPUs of its own, and shares none by that", name[:60], "Plan its GPUs apart")
    near = worst = machine
    placed = []
    for name, request in servers:
        plan = planned(request._replace(machine=near))
        bad = planned(request._replace(machine=worst))
        placed.append(Placed(name, plan, bad, tuple(d.free_bytes for d in near.devices)))
        if isinstance(plan, Plan) and plan.fits:
            near, worst = _less(near, plan, name, high=False), _less(worst, plan, name, high=True)
    return tuple(placed)


def orders(servers: Sequence[tuple[str, PlanRequest]], machine: Machine) -> Iterator[tuple[Placed, ...]]:
    """Every order of start, that of the servers as given first."""
    for order in permutations(servers):
        yield together(order, machine)


def held(plan: Plan, *, high: bool = False) -> dict[int, int]:
    """Bytes that a serving plan takes of each GPU, by the GPU's index; high: at most."""
    return {
        device.device.index: sum(
            segment.estimate.high if high else segment.bytes
            for segment in device.segments if segment.kind not in _NOT_ITS_OWN
        )
        for device in plan.devices if device.device.kind == "gpu"
    }  # fmt: skip


def _less(machine: Machine, plan: Plan, name: str, *, high: bool) -> Machine:
    """The machine while a plan serves on it."""
    taken = held(plan, high=high)
    return machine._replace(
        devices=tuple(_left(device, taken.get(device.index, 0), name) for device in machine.devices)
    )


def _left(device: Device, taken: int, name: str) -> Device:
    if not taken:
        return device
    total = device.gpu.cuda_total.value if device.gpu.cuda_total else None
    free = device.free_bytes if device.free_bytes is not None else total
    if free is None:
        raise BadInput("the memory of this GPU is not known", device.gpu.name, "Say what is free with --free")
    return device._replace(free_bytes=max(free - taken, 0), free_source=f"beside {name}")
