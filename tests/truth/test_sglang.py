"""The SGLang planner holds on the public start-up reports; only what a report states is compared."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from tests.truth import sglang
from tests.truth.score import main

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
FILES = [HERE / "sglang.jsonl", HERE / "sglang-uncited.jsonl"]


@cache
def scores() -> list[sglang.Score]:
    return [sglang.score(row) for path in FILES for row in sglang.read(path)]


def test_bytes_per_token_are_right_wherever_the_model_is_known() -> None:
    cells = sglang.summary(scores())["bytes_per_token"]
    assert cells["used"] >= 15
    assert cells["right"] == cells["used"]


def test_the_fraction_is_implied_where_pools_are_printed_and_compared_where_it_is_stated() -> None:
    fraction = sglang.summary(scores())["fraction"]
    assert fraction["implied"] >= 22
    assert fraction["compared"] >= 4
    compared = [s.fraction for s in scores() if s.fraction and s.fraction[1] is not None and not s.row.other_engine]
    assert all(abs(implied - stated) <= 0.0035 for implied, stated in compared if stated is not None)


def test_stages_and_remedies_are_right_where_a_report_states_what_decides_them() -> None:
    data = sglang.summary(scores())
    assert data["stages"]["used"] >= 9
    assert data["stages"]["right"] == data["stages"]["used"]
    assert data["remedies"]["used"] >= 2
    assert data["remedies"]["right"] == data["remedies"]["used"]


def test_tokens_follow_from_what_was_measured() -> None:
    tokens = [s.tokens for s in scores() if s.tokens]
    assert len(tokens) >= 3
    assert all(abs(planned / printed - 1) <= 0.025 for printed, planned, _ in tokens)
    assert sum(exact for _, _, exact in tokens) >= 3


def test_what_model_gpu_and_flags_alone_give_names_its_cause() -> None:
    cold = [s.cold_tokens for s in scores() if s.cold_tokens]
    assert len(cold) >= 4
    assert all(cause for _, _, cause in cold)


def test_a_report_of_nothing_compares_nothing() -> None:
    found = sglang.score(sglang.Row({"id": "x", "source": "s", "flags": {}, "reported": {}, "outcome": "ok"}))
    assert found[1:7] == (None,) * 6
    assert found.skipped["all"] == "model unknown"


def test_both_outputs_work(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(path) for path in FILES]
    assert main(names) == 0
    assert "fraction implied sg-009" in capsys.readouterr().out
    assert main([*names, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["all"]["rows"] == len(data["reports"]) == 67
    assert len({report["id"] for report in data["reports"]}) == 67
