"""An engine is a package and a line in the registry: a made-up one plans, and every view shows it, as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvplanner.cli import main
from kvplanner.engine import registry, signature
from kvplanner.engine.signature import signatures
from kvplanner.report import options as report_options
from kvplanner.ui.window.window import MainWindow
from tests.report.contract import check_plan


@pytest.fixture(autouse=True)
def abacus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry._ENGINES, "abacus", "tests.engine.abacus")
    kept = (signatures, signature._beginnings, report_options.with_role)
    for cached in kept:
        cached.cache_clear()
    yield
    for cached in kept:
        cached.cache_clear()


LOG = "INFO 11-30 07:00:00 [gpu_model_runner.py:3549] Model loading took 14.99 GiB and 2.5 seconds\n"


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    status = main.run(argv)
    return status, capsys.readouterr().out


def test_the_terminal_plans_and_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said(capsys, "plan", "Llama-3.1-8B-Instruct", "--engine", "abacus", "--gpu", "RTX 4090")
    assert status == 0
    assert text.startswith("Fits: KV cache for ")
    assert "8 requests of 4,096 tokens at once (rods)" in text
    assert "cells of 64 tokens, 3,145,728 bytes" in text
    assert "Abacus 2 · rules wood" in text
    assert "block" not in text


def test_its_own_words_and_stages_are_told_where_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said(capsys, "plan", "--gpu", "RTX 4090", "--", "abacus", "count", "Llama-3.3-70B-Instruct")
    assert status == 1
    assert text.startswith("Does not fit: the frame lacks ")
    assert "Start-up fails while stringing the beads" in text
    assert "Abacus says: snap!" in text
    status, text = said(capsys, "plan", "Llama-3.1-8B-Instruct", "--engine", "abacus", "--gpu", "RTX 4090",
                        "--", "--beads", "1M")  # fmt: skip
    assert status == 1
    assert "Start-up fails when the first sum is counted" in text


def test_its_plan_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said(capsys, "plan", "Llama-3.1-8B-Instruct", "--engine", "abacus", "--gpu", "H100", "--json")
    document = json.loads(text)
    check_plan(document)
    assert status == 0
    assert (document["engine"]["name"], document["kv_cache"]["unit"]) == ("abacus", "cells")
    assert document["verdict"]["state"] == "fits"


def test_it_is_compared_swept_fitted_launched_and_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ours = ("Llama-3.1-8B-Instruct", "--engine", "abacus", "--gpu", "H100")
    for command, *more, wanted in (
        ("plan", "--launch", "shell", "abacus count meta-llama/Llama-3.1-8B-Instruct"),
        ("plan", "--solve", "context", "--beads 131"),
        ("plan", "--markdown", "| KV cache |"),
        ("compare", "--", "--beads", "64", "Abacus 2 · rules wood"),
        ("sweep", "--over", "beads=64,128", "128"),
    ):
        status, text = said(capsys, command, *ours, *more)
        assert (status, wanted in text) == (0, True), (command, more, text)
    page, kept = tmp_path / "plan.html", tmp_path / "plan.kvplan.json"
    assert said(capsys, "report", *ours, "--output", str(page))[0] == 0
    assert "Abacus 2" in page.read_text(encoding="utf-8")
    assert said(capsys, "plan", *ours, "--save", str(kept))[0] == 0
    assert said(capsys, "plan", str(kept)) == said(capsys, "plan", *ours)
    assert said(capsys, "fits", "--gpu", "H100", "--engine", "abacus", "--search", "llama 3.1 8b")[0] == 0


def test_without_a_grammar_and_metrics_others_are_read_as_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "start.log"
    log.write_text(LOG, encoding="utf-8")
    assert "weights          14.99" in said(capsys, "diagnose", str(log))[1]
    assert len(registry.metrics()) == len(registry.names()) - 1


def test_explain_uses_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(capsys, "plan", "Llama-3.1-8B-Instruct", "--engine", "abacus", "--gpu", "H100",
                   "--explain", "kv_cache")  # fmt: skip
    assert "KV cache" in text


class TestWindow:
    """The window shows what the engine declares."""

    def test_it_plans_shows_and_exports(self, open_window: Callable[..., MainWindow]) -> None:
        window = open_window("Llama-3.1-8B-Instruct", "RTX 4090", engine="abacus")
        window.document.flush()
        assert window.document.error is None
        plan = window.document.plan
        assert plan is not None
        assert plan.request.engine == "abacus"
        assert set(window.panel.fields) == {"rods", "beads"}
        assert window.panel.fields["rods"].label.text() == "Rods"
        assert "KV cache for" in window.centre.verdict.headline.text()
        assert [c.kind for c in window.centre.bars.canvas.cells()] == ["weights", "kv_cache", "headroom"]
        assert "rows of beads" in window.centre.bars.canvas.access_text(1)
        window.document.set_option("beads", 100_000_000)
        window.document.flush()
        failing = window.document.plan
        assert failing is not None
        assert failing.stage == "counting"
        assert not window.grab().isNull()

    def test_its_picture_names_it(self, qapp: object) -> None:
        from kvplanner.catalog import gpus, models
        from kvplanner.engine.request import PlanRequest
        from kvplanner.ui.export import pictures

        request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("H100"), engine="abacus")
        plan = registry.engine("abacus").plan(request)
        assert pictures.svg(plan, unit="GiB", theme="light").startswith(b"<?xml")
