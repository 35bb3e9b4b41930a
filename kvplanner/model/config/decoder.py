"""The plain decoder: grouped-query attention and a feed-forward block in every layer, described by a few traits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kvplanner.model.config.patterns import SLIDING, SPARSE, Pattern, all_dense, all_full, window_of
from kvplanner.model.config.reading import (
    Body,
    Draft,
    Heads,
    MixerPart,
    MlpPart,
    Mtp,
    Reading,
    SparseReader,
    body,
    stack,
)
from kvplanner.model.spec import Attention, Mlp
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

# A bias or norm that is always there, never there, or as a flag of the config says (with its class default).
Switch = bool | tuple[str, bool]


class Decoder(NamedTuple):
    """What tells one plain decoder family from another.

    qkv_bias, o_bias, mlp_bias: see Switch; down_bias: of the last matrix, where it is not the others'. qk_norm: none,
    over each head, or over the whole projection. norms: the layer's norms by name; norm_bias: LayerNorm with bias. qkv,
    mlp_names: checkpoint names of the projections; gate_name: an output gate's projection, if any. pattern,
    mlp_pattern: which layers slide, and which have experts; experts: makes the sparse block. tied, hidden, layers,
    heads, kv_heads, head_size, width_default, vocab, window: class defaults. width: how to read the MLP's width where a
    field's name is not enough. scalars: one-element tensors of each layer. only: fields that this reader understands
    with one value. ignore: fields that change nothing.
    """

    qkv_bias: Switch = ("attention_bias", False)
    o_bias: Switch = ("attention_bias", False)
    mlp_bias: Switch = False
    down_bias: Switch | None = None
    qk_norm: Literal["", "head", "full"] = ""
    qk_norm_if: Switch = True
    qk_norm_bias: bool = False
    matrices: int = 3
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    tied: bool = False
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    width_default: int | None = None
    vocab: int | None = None
    window: int | None = None
    sinks: bool = False
    pattern: Pattern = all_full
    mlp_pattern: Pattern = all_dense
    experts: SparseReader | None = None
    mtp: Callable[[Reading, Body, int, int], Mtp | None] | None = None
    attention_path: str = "self_attn"
    qkv: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    o_name: str = "o_proj"
    gate_name: str = ""
    q_norm_names: tuple[str, str] = ("q_norm", "k_norm")
    mlp_path: str = "mlp"
    mlp_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    width_names: tuple[str, ...] = ("intermediate_size",)
    hidden_names: tuple[str, ...] = ("hidden_size",)
    head_names: tuple[str, ...] = ("num_attention_heads",)
    layer_names: tuple[str, ...] = ("num_hidden_layers",)
    vocab_names: tuple[str, ...] = ("vocab_size",)
    head_size_names: tuple[str, ...] = ("head_dim",)
    kv_names: tuple[str, ...] = ("num_key_value_heads",)
    embed: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    head_bias: Switch = False
    width: Callable[[Reading], int] | None = None
    scalars: tuple[str, ...] = ()
    only: Mapping[str, object] = {}
    ignore: tuple[str, ...] = ()

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text = reading.text
        text.skip(*self.ignore)
        for name, value in self.only.items():
            text.expect(name, value)
        hidden = reading.hidden(*self.hidden_names, default=self.hidden)
        vocab = reading.vocab(*self.vocab_names, default=self.vocab)
        layers = reading.layer_count(*self.layer_names, default=self.layers)
        sizes = reading.heads(hidden, heads=self.head_names, kv_heads=self.kv_names, head_size=self.head_size_names,
                              default_heads=self.heads, default_kv=self.kv_heads,
                              default_size=self.head_size)  # fmt: skip
        kinds = self.pattern(text, layers)
        window = window_of(text, kinds, self.window)
        mlps = self.mlp_pattern(text, layers)
        make = self._maker(reading, hidden, sizes, window)
        bodies, body_of = stack(zip(kinds, mlps, strict=True), make)
        if all(kind == SPARSE for kind in mlps):
            text.skip(*self.width_names)
        tied = reading.tied(self.tied)
        outside = reading.vocabulary(
            vocab, hidden, tied, embed=self.embed, norm=self.final_norm, head=self.head,
            norm_bias=self.norm_bias, head_bias=switch(reading, self.head_bias),
        )  # fmt: skip
        draft = Draft(hidden, vocab, bodies, body_of, outside, tied)
        if self.mtp is not None:
            return draft._replace(mtp=self.mtp(reading, bodies[body_of[-1]], hidden, vocab))
        return draft

    def _maker(
        self, reading: Reading, hidden: int, sizes: Heads, window: int | None
    ) -> Callable[[tuple[str, str]], Body]:
        """How to make the body of a (attention, feed-forward) pair of kinds."""
        normed = self.qk_norm if switch(reading, self.qk_norm_if) else ""
        biases = (switch(reading, self.qkv_bias), switch(reading, self.o_bias), switch(reading, self.mlp_bias))
        norms = [g for name in self.norms for g in reading.parts.norm(name, hidden, bias=self.norm_bias)]
        norms += [reading.parts.tensor(path, "other", (1,)) for path in self.scalars]

        def make(key: tuple[str, str]) -> Body:
            attention = Attention(
                sizes.heads, sizes.kv_heads, sizes.head_size, sizes.head_size,
                window=window if key[0] == SLIDING else None, sinks=self.sinks,
            )  # fmt: skip
            mixer = MixerPart(attention, self._attention(reading, hidden, sizes, biases, normed))
            if key[1] == SPARSE and self.experts is not None:
                return body(mixer, self.experts(reading, hidden), norms)
            return body(mixer, self._mlp(reading, hidden, biases[2]), norms)

        return make

    def _attention(
        self, reading: Reading, hidden: int, sizes: Heads, biases: tuple[bool, bool, bool], normed: str
    ) -> list[TensorGroup]:
        parts, path = reading.parts, self.attention_path
        groups = parts.qkv(path, hidden, sizes.heads, sizes.kv_heads, sizes.head_size, bias=biases[0], names=self.qkv)
        groups += parts.linear(f"{path}.{self.o_name}", "attention", hidden, sizes.heads * sizes.head_size, "row",
                               bias=biases[1], unit=sizes.head_size)  # fmt: skip
        if self.gate_name:
            groups += parts.linear(f"{path}.{self.gate_name}", "attention", sizes.heads * sizes.head_size, hidden,
                                   "column", unit=sizes.head_size)  # fmt: skip
        q_name, k_name = self.q_norm_names
        if normed == "head":
            groups += parts.norm(f"{path}.{q_name}", sizes.head_size, bias=self.qk_norm_bias)
            groups += parts.norm(f"{path}.{k_name}", sizes.head_size, bias=self.qk_norm_bias)
        elif normed == "full":
            groups += parts.norm(f"{path}.{q_name}", sizes.heads * sizes.head_size, shard="column",
                                 unit=sizes.head_size)  # fmt: skip
            groups += parts.norm(f"{path}.{k_name}", sizes.kv_heads * sizes.head_size, shard="kv",
                                 unit=sizes.head_size)  # fmt: skip
        if self.sinks:
            groups.append(parts.tensor(f"{path}.sinks", "attention", (sizes.heads,), "column"))
        return groups

    def _width(self, reading: Reading) -> int:
        if self.width_default is not None:
            return reading.text.get(*self.width_names, default=self.width_default)
        return reading.text.need(*self.width_names)

    def _mlp(self, reading: Reading, hidden: int, bias: bool) -> MlpPart:
        width = self.width(reading) if self.width else self._width(reading)
        groups = reading.parts.mlp(self.mlp_path, hidden, width, matrices=self.matrices, bias=bias,
                                   names=self.mlp_names)  # fmt: skip
        if self.down_bias is not None and switch(reading, self.down_bias):
            groups.append(reading.parts.tensor(f"{self.mlp_path}.{self.mlp_names[2]}.bias", "mlp", (hidden,)))
        return MlpPart(Mlp(width, self.matrices), groups)


def switch(reading: Reading, value: Switch) -> bool:
    """A Switch as this config sets it."""
    return value if isinstance(value, bool) else reading.text.flag(value[0], default=value[1])
