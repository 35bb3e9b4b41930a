"""Plans of llama.cpp: verdicts in its own words, fitting, the host as a device, defaults by build."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.cli.inspect import open_model
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine
from kvplanner.report.sentences import summary
from kvplanner.units import GIB, MIB
from tests.engine.llamacpp.kit import GEMMA, LLAMA, OSS, QWEN, plan, size
from tests.oracle.llamacpp.cases import model_of
from tests.patience import slowness


def test_buffers_are_those_that_llama_cpp_prints() -> None:
    """8B Q4_K_M at 8k: 4403.49 MiB of weights, 1024 of cache, 116.01 of compute, 281.81 on the host."""
    found = plan(LLAMA, ctx_size=8192)
    gpu, host = found.devices
    assert round(size(gpu, "weights") / MIB, 2) == 4403.49
    assert size(gpu, "kv_cache") == GIB
    assert round(size(gpu, "compute") / MIB, 2) == 116.01
    assert host.device.kind == "host"
    assert round(size(host, "weights") / MIB, 2) == 281.81
    assert found.fits


def test_builds_before_june_2026_reserve_logits_for_a_whole_micro_batch() -> None:
    """258.5 MiB instead of 116: 4 × 512 × (128,256 + 4,096)."""
    assert round(size(plan(LLAMA, version="b9000", ctx_size=8192).devices[0], "compute") / MIB, 1) == 258.5


def test_a_context_that_was_not_given_is_shortened_until_it_fits() -> None:
    found = plan(QWEN, "RTX 4090")
    assert found.fits
    context = found.options["ctx_size"]
    assert context.origin == "derived"
    assert 0 < int(context.value or 0) < 40960
    assert int(context.value or 0) % 256 == 0
    assert any("--fit shortens the context" in note for note in found.warnings)


def test_a_context_that_was_given_stays_and_layers_move_to_the_host() -> None:
    found = plan(QWEN, "RTX 4090", ctx_size=40960)
    gpu, host = found.devices
    assert found.fits
    assert found.options["n_gpu_layers"].origin == "derived"
    assert size(host, "kv_cache") > 0
    assert sum(s.bytes for s in gpu.segments if s.kind != "headroom") + GIB // 2 < gpu.total_bytes
    assert any("are read from RAM for each token" in note for note in found.warnings)


def test_layers_that_were_given_make_fitting_give_up_in_its_own_words() -> None:
    found = plan(QWEN, "RTX 4090", ctx_size=65536, n_gpu_layers="99")
    assert any("n_gpu_layers already set by user to 99, abort" in note for note in found.warnings)
    assert found.stage == "kv_cache_allocation"
    failing = found.verdict.failing
    assert failing is not None
    assert "failed to allocate buffer for kv cache" in failing.message
    assert f"allocating {65536 * 64 * 2 * 8 * 128 * 2 / MIB:.2f} MiB on device 0" in failing.message


def test_weights_that_do_not_fit_fail_first() -> None:
    found = plan("deepseek-v3-q4km", "2xRTX 4090", fit="off", n_gpu_layers="all")
    assert (found.stage, found.fits) == ("weights", False)
    assert found.verdict.failing is not None
    assert "unable to allocate CUDA0 buffer" in found.verdict.failing.message


def test_no_experts_come_to_gpus_where_the_last_one_has_no_layer() -> None:
    """common/fit.cpp looks for the layers that it makes full from the last GPU on: where that has none, none is
    (id_dense_start stays beyond the last), however much room the first one has.
    """
    request = PlanRequest(
        models.load("Qwen/Qwen3-30B-A3B"), gpus.machine("2xRTX 4090"), "llamacpp", weight_format="GGUF Q8_0"
    )

    def weights(free: tuple[int, int]) -> tuple[int, int]:
        devices = (d._replace(free_bytes=f << 20) for d, f in zip(request.machine.devices, free, strict=True))
        found = engine("llamacpp").plan(request._replace(machine=Machine(tuple(devices))))
        return size(found.devices[0], "weights"), size(found.devices[1], "weights")

    first, last = weights((8192, 1024))
    assert last == 0
    assert first < 1300 << 20  # attention and norms alone
    full, _ = weights((8192, 4096))
    assert full > 3 * first


def test_experts_overflow_to_the_host_where_a_mixture_does_not_fit() -> None:
    found = plan("qwen3next-80b-a3b-q4km", "RTX 4090", ctx_size=8192)
    gpu, host = found.devices
    assert found.fits
    assert gpu.role.startswith("layers 0-47")
    assert size(host, "weights") > 20 * GIB
    assert size(gpu, "weights") > 15 * GIB


def test_the_windows_grow_with_the_micro_batch() -> None:
    """Four slots of a 1,024 window and a micro-batch of 2,048 keep 6,144 cells where 512 keep 4,608."""
    common: dict[str, Any] = {"ctx_size": 32768, "fit": "off"}
    large, small = (plan(GEMMA, "H100", ubatch_size=ubatch, **common) for ubatch in (2048, 512))
    windows = 52 * 2 * 16 * 128 * 2
    assert size(large.devices[0], "kv_cache") - size(small.devices[0], "kv_cache") == windows * (6144 - 4608)


def test_slots_that_were_given_divide_the_context() -> None:
    shared, divided = plan(LLAMA, ctx_size=32768), plan(LLAMA, ctx_size=32768, parallel=4)
    assert shared.kv_cache is not None
    assert divided.kv_cache is not None
    assert (shared.kv_cache.context_length, divided.kv_cache.context_length) == (32768, 8192)
    assert shared.kv_cache.unit == "cells"


@pytest.mark.parametrize(
    ("version", "context", "slots", "per_slot"),
    [("b11400", 1025, 4, 512), ("b6400", 1025, 4, 256), ("b11400", 1, 4, 256), ("b6400", 1, 4, 256),
     ("b11400", 10_000, 3, 3584)],
)  # fmt: skip
def test_a_context_is_padded_before_it_is_divided(version: str, context: int, slots: int, per_slot: int) -> None:
    """llama-context.cpp since PR 17046: to 256 as a whole, then each slot's share of it; no slot is without cells."""
    found = plan(LLAMA, version=version, ctx_size=context, parallel=slots, kv_unified=False)
    assert found.kv_cache is not None
    assert found.kv_cache.context_length == per_slot


def test_how_many_users_the_slots_serve() -> None:
    load = Load(10, 3000, 1000)
    found = plan(LLAMA, ctx_size=24576, parallel=8, kv_unified=True, load=load)
    assert (found.limits.serves_users, found.limits.limited_by) == (6, "kv_cache")
    found = plan(LLAMA, ctx_size=65536, parallel=8, kv_unified=True, load=load)
    assert (found.limits.serves_users, found.limits.limited_by) == (8, "max_requests")
    assert plan(LLAMA, ctx_size=8192, parallel=4, load=load).limits.limited_by == "context"


@pytest.mark.parametrize(
    ("model", "gpu", "options"),
    [(LLAMA, "RTX 3060 12GB", {}), (LLAMA, "RTX 4060 Ti 16GB", {"parallel": 4}), (GEMMA, "RTX 4090", {}),
     (QWEN, "2xRTX 4090", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}), (OSS, "RTX 4060 Ti 16GB", {}),
     (QWEN, "RTX 3090,RTX 4060 Ti 16GB", {"ubatch_size": 2048}), (LLAMA, "RTX 3060 12GB", {"flash_attn": "off"})],
)  # fmt: skip
def test_the_longest_context_works_and_the_next_does_not(model: str, gpu: str, options: dict[str, Any]) -> None:
    slots = int(options.get("parallel", 1))
    found = plan(model, gpu, ctx_size=4096 * slots, fit="off", **options)
    value, sure = found.limits.max_context_length, found.limits.sure_max_context_length
    assert value is not None
    assert sure is not None
    assert sure <= value
    trained = found.request.model.spec.context_length or 0
    for length, surely in ((value, False), (sure, True)):
        there = plan(model, gpu, ctx_size=length, fit="off", **options)
        assert there.sure if surely else there.fits
        if length < trained * slots:
            beyond = plan(model, gpu, ctx_size=length + 256 * slots, fit="off", **options)
            assert not (beyond.sure if surely else beyond.fits)
        # Whatever context is set, the longest is the same.
        assert abs((there.limits.max_context_length or 0) - value) <= 256 * slots


def test_users_are_surely_served_where_the_plan_surely_works() -> None:
    found = plan(LLAMA, ctx_size=32768, load=Load(4, 1500, 500))
    assert found.sure
    assert (found.limits.serves_users, found.limits.sure_serves_users) == (4, 4)
    tight = plan(QWEN, "RTX 4090", ctx_size=65536, n_gpu_layers="99", load=Load(4, 1500, 500))
    assert (tight.fits, tight.limits.serves_users, tight.limits.sure_serves_users) == (False, 0, 0)


def test_quantised_caches_and_an_unequal_pair() -> None:
    found = plan(QWEN, "RTX 3090,RTX 4060 Ti 16GB", ctx_size=40960, cache_type_k="q8_0", cache_type_v="q4_0")
    first, second, _ = found.devices
    assert found.fits
    assert size(first, "weights") > size(second, "weights")
    both = size(first, "kv_cache") + size(second, "kv_cache")
    assert both == 40960 * 64 * (8 * 128 // 32) * (34 + 18)


def test_a_pipeline_that_does_not_fit_is_tried_again_without() -> None:
    options: dict[str, Any] = {"ctx_size": 40960, "fit": "off", "ubatch_size": 2048, "tensor_split": "1,1"}
    free = [device for device in plan(QWEN, "2xRTX 4090", **options).devices if device.device.kind == "gpu"]
    assert len(free) == 2
    found = plan(QWEN, "2xRTX 4090", **options)
    without = plan(QWEN, "2xRTX 4090", **options, n_cpu_moe=1)
    assert size(found.devices[0], "compute") > size(without.devices[0], "compute")


def test_values_that_it_refuses() -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"cache_type_v": "q8_0", "flash_attn": "off"}, "quantized V cache requires flash_attn"),
        ({"split_mode": "row"}, "does not support split buffers"),
        ({"n_gpu_layers": "some"}, "is no number of layers"),
        ({"tensor_split": "1;2"}, "is no list of shares"),
        ({"override_tensor": "x=CUDA9"}, "is no buffer here"),
        ({"device": "CUDA3"}, "there is no device"),
    )
    for options, words in refused:
        with pytest.raises(BadInput, match=words):
            plan(LLAMA, **options)
    assert plan(LLAMA, version="b9000", split_mode="row").fits


def test_a_catalogue_model_is_planned_through_a_mix_with_a_band() -> None:
    """gpt-oss-120b on one 24 GB card: most experts in RAM, about 39 GiB of it."""
    found = plan(open_model("openai/gpt-oss-120b"), "RTX 4090", ctx_size=32768)
    gpu, host = found.devices
    assert found.fits
    assert 36 * GIB < size(host, "weights") < 42 * GIB
    weights = gpu.segment("weights")
    assert weights is not None
    assert weights.estimate.low < weights.bytes < weights.estimate.high
    assert any("No GGUF file is named" in note for note in found.warnings)


@pytest.mark.parametrize("weight_format", [None, "MXFP4", "GGUF Q4_K_M"])
def test_sparse_attention_is_planned_in_any_mix(weight_format: str | None) -> None:
    """Where some layers keep latent attention on full heads, the others' side cache was not laid out."""
    request = PlanRequest(models.load("nvidia/GLM-5.2-NVFP4"), gpus.machine("2xRTX 4080"), "llamacpp")
    assert engine("llamacpp").plan(request._replace(weight_format=weight_format)).devices


def test_what_a_70b_needs_of_two_24_gb_cards() -> None:
    found = plan(open_model("meta-llama/Llama-3.3-70B-Instruct"), "2xRTX 4090")
    assert found.fits
    assert found.options["n_gpu_layers"].value == "81"
    assert 8192 <= int(found.options["ctx_size"].value or 0) <= 16384


def test_ram_that_is_given_is_held_against_what_stays_there() -> None:
    held: dict[str, Any] = {"n_gpu_layers": "0", "host_memory": 4 * GIB}
    assert any("wanted there" in note for note in plan(QWEN, "RTX 4090", **held).warnings)
    copied = plan(QWEN, "RTX 4090", mmap=False, **held)
    assert copied.fits is False
    assert copied.verdict.failing is not None
    assert copied.verdict.failing.device == 1


def test_a_command_line_of_its_own() -> None:
    from kvplanner.engine.command import format_command

    found = plan(LLAMA, ctx_size=8192, kv_offload=False, cache_type_k="q8_0")
    words = format_command(engine("llamacpp"), found.request)
    assert words.startswith("llama-server -m ")
    assert "--ctx-size 8192" in words
    assert "--no-kv-offload" in words


def test_a_plan_takes_little_time() -> None:
    """80 layers on four devices: 1.3 ms where it was written; ten times as much here."""
    from kvplanner.catalog import gpus
    from kvplanner.engine.request import PlanRequest

    model = open_model("meta-llama/Llama-3.3-70B-Instruct")
    machine = gpus.machine("4xRTX 4090")
    times: list[float] = []
    for context in range(8192, 16384, 512):
        request = PlanRequest(model, machine, "llamacpp", None, {"ctx_size": context})
        start = time.thread_time()
        engine("llamacpp").plan(request)
        times.append(time.thread_time() - start)
    assert min(times) < 0.013 * slowness()


def test_compute_bands_hold_what_the_oracle_has() -> None:
    from kvplanner.engine.llamacpp import figures
    from kvplanner.engine.llamacpp.sizes import size_up
    from tests.oracle.llamacpp.cases import settings_of, wide, wide_model

    oracle = wide()
    inside = total = 0
    for case in oracle["cases"][::4]:
        model, tensors = wide_model(case["model"])
        if model.spec.model_type not in figures.CHECKED:
            continue
        flags = {**oracle["flag_defaults"], **case["flags"]}
        free = [int(gpu.split("|")[1]) * MIB for gpu in oracle["gpu_sets"][case["gpus"]].split(";")]
        sizes = size_up(model, tensors, settings_of(flags, model.spec.context_length or 0), free)
        for index in range(len(free)):
            band = figures.compute(model, sizes, index)
            true = case["bytes"].get(f"CUDA{index}", (0, 0, 0))[2]
            total += 1
            inside += band.low <= true <= band.high
            assert band.high - band.low <= 0.16 * band.value
    assert inside >= 0.99 * total


def test_apertus_hands_its_activation_to_the_host_where_gpus_lack_it() -> None:
    """Issue 16725 of llama.cpp: b6816 on two 24 GB cards asks for 14,136 MiB; newer builds need a fortieth of it."""
    model = models.load("swiss-ai/Apertus-70B-Instruct-2509")
    asked: dict[str, Any] = {"ctx_size": 20480, "flash_attn": "on", "tensor_split": "1,1", "n_gpu_layers": "99"}
    old, new = (plan(model, "2xRX 7900 XTX", version=version, **asked) for version in ("b6816", None))
    assert round(size(old.devices[0], "compute") / MIB, 2) == 14136.04
    assert size(new.devices[0], "compute") < 400 * MIB


def test_a_control_vector_keeps_a_row_for_each_layer_but_the_first() -> None:
    """llama_adapter_cvec::init of llama.cpp: f32 rows of the hidden size, where the layers are."""
    both: tuple[dict[str, Any], ...] = ({}, {"control_vector": "happy.gguf"})
    plain, steered = (plan(LLAMA, ctx_size=8192, **more) for more in both)
    assert size(steered.devices[0], "weights") - size(plain.devices[0], "weights") == 31 * 4 * 4096
    halves = (plan(LLAMA, n_gpu_layers="16", **more) for more in both)
    sizes = [[size(device, "weights") for device in found.devices] for found in halves]
    more = [after - before for before, after in zip(*sizes, strict=True)]
    assert more == [15 * 4 * 4096, 16 * 4 * 4096]


@pytest.mark.parametrize(
    ("model", "mib"), [(LLAMA, 3204.0), (QWEN, 14400.0), (GEMMA, 11694.375), (OSS, 9682.03125)]
)  # fmt: skip
def test_a_server_without_a_gpu_copies_what_it_repacks(model: str, mib: float) -> None:
    """CPU_REPACK of llama.cpp itself (tests/oracle/llamacpp), beside the mapped file; without mapping in its place."""
    from kvplanner.gpu.spec import Machine

    def host(**options: Any) -> int:
        request = PlanRequest(
            model_of(model)[0], Machine((), "no GPU"), "llamacpp", None, {"ctx_size": 8192, **options}
        )
        return size(engine("llamacpp").plan(request).devices[0], "weights")

    assert host() - host(repack=False) == mib * MIB
    assert host(mmap=False) == host(repack=False)


def test_windows_spills_to_ram_runs_slowly_and_fails_where_that_is_turned_off() -> None:
    """The excess is the host's, the GPU is full; RAM lends at most half of itself."""
    asked: dict[str, Any] = {"n_gpu_layers": "33", "ctx_size": 131072, "parallel": 1}
    linux = plan(LLAMA, "RTX 4060 Ti 16GB", **asked)
    short = linux.devices[0]
    assert linux.fits is False
    spilling = plan(LLAMA, "RTX 4060 Ti 16GB", wddm=True, **asked)
    gpu, host = spilling.devices
    assert spilling.fits is True
    assert not spilling.sure
    moved = spilling.verdict.spilled
    assert moved is not None
    assert moved.code == "spills_to_ram"
    assert summary(spilling).startswith("Runs slowly, with ")
    assert gpu.overflow_bytes == 0
    assert sum(segment.bytes for segment in gpu.segments) == gpu.total_bytes
    own = sum(segment.bytes for segment in linux.devices[-1].segments)
    assert sum(segment.bytes for segment in host.segments) - own == moved.figures["moved"]
    # As much more than without Windows as its driver keeps of the card.
    kept = gpu.segment("other")
    assert kept is not None
    late = sum(segment.bytes for segment in short.segments) - short.total_bytes
    assert int(moved.figures["moved"]) - kept.bytes == pytest.approx(late, abs=4)
    assert any("25 GiB/s" in note for note in spilling.warnings)
    sure = spilling.limits.sure_max_context_length
    assert sure is not None
    assert sure < 131072 == spilling.limits.max_context_length
    # As the driver's own setting has it, or where the RAM is not there.
    for more in ({"sysmem_fallback": False}, {"host_memory": 8 << 30}):
        failing = plan(LLAMA, "RTX 4060 Ti 16GB", wddm=True, **asked, **more)
        assert failing.fits is False
        assert failing.verdict.spilled is None
        assert failing.stage == "kv_cache_allocation"
    assert any("lends at most 4.00 GiB" in note for note in failing.warnings)
    # What fits needs no RAM, and Linux has none to lend.
    assert plan(LLAMA, "RTX 4060 Ti 16GB", wddm=True, n_gpu_layers="33", ctx_size=4096).verdict.spilled is None
    assert plan(LLAMA, "RTX 4060 Ti 16GB", sysmem_fallback=True, **asked).fits is False


def test_no_more_spills_than_is_asked_for() -> None:
    """Other programs hold the whole card: what the driver has for this one beside them is not this one's to move."""
    (card,) = gpus.machine("8GB").devices
    full = Machine((card._replace(free_bytes=0),), "8GB")
    options: dict[str, OptionValue] = {"n_gpu_layers": "33", "ctx_size": 8192}
    linux, windows = (
        engine("llamacpp").plan(PlanRequest(model_of(LLAMA)[0], full, "llamacpp", None, {**options, "wddm": wddm}))
        for wddm in (False, True)
    )
    moved = windows.verdict.spilled
    assert moved is not None
    asked = [size(linux.devices[0], kind) for kind in ("weights", "kv_cache", "compute", "workspace", "runtime")]
    assert moved.figures["moved"] == sum(asked)
    assert (
        sum(size(windows.devices[0], kind) for kind in ("weights", "kv_cache", "compute", "workspace", "runtime")) == 0
    )
    # With nothing of the model there, for want of room, either: what the runtime takes is made by the other programs.
    asks = PlanRequest(model_of(LLAMA)[0], full, "llamacpp", None, {"wddm": True, "ctx_size": 8192})
    for device in (windows.devices[0], engine("llamacpp").plan(asks).devices[0]):
        assert sum(segment.bytes for segment in device.segments) == device.total_bytes


def test_ollama_counts_what_spills_as_on_the_gpu() -> None:
    found = plan(LLAMA, "8GB", wddm=True, engine_name="ollama", num_gpu=33, num_ctx=32768)
    assert found.verdict.spilled is not None
    assert any("100% GPU" in note for note in found.warnings)


def test_oss_keeps_windows_of_its_own() -> None:
    """gpt-oss: 12 of 24 layers keep 128 × 4 + 512 = 1,024 cells."""
    found = plan(OSS, ctx_size=32768)
    assert size(found.devices[0], "kv_cache") == 12 * (32768 + 1024) * 2 * 8 * 64 * 2


def test_windows_keeps_a_part_of_each_card_and_moves_instead_of_failing() -> None:
    linux, windows = plan(LLAMA, "RTX 4090", ctx_size=8192), plan(LLAMA, "RTX 4090", ctx_size=8192, wddm=True)
    card = windows.devices[0]
    kept = card.segment("other")
    assert kept is not None
    reserved = card.total_bytes - card.cuda_total_bytes
    assert kept.bytes + reserved == round(card.total_bytes / 10)
    assert kept.estimate.high + reserved == round(0.19 * card.total_bytes)
    assert size(linux.devices[0], "headroom") - size(card, "headroom") == kept.bytes
    assert any("8 times slower" in note for note in windows.warnings)
    assert not any("Windows" in note for note in linux.warnings)
    measured = plan(LLAMA, "RTX 4090", wddm=True, engine_name="ollama", num_ctx=4096)
    assert measured.devices[0].segment("other") is not None


@pytest.mark.parametrize(
    ("tensors", "compute"),
    [
        (r"blk\.0\.attn_output.*", (109_062_144, 117_450_880)),
        (r"blk\.0\..*", (121_643_008, 125_831_168)),
        (r"blk\.1\..*", (117_450_752, 125_831_168)),
    ],
)
def test_overrides_of_the_first_layer_draw_operations_to_another_gpu_as_those_of_others(
    tensors: str, compute: tuple[int, int]
) -> None:
    """As unmodified llama.cpp 0.5.0-dev (October 2026) reserves for Qwen3-8B on two GPUs."""
    options: dict[str, OptionValue] = {
        "n_gpu_layers": "99", "ctx_size": 16384, "fit": "off", "override_tensor": f"{tensors}=CUDA1",
    }  # fmt: skip
    request = PlanRequest(models.load("Qwen/Qwen3-8B"), gpus.machine("2xH100"), "llamacpp", None, options, None)
    found = engine("llamacpp").plan(request)
    assert tuple(size(device, "compute") for device in found.gpus) == compute
