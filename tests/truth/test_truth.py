"""The planner holds its accuracy on the public start-up reports; the scorer says only what reports state."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kvplanner.errors import UnknownName
from tests.truth.markdown import accuracy
from tests.truth.measure import STAGES, Score, score
from tests.truth.names import resolve
from tests.truth.rows import REASONS, Row, read
from tests.truth.score import as_json, groups, main, summary, text

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@cache
def scores(name: str = "vllm.jsonl") -> tuple[Score, ...]:
    return tuple(score(row) for row in read(HERE / name))


def test_enough_reports_are_used_and_every_skip_has_a_known_reason() -> None:
    data = summary(scores())
    assert data["weights"]["used"] >= 41
    assert data["available_kv"]["used"] >= 27
    for reasons in data["skipped"].values():
        assert set(reasons) <= set(REASONS)


@cache
def everything() -> dict[str, Any]:
    return summary((*scores(), *scores("vllm-uncited.jsonl")))


def test_loaded_weights_are_within_a_third_of_a_percent_on_average() -> None:
    weights = everything()["weights"]
    assert weights["used"] >= 66
    assert weights["mean"] <= 0.003
    assert weights["median"] <= 0.0005


def test_available_kv_memory_is_close() -> None:
    kv = everything()["available_kv"]
    assert kv["used"] >= 46
    assert kv["mean_share_of_gpu"] <= 0.01
    assert kv["median_share_of_gpu"] <= 0.003
    assert kv["covered"] >= 0.9
    assert kv["median_width_share_of_gpu"] <= 0.03


def test_reports_that_were_never_fitted_on_are_as_close() -> None:
    found = summary(scores("vllm-found.jsonl"))
    assert found["weights"]["used"] >= 12
    assert found["weights"]["mean"] <= 0.003
    kv = found["available_kv"]
    assert kv["used"] >= 12
    assert kv["mean_share_of_gpu"] <= 0.01
    assert kv["covered"] >= 0.9
    assert found["tokens_given_kv"]["exact"] == found["tokens_given_kv"]["used"] >= 12
    assert found["stages"]["right"] == found["stages"]["used"]


def test_no_report_that_was_found_later_is_one_that_was_fitted_on() -> None:
    fitted = {row.id for name in ("vllm.jsonl", "vllm-uncited.jsonl") for row in read(HERE / name)}
    assert not fitted & {row.id for row in read(HERE / "vllm-found.jsonl")}, "a report of the same name"


def test_bands_hold_on_sources_that_were_left_out_of_the_fit() -> None:
    """As packaging/left_out.py measured and wrote beside the constants."""
    found = json.loads((files("kvplanner.resources") / "vllm_constants.json").read_bytes())["left_out"]["all"]
    assert found["reports"] >= 46
    assert found["covered"] >= 0.9
    assert found["median_width_share_of_gpu"] <= 0.03
    assert found["mean_share_of_gpu"] <= 0.01


def test_stages_are_right() -> None:
    stages, failures = everything()["stages"], everything()["failure_stages"]
    assert stages["right"] >= 0.97 * stages["used"]
    assert failures["right"] >= 0.95 * failures["used"]


def test_h100_reports_of_the_well_known_eras_are_closer_still() -> None:
    kv = summary(groups(scores())["H100, 0.15 to 0.19"])["available_kv"]
    assert kv["mean_share_of_gpu"] <= 0.0015


def test_recent_reports_are_within_their_wider_margin() -> None:
    assert summary(groups(scores())["0.21 and later"])["available_kv"]["mean_share_of_gpu"] <= 0.012


def test_uncited_reports_follow_the_same_laws() -> None:
    kv = summary(scores("vllm-uncited.jsonl"))["available_kv"]
    assert kv["mean_share_of_gpu"] <= 0.012


def test_tokens_are_exact_once_the_memory_is_given() -> None:
    attention_only = [s for s in scores() if s.kind in ("dense", "sliding window", "vision", "latent attention")]
    tokens = summary(attention_only)["tokens_given_kv"]
    assert tokens["used"] >= 8
    assert tokens["exact"] >= 0.9 * tokens["used"]


def test_failures_fail_at_their_stage() -> None:
    failures = summary(scores())["failure_stages"]
    assert failures["right"] >= 0.9 * failures["used"] - 1


def test_every_outcome_is_known_and_ids_are_unique() -> None:
    rows = read(HERE / "vllm.jsonl")
    assert len({row.id for row in rows}) == len(rows)
    assert {row.facts["outcome"] for row in rows} <= {*STAGES, "wsl_or_driver", "other"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.19.0", "0.19.0"), ("0.20.0 (also 0.17.1)", "0.20.0"), ("0.1.dev19754 (image)", None), (None, None),
     ("0.24 (kv_cache_utils.py:2146)", "0.24"), ("fork, base e7097feb6", None)],
)  # fmt: skip
def test_versions_are_read_only_where_they_are_stated(version: str | None, expected: str | None) -> None:
    assert Row({"id": "x", "model": "m", "vllm_version": version, "flags": {}, "reported": {}}).version == expected


def test_a_field_that_was_not_seen_is_no_error_of_the_planner() -> None:
    row = Row({
        "id": "x", "source": "s", "model": "Qwen/Qwen3-8B", "vllm_version": "0.19.0", "gpu": "RTX 4090", "tp": 1,
        "flags": {}, "reported": {"available_kv_gib": 3.0}, "outcome": "ok",
    })  # fmt: skip
    found = score(row)
    assert found.kv is None
    assert found.skipped["kv"] == "field not stated"


@pytest.mark.parametrize(
    "odd",
    [{}, {"flags": None}, {"reported": {"model_loading_gib": "nine"}}, {"tp": "two"}, {"outcome": None},
     {"gpu_memory_gib": "80 GB"}, {"flags": {"max_model_len": "32k?"}}, {"vllm_version": 0.19}, {"gpu": 7}],
)  # fmt: skip
def test_no_report_makes_the_scorer_raise(odd: dict[str, Any]) -> None:
    facts: dict[str, Any] = {
        "id": "x", "source": "s", "model": "Qwen/Qwen3-8B", "vllm_version": "0.19.0", "gpu": "RTX 4090", "tp": 1,
        "flags": {"gpu_memory_utilization": 0.9}, "reported": {"model_loading_gib": 15.3, "available_kv_gib": 3.0},
        "outcome": "ok",
    }  # fmt: skip
    found = score(Row(facts | odd if odd else {"id": "x"}))
    assert set(found.skipped.values()) <= set(REASONS)
    assert text([found])


def test_all_three_outputs_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(HERE / "vllm.jsonl"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["all"]["rows"] == 214
    assert len(data["reports"]) == 214
    assert "worst available KV" in text(scores())
    section = accuracy(scores())
    assert section.startswith("## Accuracy")
    assert not any(row.id in section for row in read(HERE / "vllm-uncited.jsonl"))
    assert as_json(scores())["groups"]


@pytest.mark.parametrize(
    ("name", "quantization", "expected"),
    [
        ("Qwen/Qwen3-8B", "", ("Qwen/Qwen3-8B", None)),
        ("Qwen3-235B-A22B-FP8", "fp8", ("Qwen/Qwen3-235B-A22B-FP8", None)),
        ("someone/Qwen3-14B-FP8-dynamic", "compressed-tensors", ("Qwen/Qwen3-14B", "FP8")),
        ("someone/Qwen3-14B-FP8-block", "", ("Qwen/Qwen3-14B", "FP8 block")),
        ("someone/gemma-3-27b-it-int4-awq", "awq", ("google/gemma-3-27b-it", "AWQ 4-bit")),
        ("Qwen3.6-27B AutoRound INT4", "auto_round int4", ("Qwen/Qwen3.6-27B", "GPTQ 4-bit")),
        ("Qwen/Qwen3.8-27B (NVFP4)", "nvfp4", ("Qwen/Qwen3.8-27B", "NVFP4")),
    ],
)
def test_loose_names_are_read(name: str, quantization: str, expected: tuple[str, str | None]) -> None:
    assert resolve(name, quantization) == expected


@pytest.mark.parametrize(
    "name", ["(id not seen)", "Qwen3.6-27B + DFlash drafter", "no/such-model-7b", "Qwen3 8B class"]
)
def test_names_that_mean_no_single_model_are_not_guessed(name: str) -> None:
    with pytest.raises(UnknownName):
        resolve(name, "")
