"""Logs in the forms that public issue threads show, with names and numbers of our own: each read to its facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from kvplanner.diagnose.diagnosis import diagnose_file
from kvplanner.diagnose.implied import gpus_named
from kvplanner.report import diagnosis as report
from kvplanner.units import GIB, MIB

FORMS = Path(__file__).parent / "logs" / "forms"


class Case(NamedTuple):
    """What a log says: sizes in GiB (llama.cpp's in MiB), figures of the error, options."""

    engine: str = "vllm"
    stage: str | None = None
    cause: str = ""
    version: str | None = None
    model: str | None = None
    tokens: int | None = None
    started: bool = False
    sizes: Mapping[str, float] = MappingProxyType({})
    figures: Mapping[str, float] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    unit: int = GIB
    gpus: str = ""


CASES: dict[str, Case] = {
    "vllm-0-2-blocks-of-none": Case(
        stage="kv_cache_sizing",
        cause="no_cache",
        model="org/small-7b",
        tokens=0,
        options={"max_model_len": 2048, "tensor_parallel_size": 1},
    ),
    "vllm-0-4-a-worker-s-torch-text-of-2-1-through-ray": Case(
        stage="profile",
        cause="out_of_memory",
        version="0.4.1",
        model="org/big-70b",
        sizes={"weights": 32.8657},
        figures={"tried": 8385923645.44, "gpu": 2, "gpu_free": 5905580032.0},
        options={"tensor_parallel_size": 4},
    ),
    "vllm-0-6-with-four-untitled-ranks-the-most-of-them": Case(
        stage="profile",
        cause="out_of_memory",
        version="0.6.1.post2",
        model="org/see-11b",
        sizes={"weights": 5.3},
        figures={"tried": 21077552005.12, "gpu": 3, "others_in_use": 65938485411.84, "reserved_unused": 4370129223.68},
        options={"enforce_eager": True},
    ),
    "a-sampler-s-warm-up-with-torch-s-text-broken-into-lines": Case(
        stage="graph_capture",
        cause="out_of_memory",
        model="org/small-8b-awq",
        tokens=25392,
        sizes={"weights": 5.34, "kv_cache": 3.1},
        figures={
            "tried": 264241152,
            "gpu_free": 171043717.12,
            "others_in_use": 11177652387.84,
            "allocated": 10383083438.08,
            "in_graphs": 314446970.88,
            "reserved_unused": 27724349.44,
        },
    ),
    "an-error-of-torch-s-that-a-terminal-cut-at-eighty-columns": Case(
        stage="weights",
        cause="out_of_memory",
        version="0.10.1",
        model="org/big-32b",
        figures={
            "tried": 283115520,
            "gpu_total": 25254407700.48,
            "gpu_free": 12184453.12,
            "others_in_use": 15247133900.8,
            "allocated": 24535000678.4,
            "reserved_unused": 63103303.68,
        },
    ),
    "a-request-that-is-too-long-wrapped-by-a-page": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        sizes={"weights": 14.9888, "kv_cache": 4.52, "needed": 16.0},
        figures={"context_length": 131072},
    ),
    "lemonade-s-own-prefix-on-amd": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        model="org/moe-35b",
        sizes={"weights": 21.4, "kv_cache": 4.0},
        figures={"suggested_context_length": 127776},
        options={"gpu_memory_utilization": 0.75},
    ),
    "a-container-that-compose-calls-by-its-own-name": Case(
        version="0.8.5.post1", tokens=86400, started=True, sizes={"weights": 7.6065, "cuda_graphs": 0.45}
    ),
    "two-servers-of-one-compose-file-one-of-them-dead": Case(
        stage="kv_cache_sizing", cause="no_cache", version="0.8.5", sizes={"weights": 15.0}
    ),
    "torchserve-s-model-log": Case(
        version="0.6.1.dev238+ge2c6e0a82", model="org/tiny-3b", tokens=322048, sizes={"weights": 6.016}
    ),
    "ray-s-processes-with-tags-of-their-own-and-the-engine-s": Case(
        stage="graph_capture",
        cause="out_of_memory",
        version="0.14.1",
        model="org/moe-80b",
        sizes={"weights": 38.9, "kv_cache": 28.75},
        figures={"gpu": 1, "tried": 2097152},
        options={"pipeline_parallel_size": 2},
    ),
    "an-actor-s-own-class-under-ray": Case(
        stage="runtime",
        cause="out_of_memory",
        version="0.7.2",
        tokens=1169440,
        started=True,
        sizes={"weights": 5.7916, "kv_cache": 40.15, "activations": 1.4, "runtime": 0.15},
        options={"gpu_memory_utilization": 0.6},
    ),
    "a-v0-profile-whose-lines-each-have-their-prefix": Case(
        version="0.8.4",
        model="org/awq-32b",
        tokens=116784,
        sizes={"kv_cache": 14.26, "activations": 1.77, "gpu_total": 31.37, "budget": 26.66, "weights": 10.8},
        options={"max_model_len": 50000, "gpu_memory_utilization": 0.85},
    ),
    "runtime-death-of-the-engine-s-process-by-torch-s-rank-tag": Case(
        stage="runtime",
        cause="out_of_memory",
        version="0.12.0",
        started=True,
        sizes={"kv_cache": 2.51},
        figures={"tried": 1245540515.84, "in_use": 5390183956.48, "reserved_unused": 19891486.72},
    ),
    "systemd-s-journal": Case(
        stage="free_memory_check",
        cause="free_memory",
        model="org/tiny-1b",
        figures={"free_at_start": 10866267258.88, "budget": 22731114414.08, "budget_share": 0.9},
        options={"max_num_seqs": 512},
    ),
    "the-graphs-estimate-and-what-they-came-to-by-ranks": Case(
        version="0.27.1",
        model="org/hybrid-27b",
        tokens=51408,
        started=True,
        sizes={"weights": 12.66, "cuda_graphs_estimated": 0.41, "cuda_graphs": 0.39, "kv_cache": 6.87},
        options={"max_model_len": 32768, "gpu_memory_utilization": 0.82},
    ),
    "a-cache-of-a-size-that-was-asked-for": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        sizes={"weights": 15.2, "free_at_start": 31.16, "kv_cache": 4.25, "needed": 4.26},
    ),
    "sglang-of-one-card-that-fails-at-capture": Case(
        engine="sglang",
        stage="graph_capture",
        cause="out_of_memory",
        model="org/awq-14b",
        tokens=132681,
        sizes={"weights": 8.81, "free_at_start": 30.82, "kv_cache": 18.22},
        figures={"tried": 3113851289.6},
        options={"mem_fraction_static": 0.9, "max_running_requests": 8},
    ),
    "sglang-with-attention-of-data-parallel-ranks": Case(
        engine="sglang",
        model="org/see-moe",
        tokens=192832,
        started=True,
        sizes={"weights": 30.77, "free_at_start": 60.61, "cuda_graphs": 1.44, "kv_cache": 17.66},
        options={"tp_size": 2, "dp_size": 2},
    ),
    "sglang-of-2024-without-tokens-in-its-pool-s-line": Case(
        engine="sglang", tokens=444500, started=True, sizes={"free_at_start": 78.69, "free_after_load": 63.61}
    ),
    "sglang-whose-request-slots-ran-out": Case(
        engine="sglang", stage="runtime", cause="request_slots", started=True, sizes={"weights": 2.21}
    ),
    "sglang-without-memory-for-a-cache": Case(
        engine="sglang", stage="kv_cache_sizing", cause="no_cache", sizes={"weights": 20.86, "free_at_start": 23.32}
    ),
    "llama-swap-two-models": Case(
        engine="llamacpp",
        stage="kv_cache_allocation",
        cause="out_of_memory",
        version="b4589",
        unit=MIB,
        model="/models/second-32b-q4_k_m.gguf",
        sizes={"weights": 18508.35, "free_at_start": 23871},
        figures={"tried": 8 * GIB, "gpu": 0},
        options={"ctx_size": 32_768},
    ),
    "llama-cpp-vulkan-in-part": Case(
        engine="llamacpp",
        stage="compute",
        cause="out_of_memory",
        tokens=16_384,
        unit=MIB,
        sizes={"weights": 1952.34, "host_weights": 5003.78, "kv_cache": 1920, "host_kv_cache": 4224},
        figures={"tried": 1_085_276_160},
        options={"n_gpu_layers": "15", "ctx_size": 16_384},
    ),
    "llama-cpp-on-amd-as-exit": Case(
        engine="llamacpp",
        started=True,
        stage="runtime",
        cause="out_of_memory",
        version="b6124",
        unit=MIB,
        model="/m/big-49b.gguf",
        tokens=40_960,
        sizes={"weights": 14876.5, "kv_cache": 4000, "compute": 1128.01},
    ),
    "ik-llama-whose-compute-buffer-is-huge": Case(
        engine="llamacpp",
        stage="compute",
        cause="out_of_memory",
        model="/m/big-r1-iq2.gguf",
        tokens=32_768,
        unit=MIB,
        sizes={"weights": 20128.55, "kv_cache": 379.23},
        figures={"tried": 279_356.51 * MIB, "gpu": 0},
        options={"ubatch_size": 4096},
    ),
    "llama-cpp-that-goes-on-without-pipelines": Case(
        engine="llamacpp",
        started=True,
        version="b9210",
        model="C:\\models\\m3-iq4.gguf",
        tokens=50_176,
        unit=MIB,
        sizes={"weights": 16000, "kv_cache": 2100, "compute": 1310.25},
    ),
    "ollama-0-5-in-a-journal": Case(
        engine="ollama",
        stage="weights",
        cause="out_of_memory",
        version="0.5.7",
        unit=MIB,
        sizes={"gpu_total": 44.5 * 1024, "free_at_start": 44.1 * 1024},
        figures={"tried": 45_108.64 * MIB},
    ),
    "ollama-in-docker-desktop": Case(
        engine="ollama",
        started=True,
        version="0.6.2",
        tokens=8192,
        unit=MIB,
        sizes={"weights": 1918.35, "kv_cache": 476, "compute": 256.5, "gpu_total": 12 * 1024},
        options={"num_ctx": 4096, "num_parallel": 2, "kv_cache_type": "q8_0"},
    ),
    "ollama-whose-host-is-full": Case(
        engine="ollama",
        stage="weights",
        cause="host_full",
        version="0.12.5",
        figures={"tried": 437_944_320},
    ),
    "ollama-s-own-engine": Case(
        engine="ollama",
        started=True,
        version="0.12.6",
        unit=MIB,
        sizes={"weights": 8.5 * 1024, "kv_cache": 1.3 * 1024, "compute": 266.7, "gpu_total": 15.9 * 1024},
    ),
    "vllm-0-5-under-training-with-kubernetes-times": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        version="0.5.0.post1",
        model="org/policy-70b",
        tokens=6048,
        sizes={"weights": 32.89},
        figures={"context_length": 8192, "tokens": 6048},
        options={"tensor_parallel_size": 4},
    ),
    "vllm-whose-box-killed-it": Case(stage="weights", cause="killed", model="org/big-120b"),
    "vllm-json-array-of-a-journal": Case(sizes={"weights": 14.25, "kv_cache": 6.25}),
    "vllm-journal-short-arrays": Case(stage="kv_cache_sizing", cause="no_cache", sizes={"weights": 14.25}),
    "vllm-bytes-as-python-shows-them": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        model="org/tiny-8b",
        sizes={"weights": 14.25, "kv_cache": 0.25},
        figures={"suggested_context_length": 2048},
        options={"max_model_len": 4096},
    ),
    "vllm-whose-draft-and-objects-are-in-the-arguments": Case(
        version="0.25.0",
        model="org/main-70b",
        tokens=401_920,
        sizes={"weights": 33.9, "kv_cache": 31.25},
        options={"tensor_parallel_size": 4, "max_model_len": 32_768, "speculative_model": "org/draft-1b"},
    ),
    "vllm-configuration-alone-with-a-draft": Case(
        version="0.12.0",
        model="org/main-8b",
        sizes={"weights": 15.5},
        options={"max_model_len": 16_384},
    ),
    "llama-server-as-a-router-of-two": Case(
        engine="llamacpp",
        stage="kv_cache_allocation",
        cause="out_of_memory",
        model="/models/two-q6.gguf",
        unit=MIB,
        sizes={"weights": 30_200},
        figures={"tried": 24_000 * MIB},
    ),
    "a-router-inside-another-program": Case(
        engine="llamacpp",
        stage="kv_cache_allocation",
        cause="out_of_memory",
        model="/models/two-q6.gguf",
        unit=MIB,
        sizes={"weights": 30_200},
        figures={"tried": 24_000 * MIB},
    ),
    "llama-cpp-of-2024-that-lists-its-devices": Case(
        engine="llamacpp",
        started=True,
        model="./m-7b-q8.gguf",
        tokens=16_384,
        unit=MIB,
        gpus="1xrtx-4090,1xrtx-3090",
        sizes={"weights": 3823, "kv_cache": 1088, "compute": 1216.02},
    ),
    "llama-cpp-that-cannot-fit-and-goes-on": Case(
        engine="llamacpp",
        stage="compute",
        cause="out_of_memory",
        version="b7474",
        tokens=65_536,
        unit=MIB,
        sizes={"weights": 44_100, "kv_cache": 3302, "gpu_total": 48_508},
        figures={"tried": 4270 * MIB, "gpu": 0},
    ),
    "llama-cpp-with-a-device-over-rpc": Case(
        engine="llamacpp",
        started=True,
        version="b8763",
        model="/m/moe-q6.gguf",
        tokens=65_536,
        unit=MIB,
        sizes={"weights": 99_697, "kv_cache": 3302, "compute": 398},
        options={"ctx_size": 65_536},
    ),
    "sglang-that-prints-no-type": Case(
        engine="sglang",
        stage="kv_cache_sizing",
        cause="no_cache",
        model="org/huge-fp8",
        sizes={"weights": 125.65, "free_at_start": 138.1},
        figures={"budget_share": 0.88, "least_share": 0.9113},
        options={"tp_size": 8},
    ),
    "vllm-debug-of-amd-with-long-file-names": Case(
        stage="profile",
        cause="out_of_memory",
        version="0.11.1rc6.dev141+g38f225c2a",
        model="org/see-2b",
        sizes={"weights": 4.25, "free_at_start": 15.72, "gpu_total": 15.98, "budget": 14.39},
        figures={"tried": 12.35 * GIB, "gpu_free": 10.53 * GIB},
        options={"max_num_seqs": 4},
    ),
    "vllm-github-actions-of-two-ranks-with-free-memory": Case(
        stage="free_memory_check",
        cause="free_memory",
        version="0.16.0rc2",
        model="org/tiny-1b",
        figures={"free_at_start": 19.77 * GIB, "budget": 19.84 * GIB},
        options={"tensor_parallel_size": 2},
    ),
    "vllm-profiles-in-bytes": Case(
        stage="profile",
        cause="memory_moved",
        version="0.6.6.post1",
        model="org/train-7b",
        sizes={"weights": 14.2716},
    ),
    "vllm-gpu-error-without-a-size": Case(stage="weights", cause="out_of_memory", model="org/tiny-8b"),
    "an-issue-with-its-machine-and-its-log": Case(
        version="0.22.1",
        model="org/hybrid-27b",
        sizes={"weights": 13.1, "kv_cache": 6.72, "free_at_start": 23.3, "budget": 21.68},
        options={"tensor_parallel_size": 2},
        gpus="2xrtx-3090",
    ),
    "vllm-nccl-has-no-memory": Case(stage="profile", cause="out_of_memory", sizes={"weights": 40.1}),
    "vllm-with-every-line-of-its-traceback-twice": Case(
        stage="kv_cache_too_small",
        cause="one_request",
        sizes={"weights": 20.1, "kv_cache": 0.94},
        figures={"suggested_context_length": 27_344},
    ),
}


def test_every_form_has_its_facts() -> None:
    assert {path.stem for path in FORMS.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_what_people_paste_is_read_whole(name: str) -> None:
    case = CASES[name]
    found = diagnose_file(FORMS / f"{name}.log")
    ended = found.reading.ended
    assert (found.engine, found.stage, ended.cause if ended else "", found.reading.started) == (
        case.engine, case.stage, case.cause, case.started)  # fmt: skip
    for expected, read in ((case.version, found.version), (case.model, found.model), (case.tokens, found.tokens)):
        assert expected is None or read == expected
    sizes = {size: found.size(size) for size in case.sizes}
    assert sizes == {size: pytest.approx(value * case.unit, abs=1 << 20) for size, value in case.sizes.items()}
    figures = ended.figures if ended else {}
    assert {figure: figures.get(figure) for figure in case.figures} == {
        figure: pytest.approx(value, abs=1 << 10) for figure, value in case.figures.items()
    }
    assert {option: found.options.get(option) for option in case.options} == case.options
    assert case.gpus in ("", gpus_named(found))
    assert "unknown amount" not in report.headline(found)
