"""A log becomes a plan, and its remedies are of that plan, with the log's own figures in place of estimates."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.cli import diagnose as command
from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.diagnose.implied import Implied, implied
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.report import diagnosis as report
from kvplanner.request import planfile
from kvplanner.source.resolve import open_model
from kvplanner.units import GIB
from tests.diagnose.kit import (
    BAR,
    CORE,
    ERROR,
    LLAMA,
    LOADED,
    LOADING,
    NO_ROOM,
    OOM,
    QWEN,
    SIZED,
    STARTED,
    TOO_SMALL,
    log,
)

LOGS = Path(__file__).parent / "logs" / "vllm"


def beside(found: Diagnosis, gpu: str = "RTX 4090") -> Implied:
    assert found.model is not None
    return implied(found, models.load(found.model), gpus.machine(gpu))


CRASHES: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "weights": (QWEN, "0.24.0", {"max_model_len": 4096}, (LOADING, OOM)),
    "profile": (LLAMA, "0.24.0", {"max_model_len": 131072, "max_num_batched_tokens": 131072}, (LOADING, LOADED, OOM)),
    "kv_cache_sizing": (LLAMA, "0.24.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.5},
                        (LOADING, LOADED, *NO_ROOM)),
    "kv_cache_too_small": (LLAMA, "0.11.0", {"gpu_memory_utilization": 0.95, "enforce_eager": True},
                           (LOADING, LOADED, *TOO_SMALL)),
    "graph_capture": (LLAMA, "0.24.0", {"max_model_len": 8192, "kv_cache_memory_bytes": 8 << 30},
                      (LOADING, LOADED, SIZED, BAR, OOM)),
    "runtime": (LLAMA, "0.11.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.975},
                (LOADING, LOADED, SIZED, BAR, STARTED, OOM)),
}  # fmt: skip


@pytest.mark.parametrize("stage", CRASHES)
def test_a_crash_is_one_of_log_and_plan_and_its_first_remedy_fits(stage: str) -> None:
    model, version, options, lines = CRASHES[stage]
    found = log(model, version, options, *lines)
    made = beside(found)
    assert (found.stage, made.plan.stage, made.measured.stage) == (stage, stage, stage)
    assert made.agreement == "same"
    first = made.remedies[0]
    assert first.stage_before == stage
    again = engine("vllm").plan(first.request)
    assert again.sure
    assert again.limits == first.plan.limits
    text = report.text(found, made)
    assert "Ways to make it fit" in text
    assert not any("the plan" in words for words in report.comparison(found, made))


def test_remedies_are_of_the_cache_that_the_log_has_not_of_the_plan_s() -> None:
    found = log(*CRASHES["kv_cache_too_small"][:3], LOADING, LOADED, *TOO_SMALL)
    made = beside(found)
    assert made.measured.kv_cache is not None
    assert made.measured.kv_cache.available.value == pytest.approx(4.47 * GIB, abs=64 << 20)
    assert made.unaccounted_bytes > GIB
    shorter = next(r for r in made.remedies if r.names == ("context",))
    assert shorter.plan.kv_cache is not None
    # What the engine itself suggests in this log is the most that 4.47 GiB hold.
    assert 30_000 < shorter.plan.kv_cache.context_length <= 36_624


def test_another_gpu_than_the_log_s_gives_no_remedies() -> None:
    too_small = log(*CRASHES["kv_cache_too_small"][:3], LOADING, LOADED, *TOO_SMALL)
    made = beside(too_small, "H100")
    assert (made.remedies, made.unexplained) == ((), True)
    assert "another GPU" in report.text(too_small, made)
    loading = log(*CRASHES["weights"][:3], LOADING, OOM)
    made = beside(loading, "H100")
    assert (made.remedies, made.other_total_bytes) == ((), round(23.52 * GIB))
    assert "the log's GPU has 23.52 GiB" in report.text(loading, made)


def test_memory_that_others_hold_is_in_the_plan_of_a_failed_check() -> None:
    held = (f"{ERROR}ValueError: Free memory on device cuda:0 (9.50/23.52 GiB) on startup is less than desired GPU "
            "memory utilization (0.9, 21.17 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes.")  # fmt: skip
    found = log(LLAMA, "0.24.0", {"max_model_len": 8192}, held)
    made = beside(found)
    assert made.plan.fits
    assert made.measured.stage == found.stage == "free_memory_check"
    free = made.request.machine.devices[0].free_bytes
    assert free is not None
    assert 9.5 * GIB < free < 11 * GIB


def test_a_log_that_fails_where_its_plan_fits_says_so_and_leaves_more_free() -> None:
    found = log(
        LLAMA, "0.24.0", {"max_model_len": 8192, "gpu_memory_utilization": 0.85}, LOADING, LOADED, SIZED, BAR, OOM
    )
    made = beside(found)
    assert made.agreement == "log"
    assert made.remedies

    def left(plan: Plan) -> int:
        return min(s.bytes for d in plan.devices if (s := d.segment("headroom")))

    assert all(left(remedy.plan) > left(made.measured) for remedy in made.remedies)
    assert "the log fails while capturing CUDA graphs" in report.text(found, made)


def test_a_start_that_worked_agrees_and_takes_the_log_s_figures() -> None:
    found = diagnose(BytesIO((LOGS / "066-v0-ok.log").read_bytes()).read)
    made = beside(found)
    assert made.agreement == "same"
    assert made.request.measured["activations"] == round(1.21 * GIB)
    assert "Ways to" not in report.text(found, made)


def test_one_named_gpu_stands_for_as_many_as_the_log_uses() -> None:
    found = diagnose(BytesIO((LOGS / "085-tp2-ok-interleaved.log").read_bytes()).read)
    assert len(beside(found, "RTX 3090").plan.devices) == 2


@pytest.mark.parametrize("stage", CRASHES)
def test_the_document_holds_remedies_and_a_plan_file_that_opens(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, version, options, lines = CRASHES[stage]
    head = (f"INFO 1 vLLM API server version {version}", f"INFO 1 non-default args: {dict(model=model, **options)}")
    where = tmp_path / "server.log"
    where.write_text("\n".join((*head, *lines)), encoding="utf-8")
    assert command.run([str(where), "--gpu", "RTX 4090", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["stage"], document["agreement"]) == (stage, "same")
    assert document["remedies"][0]["sure"]
    opened = planfile.from_json(document["plan"], "log")
    request = planfile.to_request(opened, open_model(opened.model), gpus.machine(opened.machine))
    assert engine("vllm").plan(request).stage == stage


def test_without_gpus_there_is_no_plan_and_no_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "server.log"
    where.write_text("\n".join(("INFO 1 vLLM API server version 0.24.0", LOADED, NO_ROOM[1])), encoding="utf-8")
    assert command.run([str(where), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["plan"], document["planned"], document["remedies"]) == (None, None, [])
    assert "not planned: name the model with --model" in document["notes"]


def test_a_log_that_states_the_memory_of_its_gpu_is_planned_on_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([str(LOGS / "0202-oom-weights.log"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["planned"]["devices"][0]["cuda_total_bytes"] == pytest.approx(23.52 * GIB, abs=1 << 20)
    assert document["remedies"][0]["sure"]
    assert any("--gpu" in note for note in document["notes"])


@pytest.mark.parametrize(("line", "cache"), [
    (f"{CORE}Compiling a graph for dynamic shape takes 31.20 s", "cold"),
    (f"{CORE}Compiling a graph for compile range (1, 8192) takes 12.01 s", "cold"),
    (f"{CORE}Directly load the compiled graph(s) for dynamic shape from the cache, took 4.123 s", "warm"),
    (f"{CORE}Directly load AOT compilation from path /home/ann/.cache/x", "warm"),
    ("", None),
])  # fmt: skip
def test_a_first_start_is_planned_as_one(line: str, cache: str | None) -> None:
    found = log(LLAMA, "0.13.0", {"max_model_len": 8192}, LOADING, LOADED, line, SIZED, STARTED)
    options = beside(found).plan.request.options
    assert options.get("compile_cache") == cache
    assert "compile_cache" not in found.options
    assert any("a first start" in note for note in report.notes(found)) == (cache == "cold")
