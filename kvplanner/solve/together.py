"""Several servers on the same GPUs, started one after the other: each sees what those before it have left.

An engine's share is of the whole memory, whoever else is there (vLLM's utilisation, SGLang's fraction of what is free),
so that the order of start decides who fits: each plan is made on the devices as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device, Machine
from kvplanner.record import NamedTuple
from kvplanner.solve.sweep import planned

MOST: Final = 4
# What a plan counts that is no server's own.
_NOT_ITS_OWN: Final = frozenset({"driver_reserved", "other", "headroom"})
# What sleep gives back (vLLM's device_allocator/cumem.py: weights and cache).
_WHILE_AWAKE: Final = frozenset({"weights", "kv_cache", "activations", "fragmentation"})


class Placed(NamedTuple):
    """A server in its turn. number: its place among the servers as they were named.

    gpus: the indices of those that it sees, in its own order; free_bytes: of each before it starts, None where nothing
    was taken or told.

    unloads: numbers of those that its own server, which holds several models, unloads to load it, once they are idle.

    plan: made with what the others take by their values, and why there is none where it is refused; worst: with what
    they take at most, which says whether it is sure.
    """

    name: str
    plan: Plan | str
    worst: Plan | str
    free_bytes: tuple[int | None, ...]
    gpus: tuple[int, ...] = ()
    number: int = 1
    unloads: tuple[int, ...] = ()

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

    @property
    def taken_bytes(self) -> dict[int, int]:
        """What it takes once it serves, by the index of the GPU; nothing where it does not start."""
        if not isinstance(self.plan, Plan) or not self.plan.fits:
            return {}
        return {self.gpus[own]: size for own, size in taken_by(self.plan).items() if size}


def together(
    servers: Sequence[tuple[str, PlanRequest]], machine: Machine, *, asleep: bool = False
) -> tuple[Placed, ...]:
    """The servers in their order of start, each on its own of the machine's GPUs. One that fails leaves nothing behind.

    asleep: whoever has a sleep mode is put to sleep before the next one starts. Raises BadInput for none, for more than
    MOST, and for one on GPUs that are not the machine's.
    """
    return _placed(list(enumerate(servers, 1)), machine, asleep)


def orders(
    servers: Sequence[tuple[str, PlanRequest]], machine: Machine, *, asleep: bool = False
) -> Iterator[tuple[Placed, ...]]:
    """Every order of start, that of the servers as given first. Raises as `together`."""
    for order in permutations(enumerate(servers, 1)):
        yield _placed(order, machine, asleep)


def _placed(
    servers: Sequence[tuple[int, tuple[str, PlanRequest]]], machine: Machine, asleep: bool
) -> tuple[Placed, ...]:
    if not 1 <= len(servers) <= MOST:
        raise BadInput(f"{len(servers)} servers cannot be placed", "together", f"Give 1 to {MOST}")
    placed: list[Placed] = []
    running: dict[int, tuple[Placed, PlanRequest]] = {}
    for number, (name, request) in servers:
        places = _places(name, request.machine, machine)
        unloads = []
        while True:
            near, worst = (_now(machine, running, high=high, asleep=asleep) for high in (False, True))
            mates = [mate for mate, (_, its) in running.items() if its.engine == request.engine]
            if not mates or not engine(request.engine).makes_room(_seen(request, places, near), len(mates)):
                break
            unloads.append(mates[0])  # of idle models with the same keep-alive, that which was loaded first
            del running[mates[0]]
        plan, bad = (planned(_seen(request, places, left)) for left in (near, worst))
        free = tuple(near[place].free_bytes for place in places)
        placed.append(Placed(name, plan, bad, free, places, number, tuple(unloads)))
        if isinstance(plan, Plan) and plan.fits:
            running[number] = placed[-1], request
    return tuple(placed)


def _now(
    machine: Machine, running: Mapping[int, tuple[Placed, PlanRequest]], *, high: bool, asleep: bool
) -> dict[int, Device]:
    """The machine's GPUs beside what runs on them. high: where that takes most."""
    left = dict(enumerate(machine.devices))
    for one, request in running.values():
        assert isinstance(one.plan, Plan)
        for own, taken in taken_by(one.plan, high=high, asleep=asleep and _sleeps(request)).items():
            place = one.gpus[own]
            left[place] = _left(left[place], taken, one.name)
    return left


def _places(name: str, own: Machine, machine: Machine) -> tuple[int, ...]:
    """Which of the machine's GPUs a server sees: by their UUIDs, else by their indices."""
    by_uuid = {device.uuid: place for place, device in enumerate(machine.devices) if device.uuid}
    by_index = {device.index: place for place, device in enumerate(machine.devices)}
    found = [by_uuid.get(device.uuid) if device.uuid else by_index.get(device.index) for device in own.devices]
    places = [place for place in found if place is not None]
    alike = all(
        machine.devices[place].gpu.id == device.gpu.id for place, device in zip(places, own.devices, strict=False)
    )
    if len(places) < len(found) or len(set(places)) < len(places) or not alike:
        raise BadInput("is on GPUs that are not this machine's", name[:60], "Name all of its GPUs with --gpu")
    return tuple(places)


def _seen(request: PlanRequest, places: Sequence[int], left: Mapping[int, Device]) -> PlanRequest:
    """The request on its GPUs as they are then, counted from 0 as the server counts them."""
    devices = tuple(left[place]._replace(index=own) for own, place in enumerate(places))
    return request._replace(machine=request.machine._replace(devices=devices))


def _sleeps(request: PlanRequest) -> bool:
    """Whether a server can be put to sleep."""
    option = role_option(engine(request.engine), request.version, "sleep")
    return option is not None and bool(request.options.get(option.name))


def taken_by(plan: Plan, *, high: bool = False, asleep: bool = False) -> dict[int, int]:
    """Bytes that a serving plan takes of each GPU, by the GPU's index; high: at most; asleep: while it sleeps."""
    left_out = _NOT_ITS_OWN | _WHILE_AWAKE if asleep else _NOT_ITS_OWN
    return {
        device.device.index: sum(
            segment.estimate.high if high else segment.bytes
            for segment in device.segments if segment.kind not in left_out
        )
        for device in plan.gpus
    }  # fmt: skip


def _left(device: Device, taken: int, name: str) -> Device:
    if not taken:
        return device
    total = device.gpu.cuda_total.value if device.gpu.cuda_total else None
    free = device.free_bytes if device.free_bytes is not None else total
    if free is None:
        raise BadInput("the memory of this GPU is not known", device.gpu.name, "Say what is free with --free")
    return device._replace(free_bytes=max(free - taken, 0), free_source=f"beside {name}")
