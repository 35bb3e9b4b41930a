"""Zamba2: Mamba-2 layers, and blocks of attention and feed-forward that several layers share.

Each use of a shared block has a cache of its own, a projection into its layer, and adapters of low rank. Source: the
configuration and modelling classes of transformers 5.24; vLLM's zamba2.py builds the shared blocks once.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.fields import Fields, need_divides, need_length
from kvplanner.model.config.reading import Body, Draft, Heads, Reader, Reading, stack
from kvplanner.model.families.statespace import Mamba2, mamba2_part
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup

_SHARES: Final = "hybrid"
_KINDS: Final = ("mamba", "linear_attention", _SHARES, "m", "g")


def _zamba2(reading: Reading) -> Draft:
    """The whole model; the shared blocks lie outside the layers, since they exist once."""
    text, parts = reading.text, reading.parts
    text.skip("chunk_size", "mamba_expand", "time_step_rank", "num_query_groups", "num_logits_to_keep",
              "ffn_hidden_size",
              "use_mem_rope", "use_long_context", "kv_channels", "num_key_value_heads", "use_shared_block_lora",
              "use_shared_mlp_lora", "lora_rank", "layers_block_type", "hybrid_layer_ids")  # fmt: skip
    text.expect("add_bias_linear", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = _heads(text, hidden)
    sizes = _mamba(text, hidden)
    rank, adapted = text.get("adapter_rank", default=128), text.flag("use_shared_attention_adapter", default=False)
    width = text.need("intermediate_size")
    wide = text.get("attention_hidden_size", default=2 * hidden, high=1 << 24)

    def make(shares: bool) -> Body:
        mixer = mamba2_part(reading, hidden, sizes, "mamba")
        groups = [*mixer.tensors, *parts.norm("input_layernorm", hidden)]
        if not shares:
            return Body(LayerSpec((mixer.mixer,)), tuple(groups))
        groups += parts.linear("linear", "other", hidden, hidden)
        groups += _adapter(reading, "feed_forward.gate_up_proj_adapter", hidden, 2 * width, rank)
        if adapted:
            for name in ("q", "k", "v"):
                rows = heads.heads * heads.head_size
                groups += _adapter(reading, f"self_attn.linear_{name}_adapter", wide, rows, rank)
        attention = Attention(*heads, heads.head_size)
        return Body(LayerSpec((attention, mixer.mixer), (Mlp(width),)), tuple(groups))

    bodies, body_of = stack([kind in (_SHARES, "g") for kind in _layer_kinds(text, layers)], make)
    tied = reading.tied(True)
    outside = reading.vocabulary(vocab, hidden, tied, norm="model.final_layernorm")
    blocks = text.get("num_mem_blocks", default=1, high=64)
    outside += [g._replace(count=blocks) for g in _shared(reading, hidden, wide, heads, width)]
    return Draft(hidden, vocab, bodies, body_of, outside, tied)


def _heads(text: Fields, hidden: int) -> Heads:
    heads = text.need("num_attention_heads", high=1 << 16)
    kv = text.maybe("num_key_value_heads", high=1 << 16) or heads
    need_divides(text, "num_key_value_heads", kv, "num_attention_heads", heads)
    return Heads(heads, kv, text.maybe("attention_head_dim", high=1 << 16) or 2 * hidden // heads)


def _mamba(text: Fields, hidden: int) -> Mamba2:
    inner = hidden * text.get("mamba_expand", default=2, high=64)
    heads = text.get("n_mamba_heads", default=8, high=1 << 16)
    size = text.maybe("mamba_headdim", high=1 << 16) or inner // heads
    groups = text.get("mamba_ngroups", default=1, high=1 << 16)
    need_divides(text, "mamba_ngroups", groups, "n_mamba_heads", heads)
    return Mamba2(heads, size, text.get("mamba_d_state", default=64, high=1 << 16), groups,
                  text.get("mamba_d_conv", default=4, high=256), text.flag("use_conv_bias", default=True), False, True,
                  None)  # fmt: skip


def _layer_kinds(text: Fields, layers: int) -> tuple[str, ...]:
    given = text.texts("layers_block_type", allowed=_KINDS)
    at = text.ints("hybrid_layer_ids", high=layers - 1)
    if given is not None:
        need_length(text, "layers_block_type", given, layers)
        return given
    if at is None:
        raise text.missing("layers_block_type", "hybrid_layer_ids")
    return tuple(_SHARES if i in at else "mamba" for i in range(layers))


def _adapter(reading: Reading, path: str, inp: int, out: int, rank: int) -> list[TensorGroup]:
    groups = reading.parts.linear(f"{path}.0", "other", rank, inp)
    return groups + reading.parts.linear(f"{path}.1", "other", out, rank, "column")


def _shared(reading: Reading, hidden: int, wide: int, heads: Heads, width: int) -> list[TensorGroup]:
    parts, path = reading.parts.at("every"), "model.shared_transformer"
    groups = parts.qkv(f"{path}.self_attn", wide, *heads)
    groups += parts.linear(f"{path}.self_attn.o_proj", "attention", hidden, heads.heads * heads.head_size, "row",
                           unit=heads.head_size)  # fmt: skip
    groups += parts.mlp(f"{path}.feed_forward", hidden, width, names=("gate_up_proj", "gate_up_proj", "down_proj"))
    return groups + parts.norm(f"{path}.input_layernorm", wide) + parts.norm(f"{path}.pre_ff_layernorm", hidden)


READERS: Final[dict[str, Reader]] = {"Zamba2ForCausalLM": _zamba2}
