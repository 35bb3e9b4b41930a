"""Tensor groups of the common building blocks: attention, feed-forward, experts, norms, embeddings.

Paths, fused labels and shards follow the checkpoints and how engines split them: query, key and value join to
qkv_proj; gate and up to gate_up_proj, in experts to w13, beside w2.
"""

from __future__ import annotations

from kvplanner.model.formats import WeightFormat, dense
from kvplanner.model.tensors import Place, Shard, TensorGroup, TensorKind

FP32 = dense("float32")


class Parts:
    """Makes tensor groups in one dtype.

    place: where all of them lie; prefix: put before every path.
    """

    __slots__ = ("format", "place", "prefix")

    def __init__(self, format_: WeightFormat, place: Place = "layer", prefix: str = "") -> None:
        self.format = format_
        self.place = place
        self.prefix = prefix

    def at(self, place: Place, prefix: str = "") -> Parts:
        """The same factory for another place."""
        return Parts(self.format, place, prefix)

    def tensor(
        self,
        path: str,
        kind: TensorKind,
        shape: tuple[int, ...],
        shard: Shard = "replicated",
        *,
        count: int = 1,
        unit: int = 1,
        fused: str = "",
        format_: WeightFormat | None = None,
    ) -> TensorGroup:
        """One group."""
        return TensorGroup(
            self.prefix + path, kind, shape, count, shard, format_ or self.format, unit, fused, self.place
        )

    def linear(
        self,
        path: str,
        kind: TensorKind,
        out: int,
        inp: int,
        shard: Shard = "replicated",
        *,
        bias: bool = False,
        count: int = 1,
        unit: int = 1,
        fused: str = "",
    ) -> list[TensorGroup]:
        """A matrix of `out` rows and `inp` columns, with its bias. A row-parallel bias is whole on each rank."""
        groups = [self.tensor(path, kind, (out, inp), shard, count=count, unit=unit, fused=fused)]
        if bias:
            split: Shard = "replicated" if shard in ("row", "expert_row") else shard
            groups.append(self.tensor(f"{path}.bias", kind, (out,), split, count=count, unit=unit, fused=fused))
        return groups

    def norm(self, path: str, size: int, *, bias: bool = False, count: int = 1, shard: Shard = "replicated",
             unit: int = 1) -> list[TensorGroup]:  # fmt: skip
        """A norm's weight, with the bias of a LayerNorm."""
        groups = [self.tensor(path, "norm", (size,), shard, count=count, unit=unit)]
        if bias:
            groups.append(self.tensor(f"{path}.bias", "norm", (size,), shard, count=count, unit=unit))
        return groups

    def qkv(
        self,
        path: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        *,
        head_size_v: int | None = None,
        bias: bool = False,
        gate: bool = False,
        names: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj"),
        value: bool = True,
    ) -> list[TensorGroup]:
        """Query, key and value projections of grouped-query attention.

        gate: the query projection also makes an output gate of its own size. names: three equal names stand
        for one stored matrix, told apart here because key and value rows split by their own heads.
        value False: the value is the key (no matrix of its own).
        """
        v_size = head_size if head_size_v is None else head_size_v
        q_rows = heads * head_size * (2 if gate else 1)
        unit = head_size * (2 if gate else 1)
        groups = self.linear(f"{path}.{names[0]}", "attention", q_rows, hidden, "column",
                             bias=bias, unit=unit, fused="qkv_proj")  # fmt: skip
        groups += self.linear(f"{path}.{names[1]}", "attention", kv_heads * head_size, hidden, "kv",
                              bias=bias, unit=head_size, fused="qkv_proj")  # fmt: skip
        if value:
            groups += self.linear(f"{path}.{names[2]}", "attention", kv_heads * v_size, hidden, "kv",
                                  bias=bias, unit=v_size, fused="qkv_proj")  # fmt: skip
        return groups

    def mlp(
        self,
        path: str,
        hidden: int,
        width: int,
        *,
        matrices: int = 3,
        bias: bool = False,
        names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    ) -> list[TensorGroup]:
        """A feed-forward block: gate, up and down, or up and down alone (matrices 2).

        names: equal first two names stand for one stored matrix with the gate's rows first.
        """
        groups: list[TensorGroup] = []
        if matrices == 3:
            groups += self.linear(f"{path}.{names[0]}", "mlp", width, hidden, "column", bias=bias, fused="gate_up_proj")
        fused = "gate_up_proj" if matrices == 3 else ""
        groups += self.linear(f"{path}.{names[1]}", "mlp", width, hidden, "column", bias=bias, fused=fused)
        return groups + self.linear(f"{path}.{names[2]}", "mlp", hidden, width, "row", bias=bias)

    def experts(
        self,
        path: str,
        count: int,
        hidden: int,
        width: int,
        *,
        matrices: int = 3,
        bias: bool = False,
        names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    ) -> list[TensorGroup]:
        """`count` experts of one shape: w13 (or w1 alone) and w2."""
        groups: list[TensorGroup] = []
        if matrices == 3:
            groups += self.linear(f"{path}.{names[0]}", "experts", width, hidden, "expert_column",
                                  bias=bias, count=count, fused="w13")  # fmt: skip
        groups += self.linear(f"{path}.{names[1]}", "experts", width, hidden, "expert_column",
                              bias=bias, count=count, fused="w13")  # fmt: skip
        return groups + self.linear(f"{path}.{names[2]}", "experts", hidden, width, "expert_row",
                                    bias=bias, count=count, fused="w2")  # fmt: skip

    def router(self, path: str, experts: int, hidden: int, *, bias: bool = False) -> list[TensorGroup]:
        """The gate that chooses experts: whole on every rank."""
        return self.linear(path, "router", experts, hidden, bias=bias)

    def correction(self, path: str, experts: int) -> TensorGroup:
        """The router's selection bias: one fp32 value per expert."""
        return self.tensor(path, "router", (experts,), format_=FP32)


def as_mtp(groups: list[TensorGroup] | tuple[TensorGroup, ...], count: int = 1) -> list[TensorGroup]:
    """The groups as tensors of multi-token-prediction blocks."""
    return [g._replace(kind="mtp", place="mtp", count=g.count * count) for g in groups]
