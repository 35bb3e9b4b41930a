"""More decoders with experts: Ling, Trinity, DBRX, the first DeepSeek, K-EXAONE, Step, Grok, Arctic.

Sources: the classes of vLLM 0.33 and earlier releases, and of transformers 5.24; a test holds a small config of each
against the element count of its library class.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.decoder import Decoder
from kvplanner.model.config.fields import Fields, need_divides
from kvplanner.model.config.moe import MIXTRAL, Experts
from kvplanner.model.config.mtp import one_layer
from kvplanner.model.config.patterns import (
    DENSE,
    FULL,
    SLIDING,
    SPARSE,
    after_first,
    all_sparse,
    every,
    full_first,
    lettered,
    window_of,
)
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Reader, Reading, body, stack
from kvplanner.model.families.latent import dense_mlp, layer_norms, mla_part, mla_sizes
from kvplanner.model.spec import Attention, Mlp, Moe, State
from kvplanner.model.tensors import TensorGroup

_GROUPS: Final = ("n_group", "topk_group")
_POST_NORMS: Final = ("post_attention_layernorm", "post_feedforward_layernorm")
# Ling, Ring and Sarvam: a correction only where the config asks for one, a width of the shared experts of its own.
BAILING_EXPERTS: Final = Experts(
    shared_count=("num_shared_experts",), correction="gate.expert_bias",
    correction_if=("moe_router_enable_expert_bias", False),
    ignore=(*_GROUPS, "moe_shared_expert_intermediate_size", "router_dtype", "score_function", "norm_head"),
)  # fmt: skip


def bailing_experts(reading: Reading, hidden: int) -> MlpPart:
    """Ling's experts: a stated width of the shared ones counts once for each of them."""
    text = reading.text
    stated = text.maybe("moe_shared_expert_intermediate_size")
    if stated is None:
        return BAILING_EXPERTS(reading, hidden)
    shared = stated * text.get("num_shared_experts", default=1, low=0, high=1 << 16)
    made = BAILING_EXPERTS._replace(shared_count=())(reading, hidden)
    text.skip("num_shared_experts")
    assert isinstance(made.mlp, Moe)
    return MlpPart(made.mlp._replace(shared_width=shared),
                   made.tensors + reading.parts.mlp("mlp.shared_experts", hidden, shared))  # fmt: skip


def _bailing(reading: Reading) -> Draft:
    """Ling 1 and 2, Sarvam: one switch for the biases of query, key and value, another for all of them."""
    text = reading.text
    every_bias = text.flag("use_bias", default=False)
    qkv_bias = text.flag("use_qkv_bias", default=False) or every_bias
    text.expect("norm_head", True, False)
    return Decoder(
        qkv_bias=qkv_bias, o_bias=every_bias, mlp_bias=every_bias, qk_norm="head", qk_norm_if=("use_qk_norm", False),
        attention_path="attention", qkv=("query_key_value",) * 3, o_name="dense",
        q_norm_names=("query_layernorm", "key_layernorm"), mlp_pattern=after_first(0), experts=bailing_experts,
        mtp=one_layer("num_nextn_predict_layers"), embed="model.word_embeddings",
        ignore=("use_rmsnorm", "max_window_layers", "use_sliding_window", "sliding_window", "rotary_dim", "norm_head",
                "mtp_loss_scaling_factor"),
    )(reading)  # fmt: skip


def _bailing_linear(reading: Reading) -> Draft:
    """Ling 2.5: lightning attention with an output gate, latent attention in the last layer of each group."""
    text, parts = reading.text, reading.parts
    text.skip("group_norm_size", "linear_silu", "use_linear_silu", "linear_rope", "linear_backend", "use_rmsnorm",
              "max_window_layers", "use_sliding_window", "sliding_window", "rotary_dim", "num_kv_heads_for_linear_attn",
              "mtp_loss_scaling_factor")  # fmt: skip
    every_bias = text.flag("use_bias", default=False)
    bias = text.flag("use_qkv_bias", default=False) or every_bias
    normed = text.flag("use_qk_norm", default=False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    n, _, size = reading.heads(hidden)
    sizes = mla_sizes(text, hidden, may_lack_q_rank=True)
    step, wide = text.get("layer_group_size", default=1, high=1 << 12), n * size

    def make(key: tuple[bool, str]) -> Body:
        full, kind = key
        if full:
            mixer = mla_part(reading, hidden, sizes, path="attention")
        else:
            groups = parts.linear(
                "attention.query_key_value", "state", 3 * wide, hidden, "column", bias=bias, unit=size
            )
            groups += parts.linear("attention.g_proj", "state", wide, hidden, "column", unit=size)
            groups += parts.linear("attention.dense", "state", hidden, wide, "row", bias=every_bias, unit=size)
            groups += parts.norm("attention.g_norm", wide, shard="column")
            for name in ("query_layernorm", "key_layernorm") if normed else ():
                groups += parts.norm(f"attention.{name}", size)
            mixer = MixerPart(State("lightning", heads=n, head_size=size, key_heads=n, key_size=size), groups)
        mlp = bailing_experts(reading, hidden) if kind == SPARSE else dense_mlp(reading, hidden)
        return body(mixer, mlp, layer_norms(reading, hidden))

    kinds = after_first(0)(text, layers)
    bodies, body_of = stack([((i + 1) % step == 0, kind) for i, kind in enumerate(kinds)], make)
    if DENSE not in kinds:
        text.skip("intermediate_size")
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, embed="model.word_embeddings")
    draft = Draft(hidden, vocab, bodies, body_of, outside, tied)
    last = make((True, kinds[-1]))
    return draft._replace(mtp=one_layer("num_nextn_predict_layers")(reading, last, hidden, vocab))


def _dbrx(reading: Reading) -> Draft:
    """DBRX: sizes in two dictionaries, norms without bias, experts in every layer."""
    text, parts = reading.text, reading.parts
    attn, ffn = text.sub("attn_config"), text.sub("ffn_config")
    if attn is None or ffn is None:
        raise text.missing("attn_config", "ffn_config")
    attn.skip("clip_qkv", "rope_theta", "attn_pdrop", "kwargs", "model_type")
    ffn.skip("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights", "kwargs",
             "uniform_expert_assignment", "moe_renormalize", "model_type")  # fmt: skip
    hidden, heads = text.need("d_model", high=1 << 24), text.need("n_heads", high=1 << 16)
    layers, vocab = reading.layer_count("n_layers"), reading.vocab()
    kv = attn.need("kv_n_heads", high=1 << 16)
    need_divides(text, "n_heads", heads, "d_model", hidden)
    need_divides(attn, "kv_n_heads", kv, "n_heads", heads)
    size = hidden // heads
    count, top_k = ffn.need("moe_num_experts", high=1 << 16), ffn.need("moe_top_k", high=1 << 16)
    width = ffn.need("ffn_hidden_size")
    attn.close()
    ffn.close()
    path = "norm_attn_norm.attn"
    groups = parts.qkv(path, hidden, heads, kv, size, names=("Wqkv",) * 3)
    groups += parts.linear(f"{path}.out_proj", "attention", hidden, hidden, "row", unit=size)
    groups += parts.router("ffn.router.layer", count, hidden)
    groups += parts.experts("ffn.experts.mlp", count, hidden, width, names=("w1", "v1", "w2"))
    norms = parts.norm("norm_attn_norm.norm_1", hidden) + parts.norm("norm_attn_norm.norm_2", hidden)
    made = body(MixerPart(Attention(heads, kv, size, size), groups), MlpPart(Moe(count, top_k, width), []), norms)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, embed="transformer.wte", norm="transformer.norm_f")
    return Draft(hidden, vocab, (made,), (0,) * layers, outside, tied)


def _enumerated(text: Fields, layers: int) -> tuple[str, ...]:
    """Step: `mlp_layer_types`, the numbers of the layers with experts as a text, or all but the first."""
    typed = text.texts("mlp_layer_types", allowed=(DENSE, SPARSE))
    name, value = text.raw("moe_layers_enum")
    if typed is not None:
        return typed[:layers]
    if name:
        words = str(value).replace(" ", "").split(",") if isinstance(value, str) else [str(v) for v in _items(value)]
        if not all(word.isdigit() for word in words):
            raise text.bad(name, "layer numbers with commas between them")
        return tuple(SPARSE if str(i) in words else DENSE for i in range(layers))
    return tuple(SPARSE if i else DENSE for i in range(layers))


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


_STEP_EXPERTS: Final = Experts(
    ("moe_num_experts",), ("moe_top_k",), shared_width=("share_expert_dim",), path="moe", shared="/share_expert"
)


def step3_text(reading: Reading) -> Draft:
    """Step-3: one key and value head of full width, queries through a shared narrow projection."""
    text, parts = reading.text, reading.parts
    text.skip("num_key_value_heads", "num_attention_groups", "moe_every_n_layer")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads, size = text.need("num_attention_heads", high=1 << 16), text.need("head_dim", high=1 << 16)
    shared = text.maybe("share_q_dim", high=1 << 20) or size

    def make(kind: str) -> Body:
        path = "self_attn"
        groups: list[TensorGroup] = []
        for name, rows in (("q_proj", shared), ("k_proj", size), ("v_proj", size)):
            groups += parts.linear(f"{path}.{name}", "attention", rows, hidden, fused="qkv_proj")
        groups += parts.norm(f"{path}.inter_norm", shared)
        groups += parts.linear(f"{path}.wq", "attention", heads * size, shared, "column", unit=size)
        groups += parts.linear(f"{path}.o_proj", "attention", hidden, heads * size, "row", unit=size)
        mlp = _STEP_EXPERTS(reading, hidden) if kind == SPARSE else dense_mlp(reading, hidden)
        return body(MixerPart(Attention(heads, 1, size, size), groups), mlp, layer_norms(reading, hidden))

    bodies, body_of = stack(_enumerated(text, layers), make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def step3p5(reading: Reading) -> Draft:
    """Step-3.5: sliding layers with more heads than full ones, a gate for each head, fp32 routers with a bias."""
    text, parts = reading.text, reading.parts
    text.skip("yarn_only_types", "use_moe_router_bias", "moe_router_scaling_factor", "need_fp32_gate",
              "use_rope_layers",
              "moe_router_activation", "norm_expert_weight", "use_moe", "moe_layer_offset", "moe_every_n_layer", "sink",
              "swiglu_limits", "swiglu_limits_shared", "partial_rotary_factors", "att_impl_type", "layer_rope_theta",
              "use_qk_norm", "moe_dynamic_exp_p", "use_mfa", "mtp_layer_types", "mtp_mlp_layer_types")  # fmt: skip
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    given = text.texts("layer_types", allowed=(FULL, SLIDING))
    kinds = given[:layers] if given else full_first(4)(text, layers)
    window, size = window_of(text, kinds), text.need("head_dim", high=1 << 16)
    heads = {FULL: text.need("num_attention_heads", high=1 << 16)}
    heads[SLIDING] = text.maybe("num_sliding_attention_heads", high=1 << 16) or _other_heads(text) or heads[FULL]
    kv = text.need("num_attention_groups", "num_key_value_heads", high=1 << 16)
    gated, bias = text.flag("use_head_wise_attn_gate", default=False), text.flag("attention_bias", default=False)

    def make(key: tuple[str, str]) -> Body:
        kind, mlp = key
        n, path = heads[kind], "self_attn"
        groups = parts.qkv(path, hidden, n, kv, size, bias=bias)
        groups += parts.linear(f"{path}.o_proj", "attention", hidden, n * size, "row", unit=size)
        groups += parts.norm(f"{path}.q_norm", size) + parts.norm(f"{path}.k_norm", size)
        if gated:
            groups += parts.linear(f"{path}.g_proj", "attention", n, hidden, "column")
        mixer = MixerPart(Attention(n, kv, size, size, window=window if kind == SLIDING else None), groups)
        if mlp == DENSE:
            return body(mixer, dense_mlp(reading, hidden), layer_norms(reading, hidden))
        experts = _STEP_EXPERTS(reading, hidden)
        experts.tensors.append(parts.correction("moe.router_bias", text.need("moe_num_experts")))
        return body(mixer, experts, layer_norms(reading, hidden))

    bodies, body_of = stack(zip(kinds, _enumerated(text, layers), strict=True), make)
    tied = reading.tied(False)
    draft = Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)
    dense = make((SLIDING if SLIDING in kinds else FULL, DENSE))
    return draft._replace(mtp=one_layer("num_nextn_predict_layers", copies=2)(reading, dense, hidden, vocab))


def _other_heads(text: Fields) -> int | None:
    """Query heads of the sliding layers, as the repository's own class states them."""
    other = text.sub("attention_other_setting")
    if other is None:
        return None
    other.skip("attention_type", "num_attention_groups", "head_dim", "true_head_dim")
    return other.maybe("num_attention_heads", high=1 << 16)


def _arctic(reading: Reading) -> Draft:
    """Arctic: in each second layer experts beside a dense block as wide as the model, elsewhere a dense block."""
    text, parts = reading.text, reading.parts
    text.skip("use_residual", "parallel_attn_mlp_res", "moe_train_capacity_factor", "enable_expert_tensor_parallelism",
              "moe_eval_capacity_factor", "moe_min_capacity", "moe_token_dropping", "quantization")  # fmt: skip
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    step = text.get("moe_layer_frequency", default=2, high=1 << 10)
    width, residual = text.need("intermediate_size"), text.flag("use_residual", default=True)
    experts = Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe", names=MIXTRAL)

    def make(sparse: bool) -> Body:
        groups = parts.qkv("self_attn", hidden, *heads)
        groups += parts.linear("self_attn.o_proj", "attention", hidden, heads.heads * heads.head_size, "row",
                               unit=heads.head_size)  # fmt: skip
        mixer, norms = MixerPart(Attention(*heads, heads.head_size), groups), layer_norms(reading, hidden)
        if not sparse:
            return body(
                mixer, MlpPart(Mlp(width), parts.mlp("block_sparse_moe.mlp", hidden, width, names=MIXTRAL)), norms
            )
        made = body(mixer, experts(reading, hidden), norms)
        if not residual:
            return made
        beside = parts.mlp("residual_mlp", hidden, hidden, names=MIXTRAL) + parts.norm("residual_layernorm", hidden)
        spec = made.spec._replace(mlps=(*made.spec.mlps, Mlp(hidden)))
        return Body(spec, (*made.tensors, *beside))

    bodies, body_of = stack([(i + 1) % step == 0 for i in range(layers)], make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"), _bailing),
    "BailingMoeV2_5ForCausalLM": _bailing_linear,
    "AfmoeForCausalLM": Decoder(
        qkv_bias=False, o_bias=False, qk_norm="head", head_size=128, gate_name="gate_proj", window=1024,
        norms=("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
        pattern=every(4, names=("global_attn_every_n_layers",)), mlp_pattern=after_first(1, "num_dense_layers"),
        experts=Experts(shared_count=("num_shared_experts",), shared_default=2, router="router.gate",
                        correction="expert_bias", ignore=("num_expert_groups", "num_limited_groups", *_GROUPS)),
        only={"attention_bias": False},
    ),
    "DbrxForCausalLM": _dbrx,
    "DeepseekForCausalLM": Decoder(
        mlp_pattern=after_first(0),
        experts=Experts(("n_routed_experts",), shared_count=("n_shared_experts",), ignore=("ep_size",)),
    ),
    "ExaoneMoeForCausalLM": Decoder(
        qkv_bias=False, o_bias=False, qk_norm="head", pattern=lettered, mlp_pattern=after_first(1),
        experts=Experts(shared_count=("num_shared_experts",), shared_default=1,
                        correction="gate.e_score_correction_bias", ignore=_GROUPS),
        mtp=one_layer("num_nextn_predict_layers"), ignore=("is_moe_layer",),
    ),
    "Cohere2MoeForCausalLM": Decoder(
        qkv_bias=False, o_bias=False, head_size=128, norms=("input_layernorm",), tied=True, pattern=every(4),
        window=4096, mlp_pattern=after_first(0), width_names=("prefix_dense_intermediate_size", "intermediate_size"),
        experts=Experts(width=("intermediate_size",), shared_count=("num_shared_experts",)),
        only={"attention_bias": False, "prefix_dense_sliding_window_pattern": 1},
        ignore=("shared_expert_combination_strategy", "expert_selection_fn"),
    ),
    "FlexOlmoForCausalLM": Decoder(
        qk_norm="full", norms=_POST_NORMS, mlp_pattern=all_sparse, experts=Experts(width=("intermediate_size",))
    ),
    "GraniteMoeSWAForCausalLM": Decoder(
        sinks=True, pattern=full_first(4), window=128, mlp_pattern=all_sparse, ignore=("layer_rope_theta",),
        experts=Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe",
                        router="router.layer", experts="", names=("input_linear", "input_linear", "output_linear"),
                        shared_width=("shared_intermediate_size",), shared="/shared_mlp",
                        shared_names=("input_linear", "input_linear", "output_linear")),
    ),
    "Step3TextForCausalLM": step3_text,
    "Step3p5ForCausalLM": step3p5,
    "Grok1ForCausalLM": Decoder(
        qkv_bias=False, o_bias=False, attention_path="attn", tied=True,
        norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"), mlp_pattern=all_sparse,
        experts=Experts(("num_experts", "num_local_experts"), width=("moe_intermediate_size", "intermediate_size"),
                        path="moe_block"),
        ignore=("intermediate_size", "max_attn_value"),
    ),
    "ArcticForCausalLM": _arctic,
}  # fmt: skip
