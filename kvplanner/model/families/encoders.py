"""Encoders: BERT and XLM-RoBERTa.

Sources: configuration and modelling classes of transformers 5.24, element counts of public files.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.config.reading import Body, Draft, Reader, Reading
from kvplanner.model.spec import Attention, LayerSpec, Mlp
from kvplanner.model.tensors import TensorGroup


def _bert(reading: Reading) -> Draft:
    """Bidirectional attention: no layer keeps a cache."""
    text, parts = reading.text, reading.parts
    text.expect("position_embedding_type", "absolute")
    text.expect("is_decoder", False)
    text.expect("add_cross_attention", False)
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads = reading.heads(hidden)
    rows, types = text.need("max_position_embeddings", high=1 << 24), text.need("type_vocab_size", high=1 << 16)
    width = text.need("intermediate_size")
    names = ("query", "key", "value")
    groups = parts.qkv("attention.self", hidden, *heads, bias=True, names=names)
    groups += parts.linear(
        "attention.output.dense", "attention", hidden, hidden, "row", bias=True, unit=heads.head_size
    )
    groups += parts.norm("attention.output.LayerNorm", hidden, bias=True)
    groups += parts.linear("intermediate.dense", "mlp", width, hidden, "column", bias=True)
    groups += parts.linear("output.dense", "mlp", hidden, width, "row", bias=True)
    groups += parts.norm("output.LayerNorm", hidden, bias=True)
    attention = Attention(heads.heads, heads.kv_heads, heads.head_size, heads.head_size, causal=False)
    body = Body(LayerSpec((attention,), (Mlp(width, 2),)), tuple(groups))
    outside = _embeddings(reading, hidden, vocab, rows, types)
    return Draft(hidden, vocab, (body,), (0,) * layers, outside, reading.tied(True), task="embed")


def _embeddings(reading: Reading, hidden: int, vocab: int, rows: int, types: int) -> list[TensorGroup]:
    """Words, positions and segments, and the pooler at the end."""
    first, last = reading.parts.at("first"), reading.parts.at("last")
    groups = [first.tensor("embeddings.word_embeddings", "embedding", (vocab, hidden), "vocab")]
    groups.append(first.tensor("embeddings.position_embeddings", "embedding", (rows, hidden)))
    groups.append(first.tensor("embeddings.token_type_embeddings", "embedding", (types, hidden)))
    groups += first.norm("embeddings.LayerNorm", hidden, bias=True)
    return groups + last.linear("pooler.dense", "other", hidden, hidden, bias=True)


READERS: Final[dict[str, Reader]] = {
    "BertModel": _bert,
    "XLMRobertaModel": _bert,
    "RobertaModel": _bert,
}
