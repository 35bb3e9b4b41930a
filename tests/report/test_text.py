"""Reports: the verdict first, every number labelled, nothing that misleads; JSON as the contract says."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.report import schema
from kvplanner.report import text as report
from kvplanner.report.bar import bar_lines, share_cells
from kvplanner.report.csv import csv_text
from kvplanner.report.facts import cache_facts, fold, rows, token_text
from kvplanner.report.segments import MISSING_LETTER as MISSING
from kvplanner.report.segments import name_of, words_of
from kvplanner.report.sentences import summary
from kvplanner.report.verdict import verdict
from kvplanner.sized_text import sizes_in
from kvplanner.units import ByteUnit, in_unit
from tests import sample_plans
from tests.engine.kit import plan
from tests.report.contract import check_plan

NAMES = list(sample_plans.ALL)

LETTERS = {kind: words_of(kind).letter for kind in SEGMENT_KINDS}


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_the_contract(name: str) -> None:
    check_plan(json.loads(json.dumps(schema.to_json(sample_plans.ALL[name]()), allow_nan=False)))


@pytest.mark.parametrize("name", NAMES)
def test_text_starts_with_the_verdict_and_stays_in_width(name: str) -> None:
    plan = sample_plans.ALL[name]()
    lines = report.text(plan, width=100).splitlines()
    assert lines[0] == summary(plan)
    heads = [i for i, line in enumerate(lines) if line.split()[1:] == ["range", "share", "basis", "how"]]
    assert len(heads) == len(fold(plan))
    for head, group in zip(heads, fold(plan), strict=True):
        table = lines[head + 1 : head + 1 + len(list(rows(plan, group.position)))]
        assert all(len(line) <= 100 and line.strip() for line in table)
    assert all(warning in " ".join(" ".join(lines).split()) for warning in plan.warnings)


def test_text_tells_both_units_once_and_tables_in_one() -> None:
    text = report.text(sample_plans.fits())
    assert "16.06 GB = 14.96 GiB stored" in text
    assert "85.52 GB = 79.65 GiB" in text
    assert "14.96" in text.split("W weights")[1].splitlines()[0]
    assert "16.06" in report.text(sample_plans.fits(), unit="GB").split("W weights")[1].splitlines()[0]


def test_a_failure_tells_stage_missing_memory_and_the_engines_words() -> None:
    text = report.text(sample_plans.too_big())
    assert "Start-up fails while loading the weights: 57.12 GB = 53.20 GiB missing" in text
    assert "vLLM says: torch.OutOfMemoryError" in text
    assert "the memory ends here; 53.20 GiB short" in text


def table(plan: Plan, position: int = 0) -> dict[str, tuple[str, str, str]]:
    """What a device's table says: title to size, share and basis."""
    return {r.title: (r.size, r.share, r.basis) for r in rows(plan, position)}


def test_a_failing_plan_tells_its_sum_what_is_missing_and_what_is_never_reached() -> None:
    told = table(sample_plans.too_big())
    assert told["weights"] == ("131.42", "165 %", "exact")
    assert told["missing"] == ("53.20", "67 %", "")
    later = ["runtime", "workspace", "activations", "CUDA graphs"]
    assert [title for title, line in told.items() if line[2] == "not reached"] == later
    assert all(told[title][1] == "" for title in later)
    assert list(told)[-6:] == ["total", "missing", *later]
    shown = sum(float(told[t][0]) for t in ("driver reserved", "runtime outside the budget", "weights"))
    assert float(told["total"][0]) == pytest.approx(shown, abs=0.02)


def test_the_terminals_bar_marks_what_is_missing_and_holds_nothing_that_is_not_reached() -> None:
    plan = sample_plans.too_big()
    bar, below = bar_lines(plan, 0, 98, "GiB")
    assert set(bar[1:-1]) == {"d", "x", "W", MISSING}
    share = sample_plans.too_big().missing_bytes / (plan.devices[0].total_bytes + plan.missing_bytes)
    assert bar.count(MISSING) == pytest.approx(98 * share, abs=1)
    assert below.index("▲") == pytest.approx(bar.index(MISSING), abs=1)
    assert f"\n{MISSING} missing" in report.text(plan)


def test_a_given_cache_has_the_bracket() -> None:
    plan = sample_plans.fits()
    given = plan._replace(cache_given=True)
    bar, below = bar_lines(given, 0, 98, "GiB")
    assert below.index("└") == bar.index("K")
    assert below.index("┘") == bar.rindex("K")
    assert "KV cache given" in below


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_csv_tells_the_verdict_and_adds_up(name: str, unit: ByteUnit) -> None:
    plan = sample_plans.ALL[name]()
    found = list(csv.DictReader(io.StringIO(csv_text(plan, unit))))
    assert {row["verdict"] for row in found} == {sizes_in(summary(plan), unit)}
    assert {row["fits"] for row in found} == {{True: "yes", False: "no", None: "cannot tell"}[plan.fits]}
    assert {row["fails_at"] for row in found} == {plan.stage or ""}
    assert {row["engine"] for row in found} == {"vLLM 0.33.0"}
    for position, device in enumerate(plan.devices):
        mine = [row for row in found if row["device"] == f"GPU {device.device.index}"]
        states = {s: [row for row in mine if row["state"] == s] for s in {row["state"] for row in mine}}
        if plan.fits is None:
            assert [row["state"] for row in mine] == ["not planned"]
            continue
        (total,) = states["total"]
        assert int(total["bytes"]) == sum(int(row["bytes"]) for row in states["in use"])
        assert len(states["in use"]) + len(states.get("not reached", [])) == len(device.segments)
        assert float(total[unit]) == pytest.approx(in_unit(int(total["bytes"]), unit), abs=0.001)
        assert ("missing" in states) == ("missing" in table(plan, position))
        if plan.fits:
            assert int(total["bytes"]) == device.total_bytes


def test_csv_names_are_no_formulas() -> None:
    plan = sample_plans.fits()
    model = plan.request.model._replace(id="=HYPERLINK(1)")
    text = csv_text(plan._replace(request=plan.request._replace(model=model)))
    assert {row["model"] for row in csv.DictReader(io.StringIO(text))} == {"'=HYPERLINK(1)"}


@pytest.mark.parametrize("name", NAMES)
def test_csv_markdown_text_and_json_agree(name: str) -> None:
    plan = sample_plans.ALL[name]()
    document = json.loads(json.dumps(schema.to_json(plan)))
    found = list(csv.DictReader(io.StringIO(csv_text(plan))))
    assert {(row["device"], row["segment"], int(row["bytes"]), row["basis"]) for row in found if row["basis"]} == {
        (f"GPU {d['index']}", s["kind"], s["bytes"], s["basis"])
        for d in document["devices"] if plan.fits is not None for s in d["segments"]
    }  # fmt: skip
    text, page = report.text(plan), report.markdown(plan)
    for group in fold(plan):
        for row in rows(plan, group.position):
            assert f"| {row.title} | {row.size} | {row.span} | {row.share} | {row.basis} |" in page
            if row.title != "total":
                sized = [line.split() for line in text.splitlines() if f" {row.title}  " in line]
                assert any(row.size in cells for cells in sized), row


def test_equal_devices_fold_and_others_do_not() -> None:
    assert [g.title for g in fold(sample_plans.eight_gpus())] == ["GPUs 0–7, same"]
    assert [g.title for g in fold(sample_plans.mixed())] == ["GPU 0", "GPU 1"]
    assert [g.title for g in fold(sample_plans.other_programs())] == ["GPU 0", "GPU 1"]
    assert fold(sample_plans.eight_gpus())[0].roles == "tp0–7"


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


PLANS = [
    ("Llama-3.1-8B-Instruct", "H100", {}),
    ("Llama-3.1-8B-Instruct", "RTX 4090", {}),
    ("Llama-3.3-70B-Instruct", "4xH100", {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}),
    ("DeepSeek-V3", "16xH100", {"tensor_parallel_size": 16, "enable_expert_parallel": True}),
    ("Llama-3.1-8B-Instruct", "H100", {"kv_cache_memory_bytes": 20 << 30}),
    ("Llama-3.1-8B-Instruct", "4xH100", {"data_parallel_size": 4}),
]


@pytest.mark.parametrize(("model", "gpu", "options"), PLANS)
def test_the_facts_repeat_the_headline_and_the_table(model: str, gpu: str, options: dict[str, OptionValue]) -> None:
    plan = engine("vllm").plan(PlanRequest(models.load(models.find(model).id), gpus.machine(gpu), options=options))
    facts = dict(cache_facts(plan))
    cache = next(r for r in rows(plan, plan.tightest) if r.kind == "kv_cache")
    assert facts["KV cache"].startswith(f"{cache.size} GiB")
    assert f"({cache.span})" in facts["KV cache"] or not cache.span
    headline = re.search(r"KV cache for (.*?) tokens", summary(plan))
    assert headline is None or facts["Tokens"].startswith(f"{headline[1]} tokens")


@pytest.mark.parametrize("name", ["fits", "too_big", "eight_gpus", "other_programs"])
def test_explain_shows_words_numbers_and_sources(name: str) -> None:
    plan = sample_plans.ALL[name]()
    text = report.explain(plan)
    for segment in plan.devices[0].segments:
        part = text.split(f"\n{name_of(segment.kind)}: ")[1].split("\n\n")[0]
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
    assert "\nweights: " not in text
    assert "Why does a small model fill the card?" in text


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
    plan = sample_plans.ALL[name]()
    for position in range(len(plan.devices)):
        bar, below = bar_lines(plan, position, width, "GiB")
        assert len(bar) == width + 2
        assert len(below) <= width + 2 + len("budget 21.64 GiB")
        assert set(bar[1:-1]) <= {*LETTERS.values(), MISSING}
        assert ("ends here" in below) == (plan.fits is False)


def test_every_kind_has_its_own_letter_and_title() -> None:
    assert set(LETTERS) == set(SEGMENT_KINDS)
    assert len({*LETTERS.values(), MISSING}) == len(LETTERS) + 1


@pytest.mark.parametrize("more", [{}, {"estimate_cuda_graphs": False}, {"kv_cache_memory_bytes": 8 << 30}])
@pytest.mark.parametrize("version", ["0.6.6", "0.8", "0.19", "0.21", "0.24", "0.26", "0.28", "0.33"])
def test_what_the_json_calls_in_the_budget_fills_it(version: str, more: dict[str, OptionValue]) -> None:
    """Also where CUDA graphs are captured out of what the budget leaves, and where the cache's size is given."""
    options: dict[str, OptionValue] = {"max_model_len": 8192, **more}
    request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("H100"), "vllm", version,
                          options)  # fmt: skip
    plan = engine("vllm").plan(request)
    document = json.loads(json.dumps(schema.to_json(plan)))
    check_plan(document)
    device = document["devices"][0]
    inside = [s["kind"] for s in device["segments"] if s["in_budget"]]
    left = device["budget_bytes"] - sum(s["bytes"] for s in device["segments"] if s["in_budget"])
    given = "kv_cache_memory_bytes" in more
    assert ("kv_cache" in inside) == (not given)
    if not given:
        assert 0 <= left < device["bytes_per_block"]
    assert ("cuda_graphs" in inside) == (version in ("0.21", "0.33") and "estimate_cuda_graphs" not in more)


def test_a_what_if_and_a_draft_model_are_told_wherever_a_plan_goes() -> None:
    plan = sample_plans.fits()
    draft = sample_plans.llama_8b()._replace(id="someone/small")
    wished = plan._replace(request=plan.request._replace(weight_format="AWQ 4-bit", draft=draft))
    for told in (report.text(wished), report.markdown(wished)):
        assert "as if stored in AWQ 4-bit" in told
        assert "Draft model: someone/small · bfloat16 · 16.06 GB = 14.96 GiB stored" in told
        assert "Draft model" not in report.text(plan)
    rows = list(csv.DictReader(io.StringIO(csv_text(wished))))
    assert {(row["weights"], row["draft_model"]) for row in rows} == {("as if stored in AWQ 4-bit", "someone/small")}
    rows = list(csv.DictReader(io.StringIO(csv_text(plan))))
    assert {(row["weights"], row["draft_model"]) for row in rows} == {("bfloat16", "")}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_is_told_in_words(name: str) -> None:
    plan = sample_plans.ALL[name]()
    for told in (report.text(plan), report.markdown(plan)):
        assert ("Start-up fails" in told) == bool(plan.stage)
        if plan.stage and "_" in plan.stage:
            assert plan.stage not in told


def test_a_model_without_a_cache_states_its_step_everywhere() -> None:
    found = plan("BAAI/bge-large-en-v1.5", "L4", load=Load(32, 100, 0))
    text = report.text(found)
    assert "Step      2,048 tokens: 4 sequences of 512, 256 at most" in text
    assert "Load      20 of 32 sequences of 100 tokens in one step" in text
    assert verdict(found, "GiB").details[0] == "2,048 tokens in a step, at most 256 sequences"
    assert schema.to_json(found)["step"] == {
        "max_tokens": 2048, "max_sequences": 256, "sequence_length": 512, "full_length_sequences": 4,
    }  # fmt: skip
    assert schema.to_json(plan("Qwen/Qwen3-0.6B", "L4"))["step"] is None


def test_an_option_of_a_later_release_is_shown_as_it_was_set() -> None:
    request = PlanRequest(
        models.load("codellama/CodeLlama-13b-hf"), gpus.machine("2x24GB"), "vllm", "0.9.2",
        {"kv_cache_memory_bytes": 1 << 30},
    )  # fmt: skip
    assert "1,073,741,824 (set)" in report.text(engine("vllm").plan(request))


def test_the_bytes_of_a_cache_that_devices_share_out_are_of_all_of_them() -> None:
    """A token's 327,680 bytes were said to be of each of three GPUs, which keep the cells of their own layers."""
    request = PlanRequest(
        models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("3xRTX 3090"), "llamacpp",
        options={"ctx_size": 65_536},
    )  # fmt: skip
    plan = engine("llamacpp").plan(request)
    told = dict(cache_facts(plan))
    assert told["Tokens"] == "65,536 tokens, 327,680 bytes each over all devices"
    assert told["KV cache"].startswith(
        "20.00 GiB over all devices; at most 6.75 GiB on one = 65,536 cells, 110,592 bytes"
    )
    assert verdict(plan, "GiB").details[0] == "20.00 GiB of KV cache over all devices"
    alone = engine("llamacpp").plan(request._replace(machine=gpus.machine("H100")))
    assert dict(cache_facts(alone))["Tokens"] == "65,536 tokens, 327,680 bytes each"
    assert verdict(alone, "GiB").details[0] == "20.00 GiB of KV cache"
