"""The arithmetic that everyone can follow by hand, through the terminal from end to end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.kit import Terminal

GIVEN = ("--measured", "activations=3GB,runtime_outside=0,runtime=0,workspace=0,cuda_graphs=0")
NINETY = ("--", "--gpu-memory-utilization", "0.90")
SMALL, LARGE = "meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-70B-Instruct"
GB, GIB = 10**9, 1 << 30


def plan(terminal: Terminal, *words: str) -> dict[str, Any]:
    at = words.index("--") if "--" in words else len(words)
    document: dict[str, Any] = json.loads(terminal("plan", *words[:at], "--json", *words[at:]).out)
    return document


def sizes(document: dict[str, Any], device: int = 0) -> dict[str, int]:
    return {s["kind"]: s["bytes"] for s in document["devices"][device]["segments"]}


def test_eight_billion_on_eighty_gigabytes(terminal: Terminal) -> None:
    found = plan(terminal, SMALL, "--gpu", "80GB", *GIVEN, *NINETY)
    assert found["model"]["stored_bytes"] == 16_060_522_496
    assert found["devices"][0]["budget_bytes"] == 72 * GB
    assert repr(found["kv_cache"]["bytes_per_token"]) == "131072"
    left = 72 * GB - 16_060_522_496 - 3 * GB
    assert found["kv_cache"]["available_bytes"] == left
    assert left / GB == pytest.approx(52.9, abs=0.05)
    blocks = left // (131_072 * 16)
    assert (found["kv_cache"]["num_blocks"], found["kv_cache"]["tokens"]) == (blocks, 16 * blocks)
    assert 403_800 <= found["kv_cache"]["tokens"] < 403_900
    naive = (80 * GB - 16_060_522_496) / 131_072
    assert round(100 * (naive / found["kv_cache"]["tokens"] - 1)) == 21
    explained = terminal("plan", SMALL, "--gpu", "80GB", *GIVEN, "--explain", "kv_cache", *NINETY).out
    assert "21 %" in explained


@pytest.mark.parametrize(("gpus", "stage"), [(1, "weights"), (2, "kv_cache_sizing"), (4, None)])
def test_seventy_billion_needs_four(terminal: Terminal, gpus: int, stage: str | None) -> None:
    found = plan(terminal, LARGE, "--gpu", f"{gpus}x80GB", *GIVEN, *NINETY)
    assert found["model"]["stored_bytes"] == 141_107_412_992
    assert found["stage"] == stage
    assert len(found["devices"]) == gpus
    if gpus == 2:
        assert sizes(found)["weights"] / GB == pytest.approx(70.56, abs=0.01)
        assert found["missing_bytes"] / GB == pytest.approx(1.56, abs=0.01)
    if gpus == 4:
        assert sum(sizes(found, i)["kv_cache"] for i in range(4)) / GB == pytest.approx(134.9, abs=0.1)
        assert found["kv_cache"]["tokens"] == pytest.approx(411_600, abs=100)


def test_the_real_card(terminal: Terminal) -> None:
    found = plan(terminal, SMALL, "--gpu", "H100")
    device = found["devices"][0]
    assert device["cuda_total_bytes"] == 81_081 << 20
    assert device["budget_bytes"] / GIB == pytest.approx(72.85, abs=0.01)
    assert found["kv_cache"]["available_bytes"] / GIB == pytest.approx(55, abs=1.2)
    assert found["kv_cache"]["tokens"] == pytest.approx(450_000, rel=0.03)
    values = {name: option["value"] for name, option in found["options"].items()}
    assert (values["max_num_batched_tokens"], values["max_num_seqs"]) == (8192, 1024)
    assert found["kv_cache"]["block_size"] == 16


def test_activations_can_be_followed(terminal: Terminal) -> None:
    large = terminal("plan", SMALL, "--gpu", "H100", "--explain", "activations").out
    assert "8,192 tokens in one step: gate and up tensors 0.47 GB" in large
    small = terminal("plan", SMALL, "--gpu", "RTX 4090", "--explain", "activations", "--", "--max-model-len", "8k").out
    assert "256 rows of fp32 logits over 128,256 words: 131 MB" in small


def test_too_little_free_memory_is_told_with_both_numbers(terminal: Terminal) -> None:
    found = plan(terminal, SMALL, "--gpu", "H100", "--free", "40GiB")
    assert found["stage"] == "free_memory_check"
    assert "/79.18 GiB" in found["engine_message"]
    assert "72.85 GiB" in found["engine_message"]


def test_another_vendors_device_cannot_be_told(terminal: Terminal) -> None:
    found = plan(terminal, SMALL, "--gpu", "AMD Instinct MI300X")
    assert found["fits"] is None
    assert any("not an NVIDIA GPU" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("gpu", "words"),
    [("10000xH100", "10000"), ("1PB", "1PB"), ("H100", "99999999999999999999")],
)
def test_absurd_numbers_are_refused_in_a_line(terminal: Terminal, gpu: str, words: str) -> None:
    ran = terminal("plan", SMALL, "--gpu", gpu, "--", "--max-model-len", words if words.isdecimal() else "8k")
    assert ran.status == 2
    assert ran.err.count("\n") == 1
