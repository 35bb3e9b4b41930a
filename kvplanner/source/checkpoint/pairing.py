"""Pairs what the files hold with what the config implies: by module path, else by joined name, else by size.

Checkpoints spell some modules otherwise than the config's reader does: gate and up stored as one "gate_up_proj",
a wrapper's word more or less in the path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint.modules import Module, content_of
from kvplanner.source.checkpoint.names import without_prefix


class Pair(NamedTuple):
    """Groups of the config and the stored modules that are the same thing."""

    path: str
    groups: tuple[TensorGroup, ...]
    modules: tuple[Module, ...]


class Paired(NamedTuple):
    """Pairs in the config's order, groups that no file holds, and modules that no group explains."""

    pairs: list[Pair]
    unheld: dict[str, tuple[TensorGroup, ...]]
    unknown: dict[str, tuple[Module, ...]]


def groups_by_path(groups: Iterable[TensorGroup]) -> dict[str, tuple[TensorGroup, ...]]:
    """Groups by their module's path; one stored matrix that splits in parts is several groups of one path."""
    by_path: defaultdict[str, list[TensorGroup]] = defaultdict(list)
    for group in groups:
        by_path[without_prefix(group.path)].append(group)
    return {path: tuple(own) for path, own in by_path.items()}


def pair(held: Iterable[Module], wanted: dict[str, tuple[TensorGroup, ...]]) -> Paired:
    """Pairs stored modules with groups; every module and every group ends up in exactly one place."""
    by_path: defaultdict[str, list[Module]] = defaultdict(list)
    for module in held:
        by_path[module.path].append(module)
    unknown = {path: tuple(modules) for path, modules in by_path.items()}
    unheld = dict(wanted)
    pairs = [Pair(path, unheld.pop(path), unknown.pop(path)) for path in wanted if path in unknown]
    if unknown and unheld:
        pairs += _joined(unheld, unknown)
        pairs += _of_one_size(unheld, unknown)
    return Paired(pairs, unheld, unknown)


# A stored name that stands for several of the config's, by their last words.
_JOINED: Final[dict[str, tuple[str, ...]]] = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
}


def _joined(unheld: dict[str, tuple[TensorGroup, ...]], unknown: dict[str, tuple[Module, ...]]) -> list[Pair]:
    pairs: list[Pair] = []
    for path in list(unknown):
        bias = ".bias" if path.endswith(".bias") else ""
        parent, dot, last = path.removesuffix(bias).rpartition(".")
        parts = [f"{parent}{dot}{name}{bias}" for name in _JOINED.get(last, ())]
        if parts and all(part in unheld for part in parts):
            groups = tuple(group for part in parts for group in unheld.pop(part))
            pairs.append(Pair(path, groups, unknown.pop(path)))
    return pairs


def _of_one_size(unheld: dict[str, tuple[TensorGroup, ...]], unknown: dict[str, tuple[Module, ...]]) -> list[Pair]:
    """Pairs of the same last word and number of elements, where only one of each has them."""
    groups_of: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for path, groups in unheld.items():
        groups_of[(_last(path), sum(group.elements for group in groups))].append(path)
    modules_of: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for path, modules in unknown.items():
        modules_of[(_last(path), elements_of(modules))].append(path)
    return [
        Pair(modules_of[key][0], unheld.pop(paths[0]), unknown.pop(modules_of[key][0]))
        for key, paths in groups_of.items()
        if len(paths) == 1 and len(modules_of.get(key, ())) == 1
    ]


def _last(path: str) -> str:
    bias = ".bias" if path.endswith(".bias") else ""
    return path.removesuffix(bias).rpartition(".")[2] + bias


def elements_of(modules: Iterable[Module]) -> int:
    """Logical elements of stored modules."""
    total = 0
    for module in modules:
        elements = module.number
        for size in content_of(module.parts)[0]:
            elements *= size
        total += elements
    return total
