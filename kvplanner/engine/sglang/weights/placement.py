"""Which ranks share a tensor in SGLang: attention by attention groups, experts by tensor or expert parallelism.

layers/dp_attention.py, layers/moe/fused_moe_triton/layer.py, models/*.py (0.5.23).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvplanner.engine.sglang.kv.cells import stage_layers
from kvplanner.engine.sglang.quirks import quirk
from kvplanner.engine.sglang.settings import Parallel, Settings
from kvplanner.engine.sglang.weights import rules
from kvplanner.engine.shared.shard import ExpertRanks, Local, cut, cut_experts, state_rows
from kvplanner.errors import NotModelled
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple


class Placed(NamedTuple):
    """A group of tensors on a rank: its local part and the layers that hold it."""

    group: TensorGroup
    local: Local
    layers: int


def inventory_of(model: Model) -> Inventory:
    """The model's tensors. Raises NotModelled when only its layers are known."""
    if model.inventory is None:
        raise NotModelled(f"the tensors of {model.spec.architecture} are not known", model.id,
                          "Open the model's folder: its file headers tell")  # fmt: skip
    return model.inventory


def placed(model: Model, settings: Settings, stage: int) -> Iterator[Placed]:
    """Every group of tensors that a rank of a stage holds, once for each distinct layer body."""
    inventory = inventory_of(model)
    first, end = stage_layers(model.spec.num_layers, settings.parallel.pp, stage)
    experts = max((m.experts for layer in model.spec.layers for m in layer.mlps if isinstance(m, Moe)), default=0)
    for index, layers in sorted(Counter(inventory.block_of[first:end]).items()):
        body = inventory.blocks[index]
        for group in (*body, *rules.additions(body, inventory, model.spec)):
            yield Placed(group, local(group, model.spec, settings, experts), layers)
    for group in (*inventory.outside, *rules.own_head(inventory, model.spec)):
        if on_stage(group, model.spec, settings, stage):
            yield Placed(group, local(group, model.spec, settings, experts), 1)


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


def takes_media(spec: ModelSpec, *, enabled: bool) -> bool:
    """Whether towers are built."""
    row = quirk(spec.architecture)
    return not row.media_on_request or enabled
