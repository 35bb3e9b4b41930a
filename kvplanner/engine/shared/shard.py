"""How tensor-parallel servers cut one tensor over ranks: local rows, columns and copies.

The rules are those of the Megatron-style layers that vLLM and SGLang share: layers/linear.py,
layers/vocab_parallel_embedding.py and layers/fused_moe below model_executor (vLLM 0.33) or srt (SGLang 0.5.23).
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.spec import ModelSpec, State
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div, round_up

VOCAB_PADDING: Final = 64


class Local(NamedTuple):
    """What one rank holds of a group: `copies` matrices of rows × columns (columns 0: a vector of rows)."""

    rows: int
    columns: int
    copies: int

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.rows * (self.columns or 1) * self.copies

    @property
    def shape(self) -> tuple[int, ...]:
        """One matrix's shape."""
        return (self.rows, self.columns) if self.columns else (self.rows,)


class ExpertRanks(NamedTuple):
    """How ranks share experts: each is cut over `cut` ranks, and whole ones are spread over `spread`.

    redundant: copies of busy experts beside the model's own.
    """

    cut: int
    spread: int = 1
    redundant: int = 0

    def local(self, experts: int) -> int:
        """Experts on the fullest rank."""
        return ceil_div(experts + self.redundant, self.spread)


class Uneven(NamedTuple):
    """A dimension that does not divide: what it counts, how many, over how many ranks."""

    what: str
    size: int
    ranks: int


def cut(group: TensorGroup, ranks: int) -> Local:
    """The part of a group that is no expert on one of `ranks` ranks (the fullest where they differ)."""
    rows, columns = flat(group.shape)
    if ranks == 1 and group.shard not in ("kv", "vocab"):
        return Local(rows, columns, group.count)
    if group.shard in ("column", "expert_column"):
        return Local(ceil_div(rows, ranks), columns, group.count)
    if group.shard in ("row", "expert_row"):
        return Local(rows, ceil_div(columns, ranks), group.count) if columns else Local(rows, 0, group.count)
    if group.shard == "kv":
        heads = max(1, rows // max(group.unit, 1))
        return Local(max(1, heads // ranks) * max(group.unit, 1), columns, group.count)
    if group.shard == "vocab":
        return Local(round_up(rows, VOCAB_PADDING) // ranks, columns, group.count)
    return Local(rows, columns, group.count)


def cut_experts(group: TensorGroup, ranks: ExpertRanks, experts: int) -> Local:
    """The part of a group of expert tensors on one rank.

    experts: routed experts per layer, which tells how many of the group's tensors belong to one expert.
    """
    whole = cut(group, ranks.cut)
    if ranks.spread <= 1 and not ranks.redundant:
        return whole
    per_expert = ceil_div(group.count, experts) if experts else 1
    return whole._replace(copies=per_expert * ranks.local(experts or group.count))


def state_rows(group: TensorGroup, spec: ModelSpec, ranks: int) -> int:
    """Rows that each rank holds beyond its even share: a Mamba-2 layer's groups are copied where ranks outnumber them.

    The input projection and the convolution have two vectors of state_size per group
    (layers/mamba/mamba_utils.py extra_groups_for_head_shards of vLLM and, below attention/, of SGLang).
    """
    if group.kind != "state" or not group.path.removesuffix(".bias").endswith(("in_proj", "conv1d")):
        return 0
    mixers = (m for layer in spec.layers for m in layer.mixers if isinstance(m, State) and m.kind == "mamba2")
    mixer = next(mixers, None)
    if mixer is None or not mixer.groups or mixer.groups % ranks == 0:
        return 0
    return 2 * mixer.state_size * (ranks - mixer.groups) // ranks


def uneven(group: TensorGroup, ranks: int) -> Uneven | None:
    """What of a group does not divide by `ranks`, None where everything does.

    The vocabulary is padded first; KV heads may be copied instead.
    """
    rows, columns = flat(group.shape)
    if group.shard == "replicated" or (group.shard in ("row", "expert_row") and not columns):
        return None
    found = Uneven("rows", rows, ranks)
    if group.shard in ("row", "expert_row"):
        found = Uneven("columns", columns, ranks)
    elif group.shard == "vocab":
        found = Uneven("padded rows", round_up(rows, VOCAB_PADDING), ranks)
    elif group.shard == "kv":
        heads = rows // max(group.unit, 1)
        found = Uneven("KV heads", heads, 1 if heads and ranks % heads == 0 else ranks)
    return found if found.size % found.ranks else None


def flat(shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) of a shape: everything before the last size is rows; a vector has no columns."""
    if len(shape) < 2:
        return (shape[0] if shape else 1), 0
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1]
