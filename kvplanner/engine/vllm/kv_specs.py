"""From a model's layers to cache specs: what one layer keeps in one block on one rank.

Formulas: v1/kv_cache_interface.py and model_executor/layers/mamba/mamba_utils.py of vLLM 0.33. Layers that keep the
same are one spec with a count; nothing loops over layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from kvplanner.engine.vllm import kv_block, kv_dtypes, kv_state
from kvplanner.engine.vllm.backends import Chosen, select
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import Attention, Indexer, Mixer, Mla, ModelSpec, State

CacheKind = Literal["full", "sliding", "chunked", "mla", "sliding_mla", "index", "cross", "state", "compressor"]
# Kinds that keep every token, so that layers of them can share block tables.
GROWING: Final = ("full", "mla", "index")
# Latent models that the engine runs as ordinary attention with expanded heads.
_EXPANDED_LATENT: Final = frozenset({"minicpm3"})
# Families whose window counts the token itself besides: the engine keeps one more.
_INCLUSIVE_WINDOW: Final = frozenset({"Cohere2ForCausalLM", "Cohere2VisionForConditionalGeneration"})


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What one layer keeps on one rank.

    block_size: tokens of a block (of a state: tokens between kept states). row_bytes: one token (0 for a state).
    page_bytes: one block as stored, padding included; real_bytes: without it. window: tokens that a bounded cache
    sees. state_blocks: blocks of a state per request. tokens_per_row: tokens that one stored row stands for.
    extra_tokens: kept beyond the window for draft modules.
    """

    kind: CacheKind
    block_size: int
    row_bytes: int
    page_bytes: int
    real_bytes: int
    window: int = 0
    state_blocks: int = 0
    tokens_per_row: int = 1
    extra_tokens: int = 0

    def resized(self, block_size: int) -> CacheSpec:
        """The same cache in blocks of another size."""
        size = self.row_bytes * (block_size // self.tokens_per_row)
        return replace(self, block_size=block_size, page_bytes=size, real_bytes=size)

    def padded(self, page_bytes: int) -> CacheSpec:
        """The same cache in a page of `page_bytes`."""
        return replace(self, page_bytes=page_bytes)


class CountedSpec(NamedTuple):
    """A spec and how many layers of each pipeline stage have it."""

    spec: CacheSpec
    layers: tuple[int, ...]


class Caches(NamedTuple):
    """All cache specs of a model in order of first use.

    block_size: the engine's block size after alignment; not_modelled: what is missing for an exact answer.
    """

    counted: tuple[CountedSpec, ...]
    block_size: int
    chosen: Chosen
    not_modelled: tuple[str, ...]


_Counts = dict[CacheSpec, list[int]]


@lru_cache(maxsize=64)
def cache_specs(
    spec: ModelSpec, settings: Settings, partition: tuple[tuple[int, int], ...], draft: ModelSpec | None = None
) -> Caches:
    """The cache specs of all stages. partition: [first, end) layers of each stage; draft: a draft model's layers.

    Raises BadInput where no attention back end takes the configuration.
    """
    chosen = select(spec, settings)
    block = kv_block.aligned_block(spec, settings, chosen)
    missing = list(spec.not_modelled)
    counted: _Counts = {}
    for index, layer in enumerate(spec.layers):
        layers = [spec.counts(first, end)[index] for first, end in partition]
        for mixer in layer.mixers:
            for one in specs_of(mixer, spec, settings, chosen, block):
                _add(counted, one, layers)
    for mixer, count in _draft_mixers(spec, settings, draft, missing):
        for one in specs_of(mixer, draft or spec, settings, chosen, block):
            _add(counted, one, [0] * (len(partition) - 1) + [count])
    found = tuple(CountedSpec(one, tuple(layers)) for one, layers in counted.items() if any(layers))
    return Caches(found, block, chosen, tuple(missing))


def _add(counted: _Counts, one: CacheSpec, layers: list[int]) -> None:
    known = counted.setdefault(one, [0] * len(layers))
    for stage, count in enumerate(layers):
        known[stage] += count


def specs_of(mixer: Mixer, spec: ModelSpec, settings: Settings, chosen: Chosen, block: int) -> tuple[CacheSpec, ...]:
    """The caches of one layer's mixer in blocks of `block` tokens: none, one, or a latent's beside its indexer's."""
    if isinstance(mixer, State):
        return (_state_spec(mixer, spec, settings, chosen, block),)
    if isinstance(mixer, Attention):
        own = (_attention_spec(mixer, spec, settings, block),) if mixer.owns_cache and mixer.causal else ()
        return (*_index_spec(mixer.index, block), *own)
    if isinstance(mixer, Mla):
        if spec.model_type in _EXPANDED_LATENT:
            size = mixer.qk_nope + mixer.qk_rope
            return (_attention_spec(Attention(mixer.heads, mixer.heads, size, size), spec, settings, block),)
        kind: CacheKind = "mla" if mixer.window is None else "sliding_mla"
        row = kv_block.latent_row(mixer, settings, chosen)
        return (*_index_spec(mixer.index, block), _plain(kind, block, row, mixer.window or 0))
    return ()


def _plain(kind: CacheKind, block: int, row: int, window: int = 0) -> CacheSpec:
    return CacheSpec(kind, block, row, block * row, block * row, window)


def _index_spec(index: Indexer | None, block: int) -> tuple[CacheSpec, ...]:
    if index is None or not index.owns_cache:
        return ()
    return (_plain("index", block, kv_dtypes.index_bytes(index.head_size)),)


def _attention_spec(mixer: Attention, spec: ModelSpec, settings: Settings, block: int) -> CacheSpec:
    row = kv_block.attention_row(mixer, settings)
    if mixer.cross:
        return _plain("cross", block, row)
    if mixer.chunk is not None:
        return _plain("chunked", block, row, mixer.chunk)
    if mixer.window is not None:
        window = mixer.window + (1 if spec.architecture in _INCLUSIVE_WINDOW else 0)
        extra = settings.spec_tokens - 1 if settings.spec_method == "mtp" and spec.mtp_layers > 1 else 0
        return replace(_plain("sliding", block, row, window), extra_tokens=extra)
    return _plain("full", block, row)


def _state_spec(mixer: State, spec: ModelSpec, settings: Settings, chosen: Chosen, block: int) -> CacheSpec:
    real = kv_state.state_bytes(mixer, settings, spec.architecture)
    row = kv_block.first_row(spec, settings, chosen)
    tokens = block if settings.mamba_cache_mode == "align" else settings.mamba_block_size or settings.max_model_len
    blocks = kv_state.state_blocks(mixer, settings, chosen)
    return CacheSpec("state", tokens, 0, max(real, block * row), real, state_blocks=blocks)


def _draft_mixers(
    spec: ModelSpec, settings: Settings, draft: ModelSpec | None, missing: list[str]
) -> list[tuple[Mixer, int]]:
    """What a speculator adds on the last stage: mixers with their number of layers."""
    method = settings.spec_method
    if method in (None, "ngram"):
        return []
    if draft is not None:
        return [(m, n) for layer, n in zip(draft.layers, draft.counts(), strict=True) for m in layer.mixers]
    last = _last_attention(spec)
    if method == "mtp" and last is not None:
        return [(last, max(spec.mtp_layers, 1))]
    if method in ("eagle", "eagle3") and isinstance(last, Attention):
        full = Attention(last.heads, last.kv_heads, last.head_size, last.head_size_v)
        return [(full, 1)]
    missing.append(f"The draft model of --speculative-config ({method}) is not known: its cache layers are not counted")
    return []


def _last_attention(spec: ModelSpec) -> Mixer | None:
    for index in reversed(spec.layer_of):
        for mixer in spec.layers[index].mixers:
            if isinstance(mixer, Attention | Mla):
                return mixer
    return None
