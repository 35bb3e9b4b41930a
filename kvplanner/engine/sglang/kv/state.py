"""Recurrent state: what one slot costs, how many slots a request takes (configs/mamba_utils.py, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.kv.cells import built_layers, stage_layers
from kvplanner.engine.sglang.settings import Settings
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.kv import sequence_state
from kvplanner.model.spec import ModelSpec, State
from kvplanner.record import NamedTuple

_CONV_BYTES: Final = 2  # SGLANG_MAMBA_CONV_DTYPE: bfloat16
_BASE_SLOTS: Final = 3
_TRACKED: Final = {"none": 0, "no_buffer": 0, "extra_buffer_lazy": 1}


class StateLayout(NamedTuple):
    """Recurrent state on a rank. slot_bytes: of all layers of the model; stage_bytes: what a stage is charged (the
    largest share of any); allocated_bytes: what this stage allocates; per_request: slots that a running request takes;
    draft_bytes: what a request keeps for the tokens of a draft that are not yet accepted."""

    slot_bytes: int
    stage_bytes: int
    allocated_bytes: int
    per_request: int
    draft_bytes: int


def state_layout(spec: ModelSpec, settings: Settings, stage: int) -> StateLayout | None:
    """The recurrent state of a model, None for one without."""
    per_layer = [sum(_bytes(m, settings) for m in spec.layers[i].mixers if isinstance(m, State)) for i in spec.layer_of]
    total = sum(per_layer)
    if not total:
        return None
    pp = settings.parallel.pp
    parts = [per_layer[slice(*stage_layers(spec.num_layers, pp, s))] for s in range(pp)]
    counts = [sum(size > 0 for size in part) for part in parts]
    charged = int(total * (max(counts) / max(sum(counts), 1)))
    built = slice(*built_layers(spec, pp, stage))
    return StateLayout(
        total, charged, sum(per_layer[built]), slots_per_request(settings), _drafts(spec, settings, built)
    )


def _drafts(spec: ModelSpec, settings: Settings, built: slice) -> int:
    """A state after each draft token, and the convolution's inputs of all of them (mem_cache/memory_pool.py)."""
    tokens = settings.speculation.draft_tokens
    if not settings.speculation.algorithm:
        return 0
    states = [m for i in spec.layer_of[built] for m in spec.layers[i].mixers if isinstance(m, State)]
    total = 0
    for mixer in states:
        conv, state = _parts(mixer, settings)
        width = max(mixer.conv_kernel - 1, 1)
        total += state * tokens + conv // width * (width + tokens - 1)
    return total


def slots_per_request(settings: Settings) -> int:
    """Slots of a running request: one alone; with a radix cache its last states, and those that are tracked."""
    if not settings.cache.radix:
        return 1
    strategy = settings.states.strategy
    if strategy == "extra_buffer":
        return _BASE_SLOTS + (2 if settings.overlap else 1)
    return _BASE_SLOTS + _TRACKED[strategy]


def _bytes(mixer: State, settings: Settings) -> int:
    return sum(_parts(mixer, settings))


def _parts(mixer: State, settings: Settings) -> tuple[int, int]:
    """Bytes of one layer on a rank: the convolution in 16 bits, the state in 32 unless the model says less."""
    found = sequence_state(mixer, settings.dtype)
    if found is None:
        return 0, 0
    ranks = settings.parallel.attention_tp
    conv = found.conv_elements
    if mixer.kind == "mamba2" and mixer.groups % ranks:
        # Groups are repeated until every rank has those of its heads.
        conv += 2 * (ranks - mixer.groups) * mixer.state_size * max(mixer.conv_kernel - 1, 0)
    dtype = settings.states.ssm_dtype or mixer.state_dtype or "float32"
    return conv // ranks * _CONV_BYTES, found.state_elements // ranks * DTYPE_BYTES[dtype]
