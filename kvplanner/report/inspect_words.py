"""A model's layers and oddities in words: "48 layers: 36 gated-delta, 12 full attention every 4th"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvplanner.model.spec import Attention, Compressed, LayerSpec, Mixer, Mla, Mlp, ModelSpec, Moe, State
from kvplanner.model.tensors import Inventory
from kvplanner.units import counted

_STATES: Final = {
    "mamba1": "Mamba-1", "mamba2": "Mamba-2", "gated_delta": "gated-delta", "kda": "Kimi-delta",
    "lightning": "lightning-attention", "short_conv": "short-convolution",
}  # fmt: skip
_FEW: Final = 4
_MUCH: Final = 0.02


def layer_summary(spec: ModelSpec) -> str:
    """All layers in one line, the most frequent kind first."""
    where: dict[str, list[int]] = {}
    for layer, kind in enumerate(spec.layer_of):
        where.setdefault(_kind(spec.layers[kind]), []).append(layer)
    parts = sorted(where.items(), key=lambda item: -len(item[1]))
    if len(parts) == 1:
        return f"{counted(spec.num_layers, 'layer', 'layers')}, all {parts[0][0]}"
    layers = counted(spec.num_layers, "layer", "layers")
    told = [f"{len(at)} {name}{_told(at, spec.num_layers)}" for name, at in parts]
    return f"{layers}: {', '.join(told)}"


def _told(layers: Sequence[int], of: int) -> str:
    """Where layers stand, when that says more than their number."""
    which = which_layers(layers, of)
    return f" {which}" if which.startswith("every") else f" ({which})" if len(layers) <= _FEW else ""


def which_layers(layers: Sequence[int], of: int) -> str:
    """ "every 4th", "0–2", "0, 5, 11" or "0, 1, 2 ...": numbers count from 0."""
    step = layers[1] - layers[0] if len(layers) > 1 else 0
    if step > 1 and list(layers) == list(range(layers[0], of, step)):
        ending = {1: "st", 2: "nd", 3: "rd"}.get(step % 10 if step % 100 not in (11, 12, 13) else 0, "th")
        start = f" from {layers[0]}" if layers[0] not in (step - 1,) else ""
        return f"every {step}{ending}{start}"
    if len(layers) > 1 and layers[-1] - layers[0] == len(layers) - 1:
        return f"{layers[0]}–{layers[-1]}"
    shown = ", ".join(str(i) for i in layers[:_FEW])
    return shown if len(layers) <= _FEW else f"{shown} ..."


def layer_lines(spec: ModelSpec) -> Iterator[tuple[int, str, str]]:
    """For each distinct layer: how many there are, which, and what it is in words."""
    for index, layer in enumerate(spec.layers):
        at = [i for i, kind in enumerate(spec.layer_of) if kind == index]
        if at:
            yield len(at), which_layers(at, spec.num_layers), describe(layer)


def describe(layer: LayerSpec) -> str:
    """A layer in words: its mixers with their sizes, then what follows them."""
    parts = [*(_mixer(m) for m in layer.mixers), *(_mlp(m) for m in layer.mlps)]
    return "; ".join(parts) or "nothing (removed)"


def _kind(layer: LayerSpec) -> str:
    """A layer's kind in two or three words."""
    names = [_short(m) for m in layer.mixers]
    if names:
        return " + ".join(names)
    return "experts alone" if any(isinstance(m, Moe) for m in layer.mlps) else "MLP alone" if layer.mlps else "removed"


def _short(mixer: Mixer) -> str:
    if isinstance(mixer, State):
        return _STATES[mixer.kind]
    if isinstance(mixer, Mla):
        if mixer.indexer is None:
            return "latent attention"
        return "sparse latent attention" + ("" if mixer.indexer.owns_cache else " on a shared selection")
    if isinstance(mixer, Compressed):
        return f"compressed 1:{mixer.ratio}" if mixer.ratio else "sliding latent"
    if mixer.cross:
        return "image cross-attention"
    if not mixer.causal:
        return "two-way attention"
    name = (
        f"sliding {mixer.window:,}" if mixer.window else f"chunked {mixer.chunk:,}" if mixer.chunk else "full attention"
    )
    if mixer.indexer is not None:
        name = "block-sparse attention"
    return name if mixer.owns_cache else f"{name} on a shared cache"


def _mixer(mixer: Mixer) -> str:
    """A mixer with its sizes."""
    name = _short(mixer)
    if isinstance(mixer, Attention):
        values = f" (values {mixer.head_size_v})" if mixer.head_size_v != mixer.head_size else ""
        return f"{name}: {mixer.heads} heads, {mixer.kv_heads} KV heads of {mixer.head_size}{values}"
    if isinstance(mixer, Mla):
        return f"{name}: {mixer.heads} heads, one latent of {mixer.kv_lora_rank} + {mixer.qk_rope}"
    if isinstance(mixer, Compressed):
        return f"{name}: {mixer.heads} heads, one latent of {mixer.head_size}, window {mixer.window}"
    if mixer.kind in ("mamba1", "short_conv"):
        return f"{name}: {mixer.channels:,} channels"
    return f"{name}: {mixer.heads} heads of {mixer.head_size}"


def _mlp(mlp: Mlp | Moe) -> str:
    if isinstance(mlp, Mlp):
        return f"MLP of {mlp.width:,}"
    shared = f", shared {mlp.shared_width:,}" if mlp.shared_width else ""
    latent = f" at width {mlp.hidden:,}" if mlp.hidden else ""
    return f"{mlp.experts} experts of {mlp.width:,}{latent}, {mlp.top_k} at once{shared}"


def oddities(spec: ModelSpec, inventory: Inventory | None) -> tuple[str, ...]:
    """What a reader would not expect."""
    return (*_cache_oddities(spec), *_weight_oddities(spec, inventory), *spec.remarks, *spec.not_modelled)


def _cache_oddities(spec: ModelSpec) -> Iterator[str]:
    attentions = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    sizes = sorted({m.head_size for m in attentions})
    if len(sizes) > 1:
        yield f"heads of several sizes: {', '.join(map(str, sizes))}"
    shared = sum(n for layer, n in zip(spec.layers, spec.counts(), strict=True) if _shares(layer))
    if shared:
        yield f"{counted(shared, 'layer keeps', 'layers keep')} no cache, but read that of an earlier layer"
    if spec.kv_cache_dtype:
        yield f"the checkpoint asks for an {spec.kv_cache_dtype} KV cache"
    if spec.default_context_length and spec.context_length:
        yield f"engines start at {spec.default_context_length:,} tokens, and go to {spec.context_length:,} when asked"
    made = {"embed": "makes embeddings, not text", "classify": "makes scores, not text"}.get(spec.task)
    if made:
        yield made


def _shares(layer: LayerSpec) -> bool:
    return any(isinstance(m, Attention) and not m.owns_cache for m in layer.mixers)


def _weight_oddities(spec: ModelSpec, inventory: Inventory | None) -> Iterator[str]:
    if spec.tied_embeddings:
        yield "the head is the embedding: one matrix, on both the first and the last pipeline stage"
    if spec.mtp_layers:
        blocks = counted(spec.mtp_layers, "multi-token-prediction block", "multi-token-prediction blocks")
        yield f"{blocks} in the files, loaded only for speculative decoding"
    if inventory is None:
        return
    total = inventory.parameters()
    tables = sum(g.elements * n for g, n in inventory.groups() if "per_layer" in g.path and g.kind == "embedding")
    if tables:
        yield f"per-layer embeddings: {tables / total:.0%} of all parameters"
    if spec.quantization and len(inventory.blocks) > len(spec.layers):
        yield f"{len(inventory.blocks)} kinds of layer bodies: the quantisation treats single layers apart"
    if spec.quantization:
        linear = [(g, n) for g, n in inventory.groups() if g.kind in ("attention", "state", "mlp", "experts")]
        plain = sum(g.elements * n for g, n in linear if g.format.layout == "dense" and len(g.shape) == 2)
        if plain > _MUCH * total:
            yield f"{plain / total:.0%} of the parameters are matrices that are left unquantised"
