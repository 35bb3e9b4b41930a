"""The context buffer: cells of keys and values, and recurrent state.

Rules: llama-kv-cache.cpp, llama-kv-cache-iswa.cpp and llama-memory-recurrent.cpp of llama.cpp 0.5.0-dev (October 2026);
what older builds did otherwise is in `builds`.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.spec import Attention, Compressed, LayerSpec, Mixer, Mla, ModelSpec, State
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div, round_up

# ggml types that --cache-type-k and -v take: elements and bytes of a block.
CACHE_TYPES: Final[dict[str, tuple[int, int]]] = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18), "q4_1": (32, 20),
    "iq4_nl": (32, 18), "q5_0": (32, 22), "q5_1": (32, 24),
}  # fmt: skip
_STATE_BYTES: Final = 4  # recurrent state is kept in f32 whatever the cache types are


class Cells(NamedTuple):
    """Cells of each kind of layer.

    context: total tokens; per_slot: of one slot; full, window: cells of one stream; streams: 1 when the slots share
    one pool. rows: sequences of recurrent state.
    """

    context: int
    per_slot: int
    full: int
    window: int
    streams: int
    rows: int


class CacheTypes(NamedTuple):
    """Types of keys and values, and whether values are kept transposed (without flash attention).

    latent_values: as of Build. whole_index: MiniMax-M3's index is a cache of its own, of these types and with values
    that nothing reads (llama-kv-cache-msa.cpp); else it is keys alone, in f32.
    """

    key: str = "f16"
    value: str = "f16"
    transposed: bool = False
    latent_values: bool = False
    whole_index: bool = True


# CUDA kernels read quantised rows in steps of 512 elements; buffers start tensors at multiples of 128 bytes.
_ROW_STEP: Final = 512
_CUDA_ALIGNMENT: Final = 128


def tensor_bytes(type_: str, elements: int, rows: int, on_gpu: bool) -> int:
    """Bytes of a cache tensor of `rows` rows; on a GPU the last row of a quantised one is padded."""
    total = row_bytes(type_, elements) * rows
    if not on_gpu or not rows:
        return total
    if CACHE_TYPES[type_][0] > 1 and elements % _ROW_STEP:
        total += row_bytes(type_, _ROW_STEP - elements % _ROW_STEP)
    return round_up(total, _CUDA_ALIGNMENT)


def row_bytes(type_: str, elements: int) -> int:
    """Bytes of a row of `elements` values; whole blocks."""
    block, size = CACHE_TYPES[type_]
    return ceil_div(elements, block) * size


def cells_of(
    context: int, slots: int, unified: bool, ubatch: int, *, window: int = 0, full_window: bool = False,
    padding: int = 256, state_rows: int = 1,
) -> Cells:  # fmt: skip
    """The cells of a context of `context` tokens (0 is not known here: pass the model's own).

    padding: cells are a multiple of it. window: of the sliding-window layers, 0 without. state_rows: kept per slot.
    """
    if unified:
        per_slot = total = round_up(context, padding)
    else:
        per_slot = round_up(max(context // slots, 1), padding)
        total = per_slot * slots
    short = per_slot
    if window and not full_window:
        short = min(per_slot, round_up(min(per_slot, window * (slots if unified else 1) + ubatch), padding))
    return Cells(total, per_slot, per_slot, short, 1 if unified else slots, max(slots, 1) * state_rows)


def layer_bytes(
    layer: LayerSpec, cells: Cells, types: CacheTypes, *, widest_value: int = 0, old_mla: bool = False,
    on_gpu: bool = True,
) -> int:  # fmt: skip
    """Bytes that one layer keeps.

    widest_value: to which values are padded when they are kept transposed; a layer without attention keeps them too
    then, and nothing else (llama_kv_cache of llama.cpp; Nemotron-Super's has such layers). old_mla: the file keeps full
    heads.
    """
    if not layer.mixers:
        return tensor_bytes(types.value, widest_value, cells.streams * cells.full, on_gpu) if widest_value else 0
    total = 0
    for mixer in layer.mixers:
        if isinstance(mixer, State):
            total += state_row_bytes(mixer) * cells.rows
        for row in _rows(mixer, types, widest_value, old_mla):
            count = cells.streams * (cells.window if row.windowed else cells.full)
            total += tensor_bytes(row.type, row.elements, count, on_gpu)
    return total


def cell_bytes(layer: LayerSpec, types: CacheTypes, *, widest_value: int = 0, old_mla: bool = False) -> int:
    """Bytes of one more cell of a layer; windows do not grow with the context."""
    total = 0 if layer.mixers or not widest_value else row_bytes(types.value, widest_value)
    for mixer in layer.mixers:
        rows = _rows(mixer, types, widest_value, old_mla)
        total += sum(row_bytes(row.type, row.elements) for row in rows if not row.windowed)
    return total


class _Row(NamedTuple):
    """What a layer keeps of a token in one tensor. windowed: of those in the window alone."""

    type: str
    elements: int
    windowed: bool = False


def _rows(mixer: Mixer, types: CacheTypes, widest_value: int, old_mla: bool) -> tuple[_Row, ...]:
    """Keys, values, and keys of a sparse index, which sees the whole context."""
    keys, values, index = widths(mixer, old_mla)
    if isinstance(mixer, Mla) and types.latent_values and not old_mla:
        values = mixer.kv_lora_rank
    if types.transposed and values:
        values = max(values, widest_value)
    windowed = is_windowed(mixer)
    rows = _Row(types.key, keys, windowed), _Row(types.value, values, windowed)
    if not index:
        return rows
    if not isinstance(mixer, Attention):
        return *rows, _Row(types.key, index)
    if types.whole_index:  # MiniMax-M3's, as of CacheTypes
        return *rows, _Row(types.key, index), _Row(types.value, mixer.head_size_v)
    return *rows, _Row("f32", index)


def is_windowed(mixer: Mixer) -> bool:
    """Whether a layer's cache holds a window of the context only."""
    return isinstance(mixer, Attention) and (mixer.window is not None or mixer.chunk is not None)


def widths(mixer: Mixer, old_mla: bool = False) -> tuple[int, int, int]:
    """Elements that attention keeps per token: keys, values, and keys of a sparse index."""
    if isinstance(mixer, Attention):
        if not mixer.owns_cache or not mixer.causal or mixer.cross:
            return 0, 0, 0
        index = mixer.indexer.head_size if mixer.indexer is not None and mixer.indexer.owns_cache else 0
        return mixer.kv_heads * mixer.head_size, mixer.kv_heads * mixer.head_size_v, index
    if isinstance(mixer, Mla):
        index = mixer.indexer.head_size if mixer.indexer is not None and mixer.indexer.owns_cache else 0
        if old_mla:
            return mixer.heads * (mixer.qk_nope + mixer.qk_rope), mixer.heads * mixer.head_size_v, index
        return mixer.kv_lora_rank + mixer.qk_rope, 0, index
    return 0, 0, 0


def state_row_bytes(mixer: State) -> int:
    """One sequence's state of a recurrent layer: n_embd_r + n_embd_s of llama-hparams.cpp, in f32."""
    conv = max(mixer.conv_kernel - 1, 0)
    wide = mixer.heads * mixer.head_size
    if mixer.kind == "mamba1":
        return _STATE_BYTES * (conv * mixer.channels + mixer.channels * mixer.state_size)
    if mixer.kind == "mamba2":
        return _STATE_BYTES * (conv * (wide + 2 * mixer.groups * mixer.state_size) + wide * mixer.state_size)
    if mixer.kind == "short_conv":
        return _STATE_BYTES * conv * mixer.channels
    if mixer.kind == "lightning":
        return _STATE_BYTES * wide * mixer.head_size
    if mixer.kind == "kda":
        return _STATE_BYTES * (3 * conv * wide + wide * mixer.head_size)
    keys = mixer.key_heads * mixer.key_size
    return _STATE_BYTES * (conv * (wide + 2 * keys) + wide * mixer.key_size)


def window_of(spec: ModelSpec) -> int:
    """The window of the model's sliding-window or chunked layers, 0 without any."""
    sizes = [m.window or m.chunk or 0 for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    return max(sizes, default=0)


def widest_value(spec: ModelSpec) -> int:
    """The widest row of values of any attention layer."""
    return max(
        (m.kv_heads * m.head_size_v for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)),
        default=0,
    )


def not_modelled(spec: ModelSpec) -> str:
    """What of the model's caches llama.cpp keeps in a way that is not known here, "" when nothing."""
    if any(isinstance(m, Compressed) for layer in spec.layers for m in layer.mixers):
        return "DeepSeek-V4's compressed caches"
    return ""


# Architectures whose recurrent state can be rolled back, so that drafted tokens take rows of their own
# (llm_arch_supports_rs_rollback); all others keep one row per slot.
ROLLBACK: Final = frozenset(
    {"qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3", "deepseek4", "glm5-next",
     "kimi-k3", "qwen4exp"}
)  # fmt: skip
