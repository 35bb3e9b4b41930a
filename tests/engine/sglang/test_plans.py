"""Whole plans: sums, verdicts in the engine's words, and the two failures that ask for opposite moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import Load
from kvplanner.engine.verdict import Shortfall
from kvplanner.errors import BadInput, NotModelled
from kvplanner.report import schema
from kvplanner.report.sentences import summary
from tests.engine.sglang.kit import GPT_OSS, HYBRID, LLAMA_8B, LLAMA_70B, QWEN_32B, SGLANG, plan, request
from tests.report.contract import check_plan


def failing(found: Plan) -> Shortfall:
    assert found.verdict.failing is not None
    return found.verdict.failing


def share(found: Plan, name: str) -> float:
    value = failing(found).reason.figures[name]
    assert isinstance(value, float)
    return value


@given(
    st.sampled_from([LLAMA_8B, QWEN_32B, GPT_OSS, HYBRID, LLAMA_70B, "deepseek-ai/DeepSeek-V3.1"]),
    st.sampled_from(["RTX 4090", "H100", "2xL40S", "4xH100", "8xB200"]),
    st.fixed_dictionaries({}, optional={
        "mem_fraction_static": st.floats(0.05, 0.99), "chunked_prefill_size": st.sampled_from([-1, 2048, 16384]),
        "max_running_requests": st.integers(1, 4096), "context_length": st.integers(512, 131_072),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8_e4m3"]), "disable_cuda_graph": st.booleans(),
        "disable_radix_cache": st.booleans(), "page_size": st.sampled_from([1, 16, 64]),
    }),
)  # fmt: skip
def test_segments_fill_the_device_and_bands_hold_their_values(
    model: str, gpu: str, options: Mapping[str, OptionValue]
) -> None:
    try:
        found = plan(model, gpu, options)
    except (BadInput, NotModelled) as refused:
        assert str(refused)
        return
    check_plan(schema.to_json(found))
    for device in found.devices:
        taken = sum(s.bytes for s in device.segments)
        assert not found.fits or taken == device.total_bytes
        for segment in device.segments:
            assert segment.estimate.low <= segment.bytes <= segment.estimate.high
    if found.kv_cache is not None:
        page = found.kv_cache.unit_tokens
        assert found.kv_cache.unit == ("tokens" if page == 1 else "pages")
        assert found.kv_cache.tokens_low <= found.kv_cache.tokens <= found.kv_cache.tokens_high
    assert (found.stage is None) == (found.fits is True)


def test_budget_and_slack_are_what_was_free() -> None:
    found = plan(LLAMA_8B, "H100")
    device = found.devices[0]
    assert device.budget is not None
    assert device.budget_share is not None
    before = device.total_bytes - sum(
        s.bytes for s in device.segments if s.kind in ("driver_reserved", "other", "runtime_outside")
    )
    assert device.budget_share == pytest.approx(0.83, abs=0.0005)
    assert device.budget.value == pytest.approx(before * device.budget_share, abs=1 << 20)
    held = sum(s.bytes for s in device.segments if s.in_budget)
    beside = sum(s.bytes for s in device.segments if s.kind in ("workspace", "cuda_graphs", "activations", "runtime",
                                                                 "headroom"))  # fmt: skip
    assert held + beside == before
    assert held == pytest.approx(device.budget.value, abs=1 << 20)


@pytest.mark.parametrize(
    ("model", "gpu", "options", "code", "stage", "message"),
    [
        (LLAMA_8B, "H100", {"mem_fraction_static": 0.15}, "pools_weights", "kv_cache_sizing",
         "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.15"),
        (HYBRID, "4xH100", {"mem_fraction_static": 0.2}, "pools_states", "kv_cache_sizing",
         "Not enough GPU memory for hybrid (mamba/linear-attention) state cache."),
        (LLAMA_8B, "H100", {"mem_fraction_static": 0.196, "page_size": 8192}, "pools_tokens", "kv_cache_sizing",
         "Not enough memory. Please try to increase --mem-fraction-static."),
        (GPT_OSS, "H100", {"mem_fraction_static": 0.168, "page_size": 4096}, "pools_window", "kv_cache_too_small",
         "SWA pool (0 tokens) cannot hold even one request"),
        (GPT_OSS, "H100", {"mem_fraction_static": 0.3, "disable_radix_cache": True, "max_running_requests": 2000},
         "pools_window_cap", "kv_cache_too_small", "SWA pool cap ("),
        (HYBRID, "4xH100", {"max_mamba_cache_size": 1}, "pools_requests", "kv_cache_too_small",
         "Hybrid (mamba/linear-attention) state cache is too small to serve any requests."),
    ],
)  # fmt: skip
def test_the_six_failures_of_sizing_are_told_apart(
    model: str, gpu: str, options: Mapping[str, OptionValue], code: str, stage: str, message: str
) -> None:
    found = plan(model, gpu, options)
    assert found.fits is False
    lack = failing(found)
    assert (lack.reason.code, lack.stage) == (code, stage)
    assert lack.message.startswith(message)


def test_the_two_failures_ask_for_opposite_moves() -> None:
    few, many = (
        plan(LLAMA_8B, "H100", {"mem_fraction_static": 0.15}),
        plan(LLAMA_8B, "H100", {"mem_fraction_static": 0.98}),
    )
    assert few.stage == "kv_cache_sizing"
    assert many.stage in ("graph_capture", "runtime")
    assert 0.15 < share(few, "least") < share(few, "largest") < 0.98
    for name in ("least", "largest"):
        assert share(few, name) == share(many, name)
        assert plan(LLAMA_8B, "H100", {"mem_fraction_static": share(few, name)}).fits
    assert not plan(LLAMA_8B, "H100", {"mem_fraction_static": share(few, "least") - 0.001}).fits
    assert not plan(LLAMA_8B, "H100", {"mem_fraction_static": share(few, "largest") + 0.001}).fits
    assert failing(few).reason.template.index("{least}") < failing(few).reason.template.index("{largest}")
    assert failing(many).reason.template.index("{largest}") < failing(many).reason.template.index("{least}")


def test_what_a_refusal_lacks_is_what_makes_it_work() -> None:
    found = plan(GPT_OSS, "H100", {"mem_fraction_static": 0.168, "page_size": 4096})
    lack = failing(found).missing_bytes
    assert lack > 1 << 20
    device = found.devices[0]
    assert device.budget is not None
    raised = 0.168 * (device.budget.value + lack) / device.budget.value + 0.0005
    assert plan(GPT_OSS, "H100", {"mem_fraction_static": raised, "page_size": 4096}).fits


def test_weights_that_do_not_fit_fail_while_loading() -> None:
    found = plan(LLAMA_70B, "H100")
    assert (found.stage, found.kv_cache) == ("weights", None)
    assert failing(found).message == "CUDA out of memory."
    assert plan(LLAMA_70B, "4xH100").fits


def test_a_pool_smaller_than_a_context_is_a_warning() -> None:
    found = plan(LLAMA_8B, "RTX 4090")
    assert found.fits
    assert found.kv_cache is not None
    assert found.kv_cache.tokens < 131_072
    assert found.warnings[0].startswith(f"Starts, but refuses requests longer than {found.kv_cache.tokens:,} tokens")
    assert found.limits.max_context_length == found.kv_cache.tokens


def test_context_and_requests_cost_slack_and_not_tokens() -> None:
    usual = plan(LLAMA_8B, "H100", {"mem_fraction_static": 0.8})
    short = plan(LLAMA_8B, "H100", {"mem_fraction_static": 0.8, "context_length": 8192})
    assert usual.kv_cache is not None
    assert short.kv_cache is not None
    assert short.kv_cache.tokens == pytest.approx(usual.kv_cache.tokens, rel=0.005)
    sizes = [next(s.bytes for s in p.devices[0].segments if s.kind == "workspace") for p in (usual, short)]
    rows = 2049 * (131_072 + 4) * 4, 4097 * (8192 + 4) * 4
    assert sizes[0] - sizes[1] == pytest.approx(rows[0] - rows[1], rel=0.001)


def test_users_are_served_up_to_slots_and_tokens() -> None:
    found = plan(LLAMA_8B, "H100", load=Load(100, 1500, 500))
    assert found.limits.serves_users == 100
    few = plan(LLAMA_8B, "H100", {"max_running_requests": 16}, load=Load(100, 1500, 500))
    assert (few.limits.serves_users, few.limits.limited_by) == (16, "max_requests")


def test_every_rank_of_attention_groups_has_a_pool_of_its_own() -> None:
    name = "deepseek-ai/DeepSeek-V3.1"
    alone, grouped = (
        plan(name, "8xH200"),
        plan(name, "8xH200", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}),
    )
    assert alone.kv_cache is not None
    assert grouped.kv_cache is not None
    assert grouped.limits.max_requests is not None
    assert grouped.limits.max_requests >= 8
    weights = [next(s.bytes for s in p.devices[0].segments if s.kind == "weights") for p in (alone, grouped)]
    assert weights[1] > weights[0]


def test_replicas_are_told_apart() -> None:
    found = plan(LLAMA_8B, "4xH100", {"tp_size": 2, "dp_size": 2})
    assert found.replicas == 2
    assert [device.replica for device in found.devices] == [0, 0, 1, 1]
    assert [device.role for device in found.devices] == ["dp0/tp0", "dp0/tp1", "dp1/tp0", "dp1/tp1"]


def test_tensor_ranks_are_those_of_the_gpus_that_are_given() -> None:
    assert plan(LLAMA_8B, "4xH100").options["tp_size"].value == 4
    assert SGLANG.as_started({})["tp_size"] == 1
    assert SGLANG.as_started({"pp_size": 2}) == {"pp_size": 2}


def test_sizes_that_the_heads_do_not_divide_by_are_refused() -> None:
    with pytest.raises(BadInput, match="divi"):
        plan(LLAMA_8B, "3xH100", {"tp_size": 3})
    assert 3 not in SGLANG.allowed("tp_size", request(LLAMA_8B, "H100").model)


def test_other_vendors_devices_have_no_plan() -> None:
    found = plan(LLAMA_8B, "MI300X")
    assert found.fits is None
    assert found.verdict.state == "cannot_tell"


@pytest.mark.parametrize("model", ["BAAI/bge-large-en-v1.5", "BAAI/bge-m3"])
def test_an_encoder_has_no_cache_to_count_users_by(model: str) -> None:
    """No law of its pools and batches is known: neither "512 tokens, 0 bytes each" nor users out of them."""
    found = plan(model, "L4", load=Load(32, 100, 0))
    assert found.verdict.state == "cannot_tell"
    assert found.kv_cache is None
    assert found.limits.serves_users is found.limits.max_concurrent_requests is None
    assert "encoder" in summary(found)
    assert "--engine vllm" in summary(found)
    check_plan(schema.to_json(found))


def test_a_decoder_that_embeds_is_planned_with_its_cache() -> None:
    found = plan("Qwen/Qwen3-Embedding-0.6B", "L4", load=Load(4, 100, 0))
    assert found.kv_cache is not None
    assert found.limits.serves_users == 4


def test_an_automatic_fraction_below_nothing_is_a_refusal_in_words() -> None:
    """A chunk whose reserve is more than the card: no memory left after loading would help."""
    found = plan(LLAMA_8B, "H100", {"chunked_prefill_size": 131_072})
    assert found.stage == "kv_cache_sizing"
    assert summary(found).startswith("Does not fit")
    assert "short" not in summary(found)
