"""Replicas, limits and the sentences: what is served, what binds, and what the range may break."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan, Step
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.report import text as report
from kvplanner.report.sentences import engine_message, notes, summary
from kvplanner.units import GIB, round_to_band
from tests.engine.kit import LLAMA_8B, plan, size

pytestmark = pytest.mark.slow

VLLM = engine("vllm")


def with_free(gpu: str, free_gib: list[int | None], options: dict[str, OptionValue]) -> Plan:
    machine = gpus.machine(gpu)
    devices = tuple(
        d._replace(free_bytes=None if free is None else free * GIB)
        for d, free in zip(machine.devices, free_gib, strict=True)
    )
    return VLLM.plan(PlanRequest(models.load(LLAMA_8B), machine._replace(devices=devices), options=options))


class TestReplicas:
    def test_each_replica_is_planned_on_its_own_devices(self) -> None:
        options: dict[str, OptionValue] = {"data_parallel_size": 2}
        either = [with_free("2xH100", free, options) for free in ([10, None], [None, 10])]
        assert [p.stage for p in either] == ["free_memory_check"] * 2
        assert [p.tightest for p in either] == [0, 1]
        assert [d.role for d in either[0].devices] == ["dp0/tp0", "dp1/tp0"]

    def test_the_order_of_different_gpus_does_not_matter(self) -> None:
        options: dict[str, OptionValue] = {"data_parallel_size": 2, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
        there, back = (plan(LLAMA_8B, gpu, options) for gpu in ("1xH100,1xRTX 4090", "1xRTX 4090,1xH100"))
        assert there.fits
        assert back.fits
        assert there.limits == back.limits
        assert there.kv_cache is not None
        assert back.kv_cache is not None
        assert there.kv_cache.units == back.kv_cache.units

    def test_users_are_served_by_all_replicas(self) -> None:
        load = Load(4000, 1500, 500)
        one, four = (
            plan("Qwen/Qwen3-8B", f"{n}xRTX 4090", {"data_parallel_size": n, "max_model_len": 8192}, load=load)
            for n in (1, 4)
        )
        assert one.limits.serves_users is not None
        assert four.limits.serves_users == 4 * one.limits.serves_users
        assert "in each of 4 replicas" in summary(four)

    def test_unlike_replicas_are_told_by_the_smallest(self) -> None:
        both = plan("Qwen/Qwen3-8B", "80GB,96GB", {"data_parallel_size": 2})
        small = plan("Qwen/Qwen3-8B", "2x80GB", {"data_parallel_size": 2})
        assert summary(both) == summary(small).replace("in each of 2", "in the smallest of 2")
        assert ", in the smallest of 2 replicas" in " ".join(report.text(both).split())
        assert ", in each of 2 replicas" in " ".join(report.text(small).split())


class TestDerivedTensorParallel:
    @pytest.mark.parametrize(
        ("model", "gpu", "size_"),
        [
            (
                "microsoft/phi-4",
                "8xH100",
                2,
            ),  # 40 heads divide by 8, but 10 KV heads do not, nor by 4; by 5 not the vocabulary
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "8xH100", 4),
            ("Qwen/Qwen3-8B", "3xH100", 2),
            ("tiiuae/falcon-mamba-7b", "3xH100", 2),
            ("Qwen/Qwen2.5-VL-3B-Instruct", "8xH100", 4),  # the encoder's 3,420 rows
        ],
    )
    def test_every_sharded_dimension_divides(self, model: str, gpu: str, size_: int) -> None:
        result = plan(model, gpu)
        assert result.options["tensor_parallel_size"].value == size_


class TestLimits:
    def test_max_sequences_bind(self) -> None:
        result = plan("Qwen/Qwen3-8B", "H100", {"max_num_seqs": 64}, load=Load(2000, 300, 100))
        assert result.limits.serves_users == 64
        assert result.limits.limited_by == "max_requests"
        assert "max sequences allows 64" in summary(result)

    def test_the_context_binds(self) -> None:
        result = plan("Qwen/Qwen3-8B", "H100", {"max_model_len": 4096}, load=Load(32, 5000, 100))
        assert (result.limits.serves_users, result.limits.limited_by) == (0, "context")
        assert "one needs 5,100 tokens and the context length is 4,096" in summary(result)

    def test_no_more_requests_than_sequences(self) -> None:
        result = plan("Qwen/Qwen3-0.6B", "H100", {"max_model_len": 128, "max_num_seqs": 16})
        assert result.limits.max_concurrent_requests == 16
        assert "16 requests of 128 tokens at once (max sequences)" in summary(result)

    def test_the_null_block_serves_nobody(self) -> None:
        options: dict[str, OptionValue] = {"kv_cache_memory_bytes": 2048 * 2 * 2**20, "max_model_len": 32_768}
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", options)
        assert result.stage == "kv_cache_too_small"
        assert result.limits.max_concurrent_requests is None
        assert "MiB" not in summary(result)
        more = {**options, "kv_cache_memory_bytes": 2049 * 2 * 2**20}
        assert plan("meta-llama/Llama-3.1-8B-Instruct", "H100", more).limits.max_concurrent_requests == 1

    def test_a_plan_that_fails_serves_nobody(self) -> None:
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", load=Load(32, 1500, 500))
        assert result.stage == "kv_cache_too_small"
        assert result.limits.serves_users == 0
        longest = result.limits.max_context_length
        assert longest is not None
        assert plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {"max_model_len": longest}).fits
        assert not plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {"max_model_len": longest + 17}).fits

    @pytest.mark.parametrize("version", ["0.6.6", None])
    def test_the_longest_context_holds_where_the_step_grows_with_it(self, version: str | None) -> None:
        options: dict[str, OptionValue] = {"max_model_len": 4096, "enable_chunked_prefill": False}
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", options, version=version)
        longest = result.limits.max_context_length
        assert longest is not None
        again = plan(
            "meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {**options, "max_model_len": longest}, version=version
        )
        assert again.fits

    @pytest.mark.parametrize(
        ("model", "gpu", "options", "version"),
        [
            ("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {}, None),
            (
                "meta-llama/Llama-3.1-8B-Instruct",
                "RTX 4090",
                {"max_model_len": 4096, "enable_chunked_prefill": False},
                "0.6.6",
            ),
            ("google/gemma-3-27b-it", "H100", {}, None),
            ("google/gemma-3-27b-it", "2xL40S", {}, None),
            ("Qwen/Qwen3.5-27B", "H100", {"max_num_seqs": 64}, None),
            ("deepseek-ai/DeepSeek-V3", "8xH200", {}, None),
            (
                "Qwen/Qwen3-30B-A3B",
                "2xRTX 4090,2xRTX 3090",
                {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
                None,
            ),
        ],
    )
    def test_a_sure_length_is_the_longest_whose_plan_has_no_doubt(
        self, model: str, gpu: str, options: dict[str, OptionValue], version: str | None
    ) -> None:
        first = plan(model, gpu, options, version=version)
        sure, longest = first.limits.sure_max_context_length, first.limits.max_context_length
        assert sure is not None
        assert longest is not None
        assert sure <= longest
        again = plan(model, gpu, {**options, "max_model_len": sure}, version=version)
        assert again.sure
        limit = first.request.model.spec.context_length or 0
        if sure < limit:
            step = first.kv_cache.unit_tokens if first.kv_cache else 16
            more = plan(model, gpu, {**options, "max_model_len": min(sure + 2 * step, limit)}, version=version)
            assert not more.sure

    def test_surely_served_users_are_no_more_than_served_ones(self) -> None:
        load = Load(200, 3000, 1000)
        found = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", load=load).limits
        assert found.serves_users is not None
        assert found.sure_serves_users is not None
        assert 0 < found.sure_serves_users < found.serves_users
        # At the low end of the band that many have room, and one more has not.
        whole = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", load=load)
        assert whole.kv_cache is not None
        assert found.units_per_user is not None
        low = whole.kv_cache.tokens_low // whole.kv_cache.unit_tokens - 1
        assert found.sure_serves_users == low // found.units_per_user

    def test_where_start_up_may_fail_nobody_is_surely_served(self) -> None:
        doubtful = plan(
            "meta-llama/Llama-3.1-8B-Instruct", "H100", {"gpu_memory_utilization": 0.99}, load=Load(8, 100, 100)
        )
        assert not doubtful.sure
        assert doubtful.limits.sure_serves_users == 0
        assert doubtful.limits.sure_max_context_length is None

    def test_an_encoder_serves_as_many_as_it_batches(self) -> None:
        result = plan("BAAI/bge-m3", "H100", {"max_num_seqs": 8}, load=Load(32, 100, 1))
        assert result.kv_cache is None
        assert result.devices[0].segment("kv_cache") is None
        assert result.limits.serves_users == 8

    def test_an_encoder_takes_whole_sequences_in_a_step(self) -> None:
        """2,048 tokens in a step of an L4: 4 of the 512 that the model takes at most, 256 short ones."""
        found = plan("BAAI/bge-large-en-v1.5", "L4")
        assert found.step == Step(2_048, 256, 512)
        assert [found.step.holds(n) for n in (512, 513, 500, 100, 8, 1)] == [4, 0, 4, 20, 256, 256]
        assert found.limits.max_concurrent_requests == found.limits.sure_max_concurrent_requests == 4
        assert summary(found) == "Fits: a step takes 4 sequences of 512 tokens, without a KV cache"

    @pytest.mark.parametrize(
        ("load", "served", "short", "words"),
        [
            (Load(20, 100, 0), 20, "", "Fits, and serves 20 of 20 users: a step takes 20 sequences of 100 tokens"),
            (Load(32, 100, 50), 20, "step", "serves only 20 of 32 users in one step"),
            (Load(3, 600, 0), 0, "context", "a sequence has 600 tokens and the longest may have 512"),
        ],
    )
    def test_a_load_of_an_encoder_is_prompts_in_a_step(self, load: Load, served: int, short: str, words: str) -> None:
        found = plan("BAAI/bge-large-en-v1.5", "L4", load=load)
        assert found.limits.serves_users == found.limits.sure_serves_users == served
        assert found.limits.limited_by == short
        assert words in summary(found)

    def test_replicas_of_an_encoder_have_a_step_each(self) -> None:
        found = plan("BAAI/bge-large-en-v1.5", "2xH100", {"data_parallel_size": 2}, load=Load(64, 512, 0))
        assert found.step is not None
        assert found.limits.serves_users == min(2 * found.step.holds(512), 64)
        assert "a step of each replica takes" in summary(found)

    def test_a_decoder_that_embeds_has_a_cache_and_no_such_step(self) -> None:
        found = plan("Qwen/Qwen3-Embedding-0.6B", "L4")
        assert found.kv_cache is not None
        assert found.step is None


class TestAutoFit:
    def test_figures_are_those_of_the_fitted_length(self) -> None:
        result = plan("google/gemma-3-27b-it", "H100", {"max_model_len": -1})
        cache = result.kv_cache
        assert cache is not None
        assert result.options["max_model_len"].value == cache.context_length
        assert result.options["max_model_len"].origin == "derived"
        assert sum(g.units_per_request for g in cache.groups) <= cache.units


class TestGivenCache:
    def test_a_block_override_is_exact(self) -> None:
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", {"num_gpu_blocks_override": 10_000})
        cache = result.devices[0].segment("kv_cache")
        assert cache is not None
        assert cache.bytes == cache.estimate.low == cache.estimate.high == 10_000 * 2 * 2**20
        assert cache.estimate.basis == "exact"
        assert result.kv_cache is not None
        assert result.kv_cache.tokens_low == result.kv_cache.tokens_high
        assert not any("rule of thumb" in note for note in result.kv_cache.available.notes)

    def test_a_measured_cache_stands_above_the_flag(self) -> None:
        options: dict[str, OptionValue] = {"kv_cache_memory_bytes": 5 * GIB}
        result = plan("Qwen/Qwen3-8B", "H100", options, measured={"kv_cache": 20 * GIB})
        assert 19 * GIB < size(result, "kv_cache") <= 20 * GIB

    def test_the_segments_formula_is_its_value(self) -> None:
        for gpu in ("H100", "1xRTX 4090,1xRTX 5090"):
            for device in plan("Qwen/Qwen3-8B", gpu, {"max_model_len": 4096}).devices:
                segment = device.segment("kv_cache")
                assert segment is not None
                blocks, each = segment.estimate.inputs
                assert isinstance(blocks.value, int)
                assert isinstance(each.value, int)
                assert blocks.value * each.value == segment.bytes


def test_a_fit_whose_range_fails_says_so() -> None:
    enough = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090").limits.max_context_length
    assert enough is not None
    result = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {"max_model_len": enough})
    assert result.fits
    assert summary(result).startswith("May not fit: ")
    assert notes(result)[0].startswith("May not fit: ")


def test_stages_failing_under_pipeline_parallelism_name_one_rank() -> None:
    options: dict[str, OptionValue] = {"pipeline_parallel_size": 2, "max_model_len": 131_072}
    result = plan("Qwen/Qwen2.5-14B-Instruct-1M", "2xRTX 4090", options)
    assert result.stage == "kv_cache_too_small"
    cache = result.kv_cache
    assert cache is not None
    need, left = (float(part) for part in _gibs(engine_message(result)))
    assert round(result.missing_bytes / GIB, 1) == round(need - left, 1)


def _gibs(message: str) -> tuple[str, str]:
    words = message.split()
    found = [words[i - 1].lstrip("(") for i, word in enumerate(words) if word.startswith("GiB")]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (212_336, 204_000, 216_000, 212_000),
        (205_648, 180_123, 209_800, 206_000),
        (3_021, 0, 6_000, 3_000),
        (450_000, 450_000, 450_000, 450_000),
        (938_811, 700_000, 1_100_000, 940_000),
        (7, 0, 9, 7),
    ],
)
def test_headlines_keep_the_digits_that_the_band_allows(value: int, low: int, high: int, shown: int) -> None:
    assert round_to_band(value, low, high) == shown


@pytest.mark.parametrize("cache", [None, 20 * GIB])
def test_media_decoding_keeps_memory_off_the_cache(cache: int | None) -> None:
    options: dict[str, OptionValue] = {"max_model_len": 8192, **({"kv_cache_memory_bytes": cache} if cache else {})}
    plain, reserved = (
        plan("Qwen/Qwen2.5-VL-7B-Instruct", "H100", {**options, **more}) for more in ({}, {"mm_ipc_gpu_memory_gb": 8.0})
    )
    assert plain.kv_cache is not None
    assert reserved.kv_cache is not None
    assert plain.kv_cache.available.value - reserved.kv_cache.available.value == 8 * GIB
    assert size(reserved, "headroom") - size(plain, "headroom") >= 8 * GIB - plain.kv_cache.bytes_per_unit


@pytest.mark.parametrize(
    "model", [LLAMA_8B, "Qwen/Qwen2.5-7B-Instruct", "openai/gpt-oss-20b", "google/gemma-3-27b-it", "Qwen/Qwen3-8B-AWQ"]
)
def test_the_allowed_sizes_are_those_that_are_planned(model: str) -> None:
    loaded, machine = models.load(model), gpus.machine("64xH200")
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        allowed = VLLM.allowed(name, loaded)
        assert allowed[0] == 1
        for size_ in range(1, 65):
            request = PlanRequest(loaded, machine, options={name: size_, "max_model_len": 4096})
            if size_ in allowed:
                VLLM.plan(request)
            else:
                with pytest.raises(BadInput):
                    VLLM.plan(request)
    assert VLLM.allowed("max_num_seqs", loaded) == ()
