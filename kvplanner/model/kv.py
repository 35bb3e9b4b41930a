"""What a layer keeps: elements per token of context, or a state of fixed size per sequence; no engine's rounding.

Sources: the modelling classes of each family; vLLM 0.33's own figures for 52 models are the check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.spec import Attention, Compressed, Indexer, LayerSpec, Mixer, Mla, State
from kvplanner.record import NamedTuple

# The selector of sparse latent attention keeps 8-bit keys with one fp32 scale for each whole 128 values: vLLM 0.33
# (models/deepseek_v2.py, DeepseekV32IndexerCache) rounds down.
_INDEX_GROUP: Final = 128


class TokenCache(NamedTuple):
    """What one layer keeps for each token. bytes: at the model's precision; bound: tokens it looks back on, or None."""

    kind: str
    bytes: float
    bound: int | None


class SequenceState(NamedTuple):
    """What one layer keeps for each sequence, however long: recurrent state and the convolution's last inputs."""

    kind: str
    state_elements: int
    conv_elements: int
    dtype: str


def keeps_nothing(layers: Iterable[LayerSpec]) -> bool:
    """Whether every layer sees whole sequences, as encoders do, so that none keeps a cache or a state."""
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    return bool(mixers) and all(isinstance(mixer, Attention) and not mixer.causal for mixer in mixers)


def token_cache(mixer: Mixer, dtype: str) -> tuple[TokenCache, ...]:
    """The caches of a layer that grow with the context; none for a layer without its own."""
    size = DTYPE_BYTES[dtype]
    if isinstance(mixer, Attention):
        return _attention_cache(mixer, size)
    if isinstance(mixer, Mla):
        latent = TokenCache("latent", (mixer.kv_lora_rank + mixer.qk_rope) * size, mixer.window)
        return (latent, *_index_cache(mixer.indexer))
    if isinstance(mixer, Compressed):
        window = TokenCache("sliding latent", mixer.head_size * size, mixer.window)
        if not mixer.ratio:
            return (window,)
        kept = TokenCache(f"latent, 1 in {mixer.ratio}", mixer.head_size * size / mixer.ratio, None)
        index = tuple(c._replace(bytes=c.bytes / mixer.ratio) for c in _index_cache(mixer.indexer))
        return (kept, *index, window)
    return ()


def _attention_cache(mixer: Attention, size: int) -> tuple[TokenCache, ...]:
    if not mixer.owns_cache or not mixer.causal:
        return ()
    width = mixer.kv_heads * (mixer.head_size + mixer.head_size_v) * size
    kind = "image" if mixer.cross else "sliding" if mixer.window else "chunked" if mixer.chunk else "full"
    main = TokenCache(kind, width, mixer.window or mixer.chunk)
    if mixer.indexer is None:
        return (main,)
    return (main, TokenCache("index", mixer.indexer.head_size * size, None))


def _index_cache(index: Indexer | None) -> tuple[TokenCache, ...]:
    if index is None or not index.owns_cache:
        return ()
    return (TokenCache("index", index_row_bytes(index.head_size), None),)


def index_row_bytes(head_size: int) -> int:
    """Bytes of one token of a sparse indexer's cache: 8-bit values and their scales."""
    return head_size + 4 * (head_size // _INDEX_GROUP)


def sequence_state(mixer: Mixer, dtype: str) -> SequenceState | None:
    """The state of a recurrent layer, None for any other. dtype: of the model; KDA keeps its state in fp32."""
    if not isinstance(mixer, State):
        return None
    state, streams = state_elements(mixer)
    kept = mixer.state_dtype or ("float32" if mixer.kind == "kda" else dtype)
    return SequenceState(mixer.kind, state, streams * max(mixer.conv_kernel - 1, 0), kept)


def state_bytes(mixer: Mixer, dtype: str) -> int:
    """Bytes per sequence of a recurrent layer: the state in its own dtype, the convolution in the model's."""
    found = sequence_state(mixer, dtype)
    if found is None:
        return 0
    return found.state_elements * DTYPE_BYTES[found.dtype] + found.conv_elements * DTYPE_BYTES[dtype]


def state_elements(mixer: State, ranks: int = 1) -> tuple[int, int]:
    """Elements of the state on one of `ranks` tensor ranks, and channels that are convolved (see State).

    Where ranks outnumber a Mamba-2 layer's groups, or do not divide them, each rank has one.
    """
    heads, wide = mixer.heads // ranks, mixer.heads * mixer.head_size
    if mixer.kind == "mamba1":
        channels = mixer.channels // ranks
        return channels * mixer.state_size, channels
    if mixer.kind == "mamba2":
        groups = mixer.groups if mixer.groups % ranks == 0 else ranks
        return heads * mixer.head_size * mixer.state_size, (wide + 2 * groups * mixer.state_size) // ranks
    if mixer.kind == "short_conv":
        return 0, mixer.channels // ranks
    if mixer.kind == "lightning":
        return heads * mixer.head_size * mixer.head_size, 0
    key_heads, key_size = mixer.key_heads or mixer.heads, mixer.key_size or mixer.head_size
    return heads * mixer.head_size * key_size, (wide + 2 * key_heads * key_size) // ranks
