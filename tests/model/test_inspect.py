"""What `inspect` tells about a model."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.report.inspect import Inspection, inspect
from kvplanner.report.inspect_words import which_layers


def told(model: str) -> Inspection:
    return inspect(models.load(model))


@pytest.mark.parametrize(
    ("model", "summary"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "32 layers, all full attention"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "48 layers: 36 gated-delta, 12 full attention every 4th"),
        ("google/gemma-3-27b-it", "62 layers: 52 sliding 1,024, 10 full attention every 6th"),
        ("deepseek-ai/DeepSeek-V3", "61 layers, all latent attention"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "56 layers: 27 Mamba-2, 25 MLP alone, 4 full attention (14, 21, 30, 39)"),
        ("tiiuae/Falcon-H1-7B-Base", "44 layers, all full attention + Mamba-2"),
        ("openai/gpt-oss-20b", "24 layers: 12 sliding 128 every 2nd from 0, 12 full attention every 2nd"),
        ("BAAI/bge-m3", "24 layers, all two-way attention"),
    ],
)
def test_layers_in_words(model: str, summary: str) -> None:
    assert told(model).summary == summary


@pytest.mark.parametrize(
    ("model", "parameters", "active"),
    [
        ("Qwen/Qwen3-30B-A3B", 30.5e9, 3.3e9),
        ("deepseek-ai/DeepSeek-V3", 671e9, 37.5e9),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7e9, 12.9e9),
        ("openai/gpt-oss-120b", 116.8e9, 5.7e9),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120.7e9, 12.8e9),
        ("Qwen/Qwen3-8B", 8.19e9, 8.19e9),
    ],
)
def test_active_parameters_are_those_that_publishers_name(model: str, parameters: float, active: float) -> None:
    found = told(model)
    assert found.parameters == pytest.approx(parameters, rel=0.01)
    assert found.active == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("entry", [e.id for e in models.index() if not e.like][::9])
def test_rows_add_up(entry: str) -> None:
    found, inventory = told(entry), models.load(entry).inventory
    assert inventory is not None
    assert sum(row.bytes for row in found.tensors) == inventory.stored_bytes()
    assert sum(row.elements for row in found.tensors) == inventory.parameters(mtp=True)
    assert sum(row.layers for row in found.layers) == models.load(entry).spec.num_layers
    assert found.growing_bytes_per_token <= found.bytes_per_token
    assert found.active is not None
    assert found.active <= (found.parameters or 0)
    assert list(found.largest) == sorted(found.largest, key=lambda row: -row.bytes)


def test_caches_and_states_by_kind() -> None:
    found = told("Qwen/Qwen3.5-27B")
    assert [(row.kind, row.layers, row.bytes_per_token) for row in found.caches] == [("full", 16, 65_536)]
    assert [(row.kind, row.layers) for row in found.states] == [("gated_delta", 48)]
    # 48 layers of 48 × 128 × 128 in fp32 and 3 × 10,240 in bfloat16.
    assert found.state_bytes_per_sequence == 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)


def test_sliding_layers_are_bounded() -> None:
    found = told("google/gemma-3-27b-it")
    assert {(row.kind, row.bound) for row in found.caches} == {("sliding", 1024), ("full", None)}
    assert (found.bytes_per_token, found.growing_bytes_per_token) == (507_904, 81_920)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("google/gemma-4-E2B-it", ("20 layers keep no cache", "per-layer embeddings", "several sizes: 256, 512")),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", ("asks for an fp8 KV cache",)),
        ("microsoft/Phi-3-mini-128k-instruct", ("start at 4,096 tokens",)),
        ("deepseek-ai/DeepSeek-V3", ("multi-token-prediction",)),
        ("nvidia/Gemma-4-31B-IT-NVFP4", ("left unquantised",)),
        ("intfloat/e5-mistral-7b-instruct", ("makes embeddings",)),
        ("stepfun-ai/Step-3.7-Flash", ("unexplained",)),
    ],
)
def test_oddities_are_told(model: str, words: tuple[str, ...]) -> None:
    odd = "; ".join(told(model).odd)
    assert all(word in odd for word in words), odd


def test_a_model_without_tensors_is_told_as_far_as_known() -> None:
    found = inspect(models.load("Qwen/Qwen3-8B")._replace(inventory=None, stored=None))
    assert (found.tensors, found.largest, found.active, found.stored) == ((), (), None, None)
    assert found.bytes_per_token == 147_456


@pytest.mark.parametrize(
    ("layers", "of", "words"),
    [
        ([3, 7, 11], 12, "every 4th"), ([0, 3, 6], 9, "every 3rd from 0"), ([1, 3, 5], 6, "every 2nd"),
        ([10, 21, 32], 33, "every 11th"), ([0, 1, 2], 61, "0–2"), ([5], 9, "5"),
        ([0, 1, 4, 9, 11], 12, "0, 1, 4, 9 ..."),
    ],
)  # fmt: skip
def test_positions_in_words(layers: list[int], of: int, words: str) -> None:
    assert which_layers(layers, of) == words
