"""Ollama as a preset: what it settles before llama-server starts, and what it shows."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.command import format_command
from kvplanner.engine.llamacpp.figures import free_at_load
from kvplanner.engine.llamacpp.ollama import rules
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.units import GIB, format_bytes
from tests.engine.llamacpp.kit import GEMMA, LLAMA, OSS, QWEN, plan, size
from tests.oracle.llamacpp.cases import model_of


@pytest.mark.parametrize(("memory", "tokens"), [(8, 4096), (22.5, 4096), (24, 32768), (48, 262144), (80, 262144)])
def test_the_default_context_goes_by_all_memory(memory: float, tokens: int) -> None:
    assert rules.default_context((round(memory * GIB),), 0) == tokens


def test_overhead_counts_for_the_tier_only() -> None:
    assert rules.default_context((24 * GIB,), 2 * GIB) == 4096


@pytest.mark.parametrize(
    ("context", "share", "flash", "expected"),
    [
        (4096, 0.1, True, 512), (32768, 0.1, True, 1024), (65536, 0.1, True, 2048), (65536, 0.65, True, 1024),
        (65536, 0.9, True, 512), (65536, 0.1, False, 512),
    ],
)  # fmt: skip
def test_the_batch_goes_by_context_and_room(context: int, share: float, flash: bool, expected: int) -> None:
    seen = rules.Gpus((40 * GIB,), None)
    assert rules.batch(context, round(share * 40 * GIB), seen, flash=flash, smallest=40 * GIB) == expected


def test_small_gpus_without_flash_attention_take_small_batches() -> None:
    assert rules.batch(8192, GIB, rules.Gpus((8 * GIB,), None), flash=False, smallest=8 * GIB) == 256


def test_the_estimate_is_as_rough_as_ollamas() -> None:
    assert rules.rough_cache(model_of(LLAMA)[0].spec, 8192) == 8192 * 32 * 8 * 128 * 2 * 2


@pytest.mark.parametrize(
    ("total", "on_gpus", "shown"), [(10, 10, "100% GPU"), (10, 0, "100% CPU"), (1000, 620, "38%/62% CPU/GPU")]
)
def test_shares_are_written_as_ollama_ps_does(total: int, on_gpus: int, shown: str) -> None:
    assert rules.processor(total, on_gpus) == shown


@pytest.mark.parametrize(
    ("size_", "shown"), [(5_400_000_000, "5.4 GB"), (23_100_000_000, "23 GB"), (9_000_000_000, "9 GB"), (7, "7 B")]
)
def test_sizes_are_decimal(size_: int, shown: str) -> None:
    assert rules.human(size_) == shown


def test_defaults_come_from_the_gpu() -> None:
    found = plan(LLAMA, "RTX 4090", engine_name="ollama")
    assert found.options["num_ctx"].value == 32768
    assert found.options["num_batch"].value == 1024
    assert found.kv_cache is not None
    assert found.kv_cache.tokens == 32768
    assert any(note.startswith("ollama ps would show: ") and "100% GPU" in note for note in found.warnings)
    assert any("own estimate" in note for note in found.warnings)


def test_parallel_requests_each_have_the_whole_context() -> None:
    found = plan(LLAMA, "RTX 4090", engine_name="ollama", num_ctx=8192, num_parallel=4)
    assert found.kv_cache is not None
    assert found.kv_cache.tokens == 4 * 8192


def test_some_architectures_get_one_request() -> None:
    spec = model_of(LLAMA)[0].spec._replace(model_type="qwen35moe")
    assert rules.slots(spec, 4) == 1
    assert rules.slots(model_of(LLAMA)[0].spec, 4) == 4


def test_one_gpu_is_enough_or_all_are_used() -> None:
    small = plan(LLAMA, "2xRTX 4090", engine_name="ollama", num_ctx=8192)
    assert sum(bool(size(device, "weights")) for device in small.devices if device.device.kind == "gpu") == 1
    spread = plan(LLAMA, "2xRTX 4090", engine_name="ollama", num_ctx=8192, sched_spread=True)
    assert sum(bool(size(device, "weights")) for device in spread.devices if device.device.kind == "gpu") == 2
    large = plan(QWEN, "2xRTX 4090", engine_name="ollama", num_ctx=16384)
    assert sum(bool(size(device, "weights")) for device in large.devices if device.device.kind == "gpu") == 2


def test_what_does_not_fit_is_shared_with_the_host() -> None:
    found = plan(GEMMA, "RTX 3060 12GB", engine_name="ollama")
    assert found.fits
    assert any("CPU/GPU" in note for note in found.warnings)


def test_the_cache_type_needs_flash_attention() -> None:
    kept = plan(OSS, "RTX 4090", engine_name="ollama", kv_cache_type="q8_0", flash_attention=False)
    assert any("keeps the cache in f16" in note for note in kept.warnings)
    halved = plan(LLAMA, "RTX 4090", engine_name="ollama", kv_cache_type="q8_0")
    full = plan(LLAMA, "RTX 4090", engine_name="ollama")
    assert halved.kv_cache is not None
    assert full.kv_cache is not None
    assert halved.kv_cache.available.value / full.kv_cache.available.value == pytest.approx(8.5 / 16)


def test_variables_make_the_command() -> None:
    options: dict[str, OptionValue] = {"num_ctx": 8192, "kv_cache_type": "q8_0", "num_gpu": 20}
    request = PlanRequest(model_of(LLAMA)[0], gpus.machine("RTX 4090"), "ollama", None, options)
    expected = "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve"
    assert format_command(engine("ollama"), request) == expected
    assert engine("ollama").plan(request).options["num_gpu"].value == 20


def test_a_context_beyond_the_models_own_is_shortened() -> None:
    found = plan(LLAMA, "H100", engine_name="ollama", num_ctx=1_000_000)
    assert found.kv_cache is not None
    assert found.kv_cache.tokens == 131072


def test_it_says_when_another_model_is_loaded_beside_it_and_when_one_is_unloaded() -> None:
    """server/sched.go of Ollama 0.30: 80 % of what is free then, three models for each GPU, the idle one first."""
    made = plan(LLAMA, "RTX 4090", engine_name="ollama", num_ctx=8192)
    (said,) = [note for note in made.warnings if note.startswith("Another model")]
    buffers = sum(size(made.devices[0], kind) for kind in ("weights", "kv_cache", "compute"))
    assert format_bytes(rules.room_for_another([free_at_load(made.devices[0].device) - buffers])) in said
    assert "the idle model with the shortest keep-alive is unloaded first" in said
    assert "No more than 3 are loaded" in said
    one = plan(LLAMA, "2xRTX 4090", engine_name="ollama", max_loaded_models=1)
    assert any("One model is loaded at a time" in note for note in one.warnings)
    assert any("No more than 6" in note for note in plan(LLAMA, "2xRTX 4090", engine_name="ollama").warnings)
