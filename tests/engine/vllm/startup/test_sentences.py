"""What plans say: in either unit, with words of its own for a cache whose size is given."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.report.sentences import engine_message, summary
from kvplanner.sized_text import SizedText, show_size, size_mark, sizes_in
from kvplanner.units import GIB, MIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
BOTH = re.compile(r"[\d,.]+ [GM]B = [\d,.]+ [GM]iB")
# Each fails, or is in doubt, at another stage.
CASES: tuple[tuple[str, str, dict[str, OptionValue]], ...] = (
    (LLAMA, "H100", {}),
    (LLAMA, "RTX 4090", {}),
    (LLAMA, "RTX 4090", {"max_model_len": 8192, "gpu_memory_utilization": 0.98}),
    (LLAMA, "RTX 4090", {"max_model_len": 8192, "gpu_memory_utilization": 0.62}),
    (LLAMA, "RTX 4060 Ti 16GB", {}),
    (LLAMA, "2xRTX 4090", {"kv_cache_memory_bytes": 100 * GIB}),
    (LLAMA, "H100", {"num_gpu_blocks_override": 3}),
    (LLAMA, "H100", {"max_num_seqs": 1024}),
    ("openai/gpt-oss-120b", "H100", {}),
    ("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090", {}),
    ("meta-llama/Llama-3.3-70B-Instruct", "2xH100", {}),
    ("deepseek-ai/DeepSeek-V3", "8xH200", {"enable_expert_parallel": True}),
    ("Qwen/Qwen3-30B-A3B", "2xH100", {"data_parallel_size": 2, "enable_expert_parallel": True}),
    ("google/gemma-3-27b-it", "H100", {"kv_cache_dtype": "fp8"}),
)


def plan(model: str, gpu: str, options: dict[str, OptionValue]) -> Plan:
    request = PlanRequest(models.load(models.find(model).id), gpus.machine(gpu), options=options, load=Load(8, 500, 50))
    return engine("vllm").plan(request)


def told(made: Plan) -> Iterator[str]:
    """All that a plan says in its own words."""
    yield summary(made)
    yield from (warning for warning in made.warnings if "the engine would say" not in warning)
    estimates = [e for d in made.devices for e in (*(s.estimate for s in d.segments), d.budget) if e]
    for estimate in (*estimates, *([made.kv_cache.available] if made.kv_cache else [])):
        yield from estimate.notes
        yield from (item.source for item in estimate.inputs)


@pytest.mark.parametrize(("model", "gpu", "options"), CASES)
def test_all_that_a_plan_says_can_be_read_in_gb(model: str, gpu: str, options: dict[str, OptionValue]) -> None:
    said = list(told(plan(model, gpu, options)))
    for text in said:
        assert not set("\x02\x03") & set(text)
        assert sizes_in(text, "GiB") == text
        decimal = BOTH.sub("", sizes_in(text, "GB"))
        assert "GiB" not in decimal, text
        assert "MiB" not in decimal, text
    assert any(sizes_in(text, "GB") != text for text in said)


def test_a_failing_plan_says_its_sizes_in_either_unit() -> None:
    text = summary(plan(LLAMA, "RTX 4090", {}))
    assert "needs 16.00 GiB of KV cache" in text
    assert "needs 17.18 GB of KV cache" in sizes_in(text, "GB")


def test_two_figures_that_read_alike_are_told_by_what_lies_between_them() -> None:
    near = summary(plan(LLAMA, "19.5GiB,9.62GiB,4.75GiB,4.75GiB", {}))
    assert "has 4.37 GiB free at start, 2.8 MiB less than the 4.37 GiB that is wanted" in near
    far = summary(plan(LLAMA, "RTX 4090", {"gpu_memory_utilization": 1.0}))
    assert "GiB free at start and 23.52 GiB is wanted" in far


def test_a_given_cache_has_words_of_its_own() -> None:
    large = plan(LLAMA, "2xRTX 4090", {"kv_cache_memory_bytes": 100 * GIB})
    assert summary(large).startswith("Does not fit: the given KV cache of 100.00 GiB lacks ")
    assert "outside the budget" not in summary(large)
    few = plan(LLAMA, "H100", {"num_gpu_blocks_override": 3})
    assert not any("compile" in note for note in few.warnings)  # nothing takes from a cache that is given
    short: dict[str, OptionValue] = {"max_model_len": 8192}
    assert any("warm compile cache" in note for note in plan(LLAMA, "RTX 4090", short).warnings)
    again = plan(LLAMA, "RTX 4090", {**short, "compile_cache": "warm"})
    assert any("A first start compiles" in note for note in again.warnings)
    cache = few.devices[0].segment("kv_cache")
    assert cache is not None
    assert cache.estimate.inputs[0].source.startswith("the given size ÷ bytes per block")
    assert few.stage == "kv_cache_too_small"
    assert summary(few).endswith("needs 16.00 GiB of KV cache and the given one has 4.0 MiB to use")
    none = plan(LLAMA, "H100", {"num_gpu_blocks_override": 1})
    assert none.stage == "kv_cache_sizing"
    assert summary(none) == "Does not fit: the given KV cache of 2.0 MiB holds no block to use"


@pytest.mark.parametrize(
    ("value", "gib", "gb"),
    [
        (16 * GIB, "16.00 GiB", "17.18 GB"),
        (52 * MIB, "52 MiB", "55 MB"),
        (3 * MIB, "3.0 MiB", "3.1 MB"),
        (MIB // 2, "0.50 MiB", "0.52 MB"),
        (-52 * MIB, "−52 MiB", "−55 MB"),
        (0, "0.00 GiB", "0.00 GB"),
    ],
)
def test_sizes_in_sentences(value: int, gib: str, gb: str) -> None:
    assert (show_size(value), show_size(value, "GB")) == (gib, gb)
    sentence = SizedText(f"it lacks {size_mark(value)}")
    assert sentence == f"it lacks {gib}"
    assert sizes_in(sentence, "GB") == f"it lacks {gb}"


def test_a_copy_keeps_its_sizes() -> None:
    sentence = SizedText(f"about {size_mark(GIB, 0)} less")
    for same in (copy.deepcopy(sentence), pickle.loads(pickle.dumps(sentence))):
        assert (same, sizes_in(same, "GB")) == ("about 1 GiB less", "about 1 GB less")
    assert sizes_in("plain text of 1 GiB", "GB") == "plain text of 1 GiB"


def test_the_engines_message_has_brackets_only_for_what_no_plan_can_know() -> None:
    loading = engine_message(plan("Qwen/Qwen3-30B-A3B", "2xRTX 4090", {}))
    said = "Tried to allocate [a tensor]. GPU 0 has a total capacity of 23.52 GiB of which [less than that] is free."
    assert said in loading
    # 100 GiB in blocks of 1 MiB per GPU, over 32 layers.
    given = plan(LLAMA, "2xRTX 4090", {"kv_cache_memory_bytes": 100 * GIB})
    assert given.stage == "kv_cache_allocation"
    assert "Tried to allocate 3.12 GiB. GPU 0 has a total capacity of 23.52 GiB" in engine_message(given)
    for model, gpu, options in CASES:
        assert "…" not in engine_message(plan(model, gpu, options))


@pytest.mark.parametrize(
    ("gpu", "options", "load", "told"),
    [
        ("3xH100", {"tensor_parallel_size": 2}, None, "1 of 3 GPUs is not used"),
        ("4xH100", {"tensor_parallel_size": 2}, None, "2 of 4 GPUs are not used"),
        ("H100", {"max_num_seqs": 1}, None, "1 request of 131,072 tokens at once"),
        ("H100", {"max_num_seqs": 2}, None, "2 requests of 131,072 tokens at once"),
        ("H100", {}, Load(1, 100, 100), "serves 1 of 1 user:"),
        ("H100", {}, Load(32, 200_000, 1_000), "Fits, but serves none of 32 users: one needs 201,000 tokens"),
        ("RTX 4090", {"max_model_len": 36_000}, None, "at once, too little at the lower end of its range"),
    ],
)
def test_words_agree_with_their_number(gpu: str, options: dict[str, OptionValue], load: Load | None, told: str) -> None:
    request = PlanRequest(models.load(LLAMA), gpus.machine(gpu), options=options, load=load)
    found = engine("vllm").plan(request)
    assert any(told in line for line in (summary(found), *found.warnings))
