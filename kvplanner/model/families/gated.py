"""Gated delta nets beside full attention: Qwen3-Next, Qwen3.5 to 3.8, OLMo Hybrid.

Sources: configuration and modelling classes of transformers 5.24, element counts of public files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.model.config.fields import Fields, need_divides
from kvplanner.model.config.moe import Experts
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.patterns import FULL, LINEAR, SPARSE, Pattern, all_dense, all_sparse, listed, qwen_sparse
from kvplanner.model.config.reading import Body, Draft, Heads, MixerPart, Reader, Reading, body, stack
from kvplanner.model.families.latent import dense_mlp, layer_norms
from kvplanner.model.spec import Attention, State
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple


class DeltaSizes(NamedTuple):
    """Key heads and size, value heads and size, convolution kernel, and the dtype asked for the state."""

    key_heads: int
    key_size: int
    value_heads: int
    value_size: int
    kernel: int
    state_dtype: str | None


def delta_sizes(text: Fields) -> DeltaSizes:
    """Read the sizes. Raises BadInput when key heads do not divide value heads."""
    keys = text.need("linear_num_key_heads", high=1 << 16)
    values = text.need("linear_num_value_heads", high=1 << 16)
    need_divides(text, "linear_num_key_heads", keys, "linear_num_value_heads", values)
    return DeltaSizes(
        keys, text.need("linear_key_head_dim", high=1 << 16), values, text.need("linear_value_head_dim", high=1 << 16),
        text.get("linear_conv_kernel_dim", default=4, high=256),
        text.text("mamba_ssm_dtype", allowed=("float32", "bfloat16", "float16")),
    )  # fmt: skip


def delta_state(s: DeltaSizes) -> State:
    """What a gated delta layer keeps per sequence."""
    return State(
        "gated_delta", s.kernel, s.value_heads, s.value_size, s.key_heads, s.key_size, state_dtype=s.state_dtype
    )


def interval_layers(fields: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, or full attention in each `full_attention_interval`-th layer."""
    step = fields.maybe("full_attention_interval", high=1 << 16)
    given = listed(fields, layers, FULL, LINEAR)
    if given is not None:
        return given
    if step is None:
        fields.took_default("full_attention_interval")
        step = 4
    return tuple(FULL if (i + 1) % step == 0 else LINEAR for i in range(layers))


def _delta(
    reading: Reading, hidden: int, s: DeltaSizes, projections: list[TensorGroup], norm: str
) -> list[TensorGroup]:
    """The tensors that all gated delta layers share, after their projections."""
    parts, path = reading.parts, "linear_attn"
    keys, values = s.key_heads * s.key_size, s.value_heads * s.value_size
    groups = [*projections]
    groups.append(parts.tensor(f"{path}.conv1d", "state", (2 * keys + values, 1, s.kernel), "column"))
    groups.append(parts.tensor(f"{path}.dt_bias", "state", (s.value_heads,), "column"))
    groups.append(parts.tensor(f"{path}.A_log", "state", (s.value_heads,), "column"))
    return groups + parts.norm(f"{path}.{norm}", s.value_size)


def _fused_delta(reading: Reading, hidden: int, s: DeltaSizes) -> list[TensorGroup]:
    """Qwen3-Next: two stored matrices, in_proj_qkvz and in_proj_ba."""
    parts, keys, values = reading.parts, s.key_heads * s.key_size, s.value_heads * s.value_size
    groups = parts.linear(
        "linear_attn.in_proj_qkvz", "state", 2 * keys + 2 * values, hidden, "column", fused="in_proj_qkvz"
    )
    groups += parts.linear("linear_attn.in_proj_ba", "state", 2 * s.value_heads, hidden, "column", fused="in_proj_ba")
    groups += parts.linear("linear_attn.out_proj", "state", hidden, values, "row", unit=s.value_size)
    return _delta(reading, hidden, s, groups, "norm")


def _split_delta(reading: Reading, hidden: int, s: DeltaSizes) -> list[TensorGroup]:
    """Qwen3.5 and later: in_proj_qkv and in_proj_z, in_proj_b and in_proj_a."""
    parts, keys, values = reading.parts, s.key_heads * s.key_size, s.value_heads * s.value_size
    groups = parts.linear("linear_attn.in_proj_qkv", "state", 2 * keys + values, hidden, "column", fused="in_proj_qkvz")
    groups += parts.linear("linear_attn.in_proj_z", "state", values, hidden, "column", fused="in_proj_qkvz")
    groups += parts.linear("linear_attn.in_proj_b", "state", s.value_heads, hidden, "column", fused="in_proj_ba")
    groups += parts.linear("linear_attn.in_proj_a", "state", s.value_heads, hidden, "column", fused="in_proj_ba")
    groups += parts.linear("linear_attn.out_proj", "state", hidden, values, "row", unit=s.value_size)
    return _delta(reading, hidden, s, groups, "norm")


def _olmo_delta(reading: Reading, hidden: int, s: DeltaSizes) -> list[TensorGroup]:
    """OLMo Hybrid: one matrix for each stream."""
    parts, keys, values = reading.parts, s.key_heads * s.key_size, s.value_heads * s.value_size
    groups: list[TensorGroup] = []
    for name, rows in (("q_proj", keys), ("k_proj", keys), ("v_proj", values), ("g_proj", values)):
        groups += parts.linear(f"linear_attn.{name}", "state", rows, hidden, "column", fused="in_proj_qkvz")
    for name in ("b_proj", "a_proj"):
        groups += parts.linear(f"linear_attn.{name}", "state", s.value_heads, hidden, "column", fused="in_proj_ba")
    groups += parts.linear("linear_attn.o_proj", "state", hidden, values, "row", unit=s.value_size)
    return _delta(reading, hidden, s, groups, "o_norm")


def _gated_attention(reading: Reading, hidden: int, heads: Heads) -> MixerPart:
    """Full attention whose query projection also makes an output gate."""
    parts = reading.parts
    n, kv, size = heads
    groups = parts.qkv("self_attn", hidden, n, kv, size, gate=True)
    groups += parts.linear("self_attn.o_proj", "attention", hidden, n * size, "row", unit=size)
    groups += parts.norm("self_attn.q_norm", size) + parts.norm("self_attn.k_norm", size)
    return MixerPart(Attention(n, kv, size, size), groups)


class Gated(NamedTuple):
    """A family of gated-delta hybrids: how the delta layer is stored, which layers have experts, the MTP field."""

    delta: Callable[[Reading, int, DeltaSizes], list[TensorGroup]]
    mlps: Pattern
    experts: Experts | None
    mtp_field: str
    mtp_default: int = 0

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text = reading.text
        text.expect("attention_bias", False)
        text.expect("attn_output_gate", True)
        text.expect("output_gate_type", "swish")
        text.skip("mtp_use_dedicated_embeddings")
        hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
        heads = reading.heads(hidden, default_size=256)
        sizes = delta_sizes(text)
        norms = layer_norms(reading, hidden)

        def make(key: tuple[str, str]) -> Body:
            linear = key[0] == LINEAR
            mixer = (
                MixerPart(delta_state(sizes), self.delta(reading, hidden, sizes))
                if linear
                else _gated_attention(reading, hidden, heads)
            )
            if key[1] == SPARSE and self.experts is not None:
                return body(mixer, self.experts(reading, hidden), norms)
            return body(mixer, dense_mlp(reading, hidden), norms)

        kinds = self.mlps(text, layers)
        if all(kind == SPARSE for kind in kinds):
            text.skip("intermediate_size")
        else:
            text.skip("mlp_only_layers")
        bodies, body_of = stack(zip(interval_layers(text, layers), kinds, strict=True), make)
        tied = reading.tied(False)
        outside = reading.vocabulary(vocab, hidden, tied)
        draft = Draft(hidden, vocab, bodies, body_of, outside, tied)
        read_mtp = one_layer(self.mtp_field, default=self.mtp_default, names=("layers.{index}", "mtp.layers.{i}"))
        return draft._replace(mtp=read_mtp(reading, make((FULL, kinds[-1])), hidden, vocab))


def _olmo_hybrid(reading: Reading) -> Draft:
    """OLMo Hybrid: norms before delta layers, after attention and its MLP; no MTP."""
    text = reading.text
    text.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    n, kv, size = heads = reading.heads(hidden)
    sizes = delta_sizes(text)
    parts = reading.parts

    def make(kind: str) -> Body:
        mlp = dense_mlp(reading, hidden)
        if kind == LINEAR:
            mixer = MixerPart(delta_state(sizes), _olmo_delta(reading, hidden, sizes))
            return body(mixer, mlp, layer_norms(reading, hidden))
        groups = parts.qkv("self_attn", hidden, *heads)
        groups += parts.linear("self_attn.o_proj", "attention", hidden, n * size, "row", unit=size)
        groups += parts.norm("self_attn.q_norm", n * size, shard="column", unit=size)
        groups += parts.norm("self_attn.k_norm", kv * size, shard="kv", unit=size)
        norms = parts.norm("post_attention_layernorm", hidden) + parts.norm("post_feedforward_layernorm", hidden)
        return body(MixerPart(Attention(n, kv, size, size), groups), mlp, norms)

    bodies, body_of = stack(interval_layers(text, layers), make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


_EXPERTS: Final = Experts(
    shared_width=("shared_expert_intermediate_size",), shared="shared_expert", shared_gate="shared_expert_gate",
    ignore=("mlp_only_layers",),
)  # fmt: skip
QWEN3_5: Final = Gated(_split_delta, all_dense, None, "mtp_num_hidden_layers", 1)
QWEN3_5_MOE: Final = Gated(_split_delta, all_sparse, _EXPERTS, "mtp_num_hidden_layers", 1)

READERS: Final[dict[str, Reader]] = {
    "Qwen3NextForCausalLM": Gated(_fused_delta, qwen_sparse, _EXPERTS, "num_nextn_predict_layers", 1),
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5MoeForCausalLM": QWEN3_5_MOE,
    "OlmoHybridForCausalLM": _olmo_hybrid,
}
