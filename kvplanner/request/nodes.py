"""A server over several machines that are alike: N nodes of M GPUs each are planned as one machine of N × M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.protocol import Engine
from kvplanner.engine.signature import signature
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine

MOST: Final = 64
_ROLES: Final[tuple[Role, ...]] = ("tensor_parallel", "pipeline_parallel", "data_parallel")


def nodes_of(engine: Engine, flags: Sequence[str]) -> int:
    """How many machines a command line says that it runs on. Raises BadInput for what is no such number."""
    found = signature(engine.name)
    if found is None or not found.nodes_flag:
        return 1
    for at, word in enumerate(flags):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == found.nodes_flag:
            text = value if equals else flags[at + 1] if at + 1 < len(flags) else ""
            if not text.isascii() or not text.isdecimal() or len(text) > 4 or not 1 <= int(text) <= MOST:
                raise BadInput(f"{text[:40]!r} is no number of machines", found.nodes_flag, f"Give 1 to {MOST}")
            return int(text)
    return 1


def over_nodes(
    machine: Machine, count: int, engine: Engine, options: Mapping[str, OptionValue], version: str | None
) -> tuple[Machine, tuple[str, ...]]:
    """The GPUs of `count` nodes, each like the machine where that has too few for the parallel sizes; and what to say.

    Where the machine has enough by itself, all nodes' GPUs were named: nothing is added.
    """
    if count == 1:
        return machine, ()
    wanted = 1
    for role in _ROLES:
        option = role_option(engine, version, role)
        value = options.get(option.name, 1) if option is not None else 1
        wanted *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    have = len(machine.devices)
    if have >= wanted or have * count < wanted:
        each, rest = divmod(have, count)
        share = f"{count} nodes of {each} GPUs each" if not rest else f"{have} GPUs"
        return machine, (f"Planned over {share}",)
    devices = tuple(
        device._replace(index=node * have + at, uuid="") for node in range(count)
        for at, device in enumerate(machine.devices)
    )  # fmt: skip
    return machine._replace(devices=devices), (f"Planned over {count} nodes of {have} GPUs each, all like this one",)
