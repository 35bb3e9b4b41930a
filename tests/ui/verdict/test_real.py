"""The verdict of real plans: every figure in the unit in sight, sums that add up, words for a given cache."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.gpu.spec import Machine
from kvplanner.report import text as report
from kvplanner.report import words
from kvplanner.report.explain import as_text, explanation
from kvplanner.report.verdict import Verdict, verdict
from kvplanner.report.words import Unit
from kvplanner.ui.breakdown.lines import lines
from kvplanner.ui.verdict.sentences import DOT
from kvplanner.ui.verdict.view import VerdictView
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
UNITS: tuple[Unit, ...] = ("GiB", "GB")
FAILING: tuple[tuple[str, str, dict[str, OptionValue]], ...] = (
    (LLAMA, "RTX 4090", {}),
    (LLAMA, "RTX 4090", {"max_model_len": 8192, "gpu_memory_utilization": 0.62}),
    (LLAMA, "RTX 4090", {"max_model_len": 8192, "gpu_memory_utilization": 1.0}),
    (LLAMA, "2xRTX 4090", {"kv_cache_memory_bytes": 100 * GIB}),
    (LLAMA, "H100", {"num_gpu_blocks_override": 3}),
    ("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090", {}),
    ("Qwen/Qwen3-8B", "RTX 4060 Ti 16GB", {}),
)


def plan(model: str, gpu: str | Machine, options: dict[str, OptionValue] | None = None) -> Plan:
    machine = gpus.machine(gpu) if isinstance(gpu, str) else gpu
    return engine("vllm").plan(PlanRequest(models.load(model), machine, options=options or {}))


def spoken(told: Verdict) -> str:
    """What the verdict says in its own words."""
    return " · ".join((told.headline, *told.details, told.tightest_text, *told.notes))


@pytest.mark.parametrize(
    ("model", "gpu", "options"), [*FAILING, (LLAMA, "H100", {}), ("openai/gpt-oss-120b", "H100", {})]
)
def test_no_size_keeps_the_other_unit(model: str, gpu: str, options: dict[str, OptionValue]) -> None:
    made = plan(model, gpu, options)
    for unit, other in (("GB", r"[GM]iB"), ("GiB", r"[GM]B")):
        told = verdict(made, "GB" if unit == "GB" else "GiB")
        own = spoken(told._replace(notes=tuple(n for n in told.notes if "engine would say" not in n)))
        assert re.findall(rf"[\d,.]+ {other}\b", own) == []


@pytest.mark.parametrize(("model", "gpu"), [(LLAMA, "GTX 1080 Ti"), ("Qwen/Qwen3-0.6B", "GTX 1080 Ti")])
def test_missing_kernels_are_told_once_and_not_in_the_engines_words(model: str, gpu: str) -> None:
    told = verdict(plan(model, gpu), "GiB")
    assert spoken(told).count("has no kernels for") == 1
    assert not told.engine_message


@pytest.mark.parametrize("kind", ["kv_cache", "weights", "activations", "cuda_graphs", "runtime", None])
def test_explain_in_gb_has_gib_only_beside_it(kind: SegmentKind | None) -> None:
    told = explanation(plan(LLAMA, "H100"), 0, kind, "GB")
    assert told is not None
    single = told._replace(inputs=(), value="", answers=())
    both = re.compile(r"[\d,.]+ [GM]B = [\d,.]+ [GM]iB")
    assert re.findall(r"[\d,.]+ [GM]iB", both.sub("", as_text(single))) == []


def test_every_gpu_that_lacks_memory_is_named() -> None:
    told = verdict(plan("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090"), "GiB")
    assert "5.44 GiB missing on GPU 0, 5.40 on GPU 1" in told.details
    alike = verdict(plan("Qwen/Qwen3-30B-A3B", "2xRTX 4090"), "GiB")
    assert "5.44 GiB missing on GPU 0–1" in alike.details


def test_what_is_missing_is_told_where_the_headline_only_implies_it() -> None:
    told = verdict(plan(LLAMA, "RTX 4090"), "GiB")
    assert (
        told.headline == "Does not fit: one request of 131,072 tokens needs 16.00 GiB of KV cache and 4.74 GiB is left"
    )
    assert told.details[:2] == ("Fails when the KV cache is sized", "11.26 GiB missing on GPU 0")


def test_what_is_missing_is_what_the_table_says() -> None:
    made = plan("Qwen/Qwen3-30B-A3B", "RTX 4090,RTX 3090")
    for position, size in ((0, "5.44"), (1, "5.40")):
        assert [line.size for line in lines(made, position, "GiB") if line.missing] == [size]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("share", [0.60, 0.61, 0.62, 0.63, 0.64, 0.65, 0.66])
def test_what_is_needed_is_what_there_is_and_what_is_missing(share: float, unit: Unit) -> None:
    made = plan(LLAMA, "RTX 4090", {"max_model_len": 8192, "gpu_memory_utilization": share})
    assert made.stage == "kv_cache_sizing"
    told = verdict(made, unit)
    short = float(re.findall(r"budget is ([\d.]+) G", told.headline)[0])
    needed, budget = (float(n) for n in re.findall(r"([\d.]+) G", told.details[-1]))
    assert round(budget + short, 2) == needed


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("size", [30, 50, 77, 100])
def test_a_given_cache_adds_up_in_words_of_its_own(size: int, unit: Unit) -> None:
    made = plan(LLAMA, "2xRTX 4090", {"kv_cache_memory_bytes": size * GIB})
    told = verdict(made, unit)
    lacks = float(re.findall(r"lacks ([\d.]+) G", told.headline)[0])
    needed, sees = (float(n) for n in re.findall(r"([\d.]+) G", told.details[-1]))
    assert round(sees + lacks, 2) == needed
    assert "are needed with it, CUDA sees" in told.details[-1]
    assert "outside the budget" not in told.headline
    explained = explanation(made, 0, "kv_cache", unit)
    assert explained is not None
    assert explained.title == "KV cache: of the size that was given"
    assert [a.question for a in explained.answers if "small model" in a.question or "simply" in a.question] == []


def test_a_given_cache_that_is_too_small_has_one_number() -> None:
    told = verdict(plan(LLAMA, "H100", {"num_gpu_blocks_override": 3}), "GiB")
    assert told.headline.endswith("the given one has 4.0 MiB to use")
    assert not any("of KV cache per GPU" in detail for detail in told.details)
    fits = verdict(plan(LLAMA, "H100", {"num_gpu_blocks_override": 20_000}), "GiB")
    assert any(detail.endswith("of KV cache per GPU, as given") for detail in fits.details)


@pytest.mark.parametrize("unit", UNITS)
def test_verdict_table_and_explain_have_the_same_range(unit: Unit) -> None:
    made = plan("openai/gpt-oss-120b", "H100")
    reach = next(line.range for line in lines(made, 0, unit) if line.kind == "kv_cache")
    assert f"({reach}) of KV cache per GPU" in verdict(made, unit).details[0]
    explained = explanation(made, 0, "kv_cache", unit)
    assert explained is not None
    assert explained.band.startswith(f"{reach} {unit} (90 % band)")


@pytest.mark.parametrize("width", range(300, 1300, 90))
def test_no_line_of_facts_ends_or_begins_with_a_dot(qtbot: QtBot, width: int) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    view.resize(width, 200)
    view.show()
    view.set_plan(plan(LLAMA, "H100"))
    qtbot.wait(1)
    shown = re.sub(r"<(?!br)[^>]*>", "", view.details.text()).replace("&nbsp;", " ")
    told = view.shown()
    facts = [*told.details, told.tightest_text]
    rows = [row.split(DOT) for row in shown.split("<br>")]
    assert [fact for row in rows for fact in row] == facts
    metrics = view.details.fontMetrics()
    for row in rows:
        assert len(row) == 1 or metrics.horizontalAdvance(DOT.join(row)) <= view.details.width()
    assert view.details.height() >= view.details.heightForWidth(view.details.width())


@pytest.mark.slow
@pytest.mark.parametrize("model", [LLAMA, "Qwen/Qwen3-30B-A3B"])
def test_every_text_follows_a_theme_that_changes(
    open_window: Callable[..., MainWindow], qtbot: QtBot, model: str
) -> None:
    window = open_window(model)
    view = window.centre.verdict
    theme = window.services.theme
    for name in ("dark", "light", "dark"):
        theme.set_choice("dark" if name == "dark" else "light")
        qtbot.wait(5)
        tokens = theme.tokens
        assert tokens.name == name
        inks = {view.headline: tokens.text, view.details: tokens.muted, view.notes: tokens.muted}
        for label, ink in inks.items():
            image = label.grab().toImage()
            seen = {image.pixelColor(x, y).rgb() for x in range(image.width()) for y in range(image.height())}
            assert not label.isVisible() or QColor(ink).rgb() in seen


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("gpu", ["H100", "RTX 4090", "19GiB"])
def test_a_size_and_its_range_read_as_in_the_terminal(gpu: str, unit: Unit) -> None:
    """In the table, in the verdict and in a segment's line, each as fine as the other."""
    made = plan(LLAMA, gpu, {"max_model_len": 1024})
    told = report.text(made, unit=unit)
    for line in lines(made, 0, unit):
        if line.range:
            assert len(line.range.split("–")[0].partition(".")[2]) == 2
            assert re.search(rf"\s{re.escape(line.size)}\s+{re.escape(line.range)}\s", told), line
    cache = re.search(r"^KV cache +([\d.,]+ G[iB]+ \([\d.,–]+\))", told, re.MULTILINE)
    assert cache is not None
    assert f"{cache[1]} of KV cache per GPU" in verdict(made, unit).details[0]
    size, _, reach = cache[1].removesuffix(")").partition(" (")
    line_ = words.segment_line(made, (0,), "kv_cache", unit)
    assert f"KV cache {size}" in line_
    assert f"range {reach} {unit}" in line_
