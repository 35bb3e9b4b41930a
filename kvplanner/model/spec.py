"""ModelSpec: what a model's layers are, told once for each distinct layer.

Sizes are elements and counts; nothing here depends on an engine. A field that a config does not state is
None or absent, never a guess.
"""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.record import NamedTuple

StateKind = Literal["mamba1", "mamba2", "gated_delta", "kda", "lightning", "short_conv"]
TowerKind = Literal["vision", "audio", "projector"]
# draft: a head that proposes tokens for another model.
Task = Literal["generate", "embed", "classify", "draft"]
# One of ModelSpec.quantization_traits: the list of what is not quantised names an encoder instead of its matrices.
PARTS_SKIPPED: Final = "skipped as a whole"


class Indexer(NamedTuple):
    """The side cache of sparse attention: one key of head_size per token, beside its layer's cache.

    owns_cache False: the layer reuses an earlier layer's selection.
    """

    heads: int
    head_size: int
    top_k: int
    owns_cache: bool = True


class Attention(NamedTuple):
    """Softmax attention that keeps keys and values.

    window: tokens that a sliding-window layer sees; chunk: size of a chunked-local layer; both None: full.
    cross: attends to an encoder's tokens only. causal False: encoder attention, which keeps no cache.
    owns_cache False: reuses the cache of an earlier layer of its kind.
    indexer: a block-sparse layer's extra key cache.
    """

    heads: int
    kv_heads: int
    head_size: int
    head_size_v: int
    window: int | None = None
    chunk: int | None = None
    cross: bool = False
    causal: bool = True
    owns_cache: bool = True
    sinks: bool = False
    indexer: Indexer | None = None


class Mla(NamedTuple):
    """Multi-head latent attention: caches kv_lora_rank + qk_rope elements per token, whatever the heads.

    q_lora_rank None: the query projection is one full matrix.
    """

    heads: int
    kv_lora_rank: int
    qk_nope: int
    qk_rope: int
    head_size_v: int
    q_lora_rank: int | None = None
    indexer: Indexer | None = None
    window: int | None = None


class Compressed(NamedTuple):
    """DeepSeek-V4 attention: one shared latent of head_size, kept for each `ratio` tokens, and a window.

    ratio 0: the window alone. indexer: the selector of ratio-4 layers.
    """

    heads: int
    head_size: int
    ratio: int
    window: int
    indexer: Indexer | None = None


class State(NamedTuple):
    """A recurrent layer: a state of fixed size per sequence and a short convolution's last inputs.

    Meaning by kind (elements):
    mamba1: channels × state_size and channels × (conv_kernel − 1).
    mamba2: heads × head_size × state_size and (heads × head_size + 2 × groups × state_size) × (conv_kernel − 1).
    gated_delta: heads (values) × key_size × head_size; key_heads × key_size twice and heads × head_size convolved.
    kda: heads × head_size × key_size, all three streams convolved.
    lightning: heads × head_size × head_size, no convolution.
    short_conv: channels × (conv_kernel − 1).
    state_dtype: dtype that the config asks for the state, or None.
    """

    kind: StateKind
    conv_kernel: int = 0
    heads: int = 0
    head_size: int = 0
    key_heads: int = 0
    key_size: int = 0
    state_size: int = 0
    groups: int = 0
    channels: int = 0
    state_dtype: str | None = None


Mixer = Attention | Mla | Compressed | State


class Mlp(NamedTuple):
    """A dense feed-forward block; matrices: 3 with a gate, 2 without."""

    width: int
    matrices: int = 3


class Moe(NamedTuple):
    """Routed experts. shared_width: total width of the shared experts (0: none).

    hidden: width that the experts work at, when it is not the model's (latent experts).
    """

    experts: int
    top_k: int
    width: int
    shared_width: int = 0
    matrices: int = 3
    hidden: int | None = None


class LayerSpec(NamedTuple):
    """One distinct kind of decoder layer: what mixes tokens, and what follows it.

    mixers: usually one; two where attention and a state run in parallel; none for a pure MLP layer.
    mlps: usually one; a dense block and experts side by side in Gemma 4; none where the layer has no MLP.
    """

    mixers: tuple[Mixer, ...]
    mlps: tuple[Mlp | Moe, ...] = ()


class Tower(NamedTuple):
    """An encoder beside the language model.

    params: elements, sharded or not as the inventory says. tokens_per_item: most tokens that one item makes.
    """

    kind: TowerKind
    hidden_size: int
    depth: int
    params: int
    heads: int = 0
    patch_tokens_per_item: int | None = None
    tokens_per_item: int | None = None


class ModelSpec(NamedTuple):
    """What a config says about memory.

    layers: the distinct LayerSpecs; layer_of[i]: which of them layer i is.
    context_length: the limit that engines derive from the config; None when it states none.
    default_context_length: what engines start with when it is below the limit (LongRoPE's original length), or None.
    stated_context_length: the config's own field, before any rope factor; yarn_context_length: the original length
    times the factor of a YaRN model, which engines took before they took the field.
    dtype: of the unquantised tensors, for example "bfloat16".
    kv_cache_dtype: what the checkpoint asks of an engine's KV cache ("fp8"), or None.
    quantization: the method's name in the config ("fp8", "awq" ...), or None.
    quantization_traits: what the weights need of an engine beyond the method ("act-order", "2:4 sparse" ...).
    mtp_layers: multi-token-prediction blocks that the file holds and an engine loads only on request.
    not_modelled: facts that an engine would need and this reader does not understand; a plan says so.
    remarks: facts that a plan tells although nothing is uncertain by them.
    assumed_fields: config fields that come from class defaults and were seen in no file.
    defaulted: fields that the config leaves out and that took their family's class default.
    """

    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerSpec, ...]
    layer_of: tuple[int, ...]
    context_length: int | None
    dtype: str
    tied_embeddings: bool
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    towers: tuple[Tower, ...] = ()
    mtp_layers: int = 0
    task: Task = "generate"
    multimodal: bool = False
    assumed_fields: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    default_context_length: int | None = None
    stated_context_length: int | None = None
    yarn_context_length: int | None = None
    quantization_traits: tuple[str, ...] = ()

    @property
    def trained_context_length(self) -> int | None:
        """What a GGUF states of the model: the config's field, whatever its rope factor stretches it to.

        Source: `context_length` that convert_hf_to_gguf.py writes; deepseek-coder (16,384, linear factor 4) prints
        llama.context_length = 16384 in github:arcee-ai/mergekit issue 143.
        """
        lengths = [length for length in (self.stated_context_length, self.context_length) if length]
        return min(lengths, default=None)

    @property
    def num_layers(self) -> int:
        """Decoder layers, MTP blocks not counted."""
        return len(self.layer_of)

    @property
    def has_states(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(isinstance(mixer, State) for layer in self.layers for mixer in layer.mixers)

    def counts(self, first: int = 0, end: int | None = None) -> tuple[int, ...]:
        """How many layers of each distinct LayerSpec lie in [first, end)."""
        part = self.layer_of[first:end]
        return tuple(part.count(i) for i in range(len(self.layers)))
