"""Nemotron: the hybrids that spell one letter per block, and the pruned Llamas with a config per layer.

Sources: configuration and modelling classes of transformers 5.24 and of the repositories; element counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config.fields import MAX_LAYERS, Fields, need_divides
from kvplanner.model.config.moe import expert_sizes
from kvplanner.model.config.reading import Body, Draft, Heads, MlpPart, Mtp, Reader, Reading, body, stack
from kvplanner.model.families.statespace import gqa_part, mamba2_part, mamba2_sizes
from kvplanner.model.spec import LayerSpec, Mlp, Moe
from kvplanner.record import NamedTuple
from kvplanner.units import round_up

_WORDS: Final = {
    "mamba": "M", "mamba2": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-",
    "moe": "E",
}  # fmt: skip
_NAMES: Final = {
    "heads": "mamba_num_heads", "head_size": "mamba_head_dim", "state": "ssm_state_size", "groups": "n_groups",
    "kernel": "conv_kernel", "conv_bias": "use_conv_bias", "bias": "use_bias",
}  # fmt: skip


def _letters(text: Fields, words: str, pattern: str) -> str | None:
    """One letter per block, from a list of words or from a pattern."""
    given = text.texts(words, allowed=_WORDS)
    letters = text.text(pattern)
    if given is not None:
        return "".join(_WORDS[word] for word in given)
    if letters is not None and (not letters or set(letters) - set("M*-E")):
        raise text.bad(pattern, "letters M, *, - and E")
    return letters


def _hybrid(reading: Reading) -> Draft:
    """Nemotron-H: each letter is one residual block, so an MLP or expert block is a layer of its own."""
    text = reading.text
    text.skip("expand", "chunk_size", "time_step_rank", "n_group", "topk_group", "num_hidden_layers", "mamba_proj_bias",
              "moe_shared_expert_overlap", "sliding_window", "attention_head_dim", "mamba_hidden_act")  # fmt: skip
    for name in ("attention_bias", "mlp_bias"):
        text.expect(name, False)
    text.expect("mlp_hidden_act", "relu2")
    letters = _letters(text, "layers_block_type", "hybrid_override_pattern")
    if letters is None:
        raise text.missing("layers_block_type", "hybrid_override_pattern")
    if len(letters) > MAX_LAYERS:
        raise text.bad("layers_block_type", f"at most {MAX_LAYERS} layers")
    hidden, vocab = reading.hidden(), reading.vocab()
    heads = reading.heads(hidden, head_size=("head_dim", "attention_head_dim"))

    def make(letter: str) -> Body:
        norm = reading.parts.norm("norm", hidden)
        if letter == "M":
            return body(
                mamba2_part(reading, hidden, mamba2_sizes(text, _NAMES, state_dtype="float32"), "mixer"), None, norm
            )
        if letter == "*":
            return body(gqa_part(reading, hidden, heads, "mixer"), None, norm)
        if letter == "E":
            return body(None, _experts(reading, hidden), norm)
        width = text.need("intermediate_size")
        names = ("", "up_proj", "down_proj")
        return body(
            None, MlpPart(Mlp(width, 2), reading.parts.mlp("mixer", hidden, width, matrices=2, names=names)), norm
        )

    _skip_unused(text, letters)
    bodies, body_of = stack(letters, make)
    tied = reading.tied(False)
    outside = reading.vocabulary(vocab, hidden, tied, embed="backbone.embeddings", norm="backbone.norm_f")
    draft = Draft(hidden, vocab, bodies, body_of, outside, tied)
    return draft._replace(mtp=_mtp(reading, hidden, make))


def _skip_unused(text: Fields, letters: str) -> None:
    """Fields of block kinds that the model does not have."""
    if "E" not in letters:
        text.skip("n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_latent_size",
                  "num_experts_per_tok",
                  "moe_shared_expert_intermediate_size")  # fmt: skip
    if "-" not in letters:
        text.skip("intermediate_size")
    if "M" not in letters:
        text.skip(*_NAMES.values())


def _experts(reading: Reading, hidden: int) -> MlpPart:
    """Two-matrix experts, at a smaller width between two projections in Super and Ultra, and a shared expert."""
    text, parts = reading.text, reading.parts
    count, top_k, width = expert_sizes(
        text, ("n_routed_experts",), ("num_experts_per_tok",), ("moe_intermediate_size",)
    )
    shared = text.maybe("moe_shared_expert_intermediate_size", low=0) or 0
    text.noted("moe_shared_expert_intermediate_size")
    shared *= 1 if text.get("n_shared_experts", default=1, low=0, high=1 << 16) else 0
    latent = text.maybe("moe_latent_size")
    text.noted("moe_latent_size")
    groups = parts.router("mixer.gate", count, hidden)
    groups.append(parts.correction("mixer.gate.e_score_correction_bias", count))
    if latent is not None:
        groups += parts.linear("mixer.fc1_latent_proj", "mlp", latent, hidden)
        groups += parts.linear("mixer.fc2_latent_proj", "mlp", hidden, latent)
    names = ("", "up_proj", "down_proj")
    groups += parts.experts("mixer.experts", count, latent or hidden, width, matrices=2, names=names)
    if shared:
        groups += parts.mlp("mixer.shared_experts", hidden, shared, matrices=2, names=names)
    return MlpPart(Moe(count, top_k, width, shared, 2, latent), groups)


def _mtp(reading: Reading, hidden: int, make: Callable[[str], Body]) -> Mtp | None:
    """`mtp_layers_block_type` or its pattern: the blocks of one prediction step, and what joins its two inputs."""
    text = reading.text
    blocks = text.get("num_nextn_predict_layers", default=0, low=0, high=64)
    letters = _letters(text, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    if not blocks:
        return None
    if letters is None:
        raise text.missing("mtp_layers_block_type", "mtp_hybrid_override_pattern")
    tensors = [group for letter in letters for group in make(letter).tensors]
    parts = reading.parts
    extra = parts.linear("eh_proj", "other", hidden, 2 * hidden)
    for name in ("enorm", "hnorm", "final_layernorm"):
        extra += parts.norm(name, hidden)
    return Mtp(tuple(tensors), tuple(extra), blocks, ("mtp.layers.{i}",))


class _Block(NamedTuple):
    """One layer of a pruned Llama: kv heads (0: none), an attention replaced by a matrix, MLP width (0: none)."""

    kv_heads: int
    linear_attention: bool
    width: int
    linear_mlp: bool


def _pruned(reading: Reading) -> Draft:
    """Nemotron NAS: `block_configs` says for each layer what is left of attention and MLP."""
    text = reading.text
    text.skip("num_key_value_heads", "intermediate_size", "pretraining_tp")
    text.expect("attention_bias", False)
    text.expect("mlp_bias", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    n = text.need("num_attention_heads", high=1 << 16)
    need_divides(text, "num_attention_heads", n, "hidden_size", hidden)
    size = text.maybe("head_dim", high=1 << 16) or hidden // n
    _, raw = text.raw("block_configs")
    if not isinstance(raw, list | tuple) or len(raw) != layers:
        raise text.bad("block_configs", f"a list of {layers} layers")
    blocks = [_block(text, item, i, n, hidden) for i, item in enumerate(raw)]
    parts = reading.parts

    def make(block: _Block) -> Body:
        tensors, mixers, mlps = [], [], []
        if block.kv_heads:
            part = gqa_part(reading, hidden, Heads(n, block.kv_heads, size))
            mixers.append(part.mixer)
            tensors += [*part.tensors, *parts.norm("input_layernorm", hidden)]
        elif block.linear_attention:
            tensors += parts.linear("self_attn.linear_attn", "attention", hidden, hidden)
            tensors += parts.norm("input_layernorm", hidden)
        if block.width:
            mlps.append(Mlp(block.width))
            tensors += parts.mlp("mlp", hidden, block.width) + parts.norm("post_attention_layernorm", hidden)
        elif block.linear_mlp:
            tensors += parts.linear("mlp.linear_mlp", "mlp", hidden, hidden)
            tensors += parts.norm("post_attention_layernorm", hidden)
        return Body(LayerSpec(tuple(mixers), tuple(mlps)), tuple(tensors))

    bodies, body_of = stack(blocks, make)
    tied = reading.tied(False)
    return Draft(hidden, vocab, bodies, body_of, reading.vocabulary(vocab, hidden, tied), tied)


def _block(text: Fields, item: object, at: int, heads: int, hidden: int) -> _Block:
    """One entry of `block_configs`."""
    if not isinstance(item, Mapping):
        raise text.bad("block_configs", "a list of objects")
    entry = Fields(item, text.where, f"{text.path}block_configs[{at}].", text.defaulted)
    attention, ffn = entry.sub("attention"), entry.sub("ffn")
    if attention is None or ffn is None:
        raise entry.missing("attention", "ffn")
    for part in (attention, ffn):
        if part.flag("sparsify", default=False) if isinstance(part.values.get("sparsify"), bool) else False:
            raise NotModelled("is sparsified", part.named("sparsify"), "Plan a checkpoint that is not")
    kv = 0
    linear = attention.flag("replace_with_linear", default=False)
    if not linear and not attention.flag("no_op", default=False):
        group = attention.need("n_heads_in_group", high=1 << 16)
        need_divides(attention, "n_heads_in_group", group, "num_attention_heads", heads)
        kv = heads // group
    linear_mlp = ffn.flag("replace_with_linear", default=False)
    width = 0
    if not linear_mlp and not ffn.flag("no_op", default=False):
        multiplier = ffn.number("ffn_mult")
        if multiplier is None or not 0 < multiplier < 1024:
            raise BadInput("has no positive ffn_mult", ffn.named("ffn_mult"), "Check the file")
        width = round_up(int(2 * multiplier * hidden / 3), 256)
    return _Block(kv, linear, width, linear_mlp)


READERS: Final[dict[str, Reader]] = {"NemotronHForCausalLM": _hybrid, "DeciLMForCausalLM": _pruned}
