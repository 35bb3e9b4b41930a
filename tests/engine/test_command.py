"""Command lines both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.command import ParsedFlags, parse_flags
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput, PlannerError, UnknownName

VLLM = engine("vllm")


def parse(*argv: str) -> ParsedFlags:
    return parse_flags(VLLM.options(), argv, VLLM.ignored_flags)


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--max-model-len", "32k"], {"max_model_len": 32_000}),
        (["--max-model-len=32K"], {"max_model_len": 32_768}),
        (["--max_model_len", "8192"], {"max_model_len": 8192}),
        (["--max-model-len", "auto"], {"max_model_len": -1}),
        (["-tp", "2"], {"tensor_parallel_size": 2}),
        (["--tensor-parallel-size=4", "-pp=2"], {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}),
        (["--enforce-eager"], {"enforce_eager": True}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--kv-cache-memory=5GiB"], {"kv_cache_memory_bytes": 5 << 30}),
        (["--kv-cache-dtype", "FP8"], {"kv_cache_dtype": "fp8"}),
        (["-O3"], {"optimization_level": "3"}),
        (["-O", "1"], {"optimization_level": "1"}),
        (["--compilation-config", '{"cudagraph_mode": "PIECEWISE"}'], {"cudagraph_mode": "PIECEWISE"}),
        (["--compilation-config.cudagraph_mode", "NONE"], {"cudagraph_mode": "NONE"}),
        (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'],
         {"speculative_method": "mtp", "num_speculative_tokens": 3}),
        (["--cudagraph-capture-sizes", "1", "2", "4"], {"cudagraph_capture_sizes": "1,2,4"}),
    ],
)  # fmt: skip
def test_flags_as_the_engine_spells_them(argv: list[str], values: dict[str, object]) -> None:
    assert parse(*argv).values == values


def test_a_flag_that_cannot_matter_is_a_warning() -> None:
    parsed = parse("Qwen/Qwen3-8B", "--port", "9000", "--trust-remote-code", "-tp", "2")
    assert parsed.positional == ("Qwen/Qwen3-8B",)
    assert parsed.values == {"tensor_parallel_size": 2}
    assert [w.split()[0] for w in parsed.warnings] == ["--port", "--trust-remote-code"]


def test_an_unknown_flag_is_an_error_with_near_ones() -> None:
    with pytest.raises(UnknownName) as error:
        parse("--max-model-length", "5")
    assert "--max-model-len" in error.value.near


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-tp", "two"], "whole number"),
        (["-tp", "0"], "out of range"),
        (["-tp"], "missing"),
        (["--gpu-memory-utilization", "1.5"], "0.05 to 1"),
        (["--gpu-memory-utilization", "nan"], "finite"),
        (["--kv-cache-dtype", "fp7"], "not one of"),
        (["--max-model-len", "many"], "not a count"),
        (["--compilation-config", "{"], "JSON"),
        (["--compilation-config", "[]"], "object"),
    ],
)
def test_bad_values_name_the_flag_and_the_remedy(argv: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        parse(*argv)
    assert error.value.where.startswith("-")


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_parse_or_give_a_clear_error(argv: list[str]) -> None:
    try:
        parse(*argv)
    except PlannerError as error:
        assert error.what
