"""kvplanner inspect: catalogue entries and files, as text and as JSON that agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplanner.catalog import models
from tests.cli.kit import Terminal

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


def test_a_dense_model(terminal: Terminal) -> None:
    text = terminal("inspect", "Llama-3.1-8B-Instruct").out
    assert "8.03 B parameters" in text
    assert "16.06 GB = 14.96 GiB stored" in text
    assert "32 layers, all full attention" in text
    assert "KV cache, full: 131,072 bytes a token in 32 layers" in text
    assert "One sequence of 131,072 tokens: 17.18 GB = 16.00 GiB" in text


def test_json_sums_to_what_the_text_says(terminal: Terminal) -> None:
    found = json.loads(terminal("inspect", "Llama-3.1-8B-Instruct", "--json").out)
    assert found["schema"] == "kvplanner.inspect/1"
    assert found["stored_bytes"] == 16_060_522_496
    assert sum(row["bytes"] for row in found["tensors"]) == found["stored_bytes"]
    assert sum(row["elements"] for row in found["tensors"]) == found["parameters"] == 8_030_261_248
    assert sum(row["layers"] for row in found["layers"]) == 32
    rates = (found["bytes_per_token"], found["growing_bytes_per_token"], found["caches"][0]["bytes_per_token"])
    assert [repr(rate) for rate in rates] == ["131072"] * 3
    assert found["stored"]["basis"] == "exact"


def test_experts_latents_states_and_towers_are_told(terminal: Terminal) -> None:
    deepseek = terminal("inspect", "deepseek-ai/DeepSeek-V3").out
    assert "at work on a token" in deepseek
    assert "latent: 70,272 bytes a token" in deepseek
    hybrid = terminal("inspect", "Qwen3-Next-80B-A3B-Instruct").out
    assert "a sequence in 36 layers, whatever its length" in hybrid
    seeing = terminal("inspect", "gemma-3-27b-it").out
    assert "vision tower: 27 layers" in seeing
    assert "for 1,024 tokens at most" in seeing


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_config_of_ones_own(terminal: Terminal, tmp_path: Path, as_folder: bool) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    ran = terminal("inspect", str(tmp_path if as_folder else config), "--json")
    assert ran.status == 0
    found = json.loads(ran.out)
    assert found["parameters"] == 8_030_261_248
    assert str(tmp_path) in found["source"]


@pytest.mark.slow
def test_every_bundled_model_can_be_told(terminal: Terminal) -> None:
    for entry in models.index()[::9]:
        ran = terminal("inspect", entry.id)
        assert ran.status == 0, ran.err
        found = json.loads(terminal("inspect", entry.id, "--json").out)
        assert found["id"].lower() == entry.id.lower()
        assert ran.out.startswith(found["id"] + " · ")
