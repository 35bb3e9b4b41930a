"""Reports: the verdict first, every number labelled, nothing that misleads; JSON as the contract says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.engine.base import SEGMENT_KINDS
from kvplanner.plan import report, schema
from kvplanner.plan.report_parts import TITLES, fold, token_text
from kvplanner.plan.text_bar import LETTERS, bar_lines, share_cells
from tests import sample_plans
from tests.plan.contract import check_plan

NAMES = list(sample_plans.ALL)


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_the_contract(name: str) -> None:
    check_plan(json.loads(json.dumps(schema.to_json(sample_plans.ALL[name]()), allow_nan=False)))


@pytest.mark.parametrize("name", NAMES)
def test_text_starts_with_the_verdict_and_stays_in_width(name: str) -> None:
    plan = sample_plans.ALL[name]()
    lines = report.text(plan, width=100).splitlines()
    assert lines[0] == plan.summary
    table = [line for line in lines if line[:2] in {f"{letter} " for letter in LETTERS.values()}]
    assert len(table) == sum(len(g.first.segments) for g in fold(plan.devices))
    assert all(len(line) <= 100 for line in table)
    assert all(warning in " ".join(" ".join(lines).split()) for warning in plan.warnings)


def test_text_tells_both_units_once_and_tables_in_one() -> None:
    text = report.text(sample_plans.fits())
    assert "16.06 GB = 14.96 GiB stored" in text
    assert "85.52 GB = 79.65 GiB" in text
    assert "14.96" in text.split("W weights")[1].splitlines()[0]
    assert "16.06" in report.text(sample_plans.fits(), unit="GB").split("W weights")[1].splitlines()[0]


def test_a_failure_tells_stage_missing_memory_and_the_engines_words() -> None:
    text = report.text(sample_plans.too_big())
    assert "Start-up fails at weights: 57.12 GB = 53.20 GiB missing" in text
    assert "vLLM says: torch.OutOfMemoryError" in text
    assert "the memory ends here; 55.07 GiB too much" in text


def test_equal_devices_fold_and_others_do_not() -> None:
    assert [g.title for g in fold(sample_plans.eight_gpus().devices)] == ["GPUs 0–7, same"]
    assert [g.title for g in fold(sample_plans.mixed().devices)] == ["GPU 0", "GPU 1"]
    assert [g.title for g in fold(sample_plans.other_programs().devices)] == ["GPU 0", "GPU 1"]
    assert fold(sample_plans.eight_gpus().devices)[0].roles == "tp0–tp7"


def test_user_options_come_first_and_say_so() -> None:
    text = report.text(sample_plans.other_programs())
    options = text.split("Options\n")[1].split("\n\n")[0].splitlines()
    assert [line.split() for line in options[:2]] == [
        ["tensor_parallel_size", "2", "(set)"],
        ["max_model_len", "32,768", "(set)"],
    ]
    assert "(set)" not in "".join(options[2:])
    assert any("default: vLLM 0.33" in line for line in options)


def test_tokens_show_no_more_digits_than_the_band() -> None:
    cache = sample_plans.fits().kv_cache
    assert cache is not None
    assert token_text(cache) == "≈ 455,000 tokens (452,000–458,000)"
    exact = cache._replace(tokens_low=cache.tokens, tokens_high=cache.tokens)
    assert token_text(exact) == "455,472 tokens"


@pytest.mark.parametrize("name", ["fits", "too_big", "eight_gpus", "other_programs"])
def test_explain_shows_words_numbers_and_sources(name: str) -> None:
    plan = sample_plans.ALL[name]()
    text = report.explain(plan)
    for segment in plan.devices[0].segments:
        part = text.split(f"\n{TITLES[segment.kind]}: ")[1].split("\n\n")[0]
        assert f"{segment.bytes:,} bytes" in part
        assert segment.estimate.in_words() in part
        assert segment.estimate.in_numbers() in part
        assert all(i.source in part for i in segment.estimate.inputs)


def test_replicas_are_not_mistaken_for_one() -> None:
    plan = sample_plans.other_programs()._replace(replicas=2)
    text = report.text(plan)
    assert "in each of 2 replicas" in text
    assert "2 replicas" in text.split("vLLM 0.33.0")[1].splitlines()[0]


def test_explain_of_one_part_shows_only_that() -> None:
    text = report.explain(sample_plans.fits(), ("kv_cache",))
    assert "KV cache: 55.60 GiB" in text
    assert "weights" not in text


def test_explain_gives_decimal_readings_beside_binary_ones() -> None:
    assert "16.06 GB" in report.explain(sample_plans.fits(), ("weights",))


def test_markdown_is_a_table_and_escapes() -> None:
    text = report.markdown(sample_plans.fits())
    assert "| weights | 14.96 |" in text
    assert "cuda\\_total" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


@given(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=10), st.integers(10, 200))
def test_cells_fill_the_width_and_show_everything(sizes: list[int], width: int) -> None:
    cells = share_cells(sizes, width)
    assert sum(cells) == (width if any(sizes) else 0)
    assert all((count > 0) == (size > 0) for count, size in zip(cells, sizes, strict=True))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cannot_tell"])
@pytest.mark.parametrize("width", [40, 98])
def test_bars_are_as_wide_as_asked_and_never_ragged(name: str, width: int) -> None:
    for device in sample_plans.ALL[name]().devices:
        bar, below = bar_lines(device, width, "GiB")
        assert len(bar) == width + 2
        assert len(below) <= width + 2 + len("budget 21.64 GiB")
        assert set(bar[1:-1]) <= set(LETTERS.values())
        assert ("ends here" in below) == (device.overflow_bytes > 0)


def test_every_kind_has_its_own_letter_and_title() -> None:
    assert set(LETTERS) == set(TITLES) == set(SEGMENT_KINDS)
    assert len(set(LETTERS.values())) == len(LETTERS)
