"""Tokens per cache block: what the back end takes, enlarged where a recurrent state must fit the page.

Rules: platforms/interface.py and v1/attention/backends/* of vLLM 0.33.
"""

from __future__ import annotations

from math import lcm
from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.backends import Chosen, expanded, expands_latent
from kvplanner.engine.vllm.dtypes import head_bytes, is_quantised, latent_bytes
from kvplanner.engine.vllm.kv import state as kv_state
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, Mixer, Mla, ModelSpec, State
from kvplanner.units import ceil_div, round_up

DEFAULT_BLOCK: Final = 16
# FlashInfer's gated-delta prefill writes states at borders of this many tokens.
_GDN_CHECKPOINT: Final = 64
# V0 aligned each latent row to this many bytes: a report of February 2025 shows 1,280 for 576 16-bit values.
_V0_LATENT_ROW: Final = 256


def at_model_dtype(settings: Settings) -> Settings:
    """The same settings with a cache in the model's own dtype."""
    return settings._replace(cache=settings.cache._replace(dtype="auto"))


def rank_kv_heads(kv_heads: int, tp: int) -> int:
    """KV heads on one tensor-parallel rank: copied where there are more ranks than heads."""
    return max(1, kv_heads // tp)


def attention_row(mixer: Attention, settings: Settings, kv_dtype: str | None = None) -> int:
    """Bytes of one token of one attention layer on one rank."""
    name = settings.cache.dtype if kv_dtype is None else kv_dtype
    per_head = head_bytes(name, settings.model.dtype, mixer.head_size, mixer.head_size_v)
    return rank_kv_heads(mixer.kv_heads, settings.parallel.tp) * per_head


def latent_row(mixer: Mla, settings: Settings, chosen: Chosen) -> int:
    """Bytes of one token of one latent layer, the same on every rank."""
    packed = chosen.packed_latent
    name = settings.cache.dtype
    if packed and mixer.indexer is not None and name == "auto" and chosen.primary != "FLASHMLA_SPARSE":
        name = "fp8_ds_mla"
    row = latent_bytes(name, settings.model.dtype, mixer.kv_lora_rank + mixer.qk_rope, packed)
    return round_up(row, _V0_LATENT_ROW) if settings.era.runner == "V0" else row


def first_row(spec: ModelSpec, settings: Settings, chosen: Chosen) -> int:
    """Bytes per token of the model's first attention layer that keeps its own cache; 0 without one."""
    mixer = _first_attention(spec)
    if mixer is None:
        return 0
    if isinstance(mixer, Mla) and expands_latent(spec, settings):
        mixer = expanded(mixer)
    return attention_row(mixer, settings) if isinstance(mixer, Attention) else latent_row(mixer, settings, chosen)


def _first_attention(spec: ModelSpec) -> Attention | Mla | None:
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Mla) or (isinstance(mixer, Attention) and mixer.owns_cache and mixer.causal):
                return mixer
    return None


def plain_block(settings: Settings, chosen: Chosen) -> int:
    """The block size before any alignment. Raises BadInput for one that the back end cannot work with."""
    smallest = chosen.smallest_block
    if settings.cache.block_size is None:
        return max(DEFAULT_BLOCK, smallest)
    if settings.cache.block_size % smallest and smallest % settings.cache.block_size:
        raise BadInput(
            f"Block size {settings.cache.block_size} is not supported by {chosen.primary}", "--block-size",
            f"Give a multiple of {smallest}",
        )  # fmt: skip
    return settings.cache.block_size if settings.cache.block_size % smallest == 0 else smallest


def unquantised_layers(spec: ModelSpec, settings: Settings) -> frozenset[int]:
    """Layers that keep the model's dtype in a quantised cache: those named by the user, and the first and last two of
    dense models under TurboQuant. Raises BadInput for a name that is neither a layer number nor "sliding_window".
    """
    last = spec.num_layers
    for name in settings.cache.skip_layers:  # told also where it changes nothing
        if last and name != "sliding_window" and not (name.isdecimal() and name.isascii() and int(name) < last):
            raise BadInput(f"{name!r} is not a layer of this model", "--kv-cache-dtype-skip-layers",
                           f"Give layer numbers from 0 to {last - 1}, or sliding_window")  # fmt: skip
    if not is_quantised(settings.cache.dtype):
        return frozenset()
    layers: set[int] = set()
    hybrid = any(isinstance(m, State) for layer in spec.layers for m in layer.mixers)
    if settings.cache.dtype.startswith("turboquant") and not hybrid:
        layers |= {0, 1, last - 2, last - 1} & set(range(last))
    for name in settings.cache.skip_layers:
        if name == "sliding_window":
            sliding = {i for i, layer in enumerate(spec.layers) if any(_window(m) for m in layer.mixers)}
            layers |= {i for i, kind in enumerate(spec.layer_of) if kind in sliding}
        elif last:
            layers.add(int(name))
    return frozenset(layers)


def _window(mixer: Mixer) -> bool:
    return isinstance(mixer, Attention) and mixer.window is not None


def aligned_block(spec: ModelSpec, settings: Settings, chosen: Chosen, mixed: bool = False) -> int:
    """The engine's block size in tokens: large enough that an attention page holds a state, or a block of a layer that
    keeps the model's dtype (`mixed`).
    """
    block, row = plain_block(settings, chosen), first_row(spec, settings, chosen)
    if mixed and row:
        wide = first_row(spec, at_model_dtype(settings), chosen) * chosen.smallest_block
        block = max(block, round_up(ceil_div(wide, row), chosen.smallest_block))
    states = [m for layer in spec.layers for m in layer.mixers if isinstance(m, State)]
    if not states or not row:
        return block
    page = max(kv_state.state_bytes(m, settings, spec.architecture) for m in states)
    unit = max(chosen.smallest_block, block)
    if isinstance(_first_attention(spec), Mla):
        unit = max(unit, rules.LATENT_ALIGNMENT.at(settings.version))
    if settings.cache.mamba_mode == "align" and chosen.flashinfer_gdn:
        unit = lcm(unit, _GDN_CHECKPOINT)
    return max(block, round_up(unit * ceil_div(page, unit * row), chosen.smallest_block))
