"""What starts a server on several machines: a command for each, or a Ray cluster and one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.signature import Signature
from kvplanner.errors import BadInput
from kvplanner.printable import printable

_HEAD: Final = "HEAD=10.0.0.1  # the first machine's address, as the others reach it"
_RAY_PORT: Final = 6379


def on_nodes(command: Sequence[str], found: Signature, nodes: int, replicas: int, held: Sequence[str]) -> str:
    """A shell command for each machine. command: start and flags, a line each; held: what each machine holds.

    replicas: data-parallel ones, which are spread over the machines whole where they can be. Raises BadInput where one
    machine is enough, or the engine knows no such flags.
    """
    flags = found.replica_flags if replicas > 1 and not replicas % nodes and found.replica_flags else found.node_flags
    _need(nodes, bool(flags), found, "it is started on one machine only")
    parts = [_HEAD]
    for node in range(nodes):
        values = {"nodes": nodes, "node": node, "local": replicas // nodes, "first": replicas // nodes * node}
        own = [" ".join(words) for words in _filled(flags, values)]
        own += list(found.node_worker) if node else []
        parts.append("\n".join((f"# {printable(held[node])}", " \\\n  ".join((*command, *own)))))
    return "\n\n".join(parts)


def through_ray(command: Sequence[str], found: Signature, nodes: int, held: Sequence[str]) -> str:
    """Ray on every machine, then the server on the first. Raises as `on_nodes`."""
    _need(nodes, bool(found.ray_flags), found, "it is not started through Ray")
    parts = [
        _HEAD,
        f"# On the first machine\nray start --head --port={_RAY_PORT}",
        f"# On each other machine\nray start --address=$HEAD:{_RAY_PORT}",
        "\n".join(("# On the first machine, once the others have joined",
                   *(f"# {printable(line)}" for line in held),
                   " \\\n  ".join((*command, " ".join(found.ray_flags))))),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _filled(flags: Sequence[tuple[str, str]], values: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(flag, value.format(**values)) for flag, value in flags]


def _need(nodes: int, known: bool, found: Signature, why: str) -> None:
    if nodes < 2:
        raise BadInput("one machine runs this plan", "--launch", "Say on how many: --nodes 2, of GPUs as --gpu names")
    if not known:
        raise BadInput(f"{found.title}: {why}", "--launch", "Use --launch shell")
