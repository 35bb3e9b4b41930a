"""Command lines both ways."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.command import ParsedFlags, format_command, parse_flags
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput, PlannerError, UnknownName
from tests import sample_plans

VLLM = engine("vllm")


def parse(*argv: str) -> ParsedFlags:
    return parse_flags(VLLM.options(), argv, VLLM.ignored_flags())


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
        (["--kv-cache-memory=5G"], {"kv_cache_memory_bytes": 5 << 30}),
        (["--kv-cache-dtype", "FP8"], {"kv_cache_dtype": "fp8"}),
        (["-O3"], {"optimization_level": "3"}),
        (["-O", "1"], {"optimization_level": "1"}),
        (["--compilation-config", '{"cudagraph_mode": "PIECEWISE"}'], {"cudagraph_mode": "PIECEWISE"}),
        (["--compilation-config.cudagraph_mode", "NONE"], {"cudagraph_mode": "NONE"}),
        (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'],
         {"speculative_method": "mtp", "num_speculative_tokens": 3}),
        (["--cudagraph-capture-sizes", "1", "2", "4"], {"cudagraph_capture_sizes": "1,2,4"}),
        (["--compilation-config", '{"cudagraph_capture_sizes": [1, 8], "max_cudagraph_capture_size": 8, "level": 3}'],
         {"cudagraph_capture_sizes": "1,8", "max_cudagraph_capture_size": 8, "compilation_mode": "3"}),
        (["-O", '{"cudagraph_mode": "FULL", "cudagraph_capture_sizes": null}'], {"cudagraph_mode": "FULL"}),
        (['-O={"level": 0}'], {"compilation_mode": "0"}),
        (["-cc.cudagraph_mode=NONE"], {"cudagraph_mode": "NONE"}),
        (["-cc.max_cudagraph_capture_size", "64"], {"max_cudagraph_capture_size": 64}),
        (["-O.cudagraph_capture_sizes=[1, 2]"], {"cudagraph_capture_sizes": "1,2"}),
        (["--compilation-config", "3"], {"compilation_mode": "3"}),
        (["-sc", '{"method": "ngram"}'], {"speculative_method": "ngram"}),
        (["--limit-mm-per-prompt.image", "2", "--limit-mm-per-prompt.video=0"],
         {"limit_mm_per_prompt": '{"image": 2, "video": 0}'}),
        (["-sc.method=deepseek_mtp"], {"speculative_method": "mtp"}),
        (["-cc.mode=VLLM_COMPILE"], {"compilation_mode": "3"}),
        (["--task", "generate", "--swap-space", "4", "--use-v2-block-manager"], {}),
        (["--dtype", "half"], {"dtype": "half"}),
        (["--dtype=float"], {"dtype": "float"}),
        (["--kv-cache-dtype-skip-layers", "0", "1"], {"kv_cache_dtype_skip_layers": "0,1"}),
        (["--served-model-name", "a", "b", "-tp", "2"], {"tensor_parallel_size": 2}),
        (["--lora-modules", "a=b", "c=d", "--enable-lora"], {"enable_lora": True}),
        (["--device", "cuda", "--nnodes", "2"], {}),
        (["--hf-overrides", '{"n_positions": 65536}'], {"hf_overrides": '{"n_positions": 65536}'}),
        (["--hf-overrides.n_positions=65536"], {"hf_overrides": '{"n_positions": 65536}'}),
    ],
)  # fmt: skip
def test_flags_as_the_engine_spells_them(argv: list[str], values: dict[str, object]) -> None:
    assert parse(*argv).values == values


def test_a_flag_that_cannot_matter_is_a_warning() -> None:
    parsed = parse("Qwen/Qwen3-8B", "--port", "9000", "--trust-remote-code", "-tp", "2")
    assert parsed.positional == ("Qwen/Qwen3-8B",)
    assert parsed.values == {"tensor_parallel_size": 2}
    assert [w.split()[0] for w in parsed.warnings] == ["--port", "--trust-remote-code"]


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["--config", "serve.yaml"], "command line"),
        (["--rope-theta=1000000"], "changed config.json"),
        (["--device", "cpu"], "Leave it out"),
        (["--num-scheduler-steps", "8"], "Leave it out"),
        (["--disable-sliding-window"], "--max-model-len"),
    ],
)
def test_a_flag_that_may_matter_is_refused_with_a_remedy(argv: list[str], remedy: str) -> None:
    with pytest.raises(BadInput, match=r"^-") as error:
        parse(*argv)
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    "argv",
    [["--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}'], ["--kernel-config", '{"x": 1}'],
     ["--linear-backend", "cutlass"], ["--mamba-backend", "flashinfer"], ["--enable-return-routed-experts"],
     ["--kv-sharing-fast-prefill"], ["--task", "embed"], ["--runner", "pooling"], ["--convert", "embed"]],
)  # fmt: skip
def test_a_flag_whose_cost_is_not_known_is_planned_without(argv: list[str]) -> None:
    parsed = parse(*argv)
    assert not parsed.values
    assert parsed.warnings == (f"{argv[0]} is not modelled: planned without it",)


@pytest.mark.parametrize(
    "argv",
    [["--cudagraph-metrics"], ["--no-enable-flashinfer-autotune"], ["--enable-flashinfer-autotune"],
     ["--jit-monitor-mode", "off"], ["--calculate-kv-scales"], ["--renderer-num-workers", "4"], ["--runner", "auto"],
     ["--no-kv-sharing-fast-prefill"], ["--kv-transfer-config", "{}"]],
)  # fmt: skip
def test_a_flag_that_costs_nothing_is_left_out(argv: list[str]) -> None:
    parsed = parse(*argv)
    assert not parsed.values
    assert parsed.warnings == (f"{argv[0]} does not change memory: left out",)


@pytest.mark.parametrize("argv", [["--attention-config", '{"backend": "FLASHINFER"}'], ["-ac.backend=FLASHINFER"]])
def test_the_back_end_may_stand_in_a_config(argv: list[str]) -> None:
    assert parse(*argv).values == {"attention_backend": "FLASHINFER"}


def test_short_names_of_drafts() -> None:
    parsed = parse("--spec-method", "ngram", "--spec-tokens", "3")
    assert parsed.values == {"speculative_method": "ngram", "num_speculative_tokens": 3}


_TAKEN = json.loads((Path(__file__).parent / "vllm" / "data" / "flags.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("release", _TAKEN["releases"])
def test_every_flag_of_a_release_is_known(release: str) -> None:
    """Planned, without effect, planned without and said so, or refused with the reason."""
    place = _TAKEN["releases"].index(release)
    flags = {flag for flag, letters in _TAKEN["flags"].items() if letters[place] != "."}
    known = set(VLLM.ignored_flags())
    for option in VLLM.options(release):
        known |= {*option.flags, option.negation}
        known |= {f"--{name.partition('.')[0].replace('_', '-')}" for name in (option.json, *option.json_also)}
    assert len(flags) > 100
    assert not flags - known


def test_a_flag_that_is_left_out_takes_its_value_with_it() -> None:
    """What follows a switch is the model, not its value."""
    rules = VLLM.ignored_flags()
    for flag, letters in _TAKEN["flags"].items():
        if flag in rules:
            assert ("s" in letters) == (rules[flag].words == ""), flag


@pytest.mark.parametrize(
    ("text", "written"), [("20GiB", "20G"), ("20GB", "20g"), ("1.5gib", "1610612736"), ("7b", "7")]
)
@pytest.mark.parametrize("spelled", ["--kv-cache-memory-bytes {}", "--kv-cache-memory={}"])
def test_units_that_the_engine_does_not_read_are_refused_with_its_spelling(
    spelled: str, text: str, written: str
) -> None:
    with pytest.raises(BadInput, match="a unit that the engine does not read") as refused:
        parse(*spelled.format(text).split())
    assert refused.value.remedy.endswith(f" {written}")


@pytest.mark.parametrize("flag", ["--max-model-len", "--max-num-batched-tokens", "--kv-cache-memory-bytes"])
@pytest.mark.parametrize(
    ("text", "value"),
    [("25.6k", 25_600), ("32K", 32_768), ("1.0005k", 1000), ("8192", 8192), ("1.5m", 1_500_000)],
)
def test_counts_are_read_as_the_engine_reads_them(flag: str, text: str, value: int) -> None:
    assert list(parse(flag, text).values.values()) == [value]


@pytest.mark.parametrize("flag", ["--max-model-len", "--max-num-batched-tokens", "--kv-cache-memory-bytes"])
@pytest.mark.parametrize(("text", "said"), [("3.7", "whole number"), ("25.6K", "25.6k would"), ("3.0", "whole")])
def test_a_fraction_of_a_token_is_refused(flag: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse(flag, text)


@pytest.mark.parametrize("flag", ["--max-model-len", "-tp", "--max-num-batched-tokens", "--kv-cache-memory-bytes"])
@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_absurd_numbers_are_refused_in_a_short_line(flag: str, digits: int) -> None:
    with pytest.raises(BadInput, match="out of range") as error:
        parse(flag, "9" * digits)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("text", ["1e308", "1e400", "9" * 400])
def test_absurd_sizes_on_the_host_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"range|finite"):
        parse("--cpu-offload-gb", text)


def test_a_value_in_json_is_named_by_its_place() -> None:
    with pytest.raises(BadInput) as error:
        parse("--speculative-config", '{"method": "medusa"}')
    assert error.value.where == "--speculative-config.method"


def test_commands_come_back_as_the_engine_reads_them() -> None:
    argv = ["-tp", "2", "--cudagraph-capture-sizes", "1", "2", "--kv-cache-dtype-skip-layers", "0", "sliding_window",
            "--no-enable-prefix-caching", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}',
            "-cc.cudagraph_mode=FULL", "--dtype", "half"]  # fmt: skip
    values = parse(*argv).values
    command = format_command(VLLM, PlanRequest(sample_plans.llama_8b(), sample_plans.machine(), options=values))
    assert "--cudagraph-capture-sizes 1 2 " in command
    assert "--kv-cache-dtype-skip-layers 0 sliding_window " in command
    assert parse(*shlex.split(command)[2:]).values == values


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
        (["--gpu-memory-utilization", "1.5"], "more than 0, 1 at most"),
        (["--gpu-memory-utilization", "0"], "more than 0, 1 at most"),
        (["--gpu-memory-utilization", "nan"], "finite"),
        (["--kv-cache-dtype", "fp7"], "not one of"),
        (["--all2all-backend", "deepep"], "not one of"),
        (["--max-model-len", "many"], "not a count"),
        (["--compilation-config", "{"], "JSON"),
        (["--compilation-config", "[]"], "object"),
        (["--max-model-len.x", "3"], "takes no key"),
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
