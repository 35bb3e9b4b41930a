"""kvplanner models and gpus: what is known, as tables and as JSON."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from tests.cli.kit import Terminal


def test_models_lists_and_searches(terminal: Terminal) -> None:
    listed = terminal("models")
    assert listed.status == 0
    rows = [line for line in listed.out.splitlines() if "/" in line.split(" ")[0]]
    assert len(rows) == len(models.index())
    assert listed.out.splitlines()[-1].startswith("* less sure")
    found = json.loads(terminal("models", "llama", "3.1", "8b", "--json").out)
    assert found["schema"] == "kvplanner.models/1"
    assert "meta-llama/Llama-3.1-8B-Instruct" in [m["id"] for m in found["models"]]
    entry = next(m for m in found["models"] if m["id"] == "meta-llama/Llama-3.1-8B-Instruct")
    assert (entry["stored_bytes"], entry["context_length"]) == (16_060_522_496, 131_072)
    row = next(line for line in listed.out.splitlines() if line.startswith(entry["id"] + " "))
    assert "16.06" in row
    assert "14.96" in row


def test_gpus_lists_all_and_finds_some(terminal: Terminal) -> None:
    assert len(terminal("gpus").out.splitlines()) == len(gpus.index()) + 1
    found = json.loads(terminal("gpus", "h100", "--json").out)
    assert found["schema"] == "kvplanner.gpu_models/1"
    sxm = next(g for g in found["gpus"] if g["name"] == "NVIDIA H100 80GB HBM3")
    assert (sxm["total_bytes"], sxm["cuda_total_bytes"]) == (81_559 << 20, 81_081 << 20)
    assert (sxm["total_basis"], sxm["compute_capability"]) == ("exact", "9.0")
    assert all("h100" in json.dumps(g).lower() for g in found["gpus"])


def test_assumed_totals_are_marked(terminal: Terminal) -> None:
    found = json.loads(terminal("gpus", "--json").out)["gpus"]
    assert {g["cuda_total_basis"] for g in found} >= {"exact", "assumed"}


def test_help_and_version(terminal: Terminal) -> None:
    from kvplanner import __version__

    assert terminal("--version").out == f"kvplanner {__version__}\n"
    assert "--screenshot" in terminal("gui", "--help").out
    usage = terminal("--help").out
    assert all(command in usage for command in ("plan", "inspect", "models", "gpus", "gui"))
    assert terminal("help").out == usage
    assert terminal("version").out == terminal("-V").out == terminal("--version").out
    assert terminal("help", "gui").out == terminal("gui", "--help").out != usage
    with pytest.raises(SystemExit, match="0"):
        terminal("help", "plan")


def test_an_unknown_command_is_told_what_would_plan_it(terminal: Terminal) -> None:
    assert "Near: plan. kvplanner --help" in terminal("paln").err
    assert "a command is missing. Write kvplanner plan --gpu H100" in terminal("--gpu", "H100").err
    assert "kvplanner gpus --local lists this machine's" in terminal("gpus", "local").err
    ran = terminal("vllm", "serve", "Qwen/Qwen3-8B")
    assert ran.status == 2
    assert "kvplanner plan vllm serve Qwen/Qwen3-8B plans a model or a command line" in ran.err
    assert terminal("plan", "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "8k").status == 0


def test_a_query_that_nothing_fits_names_what_can_be_planned_by_its_name(terminal: Terminal) -> None:
    ran = terminal("models", "deepseek", "r1", "awq")
    assert ran.status == 2
    assert "kvplanner plan deepseek-r1-awq plans deepseek-ai/DeepSeek-R1 in AWQ 4-bit" in ran.err
