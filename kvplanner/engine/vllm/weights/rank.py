"""Model weights on one rank: what stays after loading and post-processing, and what loading needs for a moment.

`rank_weights` counts the parameters (with their scales and repacked forms) byte for byte, so that it can be held
against a checkpoint. The log line "Model loading took" also has rotary tables and what the allocator rounds up:
`loaded` adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Final

from kvplanner.engine.shared.identity import Key, by_identity, of_last
from kvplanner.engine.shared.shard import Local, state_rows, uneven
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import (
    extra as weights_extra,
)
from kvplanner.engine.vllm.weights import (
    format as weights_format,
)
from kvplanner.engine.vllm.weights import (
    methods as weights_methods,
)
from kvplanner.engine.vllm.weights import (
    rules as weights_rules,
)
from kvplanner.engine.vllm.weights.blocks import check_blocks
from kvplanner.engine.vllm.weights.shard import check_divides, cut, expert_ranks
from kvplanner.errors import BadInput, NotModelled
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, exact, least_sure
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import GIB

_KIND_NAMES: Final = {
    "embedding": "embedding", "head": "head", "attention": "attention", "state": "recurrent layers", "mlp": "MLP",
    "experts": "experts", "router": "routers", "norm": "norms", "tower": "towers", "mtp": "MTP", "other": "other",
}  # fmt: skip
# Stored sizes that are surer than this share are taken as they are.
_LOOSE_SHARE: Final = 0.005
# What a method's rule may be off where it was not held against the engine.
_RULE_BAND: Final = 0.03
# Compute capabilities whose kernels lay out quantised weights differently.
_KERNEL_ARCHES: Final = ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0))


Bodies = tuple[tuple[tuple[TensorGroup, ...], int], ...]


class RankTensors(NamedTuple):
    """A group of tensors on a rank: its local part, the layers that hold it, and its resident bytes in all.

    values: of the bytes in one layer those of the values, without scales that stand in tensors of their own.
    """

    group: TensorGroup
    local: Local
    layers: int
    bytes: int
    values: int


@lru_cache(maxsize=512)
def partition(num_layers: int, pp: int, override: tuple[int, ...] = ()) -> tuple[tuple[int, int], ...]:
    """(first, end) of the layers of each pipeline stage (distributed/utils.py get_pp_indices, 0.33).

    A remainder goes one layer each to the stages before the last. override: VLLM_PP_LAYER_PARTITION.
    Raises BadInput when the override does not sum to the layers, or there are more stages than layers.
    """
    if override:
        if len(override) != pp or sum(override) != num_layers:
            raise BadInput(
                f"{','.join(map(str, override))} does not split {num_layers} layers into {pp} stages",
                "VLLM_PP_LAYER_PARTITION",
                "give one number of layers per stage",
            )
        sizes = list(override)
    else:
        if pp > max(num_layers, 1):  # nothing known of the layers leaves one stage
            raise BadInput(f"{pp} stages for {num_layers} layers", "--pipeline-parallel-size", "use fewer stages")
        base, rest = divmod(num_layers, pp)
        sizes = [base] * pp
        for back in range(2, rest + 2):
            sizes[-back] += 1
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return tuple(pairwise(bounds))


def stage_layers(spec: ModelSpec, settings: Settings, stage: int) -> tuple[int, int]:
    """(first, end) of one stage's decoder layers."""
    return partition(spec.num_layers, settings.parallel.pp, settings.parallel.pp_partition)[stage]


def inventory_of(model: Model) -> Inventory:
    """The model's tensors. Raises NotModelled when only its layers are known."""
    if model.inventory is None:
        raise NotModelled("the tensors of this model are not known", model.id, "Plan from its config.json or files")
    return model.inventory


def bodies(model: Model, settings: Settings, stage: int) -> Bodies:
    """The distinct layer bodies of a stage and how many of its layers have each."""
    return _bodies(model, *stage_layers(model.spec, settings, stage))


@by_identity(64, lambda _, first, end: (first, end))
def _bodies(model: Model, first: int, end: int) -> Bodies:
    inventory = inventory_of(model)
    of_stage = inventory.block_of[first:end]
    counted = [(inventory.blocks[index], of_stage.count(index)) for index in sorted({*of_stage})]
    return tuple((body + weights_rules.additions(body, inventory, model.spec), layers) for body, layers in counted)


def moving(_: Model, settings: Settings, gpu: Gpu, stage: int) -> Key:
    """Everything of the settings that weights depend on: no length, and nothing of scheduler, cache or graphs."""
    return _moving(settings, gpu, stage)


@of_last
def _moving(settings: Settings, gpu: Gpu, stage: int) -> Key:
    stored = settings.model._replace(max_model_len=0, auto_fit=False)
    kept = (settings.version, stored, settings.parallel, settings.speculative, settings.multimodal)
    return Key(*kept, settings.lora, gpu, stage)


def standing(_: Model, settings: Settings, gpu: Gpu, stage: int) -> Key:
    """What of that the tensors themselves depend on: not how many of their bytes are kept on the host."""
    return _standing(settings, gpu, stage)


@of_last
def _standing(settings: Settings, gpu: Gpu, stage: int) -> Key:
    if not settings.model.cpu_offload_bytes:
        return _moving(settings, gpu, stage)
    return _moving(settings._replace(model=settings.model._replace(cpu_offload_bytes=0)), gpu, stage)


@by_identity(32, standing)
def rank_tensors(model: Model, settings: Settings, gpu: Gpu, stage: int) -> tuple[RankTensors, ...]:
    """Every group of tensors that a rank of a stage holds, once for each distinct layer body."""
    return tuple(_each_tensor(model, settings, gpu, stage))


def _each_tensor(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Iterator[RankTensors]:
    inventory = inventory_of(model)
    experts = routed_experts(model.spec)
    parts = [(g, layers) for body, layers in bodies(model, settings, stage) for g in body]
    outside = list(inventory.outside)
    if weights_rules.unused_head(model.spec):
        outside += [
            g._replace(kind="head", place="last") for g in outside if g.kind == "embedding" and g.shard == "vocab"
        ]
    parts += [(g, 1) for g in outside if _on_stage(g, model.spec, settings, stage)]
    previous = ""
    usual, as_stored = weights_rules.by_the_book(model.spec), weights_format.as_stored(model.spec, settings)
    for group, layers in parts:
        plain = usual and group.kind != "state"
        local = cut(group, settings, experts) if plain else _local(group, model.spec, settings, experts)
        joined = f"{group.path.rpartition('.')[0]}.{group.fused}" if group.fused else group.path
        fmt = group.format if as_stored else weights_format.effective(group, model.spec, settings)
        size, values = weights_format.resident(group, local, fmt, model.spec, settings, gpu, joined != previous)
        previous = joined if len(group.shape) > 1 else previous  # biases stand between the pieces of a matrix
        yield RankTensors(group, local, layers, layers * size, values)


def _local(group: TensorGroup, spec: ModelSpec, settings: Settings, experts: int) -> Local:
    """What a rank holds of a group, by the general rules and those of the model's class."""
    local = cut(_as_split(group, spec), settings, experts)
    missing = group.count - weights_rules.built(group, spec)
    more = state_rows(group, spec, settings.parallel.tp)
    return Local(local.rows + more, local.columns, local.copies - missing) if missing or more else local


def _as_split(group: TensorGroup, spec: ModelSpec) -> TensorGroup:
    """The group with the shard that the model's class gives it."""
    if weights_rules.split_like_words(group, spec):
        return group._replace(shard="vocab")
    if weights_rules.split_by_rows(group, spec):
        return group._replace(shard="column")
    return group._replace(shard="replicated") if weights_rules.whole_on_ranks(group, spec) else group


def divides(model: Model, tp: int) -> bool:
    """Whether every tensor of the model splits evenly over tp ranks, its encoders and experts included."""
    groups = (group for group, _ in inventory_of(model).groups() if group.place != "mtp")
    return all(
        state_rows(group, model.spec, tp) or uneven(_as_split(group, model.spec), tp) is None for group in groups
    )


def _check(model: Model, settings: Settings, parts: Iterable[RankTensors]) -> tuple[str, ...]:
    """Remarks on methods and splits that this release may refuse.

    Raises BadInput for those that it refuses, NotModelled for a method of unknown size.
    """
    weights_methods.check(model.spec, settings)
    ranks = expert_ranks(settings)
    if ranks.cut * ranks.spread == 1:
        return ()  # nothing is split
    remarks: dict[str, None] = {}
    for part in parts:
        if not state_rows(part.group, model.spec, settings.parallel.tp):
            check_divides(_as_split(part.group, model.spec), settings)
        if remark := check_blocks(part.group, part.local, settings):
            remarks[remark] = None
    return tuple(remarks)


def routed_experts(spec: ModelSpec) -> int:
    """Routed experts of a mixture-of-experts layer, 0 for a dense model."""
    return max((m.experts for layer in spec.layers for m in layer.mlps if isinstance(m, Moe)), default=0)


@by_identity(64, moving)
def rank_weights(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes of weights that one tensor-parallel rank of a stage holds once loading has ended.

    Exact for the formats whose kernels' layouts are known; notes name what is not. The inputs list the bytes by
    kind of tensor. Raises NotModelled when the tensors or the method's sizes are unknown, BadInput for a method or a
    split that the engine refuses.
    """
    tensors = rank_tensors(model, settings, gpu, stage)
    remarks = _check(model, settings, tensors)
    kinds: dict[str, int] = {}
    for item in tensors:
        name = _KIND_NAMES[item.group.kind]
        kinds[name] = kinds.get(name, 0) + item.bytes
    largest_first = sorted(kinds.items(), key=itemgetter(1), reverse=True)
    parts = [Input(name, size, "B", model.source_kind) for name, size in largest_first if size]
    extras = weights_extra.extras(model, settings, stage, bodies(model, settings, stage))
    offloaded = min(settings.model.cpu_offload_bytes, sum(kinds.values()))
    value = sum(kinds.values()) - offloaded + sum(e.value for _, e in extras)
    formula = " + ".join(f"{{{part.name}}}" for part in parts)
    inputs = parts + [Input(name, e.value, "B", e.in_numbers() or "vLLM's rules") for name, e in extras]
    formula += "".join(f" + {{{name}}}" for name, _ in extras)
    if offloaded:
        formula += " − {kept on the host}"
        inputs.append(Input("kept on the host", offloaded, "B", "--cpu-offload-gb"))
    notes = (*weights_format.notes(model.spec, settings, gpu), *weights_extra.notes(settings), *remarks)
    terms = [e for _, e in extras] + _doubts(model, settings, gpu, stage, value)
    if all(e.basis == "exact" for e in terms):
        return exact(value, formula, *inputs).with_notes(*notes)
    below, above = band_of_sum(terms)
    return banded(value, value - below, value + above, least_sure(terms), formula, *inputs).with_notes(*notes)


def _doubts(model: Model, settings: Settings, gpu: Gpu, stage: int, value: int) -> list[Estimate]:
    """How far the weights may lie off `value`: by the file's own size, by the method, by GPUs with other kernels."""
    doubts = []
    stored = model.stored
    # A what-if format carries its rule's band in the stored size: a published repository may keep matrices in 16 bits.
    if stored is not None and stored.value and stored.high - stored.low >= _LOOSE_SHARE * stored.value:
        low, high = (round(value * bound / stored.value) for bound in (stored.low, stored.high))
        doubts.append(banded(value, low, high, stored.basis))
    wanted = weights_methods.online(model.spec, settings)
    if wanted is not None and not wanted.checked and _changes(model, settings):
        doubts.append(banded(value, round(value * (1 - _RULE_BAND)), round(value * (1 + _RULE_BAND)), "analytic"))
    if gpu.arch is None and (wanted is not None or model.spec.quantization is not None):
        known = [gpu._replace(arch=arch) for arch in _KERNEL_ARCHES]
        sizes = [sum(part.bytes for part in rank_tensors(model, settings, here, stage)) for here in known]
        middle = sum(part.bytes for part in rank_tensors(model, settings, gpu, stage))
        doubts.append(banded(value, value + min(sizes) - middle, value + max(sizes) - middle, "assumed"))
    return doubts


def _changes(model: Model, settings: Settings) -> bool:
    """Whether quantising while loading changes any tensor."""
    groups = (group for group, _ in inventory_of(model).groups())
    return any(weights_format.effective(g, model.spec, settings) is not g.format for g in groups)


@by_identity(64, standing)
def loading_peak(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes beyond `rank_weights` that loading holds for a moment: repacking one layer's largest tensor.

    Online quantisation before 0.17 loaded every tensor in 16 bits first, which is told as well.
    """
    parts = rank_tensors(model, settings, gpu, stage)
    largest, path = max(((i.bytes // i.layers, i.group.path) for i in parts), default=(0, ""))
    staging = Input("largest tensor group", largest, "B", path)
    late = weights_methods.unquantised_first(model.spec, settings)
    if late:
        whole = sum(part.layers * part.group.stored_bytes for part in parts) // settings.parallel.tp
        extra = max(0, whole - sum(item.bytes for item in parts))
        return banded(
            extra + largest, extra, extra + largest + GIB, "analytic",
            "{16-bit copy} + {largest tensor group}",
            Input("16-bit copy", extra, "B", "loaded before quantising"), staging,
        )  # fmt: skip
    return banded(largest, 0, 2 * largest, "analytic", "{largest tensor group}", staging)


def _on_stage(group: TensorGroup, spec: ModelSpec, settings: Settings, stage: int) -> bool:
    last = settings.parallel.pp - 1
    if group.place == "tower":
        # Later stages keep the encoder too: built, never used (models/utils.py StageMissingLayer).
        return not settings.multimodal.language_model_only
    if group.place == "mtp":
        # The block's own embedding and head are the target's.
        return settings.speculative.method in weights_extra.MTP_METHODS and stage == last and group.shard != "vocab"
    if weights_rules.on_every_stage(group, spec):
        return True
    return {
        "layer": False, "first": stage == 0, "last": stage == last, "first+last": stage in (0, last), "every": True,
    }[group.place]  # fmt: skip
