from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SEGMENT_KINDS, Segment
from kvplanner.estimate import Input, exact
from kvplanner.model.spec import Attention, LayerSpec, Mla, Mlp
from kvplanner.report.explain import as_text, explanation, in_numbers, scale_of
from kvplanner.report.questions import answers
from kvplanner.report.words import Unit
from kvplanner.ui.explain.page import EMPTY, as_html
from kvplanner.ui.explain.view import ExplainView
from kvplanner.ui.theme.palette import DARK, LIGHT
from kvplanner.units import MIB
from tests import sample_plans


def _questions(plan: Plan, kind: str | None, position: int = 0) -> dict[str, str]:
    return {a.question: a.text for a in answers(plan, position, kind, "GiB")}  # type: ignore[arg-type]  # a kind of the plan's


def test_weights_show_both_units_and_where_they_come_from() -> None:
    told = explanation(sample_plans.fits(), 0, "weights", "GiB")
    assert told is not None
    assert told.value == "14.96 GiB = 16.06 GB = 16,060,522,496 bytes"
    assert [f.lines() for f in told.formulas] == [
        ("= stored ÷ tp", "= 14.96 GiB ÷ 1"),
        ("as stored 14.96 GiB = parameters × bytes", "= 8,030,261,248 × 2 B"),
    ]
    stored = next(row for row in told.inputs if row.name == "stored")
    assert (stored.value, stored.other, stored.source) == ("14.96 GiB", "= 16.06 GB", "catalogue")
    assert told.band == "exact: counted, without doubt"
    assert told.rules == "vLLM 0.33.0, rules 0.27–0.33, V2 runner"


def test_the_unit_reaches_into_the_formula() -> None:
    told = explanation(sample_plans.fits(), 0, "kv_cache", "GB")
    assert told is not None
    assert told.formulas[0].lines() == ("= budget − inside", "= 78.22 GB − 18.52 GB")
    assert told.formulas[1].of == "budget 78.22 GB"
    assert "90 % band" in told.band
    assert any("28,467 blocks" in note for note in told.notes)
    assert any("131,072 bytes of KV cache per token" in note for note in told.notes)


def test_the_budget_is_explained_without_a_kind() -> None:
    told = explanation(sample_plans.fits(), 0, None, "GiB")
    assert told is not None
    assert told.title.startswith("Budget")
    assert [f.in_numbers for f in told.formulas] == ["0.92 × 79.18 GiB"]
    assert explanation(sample_plans.cannot_tell(), 0, None, "GiB") is None


def test_bytes_of_one_of_something_stand_in_bytes_beside_large_sizes() -> None:
    each = Input("bytes per cell", 81_920, "B", "")
    terms = (Input("cells", 16_384, "cells", ""), each, Input("windows", 5_133_828_096, "B", ""))
    size = exact(6_476_005_376, "{cells} × {bytes per cell} + {windows}", *terms)
    assert in_numbers(size, "GiB") == "16,384 × 81,920 B + 4.78 GiB"
    # A share of something large stays in the formula's unit, and so does what is added.
    assert in_numbers(exact(0, "{share} × {total}", Input("share", 0.5, ""), Input("total", 80 << 30, "B")), "GiB") == (
        "0.5 × 80.00 GiB"
    )
    added = exact(0, "{large} + {small}", Input("large", 4 << 30, "B"), Input("small", 900_000, "B"))
    assert in_numbers(added, "GiB") == "4.0000 GiB + 0.0008 GiB"


def test_a_cache_that_has_no_room_shows_the_sum_that_leaves_none() -> None:
    plan = sample_plans.too_big()
    told = explanation(plan, 0, "kv_cache", "GiB")
    assert told is not None
    assert told.value == "Nothing is left of the budget for it."
    assert told.formulas[0].in_words.startswith("budget − runtime − weights − workspace")
    assert told.formulas[0].in_numbers.endswith(" = −60.86 GiB")


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("kind", [*SEGMENT_KINDS, None])
def test_everything_can_be_explained_and_copied(name: str, kind: str | None) -> None:
    plan = sample_plans.ALL[name]()
    for position in range(len(plan.devices)):
        told = explanation(plan, position, kind, "GiB")  # type: ignore[arg-type]  # a kind of the plan's
        if told is None:
            continue
        text = as_text(told)
        assert told.title in text
        assert told.value in text
        assert all(row.source in text for row in told.inputs)
        for tokens in (LIGHT, DARK):
            assert tokens.text in as_html(told, tokens, "Sans", measure=len, width=400)


def test_why_this_is_not_80_gb() -> None:
    text = _questions(sample_plans.fits(), "headroom")["Why is this not 80 GB?"]
    assert "79.65 GiB, that is 85.52 GB" in text
    assert "0.47 GiB" in text
    assert "72.85 GiB (0.92 of it)" in text
    assert "Why is this not the whole card?" in _questions(sample_plans.mixed(), "driver_reserved")


def test_why_a_small_model_fills_the_card() -> None:
    text = _questions(sample_plans.fits(), "kv_cache")["Why does a small model fill the card?"]
    assert "19 % of the card" in text
    assert "55.60 GiB" in text
    assert "32 users needs 7.81 GiB" in text
    assert "Why does a small model fill the card?" not in _questions(sample_plans.kv_too_small(), "kv_cache")


def test_why_tp_does_not_halve_the_cache() -> None:
    text = _questions(sample_plans.other_programs(), "kv_cache")["Why does TP not halve the cache?"]
    assert "8 KV heads are dealt out, 4 to each of 2 ranks" in text
    assert "65,536 bytes on each GPU" in text
    assert not any("TP" in question for question in _questions(sample_plans.fits(), "kv_cache"))


def _with_mixer(plan: Plan, mixer: Attention | Mla) -> Plan:
    spec = plan.request.model.spec._replace(layers=(LayerSpec((mixer,), (Mlp(1024),)),))
    model = plan.request.model._replace(spec=spec)
    return plan._replace(request=plan.request._replace(model=model))


def test_heads_that_are_copied_and_latents_that_are_shared() -> None:
    plan = sample_plans.eight_gpus()
    copied = _questions(_with_mixer(plan, Attention(16, 2, 128, 128)), "kv_cache")
    assert "4 copies of every token" in copied["Why does TP 8 not divide the cache by 8?"]
    shared = _questions(_with_mixer(plan, Mla(128, 512, 128, 64, 128)), "kv_cache")
    assert "keeps all of it" in shared["Why does TP 8 not divide the cache by 8?"]


def test_the_naive_division_is_shown_to_overstate() -> None:
    plan = sample_plans.fits()
    text = _questions(plan, "kv_cache")["Why not simply (memory − weights) ÷ bytes per token?"]
    assert "(79.65 GiB − 14.96 GiB) ÷ 131,072 bytes = 529,9" in text
    assert "overstates it by 16 %" in text


def test_where_the_budget_begins() -> None:
    text = _questions(sample_plans.fits(), "runtime_outside")["Why does the budget not begin at zero?"]
    assert "1.01 GiB lie before the bracket" in text


def test_a_rank_s_share_is_more_than_its_part() -> None:
    plan = sample_plans.eight_gpus()
    assert _questions(plan, "weights") == {}
    device = plan.devices[0]
    weights = device.segment("weights")
    assert weights is not None
    more = weights._replace(estimate=exact(weights.bytes + 200 * MIB))
    segments = tuple(more if s.kind == "weights" else s for s in device.segments)
    heavier = plan._replace(devices=(device._replace(segments=segments), *plan.devices[1:]))
    assert "1.2 % more" in _questions(heavier, "weights")["Why is a rank's share more than 1/8?"]


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=6), st.sampled_from(["GiB", "GB"]))
def test_a_formula_has_one_unit(sizes: list[int], unit: Unit) -> None:
    scale = scale_of(sizes, unit)
    assert scale.unit in (unit, "MiB" if unit == "GiB" else "MB", "B")
    largest = max(sizes, key=abs)
    per = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9, "MB": 10**6, "B": 1}[scale.unit]
    text = scale.text(largest)
    assert text.endswith(f" {scale.unit}")
    number = float(text.split()[0].replace(",", "").replace("−", "-"))
    assert number == pytest.approx(largest / per, abs=0.006)
    assert (scale.text(0) == f"0 {scale.unit}") or not per


def test_a_sum_can_be_added_up_by_eye() -> None:
    names = {"budget": 21.64, "runtime": 0.46, "weights": 7.48, "workspace": 0.165, "norms": 0.0025}
    inputs = tuple(Input(name, int(size * 2**30), "B", "") for name, size in names.items())
    sum_ = exact(0, " − ".join(f"{{{name}}}" for name in names), *inputs)
    text = in_numbers(sum_, "GiB")
    assert text == "21.640 GiB − 0.460 GiB − 7.480 GiB − 0.165 GiB − 0.002 GiB"
    small = exact(0, "{a} + {b}", Input("a", 3 * MIB, "B", ""), Input("b", 40 * MIB, "B", ""))
    assert in_numbers(small, "GiB") == "3.00 MiB + 40.00 MiB"


@pytest.fixture
def view(qtbot: QtBot) -> ExplainView:
    made = ExplainView()
    qtbot.addWidget(made)
    made.resize(900, 240)
    made.show()
    return made


def test_the_view_shows_the_selected_segment(view: ExplainView) -> None:
    assert EMPTY in view.text.toPlainText()
    view.set_plan(sample_plans.fits())
    view.set_selected(0, "weights")
    assert view.text.toPlainText().startswith("Weights: this rank's share")
    assert "--tensor-parallel-size" in view.text.toPlainText()
    view.set_unit("GB")
    assert "16.06 GB ÷ 1" in view.text.toPlainText()
    view.set_plan(None)
    assert EMPTY in view.text.toPlainText()
    view.set_empty("Nothing is planned: the tensors are not known")
    assert view.text.toPlainText() == "Nothing is planned: the tensors are not known"


def test_a_question_opens_its_answer(view: ExplainView) -> None:
    view.set_plan(sample_plans.fits())
    view.set_selected(0, "kv_cache")
    assert "▸\u00a0Why does a small model".replace("\u00a0", " ") in view.text.toPlainText()
    assert "19 % of the card" not in view.text.toPlainText()
    view.text.anchorClicked.emit(QUrl("ask:0"))
    assert "19 % of the card" in view.text.toPlainText()
    view.set_selected(0, "weights")
    view.set_selected(0, "kv_cache")
    assert "19 % of the card" in view.text.toPlainText()
    view.text.anchorClicked.emit(QUrl("ask:0"))
    view.text.anchorClicked.emit(QUrl("ask:99"))
    assert "19 % of the card" not in view.text.toPlainText()


def test_tab_goes_through_and_out(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    column = QVBoxLayout(window)
    before, made, after = QPushButton("before"), ExplainView(), QPushButton("after")
    for widget in (before, made, after):
        column.addWidget(widget)
    window.resize(600, 500)
    window.show()
    window.activateWindow()
    made.set_plan(sample_plans.fits())
    for key, first, last in ((Qt.Key.Key_Tab, before, after), (Qt.Key.Key_Backtab, after, before)):
        first.setFocus()
        qtbot.waitUntil(first.hasFocus)
        seen: list[QWidget | None] = [first]
        while seen[-1] is not last and len(seen) < 12:
            qtbot.keyClick(QApplication.focusWidget(), key)
            seen.append(QApplication.focusWidget())
        assert seen[-1] is last, seen
        assert {made.text, made.copy} <= set(seen)
    made.setFocus()
    assert made.text.hasFocus()


def test_sources_are_told_in_words_and_whole_in_the_tip() -> None:
    plan = sample_plans.fits()
    device = plan.devices[0]
    raw = "public print, repository not recorded"
    segment = Segment("runtime", exact(MIB, "{total}", Input("total", MIB, "B", raw)))
    segments = tuple(segment if s.kind == "runtime" else s for s in device.segments)
    told = explanation(plan._replace(devices=(device._replace(segments=segments),)), 0, "runtime", "GiB")
    assert told is not None
    assert (told.inputs[0].source, told.inputs[0].tip) == ("total seen in public logs", raw)
    page = as_html(told, LIGHT, "Sans", measure=len, width=900, wide=True)
    assert f'title="{raw}"' in page
    assert "1.00&nbsp;MiB" in page


def test_copy_as_text(view: ExplainView) -> None:
    view.set_plan(sample_plans.fits())
    view.set_selected(0, "kv_cache")
    view.copy.click()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("KV cache: what is left of the budget\n")
    assert "Why does a small model fill the card?" in text


@pytest.mark.parametrize("width", [260, 420, 900])
def test_no_title_runs_under_the_copy_button(view: ExplainView, qtbot: QtBot, width: int) -> None:
    view.resize(width, 300)
    view.set_plan(sample_plans.fits())
    for kind in ("runtime_outside", "kv_cache", "driver_reserved"):
        view.set_selected(0, kind)
        qtbot.wait(1)
        title, layout = view.text.document().firstBlock(), view.text.document().documentLayout()
        assert title.layout().lineCount() >= 1
        left = layout.blockBoundingRect(title).left()
        lines = [title.layout().lineAt(i) for i in range(title.layout().lineCount())]
        right = max(left + line.x() + line.naturalTextWidth() for line in lines)
        assert right <= view.copy.x()


def test_out_of_sight_it_waits(view: ExplainView) -> None:
    view.set_plan(sample_plans.fits())
    view.hide()
    view.set_selected(0, "weights")
    assert not view.text.toPlainText().startswith("Weights")
    view.show()
    assert view.text.toPlainText().startswith("Weights")


def test_markup_in_names_stays_text(view: ExplainView) -> None:
    plan = sample_plans.fits()
    device = plan.devices[0]
    gpu = device.device.gpu._replace(name="<b>evil</b> & co")
    named = plan._replace(devices=(device._replace(device=device.device._replace(gpu=gpu)),))
    view.set_plan(named)
    assert "<b>evil</b> & co" in view.text.toPlainText()


def test_a_vanished_device_falls_back(view: ExplainView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.other_programs())
    view.set_selected(1, "weights")
    view.set_plan(sample_plans.fits())
    qtbot.waitUntil(lambda: "GPU 0" in view.text.toPlainText(), timeout=2000)


def test_of_plans_that_follow_each_other_the_last_is_shown(view: ExplainView, qtbot: QtBot) -> None:
    view.set_plan(sample_plans.fits())
    view.set_selected(0, "weights")
    for plan in (sample_plans.mixed(), sample_plans.other_programs(), sample_plans.eight_gpus()):
        view.set_plan(plan)
    assert "14.96 GiB ÷ 1" in view.text.toPlainText()
    qtbot.waitUntil(lambda: "131.42 GiB ÷ 8" in view.text.toPlainText(), timeout=2000)
