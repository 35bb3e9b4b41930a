"""llama.cpp's logs, real formats of its builds, are read by device, and become plans that agree with them."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.diagnose.implied import Implied, gpus_named, implied
from kvplanner.errors import BadInput
from kvplanner.report import diagnosis as report
from kvplanner.units import MIB

LOGS = Path(__file__).parent / "logs" / "llamacpp"
ALL = sorted(path.name for path in LOGS.glob("*.log"))
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def read(text: str) -> Diagnosis:
    return diagnose(BytesIO(text.encode()).read)


def of(name: str) -> Diagnosis:
    return read((LOGS / name).read_text(encoding="utf-8"))


def beside(found: Diagnosis) -> Implied:
    return implied(found, models.load(LLAMA), gpus.machine(gpus_named(found)))


def mib(found: Diagnosis, name: str, device: str) -> float:
    size = found.of_device(name, device)
    assert size is not None, name
    return size / MIB


@pytest.mark.parametrize(
    ("name", "device", "weights", "cache", "compute"),
    [
        ("ok-1gpu-lv4.log", "CUDA0", 4403.49, 1024, 116.01),
        ("ok-1gpu-jsonl.log", "CUDA0", 4403.49, 1024, 116.01),
        ("ok-2gpu-pipeline.log", "CUDA0", 2846.41, 736, 172.04),
        ("ok-2gpu-pipeline.log", "CUDA1", 1557.09, 288, 172.04),
        ("ok-fit-reduces-context.log", "CUDA0", 4403.49, 6016, 155.01),
        ("ok-hybrid-recurrent.log", "CUDA0", 7257.61, 1054, 141.19),
        ("ok-partial-offload.log", "CUDA0", 1806.62, 352, 135.50),
    ],
)  # fmt: skip
def test_a_start_gives_each_device_its_sizes(
    name: str, device: str, weights: float, cache: float, compute: float
) -> None:
    found = of(name)
    assert (found.engine, found.stage, found.reading.started) == ("llamacpp", None, True)
    sizes = [mib(found, figure, device) for figure in ("weights", "kv_cache", "compute")]
    assert sizes == pytest.approx([weights, cache, compute], abs=1e-3)
    assert not found.problems


@pytest.mark.parametrize(
    ("name", "stage", "cause"),
    [
        ("oom-weights.log", "weights", "out_of_memory"),
        ("oom-kv.log", "kv_cache_allocation", "out_of_memory"),
        ("oom-compute.log", "compute", "out_of_memory"),
        ("err-quantised-v-without-fa.log", None, "refused"),
        ("err-split-mode-row.log", None, "refused"),
    ],
)
def test_a_failure_has_its_stage(name: str, stage: str | None, cause: str) -> None:
    found = of(name)
    assert found.reading.ended is not None
    assert (found.stage, found.reading.ended.cause, found.reading.started) == (stage, cause, False)
    assert report.text(found).startswith("llama.cpp fails ")
    document = json.loads(json.dumps(report.to_json(found)))
    assert (document["stage"], document["cause"]["code"]) == (stage, cause)


def test_facts_of_the_command_and_of_the_machine() -> None:
    found = of("oom-compute.log")
    assert found.options["ubatch_size"] == 2048
    assert found.options["fit"] == "off"
    assert found.reading.ended is not None
    assert found.reading.ended.figures["tried"] == round(464.04 * MIB)
    two = of("ok-2gpu-pipeline.log")
    assert (two.gpus, two.devices, two.tokens) == (2, ("CUDA0", "CUDA1"), 8192)
    assert [d.gpu.name for d in gpus.machine(gpus_named(two)).devices] == [
        "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060"]  # fmt: skip
    assert of("ok-fit-reduces-context.log").tokens == 48_128


@pytest.mark.parametrize("name", [n for n in ALL if n.startswith("ok-") and "default" not in n and "hybrid" not in n])
def test_the_plan_of_a_log_has_its_sizes(name: str) -> None:
    found = of(name)
    made = beside(found)
    assert made.plan.fits
    for place, device in enumerate(found.devices):
        planned = next(d for d in made.measured.devices if d.device.kind == "gpu" and d.device.index == place)
        for kind in ("weights", "kv_cache"):
            segment = planned.segment(kind)
            assert segment is not None
            assert segment.bytes / MIB == pytest.approx(mib(found, kind, device), rel=0.005), (kind, device)
    assert "planned" in report.text(found, made)


@pytest.mark.parametrize("name", ["oom-kv.log", "oom-compute.log", "oom-weights.log"])
def test_a_failure_is_planned_on_the_memory_that_was_free_and_its_first_remedy_fits(name: str) -> None:
    found = of(name)
    made = beside(found)
    assert made.measured.stage == found.stage
    assert made.agreement == "same"
    assert made.remedies[0].plan.fits
    assert "Ways to make it fit" in report.text(found, made)


OLD = """build: 4466 (924518e2) with gcc-12 (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23871 MiB free
llama_model_loader: loaded meta data with 30 key-value pairs and 292 tensors from /models/a.gguf (version GGUF V3)
llm_load_tensors: offloaded 33/33 layers to GPU
llm_load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llm_load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_new_context_with_model: n_seq_max     = 1
llama_new_context_with_model: n_ctx         = 4096
llama_new_context_with_model: n_batch       = 2048
llama_new_context_with_model: n_ubatch      = 512
llama_kv_cache_init:      CUDA0 KV buffer size =   512.00 MiB
llama_new_context_with_model: KV self size  =  512.00 MiB, K (f16):  256.00 MiB, V (f16):  256.00 MiB
llama_new_context_with_model:  CUDA_Host  output buffer size =     0.49 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =   296.00 MiB
llama_new_context_with_model:  CUDA_Host compute buffer size =    16.01 MiB
main: model loaded
"""


def test_an_old_build_is_read_and_its_figures_stand_for_the_options_that_it_does_not_state() -> None:
    found = read(OLD)
    assert (found.version, found.model, found.reading.started) == ("b4466", "/models/a.gguf", True)
    assert (mib(found, "weights", "CUDA0"), mib(found, "compute", "CUDA0")) == pytest.approx((4403.49, 296), abs=1e-3)
    assert found.options == {
        "ctx_size": 4096, "parallel": 1, "ubatch_size": 512, "batch_size": 2048, "n_gpu_layers": "33",
        "cache_type_k": "f16", "cache_type_v": "f16",
    }  # fmt: skip


def test_caches_of_a_device_add_up_and_a_draft_model_s_do_not_count() -> None:
    types = "K (f16):   50.00 MiB, V (f16):   50.00 MiB\n"
    sizes = (
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
        "llama_kv_cache:      CUDA0 KV buffer size =  100.00 MiB\n"
        f"llama_kv_cache: size =  100.00 MiB (  8192 cells,   8 layers,  1/1 seqs), {types}"
        "llama_kv_cache:      CUDA0 KV buffer size =   20.00 MiB\n"
        f"llama_kv_cache: size =   20.00 MiB (  1024 cells,  40 layers,  1/1 seqs), {types}"
    )
    context = "llama_context: constructing llama_context\n"
    draft = f"common_speculative_init_result: creating MTP draft context\n{context}" + sizes.replace(
        " 100.00", "  7.00"
    )
    found = read(OLD.replace("main: model loaded\n", "") + context + sizes + draft + "main: model loaded\n")
    assert mib(found, "kv_cache", "CUDA0") == 120
    assert mib(found, "draft_kv_cache", "CUDA0") == 27
    assert found.tokens == 8192


def test_a_second_try_without_pipelining_is_no_failure() -> None:
    retried = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 464.04 MiB on device 0: cudaMalloc failed: out of "
        "memory\n"
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
        "sched_reserve:      CUDA0 compute buffer size =   116.01 MiB\n"
    )
    found = read(OLD.replace("main: model loaded\n", "") + retried + "main: model loaded\n")
    assert (found.stage, found.reading.started) == (None, True)
    assert mib(found, "compute", "CUDA0") == pytest.approx(116.01, abs=1e-3)


def test_no_memory_while_serving_is_of_its_own_stage() -> None:
    found = read(OLD + "CUDA error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:420\n")
    assert found.stage == "runtime"


@pytest.mark.parametrize("name", ALL)
def test_any_part_of_a_log_is_read_without_an_error(name: str) -> None:
    data = (LOGS / name).read_bytes()
    for part in range(1, 12):
        for piece in (data[: len(data) * part // 12], data[len(data) * part // 12 :]):
            try:
                found = diagnose(BytesIO(piece).read)
            except BadInput:
                continue
            assert len(report.text(found)) < 20_000


def test_a_doubled_line_whose_first_is_cut_counts_once() -> None:
    line = "2026-11-24 08:12:00 [DEBUG] llama_kv_cache:      CUDA1 KV buffer size =  7936.00 MiB"
    found = diagnose(BytesIO(f"{line[12:]}\n{line}\n".encode()).read)
    assert found.of_device("kv_cache", "CUDA1") == 7936 << 20


def test_a_number_at_the_very_end_of_a_cut_log_is_no_figure() -> None:
    text = (
        "llama_model_load: loading\nload_tensors: loading\nalloc_tensor_range: failed to allocate CUDA0 buffer of size "
    )
    text += "151851674624"
    for end in (1, 5, 11):
        found = diagnose(BytesIO(text[:-end].encode()).read)
        assert found.reading.ended is not None
        assert "tried" not in found.reading.ended.figures
    whole = diagnose(BytesIO(f"{text}\n".encode()).read)
    assert whole.reading.ended is not None
    assert whole.reading.ended.figures["tried"] == 151_851_674_624


@pytest.mark.parametrize("before", ["[34333] ", "llm-1  | "])
def test_two_lines_of_one_length_are_no_lines_that_a_window_broke(before: str) -> None:
    """Each line names its process: the second is printed twice, and what it says counts once."""
    size = "llama_kv_cache:      CUDA0 KV buffer size =  8704.00 MiB"
    rows = ("load_tensors: offloading 32 repeating layers to GPU.....", "load_tensors: offloaded 33/33 layers to GPU")
    found = read("".join(f"{before}{row}\n" for row in (*rows, size, size)))
    assert [s.value for s in found.reading.stated if s.name == "kv_cache"] == [8704 * MIB]
