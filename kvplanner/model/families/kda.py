"""Kimi delta attention beside latent attention: Kimi-Linear, Kimi-K3, Ling-3.

Sources: configuration and modelling classes of transformers 5.24 (Kimi-Linear, Ling-3), the repositories' configs
and their element counts.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields
from kvplanner.model.config.moe import MIXTRAL, Experts, expert_sizes
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.parts import FP32
from kvplanner.model.config.patterns import FULL, LINEAR, SPARSE, after_first, listed
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.families.latent import MlaSizes, dense_mlp, layer_norms, mla_part, mla_sizes
from kvplanner.model.spec import Moe, State
from kvplanner.model.tensors import TensorGroup

_CORRECTION: Final = "gate.e_score_correction_bias"
_EXPERTS: Final = Experts(
    top_k=("num_experts_per_token", "num_experts_per_tok"), shared_count=("num_shared_experts",),
    correction=_CORRECTION,
    path="block_sparse_moe",
)  # fmt: skip


def kda_state(heads: int, size: int, kernel: int) -> State:
    """What a KDA layer keeps per sequence; engines keep the state in fp32."""
    return State("kda", kernel, heads, size, heads, size)


def _streams(reading: Reading, hidden: int, heads: int, size: int, kernel: int) -> list[TensorGroup]:
    """Query, key and value projections with their convolutions, beta, and the output norm."""
    parts, wide = reading.parts, heads * size
    groups: list[TensorGroup] = []
    for name in "qkv":
        groups += parts.linear(
            f"self_attn.{name}_proj", "state", wide, hidden, "column", unit=size, fused="in_proj_qkv"
        )
        # Stored in fp32 (byte total of Kimi-K3).
        conv = parts.tensor(f"self_attn.{name}_conv1d", "state", (wide, 1, kernel), "column", unit=size, format_=FP32)
        groups.append(conv)
    groups += parts.linear("self_attn.b_proj", "state", heads, hidden, "column")
    groups.append(parts.tensor("self_attn.A_log", "state", (heads,), "column", format_=FP32))
    groups.append(parts.tensor("self_attn.dt_bias", "state", (wide,), "column", unit=size, format_=FP32))
    groups += parts.norm("self_attn.o_norm", size)
    return groups + parts.linear("self_attn.o_proj", "state", hidden, wide, "row", unit=size)


def _low_rank(reading: Reading, hidden: int, wide: int, size: int, name: str) -> list[TensorGroup]:
    """A gate of two small matrices: the first whole on every rank."""
    groups = reading.parts.linear(f"self_attn.{name}_a_proj", "state", size, hidden)
    return groups + reading.parts.linear(f"self_attn.{name}_b_proj", "state", wide, size, "column", unit=size)


def _kimi_kinds(linear: Fields, layers: int) -> tuple[str, ...]:
    """`kda_layers` and `full_attn_layers` are 1-based and together name every layer once."""
    kda = linear.ints("kda_layers", low=1, high=layers) or ()
    full = linear.ints("full_attn_layers", low=1, high=layers) or ()
    if sorted((*kda, *full)) != list(range(1, layers + 1)):
        raise BadInput(
            f"names {len(kda)} and {len(full)} layers, expected each of 1 to {layers} exactly once",
            linear.named("kda_layers and full_attn_layers"),
            "Check that the file is the model's own config.json",
        )
    chosen = frozenset(full)
    return tuple(FULL if i + 1 in chosen else LINEAR for i in range(layers))


def kimi_linear(reading: Reading) -> Draft:
    """Kimi-Linear: forget gate and output gate of low rank."""
    text = reading.text
    linear = text.sub("linear_attn_config")
    if linear is None:
        raise text.missing("linear_attn_config")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads, size = linear.need("num_heads", high=1 << 16), linear.need("head_dim", high=1 << 16)
    kernel = linear.need("short_conv_kernel_size", high=256)
    sizes = mla_sizes(text, hidden, may_lack_q_rank=True)
    mla_gate = text.flag("mla_use_output_gate", default=False)
    full_gate = linear.flag("use_full_rank_gate", default=False)
    linear.skip("gate_lower_bound")
    kinds = _kimi_kinds(linear, layers)
    linear.close()
    norms = layer_norms(reading, hidden)
    experts = _k3_experts if text.has("routed_expert_hidden_size") else _EXPERTS

    def make(key: tuple[str, str]) -> Body:
        mixer = (
            _kda(reading, hidden, heads, size, kernel, full_gate)
            if key[0] == LINEAR
            else _mla(reading, hidden, sizes, mla_gate)
        )
        mlp = experts(reading, hidden) if key[1] == SPARSE else dense_mlp(reading, hidden)
        return body(mixer, mlp, norms)

    bodies, body_of = stack(zip(kinds, after_first()(text, layers), strict=True), make)
    tied = reading.tied(False)
    draft = Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)
    mtp = one_layer("num_nextn_predict_layers")(reading, bodies[body_of[-1]], hidden, vocab)
    return draft._replace(mtp=mtp)


def _kda(reading: Reading, hidden: int, heads: int, size: int, kernel: int, full_gate: bool) -> MixerPart:
    wide = heads * size
    groups = _streams(reading, hidden, heads, size, kernel) + _low_rank(reading, hidden, wide, size, "f")
    if full_gate:
        groups += reading.parts.linear("self_attn.g_proj", "state", wide, hidden, "column", unit=size)
    else:
        groups += _low_rank(reading, hidden, wide, size, "g")
    return MixerPart(kda_state(heads, size, kernel), groups)


def _mla(reading: Reading, hidden: int, sizes: MlaSizes, gate: bool) -> MixerPart:
    """Latent attention; K3 adds an output gate as wide as its values."""
    part = mla_part(reading, hidden, sizes)
    if gate:
        wide = sizes.heads * sizes.v
        part.tensors.extend(reading.parts.linear("self_attn.g_proj", "attention", wide, hidden, "column", unit=sizes.v))
    return part


def _k3_experts(reading: Reading, hidden: int) -> MlpPart:
    """Kimi-K3: routed experts work at a smaller width, between two projections."""
    text, parts = reading.text, reading.parts
    latent = text.need("routed_expert_hidden_size", high=1 << 24)
    count, top_k, width = expert_sizes(text, ("num_experts",), ("num_experts_per_token",), ("moe_intermediate_size",))
    shared = text.need("num_shared_experts", low=0, high=1 << 16) * width
    path = "block_sparse_moe"
    groups = parts.router(f"{path}.gate", count, hidden)
    groups.append(parts.correction(f"{path}.{_CORRECTION}", count))
    # Stored in bfloat16 although no skip list names them (byte total of the repository): so not of a quantised kind.
    groups += parts.linear(f"{path}.routed_down_proj", "other", latent, hidden)
    groups += parts.linear(f"{path}.routed_up_proj", "other", hidden, latent)
    if text.flag("latent_moe_use_norm", default=False):
        groups += parts.norm(f"{path}.routed_norm", latent)
    groups += parts.experts(f"{path}.experts", count, latent, width, names=MIXTRAL)
    if shared:
        groups += parts.mlp(f"{path}.shared_experts", hidden, shared)
    return MlpPart(Moe(count, top_k, width, shared, hidden=latent), groups)


def _ling(reading: Reading) -> Draft:
    """Ling-3: full-rank gates, a gate per head on latent attention."""
    text = reading.text
    text.skip("short_conv_kernel_size", "kda_safe_gate")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads, size = text.need("linear_num_heads", high=1 << 16), text.need("linear_head_dim", high=1 << 16)
    kernel = text.need("linear_conv_kernel_dim", "short_conv_kernel_size", high=256)
    sizes = mla_sizes(text, hidden, may_lack_q_rank=True)
    norms = layer_norms(reading, hidden)
    experts = _EXPERTS._replace(path="mlp")

    def make(key: tuple[str, str]) -> Body:
        parts, wide = reading.parts, heads * size
        if key[0] == LINEAR:
            groups = _streams(reading, hidden, heads, size, kernel)
            for name in ("f_proj", "g_proj"):
                groups += parts.linear(f"self_attn.{name}", "state", wide, hidden, "column", unit=size)
            mixer = MixerPart(kda_state(heads, size, kernel), groups)
        else:
            mixer = mla_part(reading, hidden, sizes)
            mixer.tensors.extend(parts.linear("self_attn.g_proj", "attention", sizes.heads, hidden, "column"))
        return body(mixer, experts(reading, hidden) if key[1] == SPARSE else dense_mlp(reading, hidden), norms)

    kinds = _ling_kinds(text, layers)
    mlps = after_first()(text, layers)
    bodies, body_of = stack(zip(kinds, mlps, strict=True), make)
    tied = reading.tied(False)
    draft = Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)
    mtp = one_layer("num_nextn_predict_layers")(reading, bodies[body_of[-1]], hidden, vocab)
    return draft._replace(mtp=mtp)


def _ling_kinds(text: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, or the last of each `layer_group_size` layers is full."""
    step = text.maybe("layer_group_size", high=1 << 16)
    given = listed(text, layers, FULL, LINEAR)
    if given is not None:
        return given
    if step is None:
        raise text.missing("layer_types", "layer_group_size")
    return tuple(FULL if (i + 1) % step == 0 else LINEAR for i in range(layers))


READERS: Final[dict[str, Reader]] = {
    "KimiLinearForCausalLM": kimi_linear,
    "BailingHybridForCausalLM": _ling,
}
