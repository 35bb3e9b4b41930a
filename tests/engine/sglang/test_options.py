"""Command lines both ways, releases' spellings, and flags whose memory is not planned."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import kvplanner
from kvplanner.engine.command import ParsedFlags, format_command, parse_flags
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import signatures
from kvplanner.errors import BadInput, UnknownName
from kvplanner.request.launch import take_apart
from tests.engine.sglang.kit import LLAMA_8B, SGLANG, request

PACKAGE = Path(kvplanner.__file__).parent


def parse(*argv: str, version: str | None = None) -> ParsedFlags:
    return parse_flags(SGLANG.options(version), argv, SGLANG.ignored_flags())


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--tp", "2"], {"tp_size": 2}),
        (["--tp-size=2", "--pp-size", "2"], {"tp_size": 2, "pp_size": 2}),
        (["--tensor-parallel-size", "4"], {"tp_size": 4}),
        (["--dp", "8", "--enable-dp-attention"], {"dp_size": 8, "enable_dp_attention": True}),
        (["--mem-fraction-static", "0.9"], {"mem_fraction_static": 0.9}),
        (["--chunked-prefill-size", "-1"], {"chunked_prefill_size": -1}),
        (["--cuda-graph-max-bs", "64"], {"cuda_graph_max_bs_decode": 64}),
        (["--cuda-graph-max-bs-decode", "64"], {"cuda_graph_max_bs_decode": 64}),
        (["--disable-cuda-graph", "--disable-radix-cache"], {"disable_cuda_graph": True, "disable_radix_cache": True}),
        (["--kv-cache-dtype", "fp8_e4m3"], {"kv_cache_dtype": "fp8_e4m3"}),
        (["--host", "0.0.0.0", "--port", "30000", "--enable-metrics", "--trust-remote-code"], {}),
    ],
)  # fmt: skip
def test_flags_as_the_engine_spells_them(argv: list[str], values: dict[str, object]) -> None:
    assert parse(*argv).values == values


@pytest.mark.parametrize(
    "argv",
    [["--enable-hisparse"], ["--enable-unified-memory"], ["--dcp-size", "2"], ["--disaggregation-mode", "prefill"],
     ["--enable-symm-mem"], ["--enable-lmcache"]],
)  # fmt: skip
def test_what_is_not_planned_is_said(argv: list[str]) -> None:
    with pytest.raises(BadInput) as refused:
        parse(*argv)
    assert refused.value.remedy


def test_a_switch_that_became_another_flag_names_that_flag() -> None:
    with pytest.raises((BadInput, UnknownName)) as refused:
        parse("--enable-piecewise-cuda-graph")
    assert "--cuda-graph-backend-prefill tc_piecewise" in refused.value.remedy


def test_harmless_values_of_those_are_left_out() -> None:
    assert parse("--dcp-size", "1", "--nnodes", "1", "--disaggregation-mode", "null").values == {}


def test_unknown_flags_name_their_like() -> None:
    with pytest.raises((BadInput, UnknownName)) as refused:
        parse("--mem-fraction-statik", "0.9")
    assert "--mem-fraction-static" in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        "sglang serve M --tp 2",
        "python -m sglang.launch_server --model-path M --tp 2",
        "python3 -m sglang.launch_server --model M --tp 2",
        "CUDA_VISIBLE_DEVICES=0,1 python3 -m sglang.launch_server --model-path=M --tp 2",
        "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path M --tp 2",
        "docker run lmsysorg/sglang:v0.5.9-cu129 sglang serve --model-path M --tp 2",
    ],
)
def test_whole_command_lines_are_taken_apart(words: str) -> None:
    launch = take_apart(shlex.split(words))
    assert launch.engine == "sglang"
    parsed = parse(*launch.flags)
    assert launch.model or parsed.positional == ("M",)
    assert parsed.values == {"tp_size": 2}


def test_the_release_of_a_container_is_read() -> None:
    assert (
        take_apart(shlex.split("docker run lmsysorg/sglang:v0.5.9-cu129 sglang serve --model-path M")).version
        == "0.5.9"
    )


def test_a_command_line_comes_back_as_it_was_set() -> None:
    options: dict[str, OptionValue] = {
        "tp_size": 2,
        "mem_fraction_static": 0.85,
        "disable_radix_cache": True,
        "disable_cuda_graph": False,
    }
    line = format_command(SGLANG, request(LLAMA_8B, "2xH100", options))
    assert line.startswith(f"sglang serve {LLAMA_8B} ")
    launch = take_apart(shlex.split(line))
    parsed = parse(*launch.flags)
    assert parsed.positional == (LLAMA_8B,)
    assert parsed.values == {k: v for k, v in options.items() if v is not False}


def test_options_have_one_name_one_flag_and_a_default() -> None:
    options = SGLANG.options()
    flags = [flag for option in options for flag in option.flags]
    assert len(flags) == len(set(flags))
    assert len({option.name for option in options}) == len(options)
    assert not set(flags) & set(SGLANG.ignored_flags())
    assert all(option.label and option.help for option in options)


def test_options_appear_with_their_release() -> None:
    names = {option.name for option in SGLANG.options("0.4.6")}
    assert "attn_dp_size" in {option.name for option in SGLANG.options()} - names


def test_processes_and_metrics_are_known_by_data() -> None:
    found = next(s for s in signatures() if s["engine"] == "sglang")
    assert found["planned"]
    assert found["default_port"] == 30000


def test_nothing_but_the_registry_names_the_engine() -> None:
    """The window, the reports and the requests show what an engine declares: none of their files knows this one."""
    named = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "engine/sglang/" not in path.as_posix() and "sglang" in path.read_text(encoding="utf-8").lower()
    ]
    assert "engine/registry.py" in named
    assert not [place for place in named if place.startswith(("ui/", "report/", "request/", "cli/", "app/"))]
