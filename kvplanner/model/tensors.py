"""Inventory: a model's tensors as counted groups, with how an engine may split each over ranks.

Never one object per tensor: identical layers share one block, identical experts one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kvplanner.model.formats import WeightFormat
from kvplanner.record import NamedTuple

TensorKind = Literal[
    "embedding", "head", "attention", "state", "mlp", "experts", "router", "norm", "tower", "mtp", "other"
]  # fmt: skip
# How tensor-parallel ranks share a tensor of shape (out, in) or (out,):
#   replicated  whole on every rank
#   column      rows (dim 0) split evenly
#   row         columns (dim 1) split evenly; a 1-d tensor (a row-parallel bias) is whole on each rank
#   kv          rows split by KV heads, and copied where there are more ranks than heads
#   vocab       rows padded to a multiple of 64, then split evenly
#   expert_column, expert_row  as column and row within each expert; or whole experts spread under expert parallelism
Shard = Literal["replicated", "column", "row", "kv", "vocab", "expert_column", "expert_row"]
# Which pipeline stages hold a tensor outside the layers. "first+last": the embedding of a tied model.
Place = Literal["layer", "first", "last", "first+last", "every", "tower", "mtp"]


class TensorGroup(NamedTuple):
    """`count` tensors of one shape.

    path: the module's dotted name below its layer or below the model, as checkpoints spell it
    ("self_attn.q_proj"); shape: logical (out, in), before any packing; format: how the file stores it.
    unit: rows that must stay together when split (the head size for "kv"); fused: pieces that the engine
    joins into one matrix carry the same label ("qkv_proj", "gate_up_proj").
    """

    path: str
    kind: TensorKind
    shape: tuple[int, ...]
    count: int  # type: ignore[assignment]  # hides a tuple's method, which nobody asks a value for
    shard: Shard
    format: WeightFormat
    unit: int = 1
    fused: str = ""
    place: Place = "layer"

    @property
    def elements(self) -> int:
        """Logical elements of all `count` tensors."""
        total = self.count
        for size in self.shape:
            total *= size
        return total

    @property
    def stored_bytes(self) -> int:
        """Bytes of all `count` tensors in a checkpoint, scales included."""
        return self.count * self.format.bytes_of(self.shape)


class Inventory(NamedTuple):
    """All tensors of a model.

    blocks: the distinct layer bodies; block_of[i]: which of them layer i is. Blocks may be finer than
    ModelSpec.layers, since quantisation may skip single layers.
    outside: embeddings, final norm, head, towers, MTP blocks.
    exact: counted from file headers rather than from the config.
    """

    blocks: tuple[tuple[TensorGroup, ...], ...]
    block_of: tuple[int, ...]
    outside: tuple[TensorGroup, ...]
    exact: bool = False

    def groups(self) -> Iterator[tuple[TensorGroup, int]]:
        """Every group with how many layers hold it (1 outside the layers)."""
        for index, block in enumerate(self.blocks):
            layers = self.block_of.count(index)
            for group in block:
                yield group, layers
        for group in self.outside:
            yield group, 1

    def parameters(self, mtp: bool = False) -> int:
        """Logical elements; a tied head is counted once, MTP blocks only on request."""
        return sum(g.elements * n for g, n in self.groups() if mtp or g.place != "mtp")

    def stored_bytes(self, mtp: bool = True) -> int:
        """Bytes of the tensors in a checkpoint."""
        return sum(g.stored_bytes * n for g, n in self.groups() if mtp or g.place != "mtp")
