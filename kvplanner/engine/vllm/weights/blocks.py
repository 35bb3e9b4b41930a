"""FP8 in blocks: what a rank holds of a matrix must be whole blocks, in the releases that do not pad or cut them.

Experts: quantization/fp8.py create_weights (vllm-project/vllm#48173: refused in July 2026; 0.33 makes blocks smaller).
Other matrices: utils/fp8_utils.py validate_fp8_block_shape (vllm-project/vllm#52997: refused in August 2026); a remark
only, since some classes load theirs in another way.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.shard import Local
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights.shard import expert_ranks
from kvplanner.errors import BadInput
from kvplanner.model.tensors import TensorGroup

# The last release that surely refuses, and the first that surely does not.
_EXPERTS_REFUSED: Final = (24, 99)
_EXPERTS_CUT: Final = (33, 0)
_KINDS: Final = ("experts", "mlp", "attention")


def check_blocks(group: TensorGroup, local: Local, settings: Settings) -> str:
    """A remark where a release may refuse a share of a matrix that is not whole blocks, "" where none does.

    Raises BadInput, in words near the engine's, where the release surely refuses it.
    """
    experts = group.kind == "experts"
    ranks = expert_ranks(settings).cut if experts else settings.parallel.tp
    by_rows, by_columns = group.shard in ("column", "kv", "expert_column"), group.shard in ("row", "expert_row")
    if group.kind not in _KINDS or group.format.layout != "block" or ranks == 1:
        return ""
    if not (by_rows or by_columns) or not local.columns:
        return ""
    size, block = (local.rows, group.format.block_rows) if by_rows else (local.columns, group.format.block_columns)
    if size % block == 0 or (experts and settings.version >= _EXPERTS_CUT):
        return ""
    said = _words(experts, by_rows, size, block)
    if experts and settings.version <= _EXPERTS_REFUSED:
        remedy = "Use fewer ranks, or --enable-expert-parallel"
        raise BadInput(f"{said} ({group.path})", "--tensor-parallel-size", remedy)
    return f"this release may refuse the split: {said}"


def _words(experts: bool, by_rows: bool, size: int, block: int) -> str:
    if experts:
        side = "The output_size of gate's and up's weight" if by_rows else "The input_size of down's weight"
    else:
        side = "Weight output_partition_size" if by_rows else "Weight input_size_per_partition"
    name = "block_n" if by_rows else "block_k"
    return f"{side} = {size} is not divisible by weight quantization {name} = {block}"
