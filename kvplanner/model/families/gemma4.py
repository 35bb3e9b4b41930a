"""Gemma 4: two head sizes, layers that share caches, per-layer embeddings, experts beside the dense block.

Sources: configuration and modelling classes of transformers 5.24; element counts and byte totals of public files.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config.fields import Fields, need_divides
from kvplanner.model.config.moe import expert_sizes
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.patterns import FULL, SLIDING, listed
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Reader, Reading, stack
from kvplanner.model.families.latent import dense_mlp
from kvplanner.model.spec import Attention, LayerSpec, Mlp, Moe, Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.vision import GATED, MAX_DEPTH, Encoder, norm, square, tower_of, vision_fields, with_towers
from kvplanner.record import NamedTuple

_NORMS: Final = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
# Of the audio tower, where the config leaves them out: convolution channels, kernel, frequency bins, output width.
_AUDIO_CHANNELS: Final = (128, 32)
_AUDIO_BINS: Final = 128


class _Sizes(NamedTuple):
    """Attention sizes of one kind of layer."""

    heads: int
    kv_heads: int
    head_size: int
    window: int | None
    value: bool


class _Key(NamedTuple):
    """What makes a layer distinct: its kind, and whether it owns its cache."""

    kind: str
    owns: bool


def _text(reading: Reading) -> Draft:
    """The language model."""
    text = reading.text
    text.expect("attention_bias", False)
    text.expect("expert_intermediate_size", None)
    hidden, vocab, layers = reading.hidden(), reading.vocab(default=262144), reading.layer_count()
    kinds = listed(text, layers, FULL, SLIDING)
    if kinds is None:
        text.took_default("layer_types")
        kinds = tuple(FULL if (i + 1) % 6 == 0 or i == layers - 1 else SLIDING for i in range(layers))
    sizes = {kind: _sizes(text, kind) for kind in (FULL, SLIDING)}
    shared = text.get("num_kv_shared_layers", default=0, low=0, high=layers - 1)
    per_layer = text.get("hidden_size_per_layer_input", default=0, low=0)
    wide = text.flag("use_double_wide_mlp", default=False)

    def make(key: _Key) -> Body:
        return _body(reading, hidden, sizes[key.kind], key.owns, per_layer, wide)

    keys = [_Key(kind, i < layers - shared) for i, kind in enumerate(kinds)]
    for kind in {key.kind for key in keys if not key.owns}:
        if _Key(kind, True) not in keys:
            raise BadInput(
                f"is {shared}, but no earlier {kind} layer is left to share with",
                text.named("num_kv_shared_layers"),
                "Expected fewer shared layers, or a layer of that kind before them",
            )
    bodies, body_of = stack(keys, make)
    tied = reading.tied(True)
    outside = reading.vocabulary(vocab, hidden, tied)
    outside += _per_layer_embedding(reading, hidden, layers, per_layer)
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


def _sizes(text: Fields, kind: str) -> _Sizes:
    """Full layers have their own head size and, in the large models, fewer KV heads whose values are the keys."""
    heads = text.need("num_attention_heads", high=1 << 16)
    kv = text.need("num_key_value_heads", high=1 << 16)
    size = text.get("head_dim", default=256, high=1 << 16)
    same = text.flag("attention_k_eq_v", default=False)
    window = text.need("sliding_window")
    if kind == SLIDING:
        need_divides(text, "num_key_value_heads", kv, "num_attention_heads", heads)
        return _Sizes(heads, kv, size, window, True)
    listed_size, listed_kv = _of_full_layers(text)
    own_kv = text.maybe("num_global_key_value_heads", high=1 << 16) or listed_kv
    text.noted("num_global_key_value_heads")
    own_size = text.maybe("global_head_dim", high=1 << 16) or listed_size
    if own_size is None:
        own_size = text.get("global_head_dim", default=512, high=1 << 16)
    full_kv = own_kv if own_kv is not None and same else kv
    need_divides(text, "num_global_key_value_heads", full_kv, "num_attention_heads", heads)
    return _Sizes(heads, full_kv, own_size, None, not same)


def _of_full_layers(text: Fields) -> tuple[int | None, int | None]:
    """Head size and KV heads of full layers as newer saves list them, layer by layer, in `per_layer_config`."""
    listed = text.sub("per_layer_config")
    if listed is None:
        return None, None
    found: set[tuple[int | None, int | None]] = set()
    for name in map(str, listed.values):
        layer = listed.sub(name)
        if layer is not None:
            sizes = layer.maybe("head_dim", high=1 << 16), layer.maybe("num_key_value_heads", high=1 << 16)
            layer.close()
            found.add(sizes)
    if len(found) != 1:
        raise NotModelled("gives layers different sizes", text.named("per_layer_config"), "One size is modelled")
    return found.pop()


def _body(reading: Reading, hidden: int, s: _Sizes, owns: bool, per_layer: int, wide: bool) -> Body:
    parts = reading.parts
    mixer = _attention(parts, hidden, s, owns)
    mlp = dense_mlp(reading, hidden)
    if wide and not owns:
        width = 2 * reading.text.need("intermediate_size")
        mlp = MlpPart(Mlp(width), parts.mlp("mlp", hidden, width))
    mlps: tuple[Mlp | Moe, ...] = (mlp.mlp,)
    groups = [*mixer.tensors, *mlp.tensors]
    for name in _NORMS:
        groups += parts.norm(name, hidden)
    groups.append(parts.tensor("layer_scalar", "other", (1,)))
    if reading.text.flag("enable_moe_block", default=False):
        experts = _experts(reading, hidden)
        mlps = (mlp.mlp, experts.mlp)
        groups += experts.tensors
    else:
        reading.text.skip("num_experts", "top_k_experts", "moe_intermediate_size")
    if per_layer:
        groups += parts.linear("per_layer_input_gate", "mlp", per_layer, hidden)
        groups += parts.linear("per_layer_projection", "mlp", hidden, per_layer)
        groups += parts.norm("post_per_layer_input_norm", hidden)
    return Body(LayerSpec((mixer.mixer,), mlps), tuple(groups))


def _attention(parts: Parts, hidden: int, s: _Sizes, owns: bool) -> MixerPart:
    """A layer that shares a cache computes no keys and values of its own."""
    size = s.head_size
    if owns:
        groups = parts.qkv("self_attn", hidden, s.heads, s.kv_heads, size, value=s.value)
        groups += parts.norm("self_attn.k_norm", size)
    else:
        groups = parts.linear("self_attn.q_proj", "attention", s.heads * size, hidden, "column", unit=size)
    groups += parts.linear("self_attn.o_proj", "attention", hidden, s.heads * size, "row", unit=size)
    groups += parts.norm("self_attn.q_norm", size)
    return MixerPart(Attention(s.heads, s.kv_heads, size, size, window=s.window, owns_cache=owns), groups)


def _experts(reading: Reading, hidden: int) -> MlpPart:
    text, parts = reading.text, reading.parts
    count, top_k, width = expert_sizes(text, ("num_experts",), ("top_k_experts",), ("moe_intermediate_size",))
    groups = parts.router("router.proj", count, hidden)
    groups.append(parts.tensor("router.scale", "router", (hidden,)))
    groups.append(parts.tensor("router.per_expert_scale", "router", (count,)))
    groups += parts.experts("experts", count, hidden, width)
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        groups += parts.norm(name, hidden)
    return MlpPart(Moe(count, top_k, width), groups)


def _per_layer_embedding(reading: Reading, hidden: int, layers: int, size: int) -> list[TensorGroup]:
    """One more embedding of `size` values for every layer and token."""
    text, parts = reading.text, reading.parts.at("first")
    if not size:
        text.skip("vocab_size_per_layer_input")
        return []
    rows = text.get("vocab_size_per_layer_input", default=262144, high=1 << 26)
    groups = [parts.tensor("model.embed_tokens_per_layer", "embedding", (rows, layers * size), "vocab")]
    groups += parts.linear("model.per_layer_model_projection", "other", layers * size, hidden)
    return groups + parts.norm("model.per_layer_projection_norm", size)


def _vision(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """The vision tower: gated feed-forward, query and key norms, two tables of positions."""
    fields, parts = vision_fields(reading), reading.parts.at("tower")
    fields.expect("attention_bias", False)
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, width = fields.need("num_attention_heads", high=1 << 12), fields.need("intermediate_size")
    head = fields.get("head_dim", default=size // heads, high=1 << 16)
    patch, pool = square(fields, "patch_size"), fields.get("pooling_kernel_size", default=3, high=64)
    rows = fields.get("position_embedding_size", default=10240, high=1 << 20)
    standard = fields.flag("standardize", default=False)
    fields.skip("global_head_dim", "num_key_value_heads", "use_clipped_linears")
    fields.close()
    path = "vision_tower"
    groups = [parts.tensor(f"{path}.patch_embedder.position_embedding_table", "tower", (2, rows, size))]
    groups += parts.linear(f"{path}.patch_embedder.input_proj", "tower", size, 3 * patch * patch)
    layer = Encoder(out="o_proj", norms=_NORMS, norm_bias=False, qkv_bias=False, out_bias=False, mlp_names=GATED,
                    mlp_bias=False, gated=True)  # fmt: skip
    groups += layer.layers(parts, f"{path}.encoder.layers", depth, size, width)
    for name in ("q_norm", "k_norm"):
        groups += norm(parts, f"{path}.encoder.layers.self_attn.{name}", head, bias=False, count=depth)
    if standard:
        groups += [parts.tensor(f"{path}.{name}", "tower", (size,)) for name in ("std_bias", "std_scale")]
    groups += parts.linear("embed_vision.embedding_projection", "tower", hidden, size)
    reading.top.skip("image_token_index")
    reading.top.noted("vision_soft_tokens_per_image")
    tokens = reading.top.maybe("vision_soft_tokens_per_image", high=1 << 20)
    patches = tokens * pool * pool if tokens else None
    return [tower_of("vision", size, depth, groups, heads, patches, tokens)], groups


def _audio(reading: Reading, hidden: int) -> tuple[list[Tower], list[TensorGroup]]:
    """The audio tower of the small models: a conformer; sizes that the config leaves out are class defaults."""
    fields = reading.top.sub("audio_config")
    if fields is None:
        return [], []
    parts = reading.parts.at("tower")
    size, depth = fields.need("hidden_size", high=1 << 20), fields.need("num_hidden_layers", high=MAX_DEPTH)
    heads, kernel = fields.need("num_attention_heads", high=1 << 12), fields.get("conv_kernel_size", default=5, high=64)
    out = fields.get("output_proj_dims", default=1536)
    need_divides(fields, "num_attention_heads", heads, "hidden_size", size)
    fields.skip("attention_chunk_size", "attention_context_left", "attention_context_right", "gradient_clipping",
                "subsampling_conv_channels")  # fmt: skip
    fields.close()
    first, second = _AUDIO_CHANNELS
    path, conformer = "audio_tower", "audio_tower.layers"
    front = f"{path}.subsample_conv_projection"
    groups = [parts.tensor(f"{front}.layer0.conv", "tower", (first, 1, 3, 3))]
    groups.append(parts.tensor(f"{front}.layer1.conv", "tower", (second, first, 3, 3)))
    groups += norm(parts, f"{front}.layer0.norm", first, bias=False)
    groups += norm(parts, f"{front}.layer1.norm", second, bias=False)
    groups += parts.linear(f"{front}.input_proj_linear", "tower", size, second * _AUDIO_BINS // 4)
    groups += _conformer(parts, conformer, depth, size, heads, kernel)
    groups += parts.linear(f"{path}.output_proj", "tower", out, size, bias=True)
    groups += parts.linear("embed_audio.embedding_projection", "tower", hidden, out)
    return [tower_of("audio", size, depth, groups, heads)], groups


def _conformer(parts: Parts, path: str, depth: int, size: int, heads: int, kernel: int) -> list[TensorGroup]:
    """Two feed-forwards around attention and a light convolution."""
    groups: list[TensorGroup] = []
    for name in ("feed_forward1", "feed_forward2"):
        groups += parts.linear(f"{path}.{name}.ffw_layer_1", "tower", 4 * size, size, count=depth)
        groups += parts.linear(f"{path}.{name}.ffw_layer_2", "tower", size, 4 * size, count=depth)
        for side in ("pre", "post"):
            groups += norm(parts, f"{path}.{name}.{side}_layer_norm", size, bias=False, count=depth)
    for name in ("q_proj", "k_proj", "v_proj", "post", "relative_k_proj"):
        groups += parts.linear(f"{path}.self_attn.{name}", "tower", size, size, count=depth)
    groups.append(parts.tensor(f"{path}.self_attn.per_dim_scale", "tower", (size // heads,), count=depth))
    groups += parts.linear(f"{path}.lconv1d.linear_start", "tower", 2 * size, size, count=depth)
    groups += parts.linear(f"{path}.lconv1d.linear_end", "tower", size, size, count=depth)
    groups.append(parts.tensor(f"{path}.lconv1d.depthwise_conv1d", "tower", (size, 1, kernel), count=depth))
    for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
        groups += norm(parts, f"{path}.{name}", size, bias=False, count=depth)
    return groups


READERS: Final[dict[str, Reader]] = {
    "Gemma4ForCausalLM": _text,
    "Gemma4ForConditionalGeneration": with_towers(_text, _vision, _audio),
}
