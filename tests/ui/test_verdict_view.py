from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from kvplanner.estimate import Estimate, banded, exact
from kvplanner.ui.bars import words
from kvplanner.ui.palette import THEMES, ThemeName
from kvplanner.ui.verdict import VerdictView, plain_text, verdict
from kvplanner.units import GIB
from tests import sample_plans
from tests.ui.views_kit import paint_theme


def test_a_plan_that_fits_says_how_much_for_whom() -> None:
    told = verdict(sample_plans.fits(), "GiB")
    assert told.state == "fits"
    text = " · ".join(told.details)
    assert "55.60 GiB (55.2–56.0) of KV cache per GPU" in text
    assert "≈ 13.9 full-length requests of 32,768 tokens" in text
    assert "≈ 455,000 tokens (452,000–458,000)" in text
    said = replace(sample_plans.fits(), summary="Fits: ≈ 455,000 tokens, 13.9 requests of 32,768 tokens at once")
    shorter = " · ".join(verdict(said, "GiB").details)
    assert "range 452,000–458,000 tokens" in shorter
    assert "≈" not in shorter  # the sentence says the rest
    assert "32 users of 1,500 + 500 tokens take 7.81 GiB" in text
    assert told.tightest_text == "tightest: GPU 0, 5.79 GiB spare"


def test_a_measured_cache_is_exact() -> None:
    plan = sample_plans.fits()
    assert plan.kv_cache is not None
    exact = replace(plan.kv_cache, tokens_low=plan.kv_cache.tokens, tokens_high=plan.kv_cache.tokens)
    text = " ".join(verdict(replace(plan, kv_cache=exact, summary="Fits"), "GiB").details)
    assert f"{exact.tokens:,} tokens" in text
    assert "≈" not in text


def test_a_load_that_is_not_served_is_not_a_plain_yes() -> None:
    plan = sample_plans.fits()
    assert verdict(replace(plan, limits=replace(plan.limits, serves_users=20)), "GiB").state == "partly"


def test_a_failure_names_stage_engine_and_what_is_missing() -> None:
    told = verdict(sample_plans.too_big(), "GiB")
    assert told.state == "fails"
    assert "Start-up fails while loading the weights" in told.details
    assert "53.20 GiB missing on GPU 0" in told.details
    assert told.engine_message == "torch.OutOfMemoryError: CUDA out of memory."
    said = verdict(
        replace(sample_plans.too_big(), summary="Does not fit: 53.20 GiB short while the weights load"), "GiB"
    )
    assert not any("missing" in detail for detail in said.details)  # the sentence says it already
    assert any("131.42 GiB per GPU" in detail for detail in said.details)


def test_a_cache_that_is_too_small_says_what_would_fit() -> None:
    details = verdict(sample_plans.kv_too_small(), "GB").details
    assert "a context of 35,952 tokens would fit" in details
    assert "12.46 GB missing on GPU 0" in details


def test_what_cannot_be_told_says_why() -> None:
    told = verdict(sample_plans.cannot_tell(), "GiB")
    assert told.state == "unknown"
    assert told.details == ()
    assert any("ROCm" in note for note in told.notes)
    plan = sample_plans.cannot_tell()
    assert verdict(replace(plan, summary=f"Cannot tell: {plan.warnings[0]}"), "GiB").notes == ()  # said already


def test_plain_text_has_the_sentence_first() -> None:
    lines = plain_text(sample_plans.kv_too_small(), "GiB").splitlines()
    assert lines[0].startswith("Does not fit")
    assert any("max seq len" in line for line in lines)


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
def test_the_view_shows_every_plan(qtbot: QtBot, qapp: object, name: str, theme: ThemeName) -> None:
    paint_theme(qapp, theme)  # type: ignore[arg-type]
    view = VerdictView()
    qtbot.addWidget(view)
    plan = sample_plans.ALL[name]()
    view.set_plan(plan)
    view.set_unit("GB")
    view.resize(700, 200)
    view.show()
    assert view.headline.text().replace("\u00a0", " ") == plan.summary
    assert view.message.isVisible() == bool(plan.engine_message)
    assert view.icon.accessibleName()
    assert plan.summary in view.accessibleName()
    assert not view.grab().isNull()


def test_the_link_leads_to_the_tightest_device(qtbot: QtBot) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.set_plan(replace(sample_plans.other_programs(), tightest=1))
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    assert '<a href="tightest" style="color:' in view.details.text()
    view.details.linkActivated.emit("tightest")
    assert seen == [(1, "kv_cache")]


def test_many_notes_open_on_request(qtbot: QtBot) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.show()
    view.set_plan(replace(sample_plans.fits(), warnings=("one & only", "two", "three", "four")))
    assert "one &amp; only" in view.notes.text()
    assert "three" not in view.notes.text()
    assert view.more.text() == "2 more notes"
    qtbot.mouseClick(view.more, Qt.MouseButton.LeftButton)
    assert "four" in view.notes.text()


@pytest.mark.parametrize(
    ("numbers", "text"), [((0,), "0"), ((0, 1, 2, 3), "0–3"), ((0, 1, 3, 6, 7), "0–1, 3, 6–7"), ((5, 4), "4–5")]
)
def test_runs_of_numbers(numbers: tuple[int, ...], text: str) -> None:
    assert words.run_of(numbers) == text


def test_ranges() -> None:
    assert words.band(banded(10 * GIB, 9 * GIB, 12 * GIB, "calibrated"), "GiB") == "9.0–12.0"
    assert words.band(banded(GIB // 20, GIB // 25, GIB // 18, "calibrated"), "GiB") == "0.04–0.06"
    assert words.band(Estimate(GIB, -GIB, 2 * GIB, "rest"), "GiB") == "−1.0 to 2.0"
    assert words.band(exact(GIB), "GiB") == ""


def test_sizes_and_changes() -> None:
    assert words.size(16_060_522_496, "GB") == "16.06 GB"
    assert words.size(16_060_522_496, "GiB") == "14.96 GiB"
    assert words.size(5 << 20, "GiB") == "5.0 MiB"
    assert words.size(-(3 << 30), "GiB") == "−3.00 GiB"
    assert words.signed_tokens(-1200) == "−1,200 tokens"
    assert words.signed_tokens(38000) == "+38,000 tokens"
    assert words.percent(1, 1000) == "0.1 %"
    assert words.percent(0, 0) == "0 %"
