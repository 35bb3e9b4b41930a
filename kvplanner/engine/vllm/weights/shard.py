"""How vLLM cuts one tensor over ranks: local rows, columns and copies.

Rules: vLLM 0.33 model_executor/layers/{linear,vocab_parallel_embedding}.py and layers/fused_moe/config.py.
"""

from __future__ import annotations

from kvplanner.engine.shared.shard import VOCAB_PADDING, Local, Uneven, flat
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.model.tensors import TensorGroup
from kvplanner.units import ceil_div, round_up


def expert_ranks(settings: Settings) -> int:
    """Ranks over which experts are cut or spread: tensor × data × prefill-context parallel."""
    return settings.parallel.tp * settings.parallel.dp * settings.parallel.pcp


def local_experts(experts: int, settings: Settings) -> int:
    """Whole experts on the fullest rank under expert parallelism, redundant ones included."""
    return ceil_div(experts + settings.parallel.redundant_experts, expert_ranks(settings))


def cut(group: TensorGroup, settings: Settings, experts: int = 0) -> Local:
    """The part of a group on one rank (the fullest where ranks differ).

    experts: routed experts per layer, which tells how many of the group's tensors belong to one expert.
    """
    rows, columns = flat(group.shape)
    tp = settings.parallel.tp
    if group.kind == "experts" and group.shard == "replicated":
        return _cut_experts(group, rows, columns, settings, experts)
    if group.shard == "replicated" or (group.place == "tower" and settings.multimodal.tower_data_parallel):
        return whole(group)
    if group.shard == "column":
        return Local(ceil_div(rows, tp), columns, group.count)
    if group.shard == "row":
        return Local(rows, ceil_div(columns, tp), group.count) if columns else Local(rows, 0, group.count)
    if group.shard == "kv":
        heads = max(1, rows // max(group.unit, 1))
        return Local(max(1, heads // tp) * max(group.unit, 1), columns, group.count)
    if group.shard == "vocab":
        return Local(round_up(rows, VOCAB_PADDING) // tp, columns, group.count)
    return _cut_experts(group, rows, columns, settings, experts)


def check_divides(group: TensorGroup, settings: Settings) -> None:
    """Raises BadInput where the engine cannot split a tensor evenly (distributed/utils.py divide)."""
    if group.place == "tower" and settings.multimodal.tower_data_parallel:
        return
    odd = uneven(group, settings.parallel.tp, 1 if settings.parallel.expert_parallel else expert_ranks(settings))
    if odd is not None:
        raise BadInput(
            f"{odd.size} is not divisible by {odd.ranks}: the {odd.what} of {group.path} cannot be split evenly over "
            "the ranks",
            "--tensor-parallel-size",
            f"Choose a size that divides {odd.size}",
        )


def uneven(group: TensorGroup, tp: int, over: int) -> Uneven | None:
    """What of a group does not divide by tp ranks (experts by over), None where everything does.

    The vocabulary is padded first; KV heads may be copied instead, and experts spread whole.
    """
    rows, columns = flat(group.shape)
    if group.shard == "replicated" or (group.shard == "row" and not columns):
        return None
    found = Uneven("rows", rows, tp)
    if group.shard in ("expert_column", "expert_row"):
        found = found._replace(ranks=over)
    if group.shard in ("row", "expert_row"):
        found = found._replace(what="columns", size=columns)
    elif group.shard == "vocab":
        found = found._replace(what="padded rows", size=round_up(rows, VOCAB_PADDING))
    elif group.shard == "kv":
        heads = rows // max(group.unit, 1)
        found = found._replace(what="KV heads", size=heads, ranks=1 if heads and tp % heads == 0 else tp)
    return found if found.size % found.ranks else None


def whole(group: TensorGroup) -> Local:
    """The group as every rank holds it when it is not split."""
    rows, columns = flat(group.shape)
    return Local(rows, columns, group.count)


def _cut_experts(group: TensorGroup, rows: int, columns: int, settings: Settings, experts: int) -> Local:
    ranks = expert_ranks(settings)
    if settings.parallel.expert_parallel and ranks > 1:
        per_expert = ceil_div(group.count, experts) if experts else 1
        return Local(rows, columns, per_expert * local_experts(experts or group.count, settings))
    if group.shard == "replicated":
        return Local(rows, columns, group.count)
    if group.shard == "expert_column":
        return Local(ceil_div(rows, ranks), columns, group.count)
    return Local(rows, ceil_div(columns, ranks), group.count) if columns else Local(rows, 0, group.count)
