"""What one token costs in the pools of a rank, by kind of attention (model_executor/pool_configurator.py, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.quirks import quirk
from kvplanner.engine.sglang.settings import Cache, Settings
from kvplanner.errors import NotModelled
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.spec import Attention, Compressed, Indexer, Mixer, Mla, ModelSpec
from kvplanner.record import NamedTuple

# Bytes of `per` values: 4-bit values with one scale byte for each 16, 8-bit ones with one for each 32.
_PACKED: Final[dict[str, tuple[int, int]]] = {
    "nvfp4": (9, 16), "fp4_mx_block16": (9, 16), "mxfp8": (33, 32), "fp8_e4m3": (1, 1), "fp8_e5m2": (1, 1),
}  # fmt: skip
_INDEX_GROUP: Final = 128
_LATENT_GROUP: Final = 128  # values that share a scale in the scaled layout of sparse latent rows
_ROPE_BYTES: Final = 2  # the rotary part of a scaled row stays in 16 bits


class Layers(NamedTuple):
    """The layers of a pipeline stage that keep a cache, by pool. mixers: one for each layer, in order."""

    full: tuple[Mixer, ...]
    window: tuple[Mixer, ...]
    window_tokens: int | None

    @property
    def number(self) -> int:
        """Layers with a cache."""
        return len(self.full) + len(self.window)


class Cells(NamedTuple):
    """Bytes of one token on a rank. full, window: of the layers of each pool; draft_full, draft_window: of the draft.

    tables: pointer tables of the pool, whatever its size.
    """

    full: int
    window: int
    draft_full: int
    draft_window: int
    tables: int

    @property
    def charged_full(self) -> int:
        """What a token of the full pool is charged, the draft's included."""
        return self.full + self.draft_full

    @property
    def charged_window(self) -> int:
        """What a token of the window pool is charged, the draft's included."""
        return self.window + self.draft_window


def stage_layers(num_layers: int, pp: int, stage: int) -> tuple[int, int]:
    """First layer and end of a pipeline stage; the last stages take the layers that are left over."""
    base, rest = divmod(num_layers, pp)
    extra_before = max(0, stage - (pp - rest))
    start = stage * base + extra_before
    return start, start + base + (1 if stage >= pp - rest else 0)


def built_layers(spec: ModelSpec, pp: int, stage: int) -> tuple[int, int]:
    """First layer and end of those that a stage builds: all of them in classes that know no stages."""
    return (0, spec.num_layers) if quirk(spec.architecture).whole_stages else stage_layers(spec.num_layers, pp, stage)


def layers_of(spec: ModelSpec, settings: Settings, stage: int) -> Layers:
    """The layers with a cache of a stage. Layers that reuse an earlier layer's cache are given one all the same."""
    first, end = built_layers(spec, settings.parallel.pp, stage)
    mixers = [m for index in spec.layer_of[first:end] for m in spec.layers[index].mixers if _keeps(m)]
    pooled = settings.cache.windows
    if quirk(spec.architecture).windows and not pooled:
        # One pool: every layer is built like those of full attention.
        whole = next((m for m in mixers if window_of(m) is None), None)
        mixers = [whole or m for m in mixers]
    window = tuple(m for m in mixers if pooled and window_of(m) is not None)
    full = tuple(m for m in mixers if not (pooled and window_of(m) is not None))
    return Layers(full, window, engine_window(spec) if pooled else None)


def _keeps(mixer: Mixer) -> bool:
    return isinstance(mixer, Mla | Compressed) or (isinstance(mixer, Attention) and mixer.causal and not mixer.cross)


def window_of(mixer: Mixer) -> int | None:
    """Tokens that a layer looks back on, None for all."""
    if isinstance(mixer, Attention):
        return mixer.window or mixer.chunk
    return mixer.window if isinstance(mixer, Mla) else None


def engine_window(spec: ModelSpec) -> int | None:
    """The window as the engine counts it: most classes leave out the token itself."""
    windows = [m.window for layer in spec.layers for m in layer.mixers if isinstance(m, Compressed)]
    windows += [w for layer in spec.layers for m in layer.mixers if (w := window_of(m)) is not None]
    if not windows:
        return None
    return max(windows) - (0 if quirk(spec.architecture).inclusive else 1)


def cells(spec: ModelSpec, settings: Settings, stage: int, draft: ModelSpec | None = None) -> Cells:
    """What a token costs on a rank of a stage. Raises NotModelled for kinds of attention that are not known."""
    layers = layers_of(spec, settings, stage)
    full = sum(_mixer(m, settings) for m in layers.full)
    window = sum(_mixer(m, settings) for m in layers.window)
    draft_full = draft_window = 0
    spent = settings.speculation
    if spent.charged and spent.layers and settings.era.charges_draft and layers.number:
        draft_full, draft_window = _draft(layers, full, settings, draft)
    latent = any(isinstance(m, Mla) for m in layers.full)
    return Cells(full, window, draft_full, draft_window, _tables(layers, latent=latent))


def _draft(layers: Layers, full: int, settings: Settings, draft: ModelSpec | None) -> tuple[int, int]:
    """The draft's bytes per token: the engine takes its layers for layers of the target."""
    count = settings.speculation.layers
    if layers.window:
        windows = 0
        if draft is not None:
            windows = sum(window_of(m) is not None for i in draft.layer_of for m in draft.layers[i].mixers)
        each_full = _mixer(layers.full[0], settings) if layers.full else _mixer(layers.window[0], settings)
        return each_full * (count - windows), _mixer(layers.window[0], settings) * windows
    index = next((m.indexer for m in layers.full if isinstance(m, Mla) and m.indexer is not None), None)
    if index is None:
        return int(full * count / layers.number), 0
    target_index = sum(_index(m.indexer) for m in layers.full if isinstance(m, Mla) and m.indexer is not None)
    return int((full - target_index) * count / layers.number) + _index(index._replace(owns_cache=True)) * count, 0


def _tables(layers: Layers, *, latent: bool) -> int:
    """Pointer tables: 48 bytes a layer for keys and values, 8 for a latent (mem_cache/memory_pool.py)."""
    return layers.number * (8 if latent else 48)


def _mixer(mixer: Mixer, settings: Settings) -> int:
    cache, ranks = settings.cache, settings.parallel.attention_tp
    if isinstance(mixer, Attention):
        heads = max(1, mixer.kv_heads // ranks)
        row = sized(heads * (mixer.head_size + mixer.head_size_v), cache.dtype)
        if mixer.indexer is not None:
            row += mixer.indexer.head_size * DTYPE_BYTES[settings.dtype]
        return row
    if isinstance(mixer, Mla):
        return _latent(mixer, cache) + _index(mixer.indexer)
    raise NotModelled(f"SGLang's cache of {type(mixer).__name__} layers is not known here", "config.json",
                      "Plan it with another engine")  # fmt: skip


def _latent(mixer: Mla, cache: Cache) -> int:
    if mixer.indexer is None or cache.raw_latent or cache.dtype != "fp8_e4m3":
        return sized(mixer.kv_lora_rank + mixer.qk_rope, cache.dtype)
    return mixer.kv_lora_rank + mixer.kv_lora_rank // _LATENT_GROUP * 4 + mixer.qk_rope * _ROPE_BYTES


def _index(index: Indexer | None) -> int:
    """One 8-bit key and a scale for each 128 values."""
    if index is None or not index.owns_cache:
        return 0
    return index.head_size + index.head_size // _INDEX_GROUP * 4


def sized(values: int, dtype: str) -> int:
    """Bytes of `values` cache elements, scales included."""
    packed, per = _PACKED.get(dtype, (DTYPE_BYTES.get(dtype, 2), 1))
    return values * packed // per
