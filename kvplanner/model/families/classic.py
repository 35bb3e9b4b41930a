"""Older decoders that are still served: OPT, GPT-2, GPT-J, GPT-NeoX, BLOOM, StarCoder, Falcon, Phi-2, OLMo, Nemotron-4.

Source: configuration and modelling classes of transformers 5.24; a test holds small configs of each against the
element counts of those classes.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.decoder import Decoder, Switch, switch
from kvplanner.model.config.fields import MAX_LAYERS, Fields, need_divides
from kvplanner.model.config.moe import Experts
from kvplanner.model.config.patterns import after_first, all_sparse, optional_window, window_everywhere
from kvplanner.model.config.reading import Body, Draft, Heads, Reader, Reading
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple


class Classic(NamedTuple):
    """A decoder with LayerNorms, a two-matrix feed-forward and its own names for everything.

    hidden, heads, layers, width: field names, first hit wins; an absent width is four times the hidden size.
    positions: field of a learnt table of positions, with the rows that it has beyond the field's value.
    """

    hidden: tuple[str, ...]
    heads: tuple[str, ...]
    layers: tuple[str, ...]
    width: tuple[str, ...]
    root: str
    embed: str
    final_norm: str
    attention: str
    qkv: tuple[str, str, str]
    out: str
    mlp: tuple[str, str]
    norms: tuple[str, ...]
    tied: bool = True
    attention_bias: Switch = True
    mlp_bias: Switch = True
    head_bias: bool = False
    embed_norm: str = ""
    positions: tuple[str, int] | None = None
    ignore: tuple[str, ...] = ()

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text, parts = reading.text, reading.parts
        text.skip(*self.ignore)
        hidden, vocab = text.need(*self.hidden, high=1 << 24), reading.vocab()
        layers, n = text.need(*self.layers, high=MAX_LAYERS), text.need(*self.heads, high=1 << 16)
        need_divides(text, self.heads[0], n, self.hidden[0], hidden)
        kv = 1 if text.flag("multi_query", default=False) else n
        width = text.maybe(*self.width) or 4 * hidden
        text.noted(self.width[0])
        heads = Heads(n, kv, hidden // n)
        groups = self._layer(reading, hidden, heads, width)
        attention = Attention(n, kv, heads.head_size, heads.head_size)
        body = Body(LayerSpec((attention,), (Mlp(width, 2),)), tuple(groups))
        tied = reading.tied(self.tied)
        outside = reading.vocabulary(
            vocab, hidden, tied, embed=f"{self.root}.{self.embed}", norm=f"{self.root}.{self.final_norm}",
            norm_bias=True, head_bias=self.head_bias,
        )  # fmt: skip
        first = parts.at("first")
        if self.positions is not None:
            rows = text.need(self.positions[0], high=1 << 24) + self.positions[1]
            outside.append(first.tensor(f"{self.root}.positions", "embedding", (rows, hidden)))
        if self.embed_norm:
            outside += first.norm(f"{self.root}.{self.embed_norm}", hidden, bias=True)
        return Draft(hidden, vocab, (body,), (0,) * layers, outside, tied)

    def _layer(self, reading: Reading, hidden: int, heads: Heads, width: int) -> list[TensorGroup]:
        parts, path = reading.parts, self.attention
        bias, mlp_bias = switch(reading, self.attention_bias), switch(reading, self.mlp_bias)
        groups = parts.qkv(path, hidden, *heads, bias=bias, names=self.qkv)
        groups += parts.linear(
            f"{path}.{self.out}", "attention", hidden, hidden, "row", bias=bias, unit=heads.head_size
        )
        groups += parts.linear(self.mlp[0], "mlp", width, hidden, "column", bias=mlp_bias)
        groups += parts.linear(self.mlp[1], "mlp", hidden, width, "row", bias=mlp_bias)
        for name in self.norms:
            groups += parts.norm(name, hidden, bias=True)
        return groups


def _opt(reading: Reading) -> Draft:
    """OPT: the embedding may be narrower than the model, between two projections; norms before or after."""
    text, parts = reading.text, reading.parts
    text.skip("layerdrop")
    text.expect("layer_norm_elementwise_affine", True)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    n, kv, size = reading.heads(hidden)
    bias, width = text.flag("enable_bias", default=True), text.need("ffn_dim")
    narrow = text.get("word_embed_proj_dim", default=hidden, high=1 << 24)
    before = text.flag("do_layer_norm_before", default=True) and not text.flag(
        "_remove_final_layer_norm", default=False
    )
    groups = parts.qkv("self_attn", hidden, n, kv, size, bias=bias)
    groups += parts.linear("self_attn.out_proj", "attention", hidden, hidden, "row", bias=bias, unit=size)
    groups += parts.linear("fc1", "mlp", width, hidden, "column", bias=bias)
    groups += parts.linear("fc2", "mlp", hidden, width, "row", bias=bias)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        groups += parts.norm(name, hidden, bias=True)
    body = Body(LayerSpec((Attention(n, kv, size, size),), (Mlp(width, 2),)), tuple(groups))
    tied, root = reading.tied(True), "model.decoder"
    outside = reading.vocabulary(vocab, narrow, tied, embed=f"{root}.embed_tokens", norm="")
    first, last = parts.at("first"), parts.at("last")
    rows = text.need("max_position_embeddings", high=1 << 24) + 2
    outside.append(first.tensor(f"{root}.embed_positions", "embedding", (rows, hidden)))
    if narrow != hidden:
        outside += first.linear(f"{root}.project_in", "other", hidden, narrow)
        outside += last.linear(f"{root}.project_out", "other", narrow, hidden)
    if before:
        outside += last.norm(f"{root}.final_layer_norm", hidden, bias=True)
    return Draft(hidden, vocab, (body,), (0,) * layers, outside, tied)


def _falcon(reading: Reading) -> Draft:
    """Falcon: one KV head (multi_query), or groups of them in the new architecture."""
    text, parts = reading.text, reading.parts
    text.skip("num_kv_heads", "n_head_kv")
    hidden, vocab = reading.hidden(), reading.vocab()
    layers = text.need("num_hidden_layers", "n_layer", high=MAX_LAYERS)
    n = text.need("num_attention_heads", "n_head", high=1 << 16)
    need_divides(text, "num_attention_heads", n, "hidden_size", hidden)
    # The first release said so by its type: "RefinedWeb" is the 40B's, "RefinedWebModel" the 7B's.
    new = text.flag("new_decoder_architecture", default=text.values.get("model_type") == "RefinedWeb")
    kv = _falcon_kv(text, n, new)
    bias = text.flag("bias", default=False)
    width = text.maybe("ffn_hidden_size") or 4 * hidden
    text.noted("ffn_hidden_size")
    size = hidden // n
    groups = parts.qkv("self_attention", hidden, n, kv, size, bias=bias, names=("query_key_value",) * 3)
    groups += parts.linear("self_attention.dense", "attention", hidden, hidden, "row", bias=bias, unit=size)
    groups += parts.linear("mlp.dense_h_to_4h", "mlp", width, hidden, "column", bias=bias)
    groups += parts.linear("mlp.dense_4h_to_h", "mlp", hidden, width, "row", bias=bias)
    for name in _falcon_norms(text, new):
        groups += parts.norm(name, hidden, bias=True)
    body = Body(LayerSpec((Attention(n, kv, size, size),), (Mlp(width, 2),)), tuple(groups))
    tied = reading.tied(True)
    outside = reading.vocabulary(
        vocab, hidden, tied, embed="transformer.word_embeddings", norm="transformer.ln_f", norm_bias=True
    )
    if tied and not text.flag("alibi", default=False):
        # The files of 7B, 40B and 180B store the head although it is the embedding (index totals; element counts);
        # those of the first 1B and 7B with alibi do not.
        outside += parts.at("last").linear("lm_head", "head", vocab, hidden, "vocab")
    return Draft(hidden, vocab, (body,), (0,) * layers, outside, tied)


def _falcon_kv(text: Fields, heads: int, new: bool) -> int:
    """`multi_query` means one KV head, and nothing in the new architecture."""
    multi = text.flag("multi_query", default=True)
    if not new:
        return 1 if multi else heads
    kv = text.need("num_kv_heads", "n_head_kv", high=1 << 16)
    need_divides(text, "num_kv_heads", kv, "num_attention_heads", heads)
    return kv


def _falcon_norms(text: Fields, new: bool) -> tuple[str, ...]:
    parallel = text.flag("parallel_attn", default=True)
    count = text.maybe("num_ln_in_parallel_attn", high=2)
    if new:
        return ("ln_attn", "ln_mlp") if count in (None, 2) else ("input_layernorm",)
    return ("input_layernorm",) if parallel else ("input_layernorm", "post_attention_layernorm")


_GPT2: Final = Classic(
    ("n_embd", "hidden_size"), ("n_head",), ("n_layer",), ("n_inner",), "transformer", "wte", "ln_f", "attn",
    ("c_attn", "c_attn", "c_attn"), "c_proj", ("mlp.c_fc", "mlp.c_proj"), ("ln_1", "ln_2"), positions=("n_positions",
                                                                                                       0),
    ignore=("num_key_value_heads", "scale_attn_by_inverse_layer_idx"),
)  # fmt: skip
_FUSED: Final = ("query_key_value", "query_key_value", "query_key_value")
_DENSE: Final = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")

READERS: Final[dict[str, Reader]] = {
    "OPTForCausalLM": _opt,
    "FalconForCausalLM": _falcon,
    "GPT2LMHeadModel": _GPT2,
    "GPTBigCodeForCausalLM": _GPT2,
    "GPTJForCausalLM": Classic(
        ("n_embd", "hidden_size"), ("n_head",), ("n_layer",), ("n_inner",), "transformer", "wte", "ln_f", "attn",
        ("q_proj", "k_proj", "v_proj"), "out_proj", ("mlp.fc_in", "mlp.fc_out"), ("ln_1",), tied=False,
        attention_bias=False, head_bias=True,
    ),
    "GPTNeoXForCausalLM": Classic(
        ("hidden_size",), ("num_attention_heads",), ("num_hidden_layers",), ("intermediate_size",), "gpt_neox",
        "embed_in", "final_layer_norm", "attention", _FUSED, "dense", _DENSE,
        ("input_layernorm", "post_attention_layernorm"), tied=False, attention_bias=("attention_bias", True),
    ),
    "BloomForCausalLM": Classic(
        ("hidden_size", "n_embed"), ("n_head", "num_attention_heads"), ("n_layer", "num_hidden_layers"), ("n_inner",),
        "transformer", "word_embeddings", "ln_f", "self_attention", _FUSED, "dense", _DENSE,
        ("input_layernorm", "post_attention_layernorm"), embed_norm="word_embeddings_layernorm",
        ignore=("apply_residual_connection_post_layernorm", "bias_dropout_fusion", "skip_bias_add",
                "skip_bias_add_qkv"),
    ),
    "PhiForCausalLM": Decoder(
        qkv_bias=True, o_bias=True, mlp_bias=True, norm_bias=True, o_name="dense", matrices=2,
        mlp_names=("", "fc1", "fc2"), norms=("input_layernorm",), final_norm="model.final_layernorm", head_bias=True,
        only={"qk_layernorm": False},
    ),
    "OlmoForCausalLM": Decoder(norms=(), final_norm=""),
    "NemotronForCausalLM": Decoder(
        mlp_bias=("mlp_bias", False), matrices=2, norm_bias=True, only={"hidden_act": "relu2"}
    ),
    "MinistralForCausalLM": Decoder(qkv_bias=False, o_bias=False, pattern=window_everywhere),
    "GraniteMoeSharedForCausalLM": Decoder(
        mlp_pattern=all_sparse,
        experts=Experts(("num_local_experts",), width=("intermediate_size",), path="block_sparse_moe",
                        router="router.layer", experts="", names=("input_linear", "input_linear", "output_linear"),
                        shared_width=("shared_intermediate_size",), shared="/shared_mlp",
                        shared_names=("input_linear", "input_linear", "output_linear")),
    ),
    "Dots1ForCausalLM": Decoder(
        qk_norm="head", pattern=optional_window, mlp_pattern=after_first(0),
        experts=Experts(("n_routed_experts",), shared_count=("n_shared_experts",),
                        correction="gate.e_score_correction_bias", ignore=("n_group", "topk_group")),
    ),
}  # fmt: skip
