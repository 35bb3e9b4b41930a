"""Which ranks share a tensor in SGLang: attention by attention groups, experts by tensor or expert parallelism.

layers/dp_attention.py, layers/moe/fused_moe_triton/layer.py, models/*.py (0.5.23).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvplanner.engine.sglang.kv.cells import stage_layers
from kvplanner.engine.sglang.settings import Parallel, Settings
from kvplanner.engine.sglang.weights import rules
from kvplanner.engine.shared.shard import ExpertRanks, Local, cut, cut_experts, state_rows
from kvplanner.errors import NotModelled
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe
from kvplanner.model.tensors import Inventory, TensorGroup


def inventory_of(model: Model) -> Inventory:
    """The model's tensors. Raises NotModelled when only its layers are known."""
    if model.inventory is None:
        raise NotModelled(f"the tensors of {model.spec.architecture} are not known", model.id,
                          "Open the model's folder: its file headers tell")  # fmt: skip
    return model.inventory


def placed_bodies(model: Model, settings: Settings) -> Iterator[tuple[tuple[TensorGroup, Local], ...]]:
    """What a rank holds of one layer of each distinct body, in the order of the inventory's blocks."""
    inventory = inventory_of(model)
    experts = experts_of(model.spec)
    for body in inventory.blocks:
        whole = (*body, *rules.additions(body, inventory, model.spec))
        yield tuple((group, local(group, model.spec, settings, experts)) for group in whole)


def placed_outside(model: Model, settings: Settings) -> tuple[tuple[TensorGroup, Local], ...]:
    """What a rank of a stage that holds them has of the groups outside the layers."""
    inventory = inventory_of(model)
    experts = experts_of(model.spec)
    whole = (*inventory.outside, *rules.own_head(inventory, model.spec))
    return tuple((group, local(group, model.spec, settings, experts)) for group in whole)


def bodies_on(model: Model, settings: Settings, stage: int) -> list[tuple[int, int]]:
    """Each distinct body that a stage has layers of, and of how many, in the order of the inventory's blocks."""
    first, end = stage_layers(model.spec.num_layers, settings.parallel.pp, stage)
    return sorted(Counter(inventory_of(model).block_of[first:end]).items())


def experts_of(spec: ModelSpec) -> int:
    """Routed experts of a layer, the most of any."""
    return max((m.experts for layer in spec.layers for m in layer.mlps if isinstance(m, Moe)), default=0)


def local(group: TensorGroup, spec: ModelSpec, settings: Settings, experts: int) -> Local:
    """What a rank holds of a group."""
    group = rules.as_split(group, spec)
    if rules.whole(group, spec):
        return cut(group, 1)
    if group.kind == "experts":
        return cut_experts(rules.pad_expert(group, settings), expert_ranks(settings.parallel), experts)
    if rules.fused_shared(group, spec, settings):
        return cut(group, expert_ranks(settings.parallel).cut)
    part = cut(group, ranks_of(group, settings.parallel))
    more = state_rows(group, spec, settings.parallel.attention_tp) + rules.joined_rows(group, spec, settings)
    return part._replace(rows=part.rows + more)


def ranks_of(group: TensorGroup, parallel: Parallel) -> int:
    """Ranks that share a group that is no expert."""
    if group.kind in ("attention", "state"):
        return parallel.attention_tp
    if group.kind == "embedding" and parallel.attention_dp > 1:
        return 1
    return parallel.tp


def expert_ranks(parallel: Parallel) -> ExpertRanks:
    """Experts are spread over the expert-parallel ranks, and each is cut over what is left of the tensor ranks."""
    return ExpertRanks(cut=max(1, parallel.tp // parallel.ep), spread=parallel.ep)


def on_stage(group: TensorGroup, spec: ModelSpec, settings: Settings, stage: int) -> bool:
    """Whether a tensor outside the layers is on a pipeline stage. MTP blocks are the draft's."""
    last = settings.parallel.pp - 1
    if group.place in ("tower", "every"):
        return True
    if group.kind == "head" and rules.rules(spec.architecture).head_everywhere:
        return True
    return {"first": stage == 0, "last": stage == last, "first+last": stage in (0, last)}.get(group.place, False)
