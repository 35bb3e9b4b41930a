"""Every architecture under every cache dtype and many requests: a plan that adds up, or a refusal in words."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.vllm.dtypes import OFFERED
from kvplanner.errors import PlannerError

pytestmark = pytest.mark.slow

VLLM = engine("vllm")


@cache
def one_of_each() -> dict[str, str]:
    return {entry.architecture: entry.id for entry in reversed(models.index())}


def check(request: PlanRequest) -> None:
    try:
        plan = VLLM.plan(request)
    except PlannerError as error:
        assert error.what
        assert error.where
        return
    for device in plan.devices:
        for segment in device.segments:
            assert segment.estimate.low <= segment.bytes <= segment.estimate.high, segment.kind
            segment.estimate.in_numbers()
        if plan.fits:
            assert sum(s.bytes for s in device.segments) == device.total_bytes
    assert (plan.stage is None) == (plan.fits is not False)


@pytest.mark.parametrize("dtype", OFFERED)
def test_every_architecture_under_a_cache_dtype(dtype: str) -> None:
    for model in one_of_each().values():
        for gpu in ("H100", "A100 80GB SXM", "B200"):
            check(PlanRequest(models.load(model), gpus.machine(gpu), options={"kv_cache_dtype": dtype}))


MACHINES = ("RTX 4090", "2xRTX 4090", "4xL40S", "8xH100", "8xB200", "2xT4", "1xRTX 4090,1xRTX 3090", "24GB", "GB10")
OPTIONS: dict[str, st.SearchStrategy[OptionValue]] = {
    "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
    "pipeline_parallel_size": st.sampled_from([1, 2]),
    "data_parallel_size": st.sampled_from([1, 2]),
    "enable_expert_parallel": st.booleans(),
    "decode_context_parallel_size": st.sampled_from([1, 2]),
    "max_model_len": st.sampled_from([-1, 1, 17, 4096, 32_768]),
    "max_num_seqs": st.sampled_from([1, 7, 256, 1024]),
    "max_num_batched_tokens": st.sampled_from([16, 2048, 16_384]),
    "gpu_memory_utilization": st.sampled_from([0.001, 0.05, 0.5, 0.9, 1.0]),
    "kv_cache_dtype": st.sampled_from(OFFERED),
    "kv_cache_dtype_skip_layers": st.sampled_from(["0", "sliding_window", "0,1"]),
    "block_size": st.sampled_from([1, 16, 48, 128]),
    "enable_prefix_caching": st.booleans(),
    "enable_chunked_prefill": st.booleans(),
    "disable_hybrid_kv_cache_manager": st.booleans(),
    "enforce_eager": st.booleans(),
    "kv_cache_memory_bytes": st.sampled_from([0, 1, 5 << 30]),
    "num_gpu_blocks_override": st.sampled_from([1, 1000]),
    "quantization": st.sampled_from(["fp8", "fp8_per_block", "mxfp8"]),
    "speculative_method": st.sampled_from(["mtp", "eagle", "ngram", "draft_model"]),
    "num_speculative_tokens": st.sampled_from([1, 3]),
    "enable_lora": st.booleans(),
    "cpu_offload_gb": st.sampled_from([0.0, 4.0, 1000.0]),
    "language_model_only": st.booleans(),
    "mamba_ssm_cache_dtype": st.sampled_from(["auto", "float32"]),
}


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    model = draw(st.sampled_from(sorted(one_of_each().values())))
    names = draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=6, unique=True))
    return PlanRequest(
        models.load(model),
        gpus.machine(draw(st.sampled_from(MACHINES))),
        version=draw(st.sampled_from([None, *VLLM.versions])),
        options={name: draw(OPTIONS[name]) for name in names},
        load=draw(st.sampled_from([None, Load(32, 1500, 500), Load(1, 10**9, 1)])),
    )


@settings(max_examples=500, deadline=None)
@given(requests())
def test_any_request(request: PlanRequest) -> None:
    check(request)
