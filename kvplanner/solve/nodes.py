"""How many replicas of what, on how many machines, for a number of users; and how many users so many machines serve.

On paper: the engines' own ways (Ray, their multiprocessing, Kubernetes) run them. A replica takes some of a node's
GPUs, or several nodes as pipeline stages, each with all of a node's GPUs as tensor ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple
from kvplanner.solve.sweep import planned
from kvplanner.units import ceil_div

MOST_NODES: Final = 10_000
_MOST_WAYS: Final = 6
_WIDEST: Final = 8  # nodes of one replica
# More than any replica serves, and than any load asks for.
_CROWD: Final = 1 << 20


class Way(NamedTuple):
    """One kind of replica. gpus: of a replica; span: nodes that it lies on; a_node: replicas of a node, 1 for a span.

    plan: of one replica, for as many users as it serves. users, sure_users: of each replica. replicas, nodes: for the
    users that are asked for, or that so many nodes hold.
    """

    gpus: int
    span: int
    a_node: int
    plan: Plan
    users: int
    sure_users: int
    replicas: int = 0
    nodes: int = 0

    @property
    def serves(self) -> int:
        """Users of all replicas, by the values."""
        return self.users * self.replicas

    @property
    def surely_serves(self) -> int:
        """Users of all replicas at the worse end of every band."""
        return self.sure_users * self.replicas


def for_users(request: PlanRequest, users: int) -> tuple[Way, ...]:
    """The ways that surely serve so many users, the fewest nodes and GPUs first. machine: one node.

    Raises BadInput where no load is said, or a node's GPUs are not alike.
    """
    found = []
    for way in _ways(request):
        if way.sure_users:
            replicas = ceil_div(users, way.sure_users)
            nodes = ceil_div(replicas, way.a_node) * way.span
            if nodes <= MOST_NODES:
                found.append(way._replace(replicas=replicas, nodes=nodes))
    return _best(sorted(found, key=lambda way: (way.nodes, way.replicas * way.gpus, way.span, way.gpus)))


def on_nodes(request: PlanRequest, nodes: int) -> tuple[Way, ...]:
    """The ways to fill so many nodes, those that surely serve the most users first. Raises as `for_users`."""
    if not 1 <= nodes <= MOST_NODES:
        raise BadInput(f"{nodes:,} machines cannot be planned", "--nodes", f"Give 1 to {MOST_NODES:,}")
    found = [
        way._replace(replicas=nodes // way.span * way.a_node, nodes=nodes)
        for way in _ways(request) if way.users and way.span <= nodes
    ]  # fmt: skip
    return _best(sorted(found, key=lambda way: (-way.surely_serves, -way.serves, way.gpus)))


def _best(ways: Sequence[Way]) -> tuple[Way, ...]:
    """The first of them, without those that another is better than in every respect."""
    kept: list[Way] = []
    for way in ways:
        gpus = way.replicas * way.gpus
        if not any(
            other.nodes <= way.nodes and other.replicas * other.gpus <= gpus
            and other.surely_serves >= way.surely_serves for other in kept
        ):  # fmt: skip
            kept.append(way)
    return tuple(kept[:_MOST_WAYS])


def _ways(request: PlanRequest) -> Iterator[Way]:
    devices = request.machine.devices
    if request.load is None:
        raise BadInput("a request's tokens are needed", "--load", "Say users and their tokens: --load 500@1500+500")
    if not devices or any(device.gpu.id != devices[0].gpu.id for device in devices):
        raise BadInput("the GPUs of a node are not alike", "--gpu", "Name one kind: --gpu 8xH100")
    chosen, whole = engine(request.engine), len(devices)
    tensor, pipeline, data = (
        role_option(chosen, request.version, role) for role in ("tensor_parallel", "pipeline_parallel", "data_parallel")
    )
    sizes = [size for size in chosen.allowed(tensor.name, request.model) if size <= whole] if tensor else []
    sizes = sizes or [size for size in range(1, whole + 1) if not whole % size]
    for size in sizes:
        options = {tensor.name: size} if tensor else {}
        way = _way(request, size, 1, whole // size, options, data.name if data else "")
        if way is not None:
            yield way
    if tensor is None or pipeline is None:
        return
    for span in range(2, _WIDEST + 1):
        options = {tensor.name: max(sizes), pipeline.name: span}
        way = _way(request, max(sizes), span, 1, options, data.name if data else "")
        if way is not None:
            yield way


def _way(
    request: PlanRequest, size: int, span: int, a_node: int, options: Mapping[str, OptionValue], replicas: str
) -> Way | None:
    """One kind of replica, None where it does not start."""
    assert request.load is not None
    own = {name: value for name, value in request.options.items() if name != replicas}
    device = request.machine.devices[0]
    machine = request.machine._replace(devices=tuple(device._replace(index=at, uuid="") for at in range(size * span)))
    plan = planned(
        request._replace(machine=machine, options={**own, **options}, load=request.load._replace(users=_CROWD))
    )
    if isinstance(plan, str) or not plan.fits:
        return None
    limits = plan.limits
    return Way(size * span, span, a_node, plan, limits.serves_users or 0, limits.sure_serves_users or 0)
