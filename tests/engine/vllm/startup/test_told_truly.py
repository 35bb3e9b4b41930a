"""What a plan tells is what the engine would say and what its own figures allow."""

from __future__ import annotations

import re

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.report.sentences import engine_message, notes, summary
from kvplanner.units import GB, GIB, MIB
from tests.engine.kit import VLLM, plan, size

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize("version", ["0.99", "0.9999.9999", "1.0", "9.9.1"])
def test_a_release_to_come_is_planned_by_the_newest_rules(version: str) -> None:
    newest, later = plan(LLAMA, "H100"), plan(LLAMA, "H100", version=version)
    assert later.engine_version.startswith(version)
    assert later.rules == newest.rules
    assert later.kv_cache is not None
    assert newest.kv_cache is not None
    assert later.kv_cache.tokens == newest.kv_cache.tokens
    assert any("newer than 0.33" in warning for warning in later.warnings)


def test_a_utilisation_of_one_is_printed_as_python_does() -> None:
    assert "(1.0, 79.18 GiB)" in engine_message(plan(LLAMA, "H100", {"gpu_memory_utilization": 1}))


def free(gib: float, load: Load | None = None) -> Plan:
    return plan(LLAMA, "H100", free=round(gib * GIB), load=load)


class TestTheFreeMemoryCheck:
    """H100: 72.85 GiB are wanted; the context takes 0.50 GiB, within 0.41 to 0.79."""

    def test_that_passes_at_its_value_only_may_not_fit(self) -> None:
        result = free(73.40)
        assert result.fits
        assert summary(result).startswith("May not fit: GPU 0 may have no more than 72.61 GiB free at start and 72.85")
        assert "if it starts, KV cache for " in summary(result)
        assert notes(result)[0].startswith(
            "May not fit: at the upper end of its range the free-memory check lacks 0.24 GiB on GPU 0"
        )

    def test_that_fails_at_its_value_only_probably_does_not_fit(self) -> None:
        result = free(73.30)
        assert (result.fits, result.stage) == (False, "free_memory_check")
        assert summary(result).startswith("Probably does not fit: GPU 0 has 72.80 GiB free at start")

    @pytest.mark.parametrize(("gib", "start"), [(73.7, "Fits: "), (73.2, "Does not fit: ")])
    def test_beyond_its_range_is_certain(self, gib: float, start: str) -> None:
        result = free(gib)
        assert summary(result).startswith(start)
        assert not any("free-memory check" in warning for warning in notes(result))

    def test_other_stages_are_told_in_words_too(self) -> None:
        given: dict[str, OptionValue] = {"max_model_len": 1024, "kv_cache_memory_bytes": 256 * MIB}
        told = plan(LLAMA, "16.4GiB", {**given, "compile_cache": "warm"})
        found = re.match(
            r"May not fit: the profile run may lack (\d\.\d\d) GiB on GPU 0; if it starts, KV cache", summary(told)
        )
        assert found
        assert f"at the upper end of its range the profile run lacks {found[1]} GiB" in notes(told)[0]

    def test_a_load_is_told_after_the_doubt(self) -> None:
        assert "; if it starts, it serves 1 of 1 user: " in summary(free(73.40, load=Load(1, 100, 100)))

    def test_the_doubt_of_any_replica_is_told(self) -> None:
        machine = gpus.machine("2xH100")
        request = PlanRequest(models.load(LLAMA), machine, options={"data_parallel_size": 2})
        one = VLLM.plan(request).devices[1]
        assert one.budget is not None
        just = one.device._replace(free_bytes=one.budget.value + size(VLLM.plan(request), "runtime_outside") + MIB)
        told = VLLM.plan(request._replace(machine=machine._replace(devices=(machine.devices[0], just))))
        assert summary(told).startswith("May not fit: GPU 1 may have no more than ")
        assert notes(told)[0].endswith("on GPU 1; a lower utilisation leaves room")


class TestTheCache:
    def test_too_little_at_the_low_end_is_told_with_the_load(self) -> None:
        result = plan(LLAMA, "RTX 4090", {"max_model_len": 41_000, "compile_cache": "warm"}, load=Load(32, 1500, 500))
        assert summary(result).startswith("May not fit; if it starts, it serves 21 of 32 users: KV cache for ")
        few = plan(LLAMA, "RTX 4090", {"max_model_len": 41_000, "compile_cache": "warm"}, load=Load(2, 1500, 500))
        assert summary(few).startswith("May not fit; if it starts, it serves 2 of 2 users: ")

    def test_enough_at_the_high_end_probably_does_not_fit(self) -> None:
        result = plan(LLAMA, "20GB", {"max_model_len": 8192})
        assert (result.fits, result.stage) == (False, "kv_cache_too_small")
        assert summary(result).startswith("Probably does not fit: one request of 8,192 tokens needs 1.00 GiB")
        assert summary(plan(LLAMA, "20GB", {"max_model_len": 16_384})).startswith("Does not fit: ")

    def test_states_that_only_the_value_holds_are_doubtful(self) -> None:
        """The engine wants a block for each sequence of a model with recurrent state."""
        told = plan("Qwen/Qwen3.5-27B", "H100", {"max_model_len": 8192, "max_num_seqs": 330})
        assert told.fits
        assert summary(told).startswith("May not fit: ")
        assert summary(told).endswith(", too few blocks for the states of 330 sequences at the lower end of its range")
        assert "exceeds available Mamba cache blocks" in notes(told)[0]

    def test_a_context_that_the_whole_band_holds_is_not_what_lacks(self) -> None:
        told = plan("ibm-granite/granite-4.0-h-small", "H100")
        assert told.kv_cache is not None
        assert told.kv_cache.tokens_low > told.kv_cache.context_length
        assert "too little" not in summary(told)
        assert "too few blocks for the states of 1,024 sequences at the lower end" in summary(told)

    def test_no_length_is_promised_where_the_next_stage_fails(self) -> None:
        """A shorter context would fit the given cache, and serving a batch of 65,536 tokens would fail instead."""
        options: dict[str, OptionValue] = {"max_num_batched_tokens": 65_536, "kv_cache_memory_bytes": 3 * GIB}
        result = plan("Qwen/Qwen2-7B", "Quadro RTX 6000", {**options, "max_model_len": 131_072}, version="0.24")
        assert result.stage == "kv_cache_too_small"
        assert result.limits.max_context_length is None
        fewer = {"kv_cache_memory_bytes": GIB, "max_num_batched_tokens": 2048, "max_model_len": 131_072}
        assert plan("Qwen/Qwen2-7B", "Quadro RTX 6000", fewer, version="0.24").limits.max_context_length == 18_704


class TestNoRoomForTheContext:
    """vLLM cannot print a negative size: the CUDA context fails before it looks."""

    @pytest.mark.parametrize("left", [0, 60, GIB // 3])
    def test_on_one_gpu(self, left: int) -> None:
        result = plan(LLAMA, "H100", free=left)
        assert (result.fits, result.stage) == (False, "free_memory_check")
        assert engine_message(result) == "torch.AcceleratorError: CUDA error: out of memory"
        assert summary(result).endswith("free before the engine starts and the CUDA context needs 0.50 GiB")

    def test_in_a_release_without_the_check(self) -> None:
        result = plan(LLAMA, "H100", free=GIB // 3, version="0.7.3")
        assert (result.fits, result.stage) == (False, "weights")
        assert engine_message(result) == "RuntimeError: CUDA error: out of memory"

    def test_the_communicators_after_it(self) -> None:
        result = plan(LLAMA, "2xH100", free=GIB)
        assert not engine_message(result)
        assert "the CUDA context and communicators need " in summary(result)

    def test_whatever_is_measured(self) -> None:
        result = plan(LLAMA, "H100", measured={"runtime_outside": 200 * GB})
        assert "-" not in engine_message(result)
        assert "−" not in summary(result)


def test_the_earliest_stage_fails_first_whichever_gpu_lacks_more() -> None:
    """Both stages of the pipeline allocate their cache before the second lacks far more for a full batch."""
    options: dict[str, OptionValue] = {
        "pipeline_parallel_size": 2, "kv_cache_memory_bytes": 10 * GIB, "max_model_len": 8192, "max_num_seqs": 8192,
        "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.5,
    }  # fmt: skip
    both = plan(LLAMA, "20GB,28GB", options)
    assert (both.stage, both.tightest) == ("kv_cache_allocation", 0)
    second = plan(LLAMA, "40GB,28GB", options)
    assert (second.stage, second.tightest) == ("runtime", 1)
    assert second.missing_bytes > both.missing_bytes


class TestGpusThatAReleaseDoesNotRunOn:
    """Its builds hold kernels from compute capability 7.5 on, before 0.20 from 7.0; for Blackwell since 0.9."""

    @pytest.mark.parametrize("gpu", ["GTX 1080 Ti", "P100", "P40", "2xV100 32GB", "Titan V"])
    def test_cannot_be_told(self, gpu: str) -> None:
        result = plan("Qwen/Qwen3-0.6B", gpu)
        assert (result.fits, result.stage) == (None, None)
        assert summary(result).startswith("Cannot tell: vLLM 0.33.0 has no kernels for ")
        assert "7.5 is the least" in summary(result)
        assert "; a build of your own that has them fits: KV cache for " in summary(result) or gpu.startswith("2x")
        assert [reason.code for reason in result.verdict.blocked] == ["no_kernels"]
        assert result.kv_cache is not None

    @pytest.mark.parametrize(
        ("gpu", "version", "runs"),
        [("T4", "0.33", True), ("V100 32GB", "0.19.1", True), ("V100 32GB", "0.20", False), ("P40", "0.9", False),
         ("RTX 5090", "0.9.0", True), ("RTX 5090", "0.8.5", False), ("H100", "0.6.6", True)],
    )  # fmt: skip
    def test_by_release(self, gpu: str, version: str, runs: bool) -> None:
        result = plan("Qwen/Qwen2.5-0.5B-Instruct", "Tesla V100-SXM2-32GB" if gpu.startswith("V") else gpu, None,
                      version=version)  # fmt: skip
        assert result.fits is (True if runs else None)

    @pytest.mark.parametrize(("model", "gpu"), [(LLAMA, "GTX 1080 Ti"), ("Qwen/Qwen3-8B", "V100 16GB")])
    def test_what_fails_in_any_case_fails_for_its_kernels_first(self, model: str, gpu: str) -> None:
        result = plan(model, gpu)
        assert result.fits is False
        assert summary(result).startswith("Does not fit: vLLM 0.33.0 has no kernels for ")
        assert "; a build of your own that has them does not fit: the " in summary(result)
        assert not engine_message(result)
        assert result.verdict.blocked[0].code == "no_kernels"

    def test_where_its_kernels_run_the_engine_has_the_word(self) -> None:
        assert engine_message(plan(LLAMA, "T4")).startswith("torch.OutOfMemoryError")

    def test_of_several_gpus_one_is_enough(self) -> None:
        result = plan("Qwen/Qwen3-0.6B", "1xRTX 2080 Ti,1xGTX 1080 Ti")
        assert result.fits is None
        assert "GTX 1080 Ti" in summary(result)


@pytest.mark.parametrize(
    ("model", "gpu", "version", "least"),
    [("openai/gpt-oss-20b", "2xT4", "0.33", 80), ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Tesla V100-SXM2-16GB", "0.19", 75),
     ("Qwen/Qwen3-4B-FP8", "T4", "0.11", 80)],
)  # fmt: skip
def test_a_format_without_kernels_for_the_gpu_is_refused(model: str, gpu: str, version: str, least: int) -> None:
    with pytest.raises(BadInput, match=f"not supported for the current GPU. Minimum capability: {least}. Current"):
        plan(model, gpu, version=version)
    assert plan(model, "RTX 3090", {"max_model_len": 1024}, version=version).fits is not None


@pytest.mark.parametrize(("size_", "said"), [(1, "1 byte"), (1000, "1,000 bytes"), (20_000, "0.02 MiB")])
def test_a_given_cache_of_next_to_nothing_is_not_told_as_nothing(size_: int, said: str) -> None:
    result = plan(LLAMA, "H100", {"kv_cache_memory_bytes": size_})
    assert summary(result) == f"Does not fit: the given KV cache of {said} holds no block to use"


def test_any_utilisation_above_nothing_is_planned() -> None:
    result = plan(LLAMA, "H100", {"gpu_memory_utilization": 0.0001})
    assert (result.fits, result.stage) == (False, "kv_cache_sizing")


def test_a_weight_format_has_the_name_that_the_release_gives_it() -> None:
    with pytest.raises(BadInput, match="The quantization method awq is not supported for the current GPU"):
        plan("Qwen/Qwen3-8B-AWQ", "V100 16GB", version="0.14")
    for version, name in (("0.14", "awq_marlin"), ("0.23", "awq_marlin"), ("0.24", "auto_awq"), ("0.33", "auto_awq")):
        assert plan("Qwen/Qwen3-8B-AWQ", "H100", version=version).options["quantization"].value == name


@pytest.mark.parametrize("gpu", ["RTX 4060 Ti 16GB", "18GiB", "RTX 4090", "H100"])
def test_a_load_whose_peak_may_not_fit_is_warned_about_also_where_a_later_stage_fails(gpu: str) -> None:
    result = plan(LLAMA, gpu)
    device = result.devices[0]
    load = next(stage for stage in device.stages if stage.stage == "load")
    over = load.peak_bytes > device.total_bytes
    assert over == (gpu == "RTX 4060 Ti 16GB")
    assert over == load.note.endswith("which may not fit")
    told = [warning for warning in notes(result) if "loading the weights lacks" in warning]
    assert bool(told) >= over
    if over:
        assert (result.stage, load.failing) == ("profile", False)
        assert told == ["May already fail earlier: at the upper end of its range loading the weights lacks 0.84 GiB on "
                        "GPU 0"]  # fmt: skip
