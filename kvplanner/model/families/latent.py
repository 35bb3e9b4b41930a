"""Multi-head latent attention: DeepSeek V2 and V3, V3.2 and GLM-5 with an indexer, Kimi-K2, GLM-4.7-Flash, MiniCPM3.

Sources: configuration and modelling classes of transformers 5.24, the repositories' own code, element counts.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields, need_length
from kvplanner.model.config.moe import Experts, expert_sizes
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.patterns import DENSE, SPARSE, Pattern, after_first, all_dense
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.spec import Indexer, LayerSpec, Mla, Mlp, Moe
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

# Fields that latent attention makes meaningless, or that are numerics.
DEAD: Final = (
    "num_key_value_heads", "head_dim", "n_group", "topk_group", "num_expert_group", "moe_router_dtype",
    "index_share_for_mtp_iteration", "use_grouped_topk", "use_gate_norm_for_group",
)  # fmt: skip
SHARED, OWNER = "shared", "full"


class MlaSizes(NamedTuple):
    """Sizes of latent attention."""

    heads: int
    kv_rank: int
    nope: int
    rope: int
    v: int
    q_rank: int | None
    bias: bool


def mla_sizes(text: Fields, hidden: int, *, may_lack_q_rank: bool = False) -> MlaSizes:
    """Read the sizes. A `q_lora_rank` of null means one full query matrix; may_lack_q_rank: and so does its absence.

    Raises BadInput when it is missing all the same, or when `qk_head_dim` is not nope + rope.
    """
    if "q_lora_rank" not in text.values and not may_lack_q_rank:
        raise text.missing("q_lora_rank")
    text.noted("q_lora_rank")
    text.skip(*DEAD)
    heads = text.need("num_attention_heads", high=1 << 16)
    nope = text.need("qk_nope_head_dim", high=1 << 16)
    rope = text.need("qk_rope_head_dim", high=1 << 16)
    whole = text.maybe("qk_head_dim", high=1 << 17)
    if whole is not None and whole != nope + rope:
        raise BadInput(
            f"is {whole}, expected qk_nope_head_dim + qk_rope_head_dim = {nope + rope}",
            text.named("qk_head_dim"),
            "Correct the one that is wrong",
        )
    v = text.maybe("v_head_dim", high=1 << 16)
    if v is None:
        if hidden % heads:
            raise text.missing("v_head_dim")
        text.took_default("v_head_dim")
        v = hidden // heads
    return MlaSizes(heads, text.need("kv_lora_rank", high=1 << 16), nope, rope, v,
                    text.maybe("q_lora_rank", high=1 << 16), text.flag("attention_bias", default=False))  # fmt: skip


def mla_part(reading: Reading, hidden: int, sizes: MlaSizes, index: Indexer | None = None,
             path: str = "self_attn") -> MixerPart:  # fmt: skip
    """Latent attention with its tensors; the down projections and the indexer are whole on every rank."""
    parts, (heads, kv, nope, rope, v, q, bias) = reading.parts, sizes
    groups: list[TensorGroup] = []
    if q is None:
        groups += parts.linear(f"{path}.q_proj", "attention", heads * (nope + rope), hidden, "column", unit=nope + rope)
    else:
        groups += parts.linear(f"{path}.q_a_proj", "attention", q, hidden, bias=bias, fused="fused_qkv_a_proj")
        groups += parts.norm(f"{path}.q_a_layernorm", q)
        groups += parts.linear(f"{path}.q_b_proj", "attention", heads * (nope + rope), q, "column", unit=nope + rope)
    fused = "fused_qkv_a_proj" if q is not None else ""
    groups += parts.linear(f"{path}.kv_a_proj_with_mqa", "attention", kv + rope, hidden, bias=bias, fused=fused)
    groups += parts.norm(f"{path}.kv_a_layernorm", kv)
    groups += parts.linear(f"{path}.kv_b_proj", "attention", heads * (nope + v), kv, "column", unit=nope + v)
    groups += parts.linear(f"{path}.o_proj", "attention", hidden, heads * v, "row", bias=bias, unit=v)
    if index is not None and index.owns_cache:
        groups += indexer_tensors(reading, hidden, q or hidden, index, f"{path}.indexer")
    return MixerPart(Mla(heads, kv, nope, rope, v, q, index), groups)


def indexer_tensors(reading: Reading, hidden: int, q_rank: int, index: Indexer, path: str) -> list[TensorGroup]:
    """The selector of sparse attention: whole on every rank."""
    parts = reading.parts
    groups = parts.linear(f"{path}.wq_b", "attention", index.heads * index.head_size, q_rank)
    groups += parts.linear(f"{path}.wk", "attention", index.head_size, hidden, fused="wk_weights_proj")
    groups += parts.norm(f"{path}.k_norm", index.head_size, bias=True)
    # Never quantised: the element counts of DeepSeek-V3.2 and GLM-5 in FP8 hold only without its scales.
    return groups + parts.linear(f"{path}.weights_proj", "other", index.heads, hidden, fused="wk_weights_proj")


def dense_mlp(reading: Reading, hidden: int, *fields: str) -> MlpPart:
    """The gated feed-forward block of the layers without experts."""
    width = reading.text.need(*(fields or ("intermediate_size",)))
    return MlpPart(Mlp(width), reading.parts.mlp("mlp", hidden, width))


def layer_norms(reading: Reading, hidden: int) -> list[TensorGroup]:
    """The two norms of most decoder layers."""
    return reading.parts.norm("input_layernorm", hidden) + reading.parts.norm("post_attention_layernorm", hidden)


def _no_index(fields: Fields, layers: int) -> tuple[str, ...]:
    return ("",) * layers


def _all_indexed(fields: Fields, layers: int) -> None:
    """`layer_types`, which newer saves add, holds one kind only."""
    kinds = fields.texts("layer_types", allowed=("deepseek_sparse_attention", "indexed_attention"))
    if kinds is not None:
        need_length(fields, "layer_types", kinds, layers)


def _index_everywhere(fields: Fields, layers: int) -> tuple[str, ...]:
    _all_indexed(fields, layers)
    return (OWNER,) * layers


def _index_shared(fields: Fields, layers: int) -> tuple[str, ...]:
    """GLM-5: `indexer_types`, or the older frequency, offset and pattern."""
    _all_indexed(fields, layers)
    given = fields.texts("indexer_types", allowed=(OWNER, SHARED))
    pattern = fields.text("index_topk_pattern")
    step = fields.maybe("index_topk_freq", high=1 << 16) or 1
    offset = fields.maybe("index_skip_topk_offset", low=0, high=1 << 16) or 0
    if given is not None:
        need_length(fields, "indexer_types", given, layers)
        return given
    if pattern is not None:
        need_length(fields, "index_topk_pattern", tuple(pattern), layers)
        return tuple(SHARED if letter == "S" else OWNER for letter in pattern)
    return tuple(SHARED if max(i - offset + 1, 0) % step else OWNER for i in range(layers))


class Latent(NamedTuple):
    """A family of latent-attention decoders.

    copies: vocabulary matrices in an MTP block; mtp_default: blocks when the field is absent; indexes: which
    layers own an indexer; mlps: which have experts. extra_norms: further norms of each layer; sparse_norm: one more
    in the layers with experts. may_lack_q_rank: an absent `q_lora_rank` means a full query matrix.
    """

    experts: Experts | None
    mlps: Pattern
    indexes: Pattern = _no_index
    copies: int = 0
    mtp_default: int = 0
    tied: bool = False
    extra_norms: tuple[str, ...] = ()
    sparse_norm: str = ""
    may_lack_q_rank: bool = False

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text = reading.text
        text.skip("pretraining_tp", "ep_size")
        text.expect("mlp_bias", False)
        hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
        sizes = mla_sizes(text, hidden, may_lack_q_rank=self.may_lack_q_rank)
        owners = self.indexes(text, layers)
        index = _indexer(text) if any(owners) else None
        norms = layer_norms(reading, hidden)
        norms += [g for name in self.extra_norms for g in reading.parts.norm(name, hidden)]

        def make(key: tuple[str, str]) -> Body:
            own = index._replace(owns_cache=key[0] == OWNER) if index is not None else None
            mixer = mla_part(reading, hidden, sizes, own)
            if key[1] == SPARSE and self.experts is not None:
                more = reading.parts.norm(self.sparse_norm, hidden) if self.sparse_norm else []
                return body(mixer, self.experts(reading, hidden), norms + more)
            return body(mixer, dense_mlp(reading, hidden), norms)

        kinds = self.mlps(text, layers)
        if DENSE not in kinds:
            text.skip("intermediate_size")
        bodies, body_of = stack(zip(owners, kinds, strict=True), make)
        tied = reading.tied(self.tied)
        draft = Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)
        last = make((OWNER, kinds[-1])) if index is not None else bodies[body_of[-1]]
        read_mtp = one_layer("num_nextn_predict_layers", copies=self.copies, default=self.mtp_default)
        return draft._replace(mtp=read_mtp(reading, last, hidden, vocab))


def _indexer(text: Fields) -> Indexer:
    return Indexer(text.need("index_n_heads", high=1 << 16), text.need("index_head_dim", high=1 << 16),
                   text.need("index_topk", high=1 << 24))  # fmt: skip


def _pangu(reading: Reading) -> Draft:
    """openPangu Ultra: latent attention, two more norms when the config says so."""
    text = reading.text
    sandwich = text.flag("sandwich_norm", default=False)
    experts = _V3._replace(correction_if=("router_enable_expert_bias", False))
    extra = ("pre_mlp_layernorm", "post_mlp_layernorm") if sandwich else ()
    return Latent(experts, after_first(), copies=2, extra_norms=extra)(reading)


def _longcat(reading: Reading) -> Draft:
    """LongCat-Flash: each layer holds two latent attentions, two dense blocks and one set of experts.

    Zero experts pass their input on: they have rows in the router and no weights.
    """
    text, parts = reading.text, reading.parts
    text.skip("expert_intermediate_size", "mla_scale_q_lora", "mla_scale_kv_lora", "zero_expert_type")
    hidden, vocab = reading.hidden(), reading.vocab()
    layers = reading.layer_count("num_layers", "num_hidden_layers")
    sizes = mla_sizes(text, hidden, may_lack_q_rank=True)
    width = text.need("ffn_hidden_size", "intermediate_size")
    count, top_k, expert = expert_sizes(text, ("n_routed_experts",), ("moe_topk", "num_experts_per_tok"),
                                        ("expert_ffn_hidden_size", "moe_intermediate_size"))  # fmt: skip
    rows = count + text.get("zero_expert_num", default=0, low=0, high=1 << 16)
    mixer = mla_part(reading, hidden, sizes)
    twice = [*mixer.tensors, *parts.mlp("mlps", hidden, width), *layer_norms(reading, hidden)]
    groups = [g._replace(count=2) for g in twice]
    groups += parts.router("mlp.router.classifier", rows, hidden, bias=text.flag("router_bias", default=False))
    groups.append(parts.correction("mlp.router.e_score_correction_bias", rows))
    groups += parts.experts("mlp.experts", count, hidden, expert)
    made = Body(LayerSpec((mixer.mixer,) * 2, (Mlp(width), Mlp(width), Moe(count, top_k, expert))), tuple(groups))
    tied = reading.tied(False)
    draft = Draft(hidden, vocab, (made,), (0,) * layers, reading.vocabulary(vocab, hidden, tied), tied)
    block = body(mixer, MlpPart(Mlp(width), parts.mlp("mlp", hidden, width)), layer_norms(reading, hidden))
    return draft._replace(mtp=one_layer("num_nextn_predict_layers", copies=1)(reading, block, hidden, vocab))


_V2: Final = Experts(("n_routed_experts",), shared_count=("n_shared_experts",))
_V3: Final = _V2._replace(correction="gate.e_score_correction_bias", ignore=("num_experts",))
DEEPSEEK_V3: Final = Latent(_V3, after_first(), copies=2)
MISTRAL4: Final = Latent(_V2, after_first(0))

READERS: Final[dict[str, Reader]] = {
    "DeepseekV2ForCausalLM": Latent(_V2, after_first()),
    "DeepseekV3ForCausalLM": DEEPSEEK_V3,
    "DeepseekV32ForCausalLM": Latent(_V3, after_first(), _index_everywhere, copies=2),
    # No selection bias (softmax over the gate) and no MTP block: the files of 675B come out within their rounding.
    "MistralLarge3ForCausalLM": Latent(_V2, after_first()),
    "GlmMoeDsaForCausalLM": Latent(_V3, after_first(), _index_shared),
    "Glm4MoeLiteForCausalLM": Latent(_V3, after_first(1), copies=2, mtp_default=1),
    "AXK1ForCausalLM": Latent(_V3, after_first(1), sparse_norm="mlp.post_mlp_layernorm"),
    "SarvamMLAForCausalLM": Latent(
        Experts(
            shared_count=("num_shared_experts",),
            shared_default=1,
            correction="gate.e_score_correction_bias",
            correction_if=("moe_router_enable_expert_bias", True),
            ignore=("router_dtype", "score_function"),
        ),
        after_first(1),
        may_lack_q_rank=True,
    ),
    "PanguUltraMoEForCausalLM": _pangu,
    "LongcatFlashForCausalLM": _longcat,
    "MiniCPM3ForCausalLM": Latent(None, all_dense, tied=True),
}
