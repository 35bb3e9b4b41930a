"""Machines in words: what each of several holds of a plan, and how many are needed, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.report.loads import tokens_each
from kvplanner.report.segments import name_of
from kvplanner.report.table import table
from kvplanner.sized_text import show_size
from kvplanner.units import ByteUnit, counted, format_count

if TYPE_CHECKING:
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.nodes import Way

SCHEMA: Final = "kvplanner.nodes/1"
_MAIN: Final = ("weights", "kv_cache")
_NOT_ITS_OWN: Final = frozenset({"driver_reserved", "other", "headroom"})


def memory_by_node(plan: Plan, nodes: int, unit: ByteUnit = "GiB") -> Iterator[str]:
    """What each node's GPUs hold, the nodes filled in the order of the ranks: those alike of a node together."""
    devices = sorted(plan.gpus, key=lambda found: found.device.index)
    each = -(-len(devices) // nodes)
    for node in range(nodes):
        here = devices[node * each : (node + 1) * each]
        if not here:
            yield f"Node {node}: holds nothing"
            continue
        groups: dict[tuple[int, ...], list[DevicePlan]] = {}
        for device in here:
            groups.setdefault(tuple(segment.bytes for segment in device.segments), []).append(device)
        yield f"Node {node}: {'; '.join(_group(group, unit) for group in groups.values())}"


def _group(group: Sequence[DevicePlan], unit: ByteUnit) -> str:
    first, last = group[0], group[-1]
    ranks = first.role if len(group) == 1 else f"{first.role} to {last.role}"
    sizes = {segment.kind: segment.bytes for segment in first.in_use}
    taken = sum(size for kind, size in sizes.items() if kind not in _NOT_ITS_OWN)
    parts = ", ".join(f"{name_of(kind)} {show_size(sizes[kind], unit)}" for kind in _MAIN if kind in sizes)
    each = " each" if len(group) > 1 else ""
    return f"{counted(len(group), 'GPU', 'GPUs')} ({ranks}) with {show_size(taken, unit)}{each}: {parts}"


def lines(ways: Sequence[Way], request: PlanRequest, users: int, nodes: int | None) -> list[str]:
    """A heading, then a way a row, the best first. nodes: None where they were asked for."""
    load = request.load
    assert load is not None
    tokens = tokens_each(load)
    asked = f"{format_count(users)} users of {tokens}" if nodes is None else f"users of {tokens} on {nodes} nodes"
    told = [f"{request.model.id} for {asked}, nodes of {request.machine.describe()}, {engine(request.engine).title}"]
    if not ways:
        return [*told, "No replica starts on such nodes and serves a user: see plan --remedies"]
    rows = [("a replica", "users each", "replicas", "nodes", "GPUs", "users in all")]
    rows += [
        (_replica(way), _span(way.sure_users, way.users), format_count(way.replicas), format_count(way.nodes),
         format_count(way.replicas * way.gpus), _span(way.surely_serves, way.serves))
        for way in ways
    ]  # fmt: skip
    told += ["", *table(rows, "<>>>>>")]
    if any(way.users > way.sure_users for way in ways):
        told += ["", "Users are those that are surely served; behind them those that may be."]
    return told


def _replica(way: Way) -> str:
    if way.span > 1:
        return f"{way.span} nodes, {way.gpus // way.span} GPUs of each"
    return counted(way.gpus, "GPU", "GPUs")


def _span(surely: int, may: int) -> str:
    return format_count(surely) if surely >= may else f"{format_count(surely)} ({format_count(may)})"


def to_json(
    ways: Sequence[Way], request: PlanRequest, users: int, nodes: int | None, machine: str
) -> dict[str, object]:
    """The document; machine: the words that name one node."""
    load = request.load
    return {
        "schema": SCHEMA,
        "model": request.model.id,
        "node": machine,
        "engine": {"name": request.engine, "version": request.version or engine(request.engine).versions[0]},
        "load": load._asdict() if load else None,
        "users": users if nodes is None else None,
        "nodes": nodes,
        "ways": [
            {
                "gpus": way.gpus, "span": way.span, "a_node": way.a_node, "users": way.users,
                "sure_users": way.sure_users, "replicas": way.replicas, "nodes": way.nodes, "serves": way.serves,
                "surely_serves": way.surely_serves,
                "options": dict(way.plan.request.options),
            }
            for way in ways
        ],
    }  # fmt: skip
