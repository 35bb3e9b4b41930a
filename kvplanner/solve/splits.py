"""How GPUs may share a model: tensor, pipeline and data parallel sizes, and in which order to try them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest

# As GPUs stand in machines: up to a node's in any number, more as whole nodes.
_NODE: Final = 8
GPU_COUNTS: Final = (*range(1, _NODE + 1), 2 * _NODE)
_SPLITS: Final = 3  # tensor, pipeline, data parallel: what is more spreads experts


def splits(request: PlanRequest, count: int, *, whole: bool = False) -> Iterator[dict[str, OptionValue]]:
    """Tensor, pipeline and data parallel sizes on up to `count` GPUs: large tensor sizes first, few stages first.

    Tensors that span nodes come last. whole: no replicas, and exactly `count` GPUs.
    """
    chosen = engine(request.engine)
    roles: tuple[Role, ...] = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    options = [role_option(chosen, request.version, role) for role in roles]
    tensor, stages, replicas = options
    if tensor is None:
        yield {}
        return
    sizes = [size for size in chosen.allowed(tensor.name, request.model) if size <= count] or [1]
    deep = chosen.allowed(stages.name, request.model) if stages is not None else (1,)
    for tp in sorted(sizes, key=lambda size: (size > _NODE, -size)):
        for pp in (p for p in deep if tp * p <= count):
            copies = count // (tp * pp) if replicas is not None else 1
            for dp in (1,) if whole else range(1, copies + 1):
                if whole and tp * pp != count:
                    continue
                made: dict[str, OptionValue] = {tensor.name: tp}
                made |= {stages.name: pp} if stages is not None else {}
                yield made | ({replicas.name: dp} if replicas is not None else {})


def preferred(sizes: dict[str, OptionValue]) -> tuple[int, int, int, int]:
    """More of it is preferred: few stages, few ranks of a tensor, experts where they are, many copies."""
    tensor, stages, copies, *experts = (*map(int, sizes.values()), *(1,) * (_SPLITS - len(sizes)))
    return -stages, -tensor, -len(experts), copies


def sizes_text(sizes: dict[str, OptionValue]) -> str:
    """ "TP 4, PP 2, DP 1, EP": by the order of `splits`."""
    names = ("TP", "PP", "DP", "EP")
    shown = zip(names, sizes.values(), strict=False)
    return ", ".join(name if name == names[_SPLITS] else f"{name} {size}" for name, size in shown)
