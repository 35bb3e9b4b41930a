"""A server over several machines that are alike: N nodes of M GPUs each are planned as one machine of N × M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.protocol import Engine
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.signature import signature
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device, Machine

MOST: Final = 64
_ROLES: Final[tuple[Role, ...]] = ("tensor_parallel", "pipeline_parallel", "data_parallel")


def nodes_of(chosen: Engine, flags: Sequence[str]) -> int:
    """How many machines a command line says that it runs on. Raises BadInput for what is no such number."""
    found = signature(chosen.name)
    if found is None or not found.nodes_flag:
        return 1
    named = _number(flags, (found.nodes_flag,))
    if named:
        return named
    data = role_option(chosen, None, "data_parallel")
    local = _number(flags, tuple(flag for flag, value in found.replica_flags if value == "{local}"))
    replicas = _number(flags, data.flags) if data is not None and local else 0
    return -(-replicas // local) if replicas else 1


def _number(flags: Sequence[str], names: Sequence[str]) -> int:
    """The number behind a flag, 0 where it is not there. Raises BadInput for what is none of 1 to MOST."""
    for at, word in enumerate(flags):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in names:
            text = value if equals else flags[at + 1] if at + 1 < len(flags) else ""
            if not text.isascii() or not text.isdecimal() or len(text) > 4 or not 1 <= int(text) <= MOST:
                raise BadInput(f"{text[:40]!r} is no number of machines", name, f"Give 1 to {MOST}")
            return int(text)
    return 0


def on_nodes(request: PlanRequest, count: int) -> tuple[PlanRequest, str]:
    """The request over `count` machines, each like its own, and what to say of it.

    Where no parallel size is set, each machine is a pipeline stage of tensor ranks, as the engines' guides advise.
    Raises BadInput for no such number.
    """
    if not 1 <= count <= MOST:
        raise BadInput(f"{count:,} machines cannot be planned", "--nodes", f"Give 1 to {MOST}")
    chosen, have = engine(request.engine), len(request.machine.devices)
    sizes = {role: role_option(chosen, request.version, role) for role in _ROLES}
    options = dict(request.options)
    tensor, pipeline = sizes["tensor_parallel"], sizes["pipeline_parallel"]
    if tensor is not None and pipeline is not None and not any(o and o.name in options for o in sizes.values()):
        options |= {tensor.name: have, pipeline.name: count}
    machine = request.machine._replace(devices=_repeated(request.machine, count))
    said = f"Planned over {count} nodes of {have} GPUs each, all like this one"
    return request._replace(machine=machine, options=options), said


def _repeated(machine: Machine, count: int) -> tuple[Device, ...]:
    have = len(machine.devices)
    return tuple(
        device._replace(index=node * have + at, uuid="") for node in range(count)
        for at, device in enumerate(machine.devices)
    )  # fmt: skip


def over_nodes(
    machine: Machine, count: int, chosen: Engine, options: Mapping[str, OptionValue], version: str | None
) -> tuple[Machine, tuple[str, ...]]:
    """The GPUs of `count` nodes, each like the machine where that has too few for the parallel sizes; and what to say.

    Where the machine has enough by itself, all nodes' GPUs were named: nothing is added.
    """
    if count == 1:
        return machine, ()
    wanted = 1
    for role in _ROLES:
        option = role_option(chosen, version, role)
        value = options.get(option.name, 1) if option is not None else 1
        wanted *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    have = len(machine.devices)
    if have >= wanted or have * count < wanted:
        each, rest = divmod(have, count)
        share = f"{count} nodes of {each} GPUs each" if not rest else f"{have} GPUs"
        return machine, (f"Planned over {share}",)
    said = f"Planned over {count} nodes of {have} GPUs each, all like this one"
    return machine._replace(devices=_repeated(machine, count)), (said,)
