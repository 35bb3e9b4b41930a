"""Model weights on one rank once loading has ended, by kind of tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kvplanner.engine.sglang.kv.cells import stage_layers
from kvplanner.engine.sglang.settings import Settings, of_weights
from kvplanner.engine.sglang.weights import format as weights_format
from kvplanner.engine.sglang.weights.placement import (
    bodies_on,
    experts_of,
    inventory_of,
    local,
    on_stage,
    placed_bodies,
    placed_outside,
)
from kvplanner.engine.sglang.weights.rotary import table_bytes
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.shard import Local
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.model import Model
from kvplanner.model.spec import Mla, ModelSpec
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

# A group of tensors, its part on a rank, and what that takes of one layer, in bytes.
Sized = tuple[TensorGroup, Local, int]


class Body(NamedTuple):
    """The tensors of one layer on a rank, or one tensor outside the layers.

    kinds: bytes by kind of tensor. ends: rows and columns of what adapters are made for.
    """

    tensors: tuple[Sized, ...]
    kinds: Counter[str]
    ends: int


class RankBodies(NamedTuple):
    """What ranks hold wherever their stage begins and ends: a layer of each body, and each tensor outside them."""

    layers: tuple[Body, ...]
    outside: tuple[Body, ...]


@by_identity(64, lambda _, settings: of_weights(settings))
def bodies_of(model: Model, settings: Settings) -> RankBodies:
    """What a rank holds of each distinct body. Raises NotModelled when the tensors are not known.

    Stages of a pipeline, however many, are sums of these.
    """
    layers = tuple(_summed(_sized(parts, model.spec, settings)) for parts in placed_bodies(model, settings))
    outside = _sized(placed_outside(model, settings), model.spec, settings)
    return RankBodies(layers, tuple(_summed((tensor,)) for tensor in outside))


def _sized(parts: Iterable[tuple[TensorGroup, Local]], spec: ModelSpec, settings: Settings) -> tuple[Sized, ...]:
    sized: list[Sized] = []
    previous = ""
    for group, part in parts:
        joined = f"{group.path.rpartition('.')[0]}.{group.fused}" if group.fused else group.path
        size = weights_format.resident(group, part, spec, settings, first_of_fused=joined != previous)
        previous = joined
        sized.append((group, part, size))
    return tuple(sized)


def _summed(tensors: tuple[Sized, ...]) -> Body:
    kinds: Counter[str] = Counter()
    ends = 0
    for group, part, size in tensors:
        kinds[group.kind] += size
        if group.kind in ("attention", "mlp", "state") and part.columns:
            ends += part.copies * (part.rows + part.columns)
    return Body(tensors, kinds, ends)


def on_rank(model: Model, settings: Settings, stage: int) -> Iterator[tuple[Body, int]]:
    """The bodies that a rank of a stage holds, and in how many layers. Raises NotModelled as `bodies_of`."""
    bodies = bodies_of(model, settings)
    for index, layers in bodies_on(model, settings, stage):
        yield bodies.layers[index], layers
    for body in bodies.outside:
        if on_stage(body.tensors[0][0], model.spec, settings, stage):
            yield body, 1


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
    for body, layers in on_rank(model, settings, stage):
        for kind, size in body.kinds.items():
            kinds[kind] += layers * size
        ends += layers * body.ends
    lora = lora_slots * lora_rank * ends * DTYPE_BYTES[settings.dtype]
    return RankWeights(kinds, _latent_copies(model.spec, settings, stage), table_bytes(model.spec), lora)


def mtp_parameters(model: Model, settings: Settings) -> int:
    """Bytes of the checkpoint's own draft blocks on a rank; their embedding and head are the target's."""
    experts = experts_of(model.spec)
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
