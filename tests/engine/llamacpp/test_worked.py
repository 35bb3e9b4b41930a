"""The questions that people with workstation cards ask, each with its answer, its explanation and its ways out."""

from __future__ import annotations

from typing import Any

from kvplanner.catalog import models
from kvplanner.cli.inspect import open_model
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.report import text as report
from kvplanner.report.remedies import flags_of
from kvplanner.report.sentences import summary
from kvplanner.solve.remedies import remedies
from kvplanner.units import GIB, MIB
from tests.engine.llamacpp.kit import plan, size

LLAMA_70B, OSS_120B = "meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b"
GEMMA_27B, QWEN_32B = "google/gemma-3-27b-it", "Qwen/Qwen3-32B"


def of(model: str, gpu: str, **options: Any) -> Plan:
    return plan(open_model(model), gpu, **options)


def gpus(found: Plan) -> list[DevicePlan]:
    return [device for device in found.devices if device.device.kind == "gpu"]


def host(found: Plan) -> DevicePlan:
    return next(device for device in found.devices if device.device.kind == "host")


def ways_out(found: Plan) -> list[str]:
    """Flags of every remedy, each of which works when planned anew."""
    made = remedies(found.request, found)
    assert made
    assert all(remedy.plan.fits for remedy in made)
    return [flags_of(remedy) for remedy in made]


def test_a_70b_on_two_24_gb_cards_fits_whole_at_a_shorter_context() -> None:
    """40 GiB of Q4_K_M on 2 × 24 GB: all 81 layers, and what is left of 48 GB for 320 KiB of cache a token."""
    found = of(LLAMA_70B, "2xRTX 4090")
    assert found.fits
    assert found.options["n_gpu_layers"].value == "81"
    context = int(found.options["ctx_size"].value or 0)
    assert sum(size(device, "kv_cache") for device in gpus(found)) == context * 80 * 2 * 8 * 128 * 2
    assert context < (found.limits.sure_max_context_length or 0) <= (found.limits.max_context_length or 0) < 24_576
    assert any("--fit shortens the context" in note for note in found.warnings)
    cells = gpus(found)[0].segment("kv_cache")
    assert cells is not None
    assert cells.estimate.formula == "{cells} × {bytes per cell}"


def test_a_70b_with_32k_leaves_layers_on_the_host() -> None:
    found = of(LLAMA_70B, "2xRTX 4090", ctx_size=32768)
    assert found.fits
    layers = int(str(found.options["n_gpu_layers"].value))
    assert 65 <= layers <= 77
    assert host(found).role == f"{81 - layers} layers and the embedding"
    assert any("are read from RAM for each token" in note for note in found.warnings)


def test_a_70b_that_is_forced_onto_the_cards_fails_in_the_cache_and_says_what_to_change() -> None:
    found = of(LLAMA_70B, "2xRTX 4090", ctx_size=32768, n_gpu_layers="99")
    assert (found.fits, found.stage) == (False, "kv_cache_allocation")
    assert summary(found).startswith("Does not fit: the KV cache needs 5.12 GiB on GPU 0")
    words = " ".join(ways_out(found))
    assert all(flag in words for flag in ("--ctx-size", "--cache-type-k", "--n-gpu-layers"))


def test_gpt_oss_120b_on_one_24_gb_card_keeps_its_experts_on_the_host() -> None:
    """35 of 36 layers' experts are 1.6 GiB each in MXFP4: what the card does not hold, RAM does."""
    all_moe, fitted = (of(OSS_120B, "RTX 4090", ctx_size=32768, **more) for more in ({"cpu_moe": True}, {}))
    assert all_moe.fits
    assert fitted.fits
    assert 55 * GIB < size(host(all_moe), "weights") < 60 * GIB
    assert size(gpus(all_moe)[0], "weights") < 3 * GIB
    assert size(host(fitted), "weights") < size(host(all_moe), "weights") - 15 * GIB
    assert any("the experts stay on the host" in note for note in fitted.warnings)
    short = of(OSS_120B, "RTX 4090", ctx_size=32768, cpu_moe=True, host_memory=32 * GIB, mmap=False)
    assert short.fits is False
    forced = of(OSS_120B, "RTX 4090", ctx_size=32768, n_gpu_layers="99")
    assert forced.stage == "weights"
    assert any("--n-cpu-moe" in flags for flags in ways_out(forced))
    assert "layers" in report.text(fitted)


def test_gemma_27b_with_large_micro_batches_and_four_slots() -> None:
    """Each slot keeps a window of its own: 1,024 and the micro-batch of 2,048 in whole steps of 256, four times."""
    found = of(GEMMA_27B, "RTX 4090", ctx_size=32768, ubatch_size=2048, parallel=4, n_gpu_layers="99")
    assert (found.fits, found.stage) == (False, "compute")
    full, windows = 10, 52
    cells = full * 4 * 8192 + windows * 4 * 3072
    assert size(gpus(found)[0], "kv_cache") == cells * 2 * 16 * 128 * 2
    words = " ".join(ways_out(found))
    assert "--ubatch-size" in words
    # The context of all slots together: as long as surely fits, not that of one slot.
    length = next(flags.split("--ctx-size ")[1].split()[0] for flags in ways_out(found) if "--ctx-size" in flags)
    assert int(length) == found.limits.sure_max_context_length
    assert int(length) > 16384
    moved = of(GEMMA_27B, "RTX 4090", ctx_size=32768, ubatch_size=2048, parallel=4)
    assert moved.fits
    assert int(str(moved.options["n_gpu_layers"].value)) < 63


def test_keys_in_8_bits_and_values_in_4_take_a_quarter_and_an_eighth() -> None:
    plain, small = (
        of(QWEN_32B, "RTX 4090", ctx_size=32768, n_gpu_layers="99", **more)
        for more in ({}, {"cache_type_k": "q8_0", "cache_type_v": "q4_0"})
    )
    assert (plain.fits, small.fits) == (False, True)
    half = size(gpus(plain)[0], "kv_cache") // 2
    assert size(gpus(small)[0], "kv_cache") == half * 34 // 64 + half * 18 // 64
    # One layer's cache is unpacked to 16 bits while it is read.
    assert size(gpus(small)[0], "compute") > size(gpus(plain)[0], "compute")
    assert any("--cache-type-k" in flags for flags in ways_out(plain))


def test_a_16_and_a_24_gb_card_share_by_what_is_free() -> None:
    found = of(QWEN_32B, "RTX 4060 Ti 16GB,RTX 3090", ctx_size=40960)
    small, large = gpus(found)
    assert found.fits
    assert 0.55 < size(small, "weights") / size(large, "weights") < 0.75
    assert size(small, "kv_cache") + size(large, "kv_cache") == 40960 * 64 * 2 * 8 * 128 * 2
    equal = of(QWEN_32B, "RTX 4060 Ti 16GB,RTX 3090", ctx_size=40960, tensor_split="1,1")
    assert gpus(equal)[0].role == "layers 0-32"
    longer = of(QWEN_32B, "RTX 4060 Ti 16GB,RTX 3090", ctx_size=40960, tensor_split="3,1", n_gpu_layers="99")
    assert longer.fits is False
    assert longer.verdict.failing is not None
    assert longer.verdict.failing.device == 0
    assert ways_out(longer)


def test_experts_on_the_host_cost_a_gpu_gibibytes_from_32_tokens_of_a_micro_batch_on() -> None:
    """Issue 24175 of llama.cpp, Nemotron 3 Ultra on an RTX 5090, build 9525: 42 MiB of compute
    buffer with -b 16, 7 to 7.5 GiB with -b 1024, whose micro-batch stays at 512; 189.00 MiB of cells and 1,576.50
    MiB of states."""
    model = models.load("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")

    def planned(tokens: int) -> DevicePlan:
        return plan(
            model, "RTX 5090", version="b9525", ctx_size=16128, parallel=4, kv_unified=True, cpu_moe=True, fit="off",
            batch_size=tokens,
        ).devices[0]  # fmt: skip

    few, many = planned(16), planned(1024)
    assert size(few, "kv_cache") / MIB == 189.00 + 1576.50
    assert 38 < size(few, "compute") / MIB < 44
    assert 7 < size(many, "compute") / GIB < 7.5
