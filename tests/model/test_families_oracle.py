"""Layers and context lengths held against what vLLM 0.33's own code makes of the same configs."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.model.kv import state_bytes, token_cache
from kvplanner.model.spec import Attention, Mixer, Mla, ModelSpec, State

FACTS = Path(__file__).parent / "facts.jsonl"
# Where the engine's cache differs from what the model is, on purpose.
COHERE_WINDOW = "vLLM counts Cohere2's window inclusively: one token more than the config says"
EXCEPTIONS = {"CohereLabs/c4ai-command-a-03-2025": COHERE_WINDOW}
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@cache
def facts() -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in FACTS.read_text(encoding="utf-8").splitlines()]
    return {row["model"]: row for row in rows}


@cache
def spec_of(model: str) -> ModelSpec:
    return models.load(model).spec


def layers_of(spec: ModelSpec) -> list[tuple[Mixer, int]]:
    return [(m, n) for layer, n in zip(spec.layers, spec.counts(), strict=True) for m in layer.mixers]


def expected_layers(row: dict[str, Any]) -> Counter[tuple[object, ...]]:
    """The engine's specs as (kind, sizes ...) with how many layers have them."""
    found: Counter[tuple[object, ...]] = Counter()
    for item in row["specs"]:
        if item["type"] == "MambaSpec":
            found["state", json.dumps(item["shapes"])] += item["layers"]
        elif item["type"] == "MLAAttentionSpec":
            found["latent", item["head_size"]] += item["layers"]
        else:
            kind = {"FullAttentionSpec": "full", "SlidingWindowSpec": "sliding", "ChunkedLocalAttentionSpec": "chunked"}
            bound = item.get("sliding_window") or item.get("attention_chunk_size")
            key = (kind[item["type"]], item["num_kv_heads"], item["head_size"], item["head_size_v"], bound)
            found[key] += item["layers"]
    return found


def read_layers(row: dict[str, Any]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for mixer, layers in layers_of(spec_of(row["model"])):
        for key in keys_of(mixer, row["tp"]):
            found[key] += layers
    return found


def keys_of(mixer: Mixer, tp: int) -> list[tuple[object, ...]]:
    if isinstance(mixer, Attention):
        if not mixer.owns_cache or not mixer.causal:
            return []
        kind = "sliding" if mixer.window else "chunked" if mixer.chunk else "full"
        heads = max(1, mixer.kv_heads // tp)
        return [(kind, heads, mixer.head_size, mixer.head_size_v, mixer.window or mixer.chunk)]
    if isinstance(mixer, Mla):
        keys: list[tuple[object, ...]] = [("latent", mixer.kv_lora_rank + mixer.qk_rope)]
        if mixer.indexer is not None and mixer.indexer.owns_cache:
            keys.append(("latent", mixer.indexer.head_size + 4))
        return keys
    assert isinstance(mixer, State)
    return [("state", json.dumps(shapes_of(mixer, tp)))]


def shapes_of(mixer: State, tp: int) -> list[list[int]]:
    rows = mixer.conv_kernel - 1
    if mixer.kind == "mamba1":
        return [[rows, mixer.channels // tp], [mixer.channels // tp, mixer.state_size]]
    if mixer.kind == "mamba2":
        wide = mixer.heads * mixer.head_size + 2 * mixer.groups * mixer.state_size
        return [[rows, wide // tp], [mixer.heads // tp, mixer.head_size, mixer.state_size]]
    if mixer.kind == "short_conv":
        return [[rows, mixer.channels // tp]]
    wide = 2 * mixer.key_heads * mixer.key_size + mixer.heads * mixer.head_size
    return [[rows, wide // tp], [mixer.heads // tp, mixer.head_size, mixer.key_size]]


def test_enough_models_are_held() -> None:
    assert len(facts()) >= 52


@pytest.mark.parametrize("model", sorted(facts()))
def test_layers_are_those_of_the_engine(model: str) -> None:
    if model in EXCEPTIONS:
        assert expected_layers(facts()[model]) != read_layers(facts()[model]), "the exception is no longer needed"
        return
    assert read_layers(facts()[model]) == expected_layers(facts()[model])


@pytest.mark.parametrize("model", sorted(facts()))
def test_bytes_per_token_are_those_of_the_engine(model: str) -> None:
    row, spec = facts()[model], spec_of(model)
    if row["tp"] > 1 and any(isinstance(m, Attention) for m, _ in layers_of(spec)):
        row = row | {"per_token": row["per_token"] * heads_factor(spec, row["tp"])}
    caches = [(cache, n) for mixer, n in layers_of(spec) for cache in token_cache(mixer, row["dtype"])]
    assert sum(c.bytes * n for c, n in caches) == row["per_token"]
    if row["tp"] == 1:
        assert sum(c.bytes * n for c, n in caches if c.bound is None) == row["per_token_full"]


def heads_factor(spec: ModelSpec, tp: int) -> float:
    """How much of the whole model's cache one rank holds: heads are split, and copied where there are too few."""
    heads = next(m.kv_heads for m, _ in layers_of(spec) if isinstance(m, Attention))
    return heads / max(1, heads // tp)


@pytest.mark.parametrize("model", sorted(name for name, row in facts().items() if row["state"] and row["tp"] == 1))
def test_state_bytes_are_those_of_the_engine(model: str) -> None:
    row, spec = facts()[model], spec_of(model)
    total = sum(state_bytes(mixer, row["dtype"]) * n for mixer, n in layers_of(spec))
    real = sum(item["layers"] * size_of(item) for item in row["specs"] if item["type"] == "MambaSpec")
    assert total == real
    # What the engine reserves per request is padded to whole pages.
    assert row["state"] >= total


def size_of(item: dict[str, Any]) -> int:
    total = 0
    for shape, dtype in zip(item["shapes"], item["dtypes"], strict=True):
        elements = 1
        for size in shape:
            elements *= size
        total += elements * DTYPE_BYTES[dtype]
    return total


@pytest.mark.parametrize("model", sorted(name for name, row in facts().items() if row["max_model_len"]))
def test_context_length_is_that_of_the_engine(model: str) -> None:
    spec = spec_of(model)
    assert (spec.default_context_length or spec.context_length) == facts()[model]["max_model_len"]
