"""Model weights on one rank once loading has ended, by kind of tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvplanner.engine.sglang.kv.cells import stage_layers
from kvplanner.engine.sglang.settings import Settings, standing
from kvplanner.engine.sglang.weights import format as weights_format
from kvplanner.engine.sglang.weights.placement import inventory_of, local, placed
from kvplanner.engine.sglang.weights.rotary import table_bytes
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.shard import Local
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.model import Model
from kvplanner.model.spec import Mla, ModelSpec, Moe
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple


class RankTensors(NamedTuple):
    """A group of tensors on a rank with its resident bytes in all layers that hold it."""

    group: TensorGroup
    local: Local
    layers: int
    bytes: int


@by_identity(64, lambda _, settings, stage: (standing(settings), stage))
def rank_tensors(model: Model, settings: Settings, stage: int) -> tuple[RankTensors, ...]:
    """Every group of tensors on a rank of a stage. Raises NotModelled when the tensors are not known."""
    return tuple(_each_tensor(model, settings, stage))


def _each_tensor(model: Model, settings: Settings, stage: int) -> Iterator[RankTensors]:
    previous = ""
    for item in placed(model, settings, stage):
        group = item.group
        joined = f"{group.path.rpartition('.')[0]}.{group.fused}" if group.fused else group.path
        size = weights_format.resident(group, item.local, model.spec, settings, first_of_fused=joined != previous)
        previous = joined
        yield RankTensors(group, item.local, item.layers, item.layers * size)


class RankWeights(NamedTuple):
    """What a rank holds once loading has ended, in bytes.

    kinds: parameters by kind of tensor. latent_copies: unpacked key and value projections of latent attention beside
    the packed one; rotary: tables of all positions; lora: adapter slots.
    """

    kinds: Counter[str]
    latent_copies: int
    rotary: int
    lora: int

    @property
    def parameters(self) -> int:
        """The registered parameters, scales included."""
        return sum(self.kinds.values())

    @property
    def total(self) -> int:
        """All tensors."""
        return self.parameters + self.latent_copies + self.rotary + self.lora


def weights_of(model: Model, settings: Settings, stage: int, *, lora_slots: int = 0, lora_rank: int = 0) -> RankWeights:
    """All tensors of a rank of a stage. Raises NotModelled when the tensors are not known."""
    kinds: Counter[str] = Counter()
    ends = 0
    for item in rank_tensors(model, settings, stage):
        kinds[item.group.kind] += item.bytes
        if item.group.kind in ("attention", "mlp", "state") and item.local.columns:
            ends += item.layers * item.local.copies * (item.local.rows + item.local.columns)
    lora = lora_slots * lora_rank * ends * DTYPE_BYTES[settings.dtype]
    return RankWeights(kinds, _latent_copies(model.spec, settings, stage), table_bytes(model.spec), lora)


def mtp_parameters(model: Model, settings: Settings) -> int:
    """Bytes of the checkpoint's own draft blocks on a rank; their embedding and head are the target's."""
    experts = max((m.experts for layer in model.spec.layers for m in layer.mlps if isinstance(m, Moe)), default=0)
    total = 0
    for group in inventory_of(model).outside:
        if group.place == "mtp" and group.shard != "vocab":
            part = local(group, model.spec, settings, experts)
            total += weights_format.resident(group, part, model.spec, settings, first_of_fused=True)
    return total


def _latent_copies(spec: ModelSpec, settings: Settings, stage: int) -> int:
    """W_UK and W_UV in 16 bits beside kv_b_proj (models/deepseek_v2.py): heads × rank × (nope + value) per layer."""
    first, end = stage_layers(spec.num_layers, settings.parallel.pp, stage)
    mixers = (m for i in spec.layer_of[first:end] for m in spec.layers[i].mixers if isinstance(m, Mla))
    ranks, element = settings.parallel.attention_tp, DTYPE_BYTES[settings.dtype]
    return sum(m.heads // ranks * m.kv_lora_rank * (m.qk_nope + m.head_size_v) * element for m in mixers)
