"""Over which ranks vLLM cuts a tensor.

Rules: vLLM 0.33 model_executor/layers/{linear,vocab_parallel_embedding}.py and layers/fused_moe/config.py.
"""

from __future__ import annotations

from kvplanner.engine.shared import shard
from kvplanner.engine.shared.shard import ExpertRanks, Local
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.model.tensors import TensorGroup


def expert_ranks(settings: Settings) -> ExpertRanks:
    """Experts are cut over the tensor × data × prefill-context ranks, or under expert parallelism spread over them."""
    parallel = settings.parallel
    ranks = parallel.tp * parallel.dp * parallel.pcp
    if parallel.expert_parallel and ranks > 1:
        return ExpertRanks(cut=1, spread=ranks, redundant=parallel.redundant_experts)
    return ExpertRanks(cut=ranks)


def cut(group: TensorGroup, settings: Settings, experts: int = 0) -> Local:
    """The part of a group on one rank (the fullest where ranks differ).

    experts: routed experts per layer, which tells how many of the group's tensors belong to one expert.
    """
    if group.place == "tower" and settings.multimodal.tower_data_parallel:
        return shard.cut(group, 1)
    if _of_experts(group):
        return shard.cut_experts(group, expert_ranks(settings), experts)
    return shard.cut(group, settings.parallel.tp)


def check_divides(group: TensorGroup, settings: Settings) -> None:
    """Raises BadInput where the engine cannot split a tensor evenly (distributed/utils.py divide)."""
    if group.place == "tower" and settings.multimodal.tower_data_parallel:
        return
    odd = shard.uneven(group, expert_ranks(settings).cut if _of_experts(group) else settings.parallel.tp)
    if odd is not None:
        raise BadInput(
            f"{odd.size} is not divisible by {odd.ranks}: the {odd.what} of {group.path} cannot be split evenly over "
            "the ranks",
            "--tensor-parallel-size",
            f"Choose a size that divides {odd.size}",
        )


def _of_experts(group: TensorGroup) -> bool:
    return group.shard in ("expert_column", "expert_row") or (group.kind == "experts" and group.shard == "replicated")
