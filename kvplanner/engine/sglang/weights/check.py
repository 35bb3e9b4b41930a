"""Splits of tensors that SGLang refuses while it builds the model (layers/linear.py, quantization/fp8.py, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Settings, of_weights
from kvplanner.engine.sglang.weights import rules
from kvplanner.engine.sglang.weights.placement import expert_ranks, inventory_of, ranks_of
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.shard import flat, state_rows, uneven
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.model.tensors import TensorGroup

_BLOCK_KINDS: Final = ("experts", "mlp", "attention")


@by_identity(256, lambda _, settings: of_weights(settings))
def splits(model: Model, settings: Settings) -> bool:
    """Whether every tensor splits over the ranks: what a refusal costs is spent once for a number of them."""
    try:
        check_tensors(model, settings)
    except BadInput:
        return False
    return True


@by_identity(256, lambda _, settings: of_weights(settings))
def check_tensors(model: Model, settings: Settings) -> None:
    """Raises BadInput, in words near the engine's, for a tensor that does not split over the ranks."""
    for group, _ in inventory_of(model).groups():
        if group.place == "mtp" or rules.whole(group, model.spec):
            continue
        ranks = ranks_of(group, settings.parallel)
        if group.kind == "experts":
            ranks = expert_ranks(settings.parallel).cut
        _even(group, model, settings, ranks)
        _blocks(rules.pad_expert(group, settings), ranks)


def _even(group: TensorGroup, model: Model, settings: Settings, ranks: int) -> None:
    if state_rows(group, model.spec, settings.parallel.attention_tp):
        return
    odd = uneven(rules.as_split(rules.pad_expert(group, settings), model.spec), ranks)
    if odd is not None:
        raise BadInput(
            f"{odd.size} is not divisible by {odd.ranks}: the {odd.what} of {group.path} cannot be split evenly over "
            "the ranks (the engine ends with an AssertionError)", "--tp-size", f"Choose a size that divides {odd.size}",
        )  # fmt: skip


def _blocks(group: TensorGroup, ranks: int) -> None:
    """8-bit blocks must stay whole: what a rank has of a matrix is a multiple of their side."""
    if group.format.layout != "block" or group.kind not in _BLOCK_KINDS or ranks == 1 or group.place != "layer":
        return
    rows, columns = flat(group.shape)
    by_rows = group.shard in ("column", "expert_column")
    if not columns or (not by_rows and group.shard not in ("row", "expert_row")):
        return
    size, block = (rows, group.format.block_rows) if by_rows else (columns, group.format.block_columns)
    if not (size // ranks) % block:
        return
    name = "block_n" if by_rows else "block_k"
    what = "Weight output_partition_size" if by_rows else "Weight input_size_per_partition"
    if group.kind == "experts":
        what = "The output_size of gate's and up's weight" if by_rows else "The input_size of down's weight"
    raise BadInput(
        f"{what} = {size // ranks} is not divisible by weight quantization {name} = {block}", "--tp-size",
        "Use fewer ranks, or spread the experts with --ep-size" if group.kind == "experts" else "Use fewer ranks",
    )  # fmt: skip
