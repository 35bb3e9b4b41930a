"""From a model's layers to cache specs: what one layer keeps in one block on one rank.

Formulas: v1/kv_cache_interface.py and model_executor/layers/mamba/mamba_utils.py of vLLM 0.33. Layers that keep the
same are one spec with a count; nothing loops over layers.
"""

from __future__ import annotations

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm.backends import Chosen, expanded, expands_latent, select
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.kv import block as kv_block
from kvplanner.engine.vllm.kv import compressed as kv_compressed
from kvplanner.engine.vllm.kv import state as kv_state
from kvplanner.engine.vllm.kv.spec import GROWING, CacheKind, CacheSpec, CountedSpec
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.kv import index_row_bytes
from kvplanner.model.spec import Attention, Indexer, Mixer, Mla, ModelSpec, State
from kvplanner.record import NamedTuple


class Caches(NamedTuple):
    """All cache specs of a model in order of first use.

    block_size: the engine's block size after alignment; not_modelled: what is missing for an exact answer.
    """

    counted: tuple[CountedSpec, ...]
    block_size: int
    chosen: Chosen
    not_modelled: tuple[str, ...]


_Counts = dict[CacheSpec, list[int]]


@by_identity(64, lambda _, *others: others)
def cache_specs(
    spec: ModelSpec, settings: Settings, gpu: Gpu, partition: tuple[tuple[int, int], ...],
    draft: ModelSpec | None = None,
) -> Caches:  # fmt: skip
    """The cache specs of all stages. partition: [first, end) layers of each stage; draft: a draft model's layers.

    Raises BadInput where no attention back end takes the configuration.
    """
    chosen = select(spec, settings, gpu)
    skipped = kv_block.unquantised_layers(spec, settings)
    block = kv_block.aligned_block(spec, settings, chosen, mixed=bool(skipped))
    missing = [*spec.not_modelled, *_not_confirmed(spec)]
    counted: _Counts = {}
    for index, layer in enumerate(spec.layers):
        layers = [spec.counts(first, end)[index] for first, end in partition]
        wide = [sum(spec.layer_of[i] == index for i in skipped if first <= i < end) for first, end in partition]
        narrow = [n - w for n, w in zip(layers, wide, strict=True)]
        for mixer in layer.mixers:
            for one in specs_of(mixer, spec, settings, chosen, block):
                _add(counted, one, narrow)
            if any(wide) and isinstance(mixer, Attention) and mixer.owns_cache:
                _add(counted, _unquantised(mixer, spec, settings, chosen, block), wide)
    for mixer, count in _draft_mixers(spec, settings, draft, missing):
        for one in specs_of(mixer, draft or spec, settings, chosen, block):
            _add(counted, one, [0] * (len(partition) - 1) + [count])
    found = [CountedSpec(one, tuple(layers)) for one, layers in counted.items() if any(layers)]
    if settings.era.runner == "V0":
        found = _ungrouped(found)
    return Caches(tuple(found), block, chosen, tuple(missing))


def _not_confirmed(spec: ModelSpec) -> tuple[str, ...]:
    name = quirks(spec.architecture).not_confirmed
    return (f"{spec.architecture}: {name}, so its KV cache is an estimate",) if name else ()


def _ungrouped(specs: list[CountedSpec]) -> list[CountedSpec]:
    """V0 kept every token of every attention layer, and recurrent state outside the KV cache."""
    out: _Counts = {}
    for spec, layers in specs:
        if spec.kind != "state":
            kind: CacheKind = spec.kind if spec.kind in GROWING else "full"
            _add(out, spec._replace(kind=kind, window=0), list(layers))
    return [CountedSpec(one, tuple(layers)) for one, layers in out.items()]


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
        return (*_index_spec(mixer.indexer, block), *own)
    if isinstance(mixer, Mla):
        if expands_latent(spec, settings):
            return (_attention_spec(expanded(mixer), spec, settings, block),)
        kind: CacheKind = "mla" if mixer.window is None else "sliding_mla"
        row = kv_block.latent_row(mixer, settings, chosen)
        return (*_index_spec(mixer.indexer, block), _plain(kind, block, row, mixer.window or 0))
    return kv_compressed.compressed_specs(mixer)


def _plain(kind: CacheKind, block: int, row: int, window: int = 0) -> CacheSpec:
    return CacheSpec(kind, block, row, block * row, block * row, window)


def _index_spec(index: Indexer | None, block: int) -> tuple[CacheSpec, ...]:
    if index is None or not index.owns_cache:
        return ()
    return (_plain("index", block, index_row_bytes(index.head_size)),)


def _attention_spec(mixer: Attention, spec: ModelSpec, settings: Settings, block: int) -> CacheSpec:
    row = kv_block.attention_row(mixer, settings)
    if mixer.cross:
        return _plain("cross", block, row)
    if mixer.chunk is not None:
        return _plain("chunked", block, row, mixer.chunk)
    if mixer.window is not None:
        window = mixer.window + quirks(spec.architecture).inclusive_window
        extra = settings.speculative.tokens - 1 if settings.speculative.method == "mtp" and spec.mtp_layers > 1 else 0
        return _plain("sliding", block, row, window)._replace(extra_tokens=extra)
    return _plain("full", block, row)


def _unquantised(mixer: Attention, spec: ModelSpec, settings: Settings, chosen: Chosen, block: int) -> CacheSpec:
    """A layer that keeps the model's dtype beside quantised ones: as many tokens as fit their page, padded to it."""
    page = block * kv_block.first_row(spec, settings, chosen)
    plain = _attention_spec(mixer, spec, kv_block.at_model_dtype(settings), chosen.smallest_block)
    tokens = chosen.smallest_block * max(page // plain.page_bytes, 1)
    return plain.resized(tokens).padded(max(page, plain.row_bytes * tokens))


def _state_spec(mixer: State, spec: ModelSpec, settings: Settings, chosen: Chosen, block: int) -> CacheSpec:
    real = kv_state.state_bytes(mixer, settings, spec.architecture)
    row = kv_block.first_row(spec, settings, chosen)
    tokens = (
        block
        if settings.cache.mamba_mode == "align"
        else settings.cache.mamba_block_size or settings.model.max_model_len
    )
    blocks = kv_state.state_blocks(mixer, settings, chosen)
    return CacheSpec("state", tokens, 0, max(real, block * row), real, state_blocks=blocks)


def _draft_mixers(
    spec: ModelSpec, settings: Settings, draft: ModelSpec | None, missing: list[str]
) -> list[tuple[Mixer, int]]:
    """What a speculator adds on the last stage: mixers with their number of layers."""
    method = settings.speculative.method
    if method in (None, "ngram"):
        return []
    if draft is not None:
        return [(m, n) for layer, n in zip(draft.layers, draft.counts(), strict=True) for m in layer.mixers]
    last = _last_attention(spec)
    if method == "mtp" and quirks(spec.architecture).assistant:
        return []  # its draft layers read the target's cache
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
