"""Mamba layers: Codestral-Mamba, Falcon-Mamba, Jamba, Falcon-H1, Granite 4, Nemotron-H and Nemotron-3.

Sources: configuration and modelling classes of transformers 5.24, element counts of public files.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields, need_divides, need_length
from kvplanner.model.config.moe import Experts
from kvplanner.model.config.reading import Body, Draft, Heads, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.spec import Attention, LayerSpec, Mlp, State
from kvplanner.record import NamedTuple


class Mamba2(NamedTuple):
    """Sizes of a Mamba-2 layer. width: heads × head_size, whatever `expand` says."""

    heads: int
    head_size: int
    state: int
    groups: int
    kernel: int
    conv_bias: bool
    bias: bool
    norm: bool
    state_dtype: str | None

    @property
    def width(self) -> int:
        """Channels of the layer."""
        return self.heads * self.head_size


def mamba2_sizes(text: Fields, names: dict[str, str], *, norm: bool = True, state_dtype: str | None = None) -> Mamba2:
    """Read the sizes under a family's field names; state_dtype: the class's own, where it has one.

    Raises BadInput when groups do not divide heads.
    """
    asked = text.text("mamba_ssm_cache_dtype", allowed=("float32", "bfloat16", "float16"))
    if asked is None and state_dtype is not None:
        text.took_default("mamba_ssm_cache_dtype")
        asked = state_dtype
    heads = text.need(names["heads"], high=1 << 16)
    groups = text.get(names["groups"], default=1, high=1 << 16)
    need_divides(text, names["groups"], groups, names["heads"], heads)
    return Mamba2(
        heads, text.need(names["head_size"], high=1 << 16), text.need(names["state"], high=1 << 16), groups,
        text.get(names["kernel"], default=4, high=256), text.flag(names["conv_bias"], default=True),
        text.flag(names["bias"], default=False), norm, asked,
    )  # fmt: skip


def mamba2_part(reading: Reading, hidden: int, s: Mamba2, path: str) -> MixerPart:
    """A Mamba-2 layer: one input projection for gate, x, B, C and dt."""
    parts, width = reading.parts, s.width
    conv = width + 2 * s.groups * s.state
    groups = parts.linear(f"{path}.in_proj", "state", width + conv + s.heads, hidden, "column", bias=s.bias)
    groups.append(parts.tensor(f"{path}.conv1d", "state", (conv, 1, s.kernel), "column"))
    if s.conv_bias:
        groups.append(parts.tensor(f"{path}.conv1d.bias", "state", (conv,), "column"))
    for name in ("A_log", "D", "dt_bias"):
        groups.append(parts.tensor(f"{path}.{name}", "state", (s.heads,), "column"))
    if s.norm:
        groups += parts.norm(f"{path}.norm", width, shard="column")
    groups += parts.linear(f"{path}.out_proj", "state", hidden, width, "row", bias=s.bias)
    state = State("mamba2", s.kernel, s.heads, s.head_size, state_size=s.state, groups=s.groups, channels=width,
                  state_dtype=s.state_dtype)  # fmt: skip
    return MixerPart(state, groups)


class Mamba1(NamedTuple):
    """Sizes of a Mamba-1 layer."""

    width: int
    state: int
    kernel: int
    dt_rank: int
    conv_bias: bool
    bias: bool


def mamba1_part(reading: Reading, hidden: int, s: Mamba1, path: str, *, norms: bool) -> MixerPart:
    """A Mamba-1 layer; norms: those that Jamba adds on dt, B and C."""
    parts = reading.parts
    groups = parts.linear(f"{path}.in_proj", "state", 2 * s.width, hidden, "column", bias=s.bias)
    groups.append(parts.tensor(f"{path}.conv1d", "state", (s.width, 1, s.kernel), "column"))
    if s.conv_bias:
        groups.append(parts.tensor(f"{path}.conv1d.bias", "state", (s.width,), "column"))
    groups += parts.linear(f"{path}.x_proj", "state", s.dt_rank + 2 * s.state, s.width, "row")
    groups += parts.linear(f"{path}.dt_proj", "state", s.width, s.dt_rank, "column", bias=True)
    groups.append(parts.tensor(f"{path}.A_log", "other", (s.width, s.state), "column"))
    groups.append(parts.tensor(f"{path}.D", "state", (s.width,), "column"))
    if norms:
        groups += parts.norm(f"{path}.dt_layernorm", s.dt_rank)
        groups += parts.norm(f"{path}.b_layernorm", s.state) + parts.norm(f"{path}.c_layernorm", s.state)
    groups += parts.linear(f"{path}.out_proj", "state", hidden, s.width, "row", bias=s.bias)
    return MixerPart(State("mamba1", s.kernel, state_size=s.state, channels=s.width), groups)


def gqa_part(reading: Reading, hidden: int, heads: Heads, path: str = "self_attn") -> MixerPart:
    """Full attention without biases or norms."""
    n, _, size = heads
    groups = reading.parts.qkv(path, hidden, *heads)
    groups += reading.parts.linear(f"{path}.o_proj", "attention", hidden, n * size, "row", unit=size)
    return MixerPart(Attention(n, heads.kv_heads, size, size), groups)


def _mamba2_lm(reading: Reading) -> Draft:
    """Codestral-Mamba: nothing but Mamba-2 layers."""
    text = reading.text
    text.skip("expand", "chunk_size", "time_step_rank")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    sizes = mamba2_sizes(text, {"heads": "num_heads", "head_size": "head_dim", "state": "state_size",
                                "groups": "n_groups", "kernel": "conv_kernel", "conv_bias": "use_conv_bias",
                                "bias": "use_bias"})  # fmt: skip
    made = body(mamba2_part(reading, hidden, sizes, "mixer"), None, reading.parts.norm("norm", hidden))
    return _pure(reading, hidden, vocab, layers, made)


def _pure(reading: Reading, hidden: int, vocab: int, layers: int, made: Body, tied_default: bool = False) -> Draft:
    tied = reading.tied(tied_default)
    outside = reading.vocabulary(vocab, hidden, tied, embed="backbone.embeddings", norm="backbone.norm_f")
    return Draft(hidden, vocab, (made,), (0,) * layers, outside, tied)


def _falcon_mamba(reading: Reading) -> Draft:
    """Falcon-Mamba: the stated width counts, not `expand`."""
    reading.text.skip("expand")
    return _mamba1_lm(reading, reading.text.need("intermediate_size"), tied=False)


def _mamba(reading: Reading) -> Draft:
    """The first Mamba: as wide as `expand` says, with a tied head."""
    text = reading.text
    width = text.maybe("intermediate_size") or reading.hidden() * text.get("expand", default=2, high=1 << 10)
    text.noted("intermediate_size")
    text.skip("expand")
    return _mamba1_lm(reading, width, tied=True)


def _mamba1_lm(reading: Reading, width: int, *, tied: bool) -> Draft:
    text = reading.text
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    rank = text.maybe("time_step_rank", high=1 << 20) or -(-hidden // 16)
    sizes = Mamba1(width, text.need("state_size", high=1 << 16), text.get("conv_kernel", default=4, high=256), rank,
                   text.flag("use_conv_bias", default=True), text.flag("use_bias", default=False))  # fmt: skip
    made = body(mamba1_part(reading, hidden, sizes, "mixer", norms=False), None, reading.parts.norm("norm", hidden))
    return _pure(reading, hidden, vocab, layers, made, tied)


def _jamba(reading: Reading) -> Draft:
    """Jamba: one attention layer in eight, experts in every second."""
    text = reading.text
    text.expect("sliding_window", None)
    text.expect("mamba_inner_layernorms", True)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    period, offset = text.get("attn_layer_period", default=8), text.get("attn_layer_offset", default=4, low=0)
    e_period, e_offset = text.get("expert_layer_period", default=2), text.get("expert_layer_offset", default=1, low=0)
    rank = text.maybe("mamba_dt_rank", high=1 << 20) or -(-hidden // 16)
    sizes = Mamba1(hidden * text.get("mamba_expand", default=2, high=1 << 10), text.get("mamba_d_state", default=16),
                   text.get("mamba_d_conv", default=4, high=256), rank, text.flag("mamba_conv_bias", default=True),
                   text.flag("mamba_proj_bias", default=False))  # fmt: skip
    experts = Experts(width=("intermediate_size",), path="feed_forward", router="router")
    width = text.need("intermediate_size")
    norms = reading.parts.norm("input_layernorm", hidden) + reading.parts.norm("pre_ff_layernorm", hidden)

    def make(key: tuple[bool, bool]) -> Body:
        mixer = gqa_part(reading, hidden, heads) if key[0] else mamba1_part(reading, hidden, sizes, "mamba", norms=True)
        if key[1]:
            return body(mixer, experts(reading, hidden), norms)
        return body(mixer, MlpPart(Mlp(width), reading.parts.mlp("feed_forward", hidden, width)), norms)

    keys = [(i % period == offset, i % e_period == e_offset) for i in range(layers)]
    bodies, body_of = stack(keys, make)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, norm="model.final_layernorm")
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


_HYBRID_NAMES: Final = {
    "heads": "mamba_n_heads", "head_size": "mamba_d_head", "state": "mamba_d_state", "groups": "mamba_n_groups",
    "kernel": "mamba_d_conv", "conv_bias": "mamba_conv_bias", "bias": "mamba_proj_bias",
}  # fmt: skip


def _falcon_h1(reading: Reading) -> Draft:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    text = reading.text
    text.skip("mamba_chunk_size", "mamba_expand", "mamba_norm_before_gate", "num_logits_to_keep")
    text.expect("attention_bias", False)
    text.expect("mlp_bias", False)
    text.expect("projectors_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    sizes = mamba2_sizes(text, _HYBRID_NAMES, norm=text.flag("mamba_rms_norm", default=False))
    width = text.maybe("mamba_d_ssm")
    if width is not None and width != sizes.width:
        raise BadInput(f"is {width}, expected mamba_n_heads × mamba_d_head = {sizes.width}", text.named("mamba_d_ssm"),
                       "Correct the one that is wrong")  # fmt: skip
    mlp = text.need("intermediate_size")
    parts = reading.parts
    attention, mamba = gqa_part(reading, hidden, heads), mamba2_part(reading, hidden, sizes, "mamba")
    norms = parts.norm("input_layernorm", hidden) + parts.norm("pre_ff_layernorm", hidden)
    tensors = [*attention.tensors, *mamba.tensors, *parts.mlp("feed_forward", hidden, mlp), *norms]
    made = Body(LayerSpec((attention.mixer, mamba.mixer), (Mlp(mlp),)), tuple(tensors))
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, norm="model.final_layernorm")
    return Draft(hidden, vocab, (made,), (0,) * layers, outside, tied)


def _granite_hybrid(reading: Reading) -> Draft:
    """Granite 4: attention or Mamba-2, then experts (when there are any) beside a dense block."""
    text = reading.text
    text.skip("mamba_chunk_size", "mamba_expand")
    text.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    kinds = text.texts("layer_types", allowed=("mamba", "attention", "full_attention", "linear_attention"))
    if kinds is None:
        raise text.missing("layer_types")
    need_length(text, "layer_types", kinds, layers)
    attends = [kind in ("attention", "full_attention") for kind in kinds]
    heads = reading.heads(hidden)
    sizes = mamba2_sizes(text, _HYBRID_NAMES) if not all(attends) else None
    if sizes is None:
        text.skip(*_HYBRID_NAMES.values())
    experts = text.get("num_local_experts", default=8, low=0, high=1 << 16)
    shared = text.need("shared_intermediate_size")
    parts = reading.parts
    norms = parts.norm("input_layernorm", hidden) + parts.norm("post_attention_layernorm", hidden)
    names = ("input_linear", "input_linear", "output_linear")
    block = Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe",
                    router="router.layer",
                    experts="", names=names, shared_width=("shared_intermediate_size",), shared="/shared_mlp",
                    shared_names=names)  # fmt: skip
    if not experts:
        text.skip("intermediate_size", "num_experts_per_tok")

    def make(attend: bool) -> Body:
        mixer = (
            gqa_part(reading, hidden, heads)
            if attend or sizes is None
            else mamba2_part(reading, hidden, sizes, "mamba")
        )
        if experts:
            return body(mixer, block(reading, hidden), norms)
        return body(mixer, MlpPart(Mlp(shared), parts.mlp("shared_mlp", hidden, shared, names=names)), norms)

    bodies, body_of = stack(attends, make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _bamba(reading: Reading) -> Draft:
    """Bamba: attention at `attn_layer_indices`, Mamba-2 elsewhere, a feed-forward in every layer."""
    text, parts = reading.text, reading.parts
    text.skip("mamba_chunk_size", "mamba_expand", "num_logits_to_keep")
    text.expect("attention_bias", False)
    text.expect("mlp_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    attends = text.ints("attn_layer_indices", high=layers - 1)
    text.noted("attn_layer_indices")
    heads, width = reading.heads(hidden), text.need("intermediate_size")
    sizes = mamba2_sizes(text, _HYBRID_NAMES)
    norms = parts.norm("input_layernorm", hidden) + parts.norm("pre_ff_layernorm", hidden)

    def make(attend: bool) -> Body:
        mixer = gqa_part(reading, hidden, heads) if attend else mamba2_part(reading, hidden, sizes, "mamba")
        return body(mixer, MlpPart(Mlp(width), parts.mlp("feed_forward", hidden, width)), norms)

    bodies, body_of = stack([i in (attends or ()) for i in range(layers)], make)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, norm="model.final_layernorm")
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


READERS: Final[dict[str, Reader]] = {
    "Mamba2ForCausalLM": _mamba2_lm,
    "FalconMambaForCausalLM": _falcon_mamba,
    "MambaForCausalLM": _mamba,
    "BambaForCausalLM": _bamba,
    "JambaForCausalLM": _jamba,
    "FalconH1ForCausalLM": _falcon_h1,
    "GraniteMoeHybridForCausalLM": _granite_hybrid,
}
