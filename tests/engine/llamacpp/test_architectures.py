"""What llama.cpp calls the Hub's models, and what it loads of those that are not written like the rest."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.engine.llamacpp.architectures import as_gguf, gguf_architecture
from kvplanner.engine.llamacpp.cache import CacheTypes, Cells, layer_bytes
from kvplanner.engine.llamacpp.figures import CHECKED
from kvplanner.engine.llamacpp.tensors import tensors_of
from kvplanner.model.spec import Attention, Indexer, LayerSpec

# Catalogue models that llama.cpp has no graph for, or whose graph is not laid out here: their plan says so.
_LESS_CERTAIN = {
    "bert", "deepseek4", "deepseek_ref", "deepseek_vl_v2", "dots_ocr", "gpt2", "mimo",
    "minimax-01", "mllama_text_model", "nomic-bert", "olmo_hybrid", "opt", "phi3small", "phi4mm",
    "smallthinker", "whisper",
}  # fmt: skip


def names(model_id: str) -> set[str]:
    """A layer's tensors as its GGUF file names them: of the last layer, which is never a dense one before experts."""
    return {tensor.name for tensor in tensors_of(as_gguf(models.load(model_id))[0]).layers[-1]}


@pytest.mark.slow
def test_nearly_every_catalogue_model_has_a_graph_that_is_laid_out() -> None:
    unknown: dict[str, int] = {}
    for entry in models.index():
        name = gguf_architecture(models.load(entry.id).spec.model_type)
        if name not in CHECKED:
            unknown[name] = unknown.get(name, 0) + 1
    assert set(unknown) <= _LESS_CERTAIN
    assert sum(unknown.values()) <= 0.08 * len(models.index())


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("glm4_moe_lite", "deepseek2"), ("olmo3", "olmo2"), ("ministral3", "mistral3"), ("falcon_mamba", "mamba"),
     ("qwen3_vl_moe_text", "qwen3vlmoe"), ("minimax_m3", "minimax-m3"), ("mimo_v2_flash", "mimo2"),
     ("bailing_hybrid", "bailingmoe3")],
)  # fmt: skip
def test_types_of_the_hub_have_the_names_of_the_converters(model_type: str, name: str) -> None:
    """conversion/ of llama.cpp 0.5.0-dev."""
    assert gguf_architecture(model_type) == name
    assert name in CHECKED


def test_latent_attention_is_split_where_its_file_is() -> None:
    """minicpm3.cpp reads attn_kv_b and caches all heads; deepseek2.cpp reads attn_k_b and attn_v_b."""
    split = names("zai-org/GLM-4.7-Flash")
    assert {"attn_k_b.weight", "attn_v_b.weight"} <= split
    assert "attn_kv_b.weight" not in split


def test_a_sparse_index_and_streams_have_the_names_of_their_files() -> None:
    index = {"indexer.attn_q_b.weight", "indexer.attn_k.weight", "indexer.k_norm.weight", "indexer.proj.weight"}
    assert index <= names("deepseek-ai/DeepSeek-V3.2")
    assert {"altup_router.weight", "laurel_l.weight", "altup_predict_coef.weight"} <= names("google/gemma-3n-E4B-it")


def test_minimax_m3_keeps_keys_and_values_for_its_index() -> None:
    """llama-kv-cache-msa.cpp: the index is a cache of one head, with both."""
    attention = Attention(64, 4, 128, 128, indexer=Indexer(4, 128, 16))
    cells = Cells(context=1024, per_slot=1024, full=1024, window=0, streams=1, rows=1)
    size = layer_bytes(LayerSpec((attention,), ()), cells, CacheTypes("f16", "f16", False))
    assert size == 1024 * 2 * (2 * 4 * 128 + 2 * 128)
