"""DeepSeek-V4: one latent for keys and values, compressed over 4 or 128 tokens, beside a sliding window.

Sources: the configuration and modelling class of transformers 5.24 and the element counts of the public files.
Names follow the checkpoints (attn.wq_a, ffn.experts.w1 ...).
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields, need_divides, need_length
from kvplanner.model.config.moe import MIXTRAL, expert_sizes
from kvplanner.model.config.parts import FP32
from kvplanner.model.config.reading import Body, Draft, MixerPart, MlpPart, Mtp, Reader, Reading, stack
from kvplanner.model.formats import WeightFormat
from kvplanner.model.spec import Compressed, Indexer, LayerSpec, Moe
from kvplanner.model.tensors import TensorGroup

_RATIOS: Final = (0, 4, 128)
_INDEXED: Final = 4
_INT32: Final = WeightFormat("int32", 32)


def read(reading: Reading) -> Draft:
    """Read a DeepSeek-V4 config."""
    text = reading.text
    text.skip("num_key_value_heads", "qk_rope_head_dim", "compress_rope_theta", "head_dim_v")
    text.expect("attention_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    ratios = _ratios(text, layers)
    hashed = text.get("num_hash_layers", default=3, low=0, high=1 << 16)
    text.noted("expert_dtype")
    _check_moe_types(text, layers, hashed)
    keys = [(ratio, i < hashed) for i, ratio in enumerate(ratios)]

    def make(key: tuple[int, bool]) -> Body:
        attention, experts = _attention(reading, hidden, key[0]), _experts(reading, hidden, vocab, key[1])
        tensors = [*attention.tensors, *experts.tensors, *_streams(reading, hidden)]
        return Body(LayerSpec((attention.mixer,), (experts.mlp,)), tuple(tensors))

    bodies, body_of = stack(keys, make)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, embed="embed", norm="norm", head="head")
    outside += _head_streams(reading, hidden)
    draft = Draft(hidden, vocab, bodies, body_of, outside, tied)
    blocks = text.get("num_nextn_predict_layers", default=1, low=0, high=64)
    if blocks:
        last = make((0, False))
        extra = reading.parts.linear("e_proj", "other", hidden, hidden) + reading.parts.linear(
            "h_proj", "other", hidden, hidden
        )
        for name in ("enorm", "hnorm", "norm"):
            extra += reading.parts.norm(name, hidden)
        extra += _head_streams(reading, hidden)
        return draft._replace(mtp=Mtp(last.tensors, tuple(extra), blocks, ("mtp.{i}",)))
    return draft


def _ratios(text: Fields, layers: int) -> tuple[int, ...]:
    """`compress_ratios`: one for each layer, and one more for the MTP block, which is left out."""
    ratios = text.ints("compress_ratios", high=1 << 16)
    if ratios is None:
        raise text.missing("compress_ratios")
    if len(ratios) == layers + 1:
        ratios = ratios[:layers]
    need_length(text, "compress_ratios", ratios, layers)
    for ratio in ratios:
        if ratio not in _RATIOS:
            raise NotModelled(f"holds {ratio}, known are 0, 4 and 128", text.named("compress_ratios"),
                              "Other ratios cannot be planned")  # fmt: skip
    return ratios


def _check_moe_types(text: Fields, layers: int, hashed: int) -> None:
    kinds = text.texts("mlp_layer_types", allowed=("hash_moe", "moe"))
    if kinds is not None:
        need_length(text, "mlp_layer_types", kinds, layers)
        if kinds.count("hash_moe") != hashed:
            raise text.bad("mlp_layer_types", f"{hashed} hash_moe layers, as num_hash_layers says")


def _attention(reading: Reading, hidden: int, ratio: int) -> MixerPart:
    text, parts = reading.text, reading.parts
    heads = text.need("num_attention_heads", high=1 << 16)
    size = text.need("head_dim", high=1 << 16)
    q_rank = text.need("q_lora_rank", high=1 << 20)
    groups_out, o_rank = text.need("o_groups", high=1 << 16), text.need("o_lora_rank", high=1 << 20)
    need_divides(text, "o_groups", groups_out, "num_attention_heads", heads)
    window = text.need("sliding_window", high=1 << 24)
    groups = parts.linear("attn.wq_a", "attention", q_rank, hidden, fused="fused_wqa_wkv")
    groups += parts.norm("attn.q_norm", q_rank)
    groups += parts.linear("attn.wq_b", "attention", heads * size, q_rank, "column", unit=size)
    groups += parts.linear("attn.wkv", "attention", size, hidden, fused="fused_wqa_wkv")
    groups += parts.norm("attn.kv_norm", size)
    groups += parts.linear(
        "attn.wo_a", "attention", groups_out * o_rank, heads * size // groups_out, "column", unit=o_rank
    )
    groups += parts.linear("attn.wo_b", "attention", hidden, groups_out * o_rank, "row", unit=o_rank)
    groups.append(parts.tensor("attn.attn_sink", "attention", (heads,), "column", format_=FP32))
    index = None
    if ratio:
        groups += _compressor(reading, hidden, ratio, size, "attn.compressor")
    if ratio == _INDEXED:
        index = Indexer(text.need("index_n_heads", high=1 << 16), text.need("index_head_dim", high=1 << 16),
                        text.need("index_topk", high=1 << 24))  # fmt: skip
        groups += parts.linear("attn.indexer.wq_b", "attention", index.heads * index.head_size, q_rank)
        groups += parts.linear("attn.indexer.weights_proj", "other", index.heads, hidden)
        groups += _compressor(reading, hidden, ratio, index.head_size, "attn.indexer.compressor")
    return MixerPart(Compressed(heads, size, ratio, window, index), groups)


def _compressor(reading: Reading, hidden: int, ratio: int, size: int, path: str) -> list[TensorGroup]:
    """Projections that make one entry of `ratio` tokens; a ratio of 4 overlaps two windows (twice the width)."""
    width = size * (2 if ratio == _INDEXED else 1)
    parts = reading.parts
    groups = [parts.tensor(f"{path}.ape", "attention", (ratio, width), format_=FP32)]
    groups += [
        parts.tensor(f"{path}.{name}", "attention", (width, hidden), fused="fused_wkv_wgate")
        for name in ("wkv", "wgate")
    ]
    return groups + parts.norm(f"{path}.norm", size)


def _experts(reading: Reading, hidden: int, vocab: int, hashed: bool) -> MlpPart:
    """Routed and shared experts. The first layers route by token id: a table instead of a selection bias."""
    text, parts = reading.text, reading.parts
    text.skip("topk_group", "n_group")
    count, top_k, width = expert_sizes(
        text, ("n_routed_experts",), ("num_experts_per_tok",), ("moe_intermediate_size",)
    )
    shared = text.get("n_shared_experts", default=1, low=0, high=1 << 16) * width
    groups = parts.router("ffn.gate", count, hidden)
    if hashed:
        groups.append(parts.tensor("ffn.gate.tid2eid", "router", (vocab, top_k), format_=_INT32))
    else:
        groups.append(parts.correction("ffn.gate.bias", count))
    groups += parts.experts("ffn.experts", count, hidden, width, names=MIXTRAL)
    if shared:
        groups += parts.mlp("ffn.shared_experts", hidden, shared, names=MIXTRAL)
    return MlpPart(Moe(count, top_k, width, shared), groups)


def _streams(reading: Reading, hidden: int) -> list[TensorGroup]:
    """Norms, and the mixing of the `hc_mult` residual streams around attention and experts."""
    parts, n = reading.parts, reading.text.get("hc_mult", default=4, high=64)
    groups = parts.norm("attn_norm", hidden) + parts.norm("ffn_norm", hidden)
    for name in ("hc_attn", "hc_ffn"):
        rows = (2 + n) * n
        groups.append(parts.tensor(f"{name}_fn", "other", (rows, n * hidden), format_=FP32))
        groups.append(parts.tensor(f"{name}_base", "other", (rows,), format_=FP32))
        groups.append(parts.tensor(f"{name}_scale", "other", (3,), format_=FP32))
    return groups


def _head_streams(reading: Reading, hidden: int) -> list[TensorGroup]:
    n = reading.text.get("hc_mult", default=4, high=64)
    last = reading.parts.at("last")
    shapes: dict[str, tuple[int, ...]] = {"hc_head_fn": (n, n * hidden), "hc_head_base": (n,), "hc_head_scale": (1,)}
    return [last.tensor(name, "other", shape, format_=FP32) for name, shape in shapes.items()]


READERS: Final[dict[str, Reader]] = {"DeepseekV4ForCausalLM": read}
