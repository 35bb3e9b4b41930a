"""Every architecture of the catalogue: names made from its groups' paths come back to the same groups.

One model of each architecture, each of its distinct layers once. What public checkpoints call their tensors is
tested by test_folder; here no rule for names may take a part of any architecture for something else.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from kvplanner.catalog import models
from kvplanner.errors import NotModelled
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.source.checkpoint import inventory as inventories
from kvplanner.source.checkpoint.kinds import kind_of, split_of
from kvplanner.source.checkpoint.modules import gather
from kvplanner.source.checkpoint.names import Place, without_prefix
from kvplanner.source.checkpoint.safetensors import Tensor

DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}


@cache
def samples() -> dict[str, Inventory]:
    """Architecture → an inventory without quantisation, each distinct layer once."""
    found: dict[str, Inventory] = {}
    for entry in models.index():
        if entry.like or entry.quantization or entry.architecture in found:
            continue
        try:
            inventory = models.load(entry.id).inventory
        except NotModelled:
            continue
        if inventory is not None and all(group.format.name in DTYPES for group, _ in inventory.groups()):
            blocks = tuple(range(len(inventory.blocks)))
            found[entry.architecture] = Inventory(inventory.blocks, blocks, inventory.outside)
    return found


def tensors_of(groups: tuple[TensorGroup, ...], prefix: str) -> list[Tensor]:
    """One tensor for each path, or for each expert of it."""
    by_path: defaultdict[str, list[TensorGroup]] = defaultdict(list)
    for group in groups:
        by_path[group.path].append(group)
    made = []
    for path, own in by_path.items():
        dtype, size = DTYPES[own[0].format.name]
        copies = own[0].count
        elements = sum(group.elements for group in own) // copies
        shape = (elements // own[0].shape[-1], own[0].shape[-1]) if len(own[0].shape) > 1 else (elements,)
        for number in range(copies):
            name = path.replace("experts.", f"experts.{number}.", 1) if copies > 1 else path
            last = "" if path.endswith(".bias") else ".weight"
            made.append(Tensor(f"{prefix}{name}{last}", dtype, shape, elements * size))
    return made


@pytest.mark.parametrize("architecture", sorted(samples()))
@pytest.mark.parametrize("wrapper", ["model.layers", "model.language_model.layers", "language_model.model.layers"])
def test_names_come_back_to_their_groups(architecture: str, wrapper: str) -> None:
    expected = samples()[architecture]
    tensors = [
        tensor for number, block in enumerate(expected.blocks) for tensor in tensors_of(block, f"{wrapper}.{number}.")
    ]
    main = tuple(group for group in expected.outside if group.place not in ("tower", "mtp"))
    tensors += tensors_of(main, "")
    expected = Inventory(expected.blocks, expected.block_of, main)
    built = inventories.build(gather(tensors, len(expected.blocks), "test"), expected, complete=True)
    assert built.problems == ()
    assert built.left_out_bytes == 0
    for number in range(len(expected.blocks)):
        assert sorted(built.inventory.blocks[number], key=repr) == sorted(expected.blocks[number], key=repr)
    assert sorted(built.inventory.outside, key=repr) == sorted(main, key=repr)


def test_most_architectures_are_covered() -> None:
    assert len(samples()) >= 60


def test_names_alone_tell_kind_and_split_of_nearly_all() -> None:
    """What a file without a config is read by. Names that mean two things in two architectures remain."""
    kinds: list[str] = []
    splits: list[str] = []
    total = 0
    for architecture, inventory in samples().items():
        for group, _ in inventory.groups():
            if group.place in ("tower", "mtp"):
                continue
            total += 1
            place: Place = "layer" if group.place == "layer" else "outside"
            path = group.path if place == "layer" else without_prefix(group.path)
            kind = kind_of(place, path)
            if kind != group.kind:
                kinds.append(f"{architecture}: {path} is {group.kind}, not {kind}")
            # A joined matrix is one module of a file: its keys and values split as its queries do.
            allowed = {"kv", "column"} if group.shard == "kv" else {group.shard}
            if kind == group.kind and len(group.shape) > 1 and split_of(kind, path)[0] not in allowed:
                splits.append(f"{architecture}: {path} is {group.shard}")
    assert len(kinds) <= total // 40, kinds
    assert len(splits) <= total // 100, splits
