"""The planner end to end: the reference lesson, the real card, the stages, the refusals."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import format_command
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Calibration, Load, PlanRequest
from kvplanner.errors import BadInput, NotModelled, UnknownName
from kvplanner.model.spec import LayerSpec
from kvplanner.report.sentences import engine_message, notes, summary
from kvplanner.units import GB, GIB, MIB, format_both
from tests.engine.kit import LLAMA_8B, LLAMA_70B, VLLM, plan, size

NOTHING_ELSE = {"activations": 3 * GB, "runtime_outside": 0, "runtime": 0, "workspace": 0, "cuda_graphs": 0}


class TestReferenceLesson:
    """A custom GPU of exactly 80 GB, utilisation 0.90, 3 GB of activations and nothing else."""

    def plan(self, model: str, count: int) -> Plan:
        options = {"gpu_memory_utilization": 0.9, "tensor_parallel_size": count}
        return plan(model, f"{count}x80GB", options, NOTHING_ELSE)

    def test_8b_on_one_gpu(self) -> None:
        result = self.plan(LLAMA_8B, 1)
        assert result.fits
        assert result.request.model.stored is not None
        assert result.request.model.stored.value == 16_060_522_496
        assert size(result, "weights") == 16_060_522_496
        budget = result.devices[0].budget
        assert budget is not None
        assert budget.value == 72 * GB
        cache = result.kv_cache
        assert cache is not None
        assert cache.bytes_per_token == 131_072
        assert round(cache.available.value / GB, 1) == 52.9
        assert cache.tokens == cache.units * 16
        assert 403_800 <= cache.tokens <= 403_899
        assert any("21 % too many" in note for note in cache.available.notes)

    def test_70b_on_one_gpu_fails_while_loading(self) -> None:
        result = self.plan(LLAMA_70B, 1)
        assert result.request.model.stored is not None
        assert result.request.model.stored.value == 141_107_412_992
        assert (result.fits, result.stage) == (False, "weights")
        assert result.devices[0].overflow_bytes > 0

    def test_70b_on_two_gpus_is_short_when_the_cache_is_sized(self) -> None:
        result = self.plan(LLAMA_70B, 2)
        assert round(size(result, "weights") / GB, 2) == 70.56
        assert (result.fits, result.stage) == (False, "kv_cache_sizing")
        assert round(result.missing_bytes / GB, 2) == 1.56

    def test_70b_on_four_gpus(self) -> None:
        result = self.plan(LLAMA_70B, 4)
        assert result.fits
        assert result.kv_cache is not None
        assert round(4 * result.kv_cache.available.value / GB, 1) == 134.9
        assert 411_500 <= result.kv_cache.tokens <= 411_700


class TestRealCard:
    """NVIDIA H100 80GB HBM3: CUDA sees 81,081 MiB."""

    def test_8b_with_the_engines_defaults(self) -> None:
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "H100")
        assert result.fits
        assert {name: result.options[name].value for name in ("max_num_batched_tokens", "max_num_seqs")} == {
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 1024,
        }
        budget = result.devices[0].budget
        assert budget is not None
        assert round(budget.value / GIB, 2) == 72.85
        cache = result.kv_cache
        assert cache is not None
        assert cache.unit_tokens == 16
        assert 54.5 <= cache.available.value / GIB <= 56.5
        assert 445_000 <= cache.tokens <= 463_000

    def test_other_defaults_follow_on_a_4090(self) -> None:
        result = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {"max_model_len": 8192})
        assert result.options["max_num_batched_tokens"].value == 2048
        assert result.options["max_num_seqs"].value == 256
        assert result.options["max_num_seqs"].origin == "default"

    def test_changing_the_gpu_keeps_no_stale_default(self) -> None:
        on_h100 = plan("Qwen/Qwen3-8B", "H100")
        again = VLLM.plan(on_h100.request._replace(machine=gpus.machine("RTX 4090")))
        assert again.options["max_num_seqs"].value == 256


@pytest.mark.parametrize("model", [LLAMA_8B, "Qwen/Qwen3-8B"])
@pytest.mark.parametrize("gpu", ["H100", "2xRTX 4090", "4xL40S", "8xH100", "1xRTX 4090,1xRTX 3090", "2xRTX 5090"])
@pytest.mark.parametrize("free_mib", [None, 23_000])
def test_a_fitting_plan_adds_up_to_the_card(model: str, gpu: str, free_mib: int | None) -> None:
    result = plan(model, gpu, {"max_model_len": 4096}, free=free_mib * MIB if free_mib else None)
    for device in result.devices:
        for segment in device.segments:
            assert segment.estimate.low <= segment.bytes <= segment.estimate.high, segment.kind
        if result.fits:
            assert sum(s.bytes for s in device.segments) == device.total_bytes
        else:
            assert device.segment("headroom") is None


def test_free_memory_below_the_budget() -> None:
    result = plan(LLAMA_8B, "H100", free=60 * GIB)
    assert (result.fits, result.stage) == (False, "free_memory_check")
    assert "72.85 GiB" in engine_message(result)
    assert "79.18 GiB" in engine_message(result)
    free = 60 * GIB - size(result, "runtime_outside")
    assert f"({round(free / GIB, 2)}/" in engine_message(result)
    assert size(result, "other") == 81_081 * MIB - 60 * GIB


def test_a_request_longer_than_the_cache() -> None:
    result = plan("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090")
    assert (result.fits, result.stage) == (False, "kv_cache_too_small")
    cache = result.kv_cache
    assert cache is not None
    assert cache.error is not None
    assert f"estimated maximum model length is {cache.suggested_context_length}" in cache.error
    assert engine_message(result) == cache.error
    longest = plan(
        "meta-llama/Llama-3.1-8B-Instruct", "RTX 4090", {"max_model_len": cache.suggested_context_length or 0}
    )
    assert longest.stage != "kv_cache_too_small"


def test_another_vendors_gpu_cannot_be_told() -> None:
    result = plan(LLAMA_8B, "MI300X")
    assert result.fits is None
    assert result.kv_cache is None
    assert "not an NVIDIA GPU" in summary(result)


def test_the_load_is_answered() -> None:
    result = plan("Qwen/Qwen3-8B", "RTX 4090", {"max_model_len": 8192}, load=Load(32, 1500, 500))
    served = result.limits.serves_users
    assert served is not None
    assert 0 < served <= 32
    assert f"{served} of 32 users" in summary(result)
    more = plan("Qwen/Qwen3-8B", "RTX 4090", {"max_model_len": 8192}, load=Load(5000, 1500, 500))
    assert more.limits.serves_users == min(
        256, ((more.kv_cache.units if more.kv_cache else 0) - 1) // (more.limits.units_per_user or 1)
    )
    too_long = plan("Qwen/Qwen3-8B", "RTX 4090", {"max_model_len": 8192}, load=Load(1, 8000, 500))
    assert too_long.limits.serves_users == 0


def test_several_gpus_are_used_without_being_told() -> None:
    result = plan("Qwen/Qwen3-8B", "2xRTX 4090", {"max_model_len": 8192})
    assert result.options["tensor_parallel_size"].value == 2
    assert result.options["tensor_parallel_size"].origin == "derived"
    assert [d.role for d in result.devices] == ["tp0", "tp1"]
    assert "--tensor-parallel-size 2" in format_command(VLLM, result.request)


def test_missing_gpus_are_refused() -> None:
    with pytest.raises(BadInput, match="tensor parallel 4 needs 4 GPUs and 2 are given") as error:
        plan(LLAMA_8B, "2xH100", {"tensor_parallel_size": 4})
    assert error.value.where == "--tensor-parallel-size"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"data_parallel_size": 64}, "--data-parallel-size"),
        ({"pipeline_parallel_size": 8}, "--pipeline-parallel-size"),
        ({"tensor_parallel_size": 1, "data_parallel_size": 3}, "--data-parallel-size"),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 4}, "--pipeline-parallel-size"),
    ],
)
def test_missing_gpus_are_told_at_the_size_that_asks_for_them(options: dict[str, OptionValue], where: str) -> None:
    with pytest.raises(BadInput, match="GPUs and 2 are given") as error:
        plan(LLAMA_8B, "2xH100", options)
    assert error.value.where == where
    assert where[2:].removesuffix("-size").replace("-", " ") in error.value.what


def test_a_model_without_countable_layers_shows_its_weights() -> None:
    known = models.load(LLAMA_8B)
    spec = known.spec._replace(layers=(LayerSpec((), ()),), layer_of=(), not_modelled=("its architecture",))
    request = PlanRequest(known._replace(spec=spec), gpus.machine("2xH100"))
    found = VLLM.plan(request)
    assert found.fits is None
    assert found.devices[0].segment("weights")
    with pytest.raises(NotModelled, match=r"layers of .* are not known") as error:
        VLLM.plan(request._replace(options={"pipeline_parallel_size": 2}))
    assert error.value.where == "--pipeline-parallel-size"


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(BadInput):
        plan(LLAMA_8B, "3xH100", {"tensor_parallel_size": 3})


def test_unknown_engine() -> None:
    with pytest.raises(UnknownName):
        engine("no such engine")


def test_the_timeline_ends_where_the_plan_fails() -> None:
    fits = plan(LLAMA_8B, "H100")
    labels = [s.stage for s in fits.devices[0].stages]
    assert labels == ["start", "load", "profile", "size", "allocate", "graphs", "serve"]
    assert not any(s.failing for s in fits.devices[0].stages)
    fails = plan(LLAMA_70B, "H100")
    assert [s.stage for s in fails.devices[0].stages if s.failing] == ["load"]
    assert [s.stage for s in fails.devices[0].stages if s.reached] == ["start", "load"]
    for stage in (*fits.devices[0].stages, *fails.devices[0].stages):
        assert stage.end_bytes <= stage.peak_bytes


def test_a_draft_model_takes_weights_and_cache() -> None:
    options: dict[str, OptionValue] = {
        "max_model_len": 8192,
        "speculative_method": "draft_model",
        "num_speculative_tokens": 3,
    }
    request = PlanRequest(models.load("Qwen/Qwen3-8B"), gpus.machine("H100"), options=options)
    alone = VLLM.plan(request._replace(options={"max_model_len": 8192}))
    both = VLLM.plan(request._replace(draft=models.load("Qwen/Qwen3-0.6B")))
    weights = models.load("Qwen/Qwen3-0.6B").inventory
    assert weights is not None
    assert size(both, "weights") - size(alone, "weights") == weights.parameters() * 2
    assert alone.kv_cache is not None
    assert both.kv_cache is not None
    # 28 draft layers of 8 KV heads × 128 beside 36 alike target layers.
    assert both.kv_cache.bytes_per_unit * 36 == alone.kv_cache.bytes_per_unit * (36 + 28)


def test_more_sequences_than_state_blocks() -> None:
    result = plan("Qwen/Qwen3.5-27B", "H100", {"max_model_len": 8192, "max_num_seqs": 1024})
    assert (result.fits, result.stage) == (False, "kv_cache_too_small")
    assert "max_num_seqs (1024) exceeds available Mamba cache blocks" in engine_message(result)
    fewer = plan("Qwen/Qwen3.5-27B", "H100", {"max_model_len": 8192, "max_num_seqs": 64})
    assert fewer.fits
    assert fewer.kv_cache is not None
    assert any("usable blocks, shared by" in note for note in fewer.kv_cache.available.notes)


def test_calibration_narrows_a_band() -> None:
    request = PlanRequest(models.load("Qwen/Qwen3-8B"), gpus.machine("H100"))
    before = VLLM.plan(request).devices[0].segment("activations")
    assert before is not None
    seen = Calibration("activations", before.bytes + 50 * MIB, "", "NVIDIA H100 80GB HBM3", "qwen3", "a start-up log")
    after = VLLM.plan(request._replace(calibration=(seen,))).devices[0].segment("activations")
    assert after is not None
    assert after.estimate.high - after.estimate.low < before.estimate.high - before.estimate.low
    assert any("a start-up log" in note for note in after.estimate.notes)


@pytest.mark.parametrize("utilization", [0.9, 0.97, 0.98, 0.985, 0.99, 0.992, 0.995])
def test_a_fit_that_its_range_may_break_says_so(utilization: float) -> None:
    result = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", {"gpu_memory_utilization": utilization})
    narrow = any(note.startswith(("A narrow fit", "May not fit")) for note in notes(result))
    if not result.fits:
        assert utilization > 0.98
        return
    headroom = result.devices[0].segment("headroom")
    assert headroom is not None
    assert headroom.estimate.low >= 0 or narrow
    assert not narrow or utilization > 0.97


def test_a_start_that_may_die_at_capture_is_not_told_to_fit() -> None:
    """A start of gpt-oss-20b on one H100 at 0.95 died while capturing graphs (0.19)."""
    result = VLLM.plan(
        PlanRequest(
            models.load("openai/gpt-oss-20b"), gpus.machine("H100"), version="0.19.0",
            options={"gpu_memory_utilization": 0.95},
        )
    )  # fmt: skip
    assert result.verdict.doubt is not None
    assert result.verdict.doubt.stage == "graph_capture"
    assert summary(result).startswith("May not fit: capturing CUDA graphs may lack")


def test_activations_tell_their_tensors() -> None:
    result = plan("meta-llama/Llama-3.1-8B-Instruct", "H100", {"max_num_seqs": 256, "max_num_batched_tokens": 8192})
    segment = result.devices[0].segment("activations")
    assert segment is not None
    told = " · ".join(segment.estimate.notes)
    # 8,192 × 2 × 14,336 × 2 bytes, and 256 × 128,256 × 4 bytes.
    assert "8,192 tokens in one step: gate and up tensors 0.47 GB" in told
    assert "256 rows of fp32 logits over 128,256 words: 131 MB" in told
    assert format_both(16_060_522_496) == "16.06 GB = 14.96 GiB"


def test_what_the_default_of_1024_sequences_costs() -> None:
    result = plan("Qwen/Qwen3-8B", "H100")
    segment = result.devices[0].segment("activations")
    assert segment is not None
    assert any("max_num_seqs 1,024 costs" in note and "more than 256 would" in note for note in segment.estimate.notes)
    fewer = plan("Qwen/Qwen3-8B", "H100", {"max_num_seqs": 256})
    assert result.kv_cache is not None
    assert fewer.kv_cache is not None
    assert fewer.kv_cache.tokens > result.kv_cache.tokens


def test_a_cache_that_is_not_modelled_exactly_gives_no_token_count() -> None:
    result = plan("deepseek-ai/DeepSeek-V4-Flash", "8xB200")
    assert result.fits is None
    assert result.kv_cache is None
    assert summary(result).startswith("Cannot tell: ")
    assert size(result, "kv_cache") > 100 * GIB
    # Weights that do not fit are certain whatever the cache.
    assert plan("deepseek-ai/DeepSeek-V4-Flash", "H100").stage == "weights"


def test_another_weight_format_is_planned_from_the_model_as_stored() -> None:
    stored = PlanRequest(models.load("Qwen/Qwen3-8B"), gpus.machine("H100"))
    halved = VLLM.plan(stored._replace(weight_format="FP8"))
    assert 0.5 < size(halved, "weights") / size(VLLM.plan(stored), "weights") < 0.65
    assert halved.request.model.weight_format == "FP8"
    assert VLLM.plan(halved.request._replace(weight_format="FP8")).devices == halved.devices
    with pytest.raises(UnknownName):
        VLLM.plan(stored._replace(weight_format="FP3"))


def test_capture_sizes_stay_within_reason() -> None:
    with pytest.raises(BadInput) as error:
        plan("Qwen/Qwen3-8B", "H100", {"max_cudagraph_capture_size": 10**9})
    assert error.value.where == "--max-cudagraph-capture-size"


def test_a_peak_that_compiling_made_is_no_peak_of_serving() -> None:
    """What a first start measures holds the compilation's peak too: a full step takes no more of it than it does."""
    options: dict[str, OptionValue] = {
        "gpu_memory_utilization": 0.97, "max_num_batched_tokens": 512, "kv_cache_dtype": "fp8",
    }  # fmt: skip
    request = PlanRequest(
        models.load("nvidia/AceReason-Nemotron-1.1-7B"), gpus.machine("A30"), version="0.28", options=options
    )
    plain = engine("vllm").plan(request)
    peak = plain.devices[0].segment("activations")
    assert plain.sure
    assert peak is not None
    for given in (peak.estimate.value, peak.estimate.high):
        assert engine("vllm").plan(request._replace(measured={"activations": given})).fits
