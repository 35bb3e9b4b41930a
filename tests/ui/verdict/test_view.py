from __future__ import annotations

from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from kvplanner.engine.segment import Segment
from kvplanner.estimate import Estimate, banded, exact
from kvplanner.report import words
from kvplanner.report.devices import percent, run_of
from kvplanner.report.sentences import engine_message, summary
from kvplanner.report.verdict import no_plan, verdict
from kvplanner.sized_text import sizes_in
from kvplanner.ui.theme.palette import THEMES, ThemeName
from kvplanner.ui.verdict.sentences import balanced_width
from kvplanner.ui.verdict.view import VerdictView
from kvplanner.units import GIB
from tests import sample_plans
from tests.engine import verdicts
from tests.ui.kit import paint_theme


@pytest.fixture
def view(qtbot: QtBot) -> VerdictView:
    made = VerdictView()
    qtbot.addWidget(made)
    made.show()
    return made


def test_a_plan_that_fits_says_how_much_for_whom() -> None:
    told = verdict(sample_plans.fits(), "GiB")
    assert told.state == "fits"
    text = " · ".join(told.details)
    assert "55.60 GiB (55.19–55.95) of KV cache per GPU" in text
    assert "≈ 13.9 full-length requests of 32,768 tokens" in text
    assert "range 452,000–458,000 tokens" in text  # the sentence says the rest
    plan = sample_plans.fits()
    said = plan._replace(limits=plan.limits._replace(serves_users=None))
    shorter = " · ".join(verdict(said, "GiB").details)
    assert "range 452,000–458,000 tokens" in shorter
    assert "≈" not in shorter  # the sentence says the rest
    assert "32 users of 1,500 + 500 tokens take 7.81 GiB" in text
    assert told.tightest_text == "tightest: GPU 0, 5.79 GiB headroom"


def test_a_measured_cache_is_exact() -> None:
    plan = sample_plans.fits()
    assert plan.kv_cache is not None
    exact = plan.kv_cache._replace(tokens_low=plan.kv_cache.tokens, tokens_high=plan.kv_cache.tokens)
    plan = plan._replace(kv_cache=exact)
    text = f"{summary(plan)} {verdict(plan, 'GiB').details}"
    assert f"{exact.tokens:,} tokens" in text
    assert "≈" not in text


def test_a_load_that_is_not_served_is_not_a_plain_yes() -> None:
    plan = sample_plans.fits()
    assert verdict(plan._replace(limits=plan.limits._replace(serves_users=20)), "GiB").state == "partly"


@pytest.mark.parametrize("stage", ["profile", "kv_cache_too_small", "runtime"])
def test_a_fit_that_may_fail_is_not_a_plain_yes(stage: str) -> None:
    doubtful = verdicts.again(sample_plans.fits(), verdict=verdicts.may_fail(stage, GIB // 5))
    told = verdict(doubtful, "GiB")
    assert told.state == "narrow"
    assert told.headline.startswith("Fits" if stage == "runtime" else "May not fit")
    assert told.notes[0].startswith("A narrow fit" if stage == "runtime" else "May not fit")
    assert verdict(verdicts.again(doubtful, verdict=verdicts.cannot_tell("it is odd")), "GiB").state == "unknown"
    assert "range" not in verdict(sample_plans.fits(), "GiB").headline


def test_low_ends_stop_at_nothing() -> None:
    plan = sample_plans.fits()
    cache = Segment("kv_cache", Estimate(GIB // 3, -2 * GIB, GIB, "rest"))
    first = plan.devices[0]
    less = first._replace(segments=tuple(cache if s.kind == "kv_cache" else s for s in first.segments))
    low = plan._replace(devices=(less, *plan.devices[1:]))
    assert "0.33 GiB (0.00–1.00)" in verdict(low, "GiB").details[0]
    assert words.span(cache.estimate, "GiB") in verdict(low, "GiB").details[0]  # as the table has it


def test_replicas_are_told_each() -> None:
    plan = sample_plans.fits()._replace(replicas=4)
    text = " · ".join(verdict(plan, "GiB").details)
    assert "≈ 13.9 full-length requests of 32,768 tokens per replica" in text
    assert "range 452,000–458,000 tokens per replica" in text
    assert "4 replicas" not in text  # the sentence says it


def test_what_would_fit_is_what_all_ranks_hold() -> None:
    plan = sample_plans.kv_too_small()
    less = plan._replace(limits=plan.limits._replace(max_context_length=14_704))
    assert "a context of 14,704 tokens may fit" in verdict(less, "GiB").details
    sure = plan._replace(limits=plan.limits._replace(max_context_length=14_704, sure_max_context_length=14_000))
    assert "a context of 14,000 tokens would fit" in verdict(sure, "GiB").details
    silent = plan._replace(limits=plan.limits._replace(max_context_length=None))
    assert "a context of 35,952 tokens may fit" in verdict(silent, "GiB").details


def test_the_free_memory_check_is_a_sum_that_can_be_followed() -> None:
    plan = sample_plans.other_programs()
    failing = verdicts.again(plan, verdict=verdicts.fails("free_memory_check", GIB))
    text = " · ".join(verdict(failing, "GiB").details)
    assert "22.90 GiB less 0.96 CUDA context = 21.94 free, the budget asks for 21.64 GiB" in text


def test_no_sum_ends_below_nothing_where_the_context_finds_no_room() -> None:
    plan = sample_plans.other_programs()
    device = plan.devices[0]
    full = tuple(
        s._replace(estimate=exact(device.cuda_total_bytes)) if s.kind == "other" else s for s in device.segments
    )
    failing = verdicts.again(
        plan, devices=(device._replace(segments=full),), verdict=verdicts.fails("free_memory_check", GIB)
    )
    told = verdict(failing, "GiB")
    assert not any("−" in detail for detail in told.details)
    assert any(detail.startswith("the budget asks for ") for detail in told.details)


def test_a_problem_says_what_to_do(view: VerdictView) -> None:
    view.set_problem("The tensors of this model are not known", "Open the model's folder")
    assert view.headline.text() == "No plan: the tensors of this model are not known"
    assert "Open the model's folder" in view.details.text()
    assert view.icon.accessibleName() == "No plan of what is set"
    view.set_plan(sample_plans.fits())
    assert view.icon.accessibleName() == "Fits"


def test_a_stale_plan_says_so(view: VerdictView) -> None:
    view.set_plan(sample_plans.fits())
    fits = view.shown()
    view.set_stale("Tensor parallel 3 does not divide the heads", "Choose 2 or 4")
    told = view.shown()
    assert told.headline == "No plan: tensor parallel 3 does not divide the heads"
    assert told.details == ("Choose 2 or 4", f"Shown: the last plan that worked ({fits.headline})")
    assert told.notes == ()
    assert not told.engine_message
    assert view.headline.text() == told.headline
    assert view.icon.accessibleName() == "No plan of what is set"
    view.set_stale(None)
    assert view.shown() == fits
    assert view.icon.accessibleName() == "Fits"


def test_a_failing_plan_did_not_work(view: VerdictView) -> None:
    view.set_plan(sample_plans.too_big())
    view.set_stale("context 9 exceeds 8")
    assert view.shown().details[0].startswith("Shown: the last plan that could be made (Does not fit")
    assert view.message.isHidden()


@pytest.mark.parametrize(
    ("why", "headline"),
    [
        ("Total number of heads", "No plan: total number of heads"),
        ("FP8 KV cache is not supported", "No plan: FP8 KV cache is not supported"),
        ("Qwen3ForCausalLM has no such layers", "No plan: Qwen3ForCausalLM has no such layers"),
        ("'x' is not a dtype", "No plan: 'x' is not a dtype"),
        ("A 16-bit KV cache", "No plan: a 16-bit KV cache"),
        ("", "No plan: "),
    ],
)
def test_a_headline_says_first_that_there_is_no_plan(why: str, headline: str) -> None:
    assert no_plan(why) == headline


def test_nothing_squeezes_the_texts(view: VerdictView, qtbot: QtBot) -> None:
    view.set_corner(QLabel("x" * 30))
    for width in (400, 900, 500, 1300):
        view.set_plan(sample_plans.kv_too_small())
        view.resize(width, 10)
        qtbot.wait(1)
        assert view.height() >= view.heightForWidth(width)
        for label in (view.headline, view.details, view.message):
            assert label.height() >= label.heightForWidth(label.width())


@pytest.mark.parametrize("first", sample_plans.ALL)
def test_no_plan_keeps_the_height_of_the_one_before(view: VerdictView, qtbot: QtBot, first: str) -> None:
    view.set_corner(QLabel("x" * 30))
    view.resize(700, 10)
    qtbot.wait(1)  # the corner shows in the next turn
    view.set_plan(sample_plans.ALL[first]())

    def needed() -> int:
        layout = view.layout()
        assert layout is not None
        layout.activate()
        return layout.heightForWidth(view.width())

    for make in sample_plans.ALL.values():
        for change in (partial(view.set_plan, make()), partial(view.set_stale, "TP 3 does not divide", "Set 2")):
            change()
            held = view.minimumHeight()
            qtbot.wait(1)
            assert held == needed()
        view.set_plan(sample_plans.ALL[first]())
        qtbot.wait(1)
        assert view.minimumHeight() == needed()


def test_the_buttons_leave_a_long_sentence_its_line(view: VerdictView, qtbot: QtBot) -> None:
    corner = QLabel("x" * 30)
    view.set_corner(corner)
    view.set_plan(verdicts.again(sample_plans.fits(), verdict=verdicts.cannot_tell("why")))
    view.resize(700, 120)
    qtbot.wait(1)
    assert corner.y() <= view.headline.geometry().bottom()
    long = "KV cache for ≈ 455,000 tokens, 13.9 requests of 32,768 tokens at once, and more"
    view.set_plan(verdicts.again(sample_plans.fits(), verdict=verdicts.cannot_tell(long)))
    qtbot.wait(1)
    assert corner.y() > view.headline.geometry().bottom()
    assert view.headline.width() > 600


@pytest.mark.parametrize("room", [200, 300, 400, 700, 2000])
def test_no_word_stands_alone(qapp: object, room: int) -> None:
    metrics = QLabel().fontMetrics()
    text = "Does not fit: 10.73 GiB short on the GPU when one request is checked against the KV cache"
    wide = balanced_width(text, metrics, room)
    flags = Qt.TextFlag.TextWordWrap

    def lines(width: int) -> int:
        return round(metrics.boundingRect(0, 0, width, 9999, flags, text).height() / metrics.lineSpacing())

    assert wide <= room
    assert lines(wide) == lines(room)
    assert wide == room or lines(wide - 12) > lines(wide)


def test_a_failure_names_stage_engine_and_what_is_missing() -> None:
    told = verdict(sample_plans.too_big(), "GiB")
    assert told.state == "fails"
    assert "Fails while loading the weights" in told.details
    assert "53.20 GiB missing on GPU 0" in told.details
    assert told.engine_message == "torch.OutOfMemoryError: CUDA out of memory."
    said = verdict(verdicts.again(sample_plans.too_big(), verdict=verdicts.fails("weights", int(53.2 * GIB))), "GiB")
    assert not any("missing" in detail for detail in said.details)  # the sentence says it already
    assert any("131.42 GiB per GPU" in detail for detail in said.details)


def test_a_cache_that_is_too_small_says_what_would_fit() -> None:
    details = verdict(sample_plans.kv_too_small(), "GB").details
    assert "a context of 35,952 tokens may fit" in details  # as the engine suggests, which knows no bands
    assert "12.46 GB missing on GPU 0" in details


def test_what_cannot_be_told_says_why() -> None:
    told = verdict(sample_plans.cannot_tell(), "GiB")
    assert told.state == "unknown"
    assert told.details == ()
    assert any("ROCm" in note for note in told.notes)


def test_a_failure_tells_the_sentence_and_the_engines_words() -> None:
    told = verdict(sample_plans.kv_too_small(), "GiB")
    assert told.headline.startswith("Does not fit")
    assert "max seq len" in told.engine_message


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
def test_the_view_shows_every_plan(qtbot: QtBot, qapp: object, name: str, theme: ThemeName) -> None:
    paint_theme(qapp, theme)  # type: ignore[arg-type]  # one of the names that it takes
    view = VerdictView()
    qtbot.addWidget(view)
    plan = sample_plans.ALL[name]()
    view.set_plan(plan)
    view.set_unit("GB")
    view.resize(700, 200)
    view.show()
    assert view.headline.text().replace("\u00a0", " ") == sizes_in(summary(plan), "GB")
    assert view.message.isVisible() == bool(engine_message(plan))
    assert view.icon.accessibleName()
    assert sizes_in(summary(plan), "GB") in view.accessibleName()
    assert not view.grab().isNull()


def test_the_link_leads_to_the_tightest_device(qtbot: QtBot) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.set_plan(sample_plans.other_programs()._replace(tightest=1))
    seen: list[object] = []
    view.segment_selected.connect(seen.append)
    assert '<a href="tightest" style="color:' in view.details.text()
    view.details.linkActivated.emit("tightest")
    assert seen == [(1, "kv_cache")]


def test_many_notes_open_on_request(qtbot: QtBot) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.show()
    view.set_plan(sample_plans.fits()._replace(warnings=("one & only", "two", "three", "four")))
    assert "one &amp; only" in view.notes.text()
    assert "three" not in view.notes.text()
    assert view.more.text() == "2 more notes"
    qtbot.mouseClick(view.more, Qt.MouseButton.LeftButton)
    assert "four" in view.notes.text()


@pytest.mark.parametrize(
    ("numbers", "text"), [((0,), "0"), ((0, 1, 2, 3), "0–3"), ((0, 1, 3, 6, 7), "0–1, 3, 6–7"), ((5, 4), "4–5")]
)
def test_runs_of_numbers(numbers: tuple[int, ...], text: str) -> None:
    assert run_of(numbers) == text


def test_ranges() -> None:
    assert words.span(banded(10 * GIB, 9 * GIB, 12 * GIB, "calibrated"), "GiB") == "9.00–12.00"
    assert words.span(banded(GIB // 20, GIB // 25, GIB // 18, "calibrated"), "GiB") == "0.04–0.06"
    assert words.span(Estimate(GIB, -GIB, 2 * GIB, "rest"), "GiB") == "0.00–2.00"
    assert words.span(Estimate(-GIB, -2 * GIB, GIB, "rest"), "GiB") == "−2.00 to 1.00"
    assert words.span(exact(GIB), "GiB") == ""
    # No finer than the values themselves: what two decimals do not tell apart is no range.
    assert words.span(banded(GIB * 64 // 100, GIB * 637 // 1000, GIB * 648 // 1000, "calibrated"), "GiB") == "0.64–0.65"
    assert words.span(banded(GIB * 371 // 10000, GIB * 37 // 1000, GIB * 372 // 10000, "calibrated"), "GiB") == ""


def test_sizes_and_changes() -> None:
    assert words.size(16_060_522_496, "GB") == "16.06 GB"
    assert words.size(16_060_522_496, "GiB") == "14.96 GiB"
    assert words.size(5 << 20, "GiB") == "5.0 MiB"
    assert words.size(-(3 << 30), "GiB") == "−3.00 GiB"
    assert words.signed_tokens(-1200) == "−1,200 tokens"
    assert words.signed_tokens(38000) == "+38,000 tokens"
    assert percent(1, 1000) == "0.1 %"
    assert percent(0, 0) == "0 %"
    assert percent(1, 16_000) == "0 %"
    assert percent(98, 10_000) == "1 %"
