"""What differs between plans is what each plan says; the terminal takes files, models and quoted plans."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput
from kvplanner.report import compare as told
from kvplanner.solve.compare import Row, Side, compare
from tests.cli.kit import Terminal

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"


def side(
    model: str = LLAMA, gpu: str = "H100", name: str = "vllm", *, version: str | None = None,
    load: Load | None = None, **options: OptionValue,
) -> Side:  # fmt: skip
    request = PlanRequest(models.load(model), gpus.machine(gpu), name, version, options, load)
    return Side(f"{name} {gpu}", engine(name).plan(request))


def rows_of(sides: Sequence[Side]) -> dict[str, Row]:
    return {row.name: row for row in compare(sides)}


def differing(sides: Sequence[Side]) -> set[str]:
    return {row.name for row in compare(sides) if row.differs}


def test_a_plan_does_not_differ_from_itself() -> None:
    one = side(load=Load(8, 1500, 500))
    assert differing([one, one, one]) == set()
    assert told.lines([one, one], compare([one, one]))[-1] == "Nothing differs"


def test_one_flag_is_one_option_and_what_follows_from_it() -> None:
    sides = [side(), side(kv_cache_dtype="fp8")]
    found = rows_of(sides)
    assert [row.name for row in compare(sides) if row.section == "option" and row.differs] == ["kv_dtype"]
    assert [cell.origin for cell in found["kv_dtype"].cells] == ["default", "user"]
    assert [cell.value for cell in found["bytes_per_token"].cells] == [131_072, 65_536]
    plans = [one.plan for one in sides]
    assert plans[0] is not None
    assert plans[1] is not None
    assert [cell.value for cell in found["tokens"].cells] == [p.kv_cache.tokens for p in plans if p and p.kv_cache]
    assert found["tokens"].deltas[1] == found["tokens"].cells[1].value - found["tokens"].cells[0].value  # type: ignore[operator]  # both have one
    assert not found["weights"].differs
    assert not found["weights"].because


def test_segments_are_those_of_the_device_that_decides() -> None:
    sides = [side(), side(gpu="2xRTX 4090", tensor_parallel_size=2)]
    found = rows_of(sides)
    for row in (r for r in compare(sides) if r.section == "segment" and not r.name.startswith("all_")):
        for cell, one in zip(row.cells, sides, strict=True):
            assert one.plan is not None
            segment = next((s for s in one.plan.devices[one.plan.tightest].segments if s.kind == row.name), None)
            assert cell.value == (segment.bytes if segment else None)
    assert found["gpus"].deltas == (0, 1)
    assert found["machine"].differs


def test_releases_say_which_rule_changed_what() -> None:
    found = rows_of([side(version="0.20"), side(version="0.33")])
    assert found["rules"].differs
    assert found["engine_version"].differs
    assert found["workspace"].formulas[0] != found["workspace"].formulas[1]
    assert any(because.values[0] is None for because in found["workspace"].because)


def test_engines_meet_by_what_an_option_means() -> None:
    sides = [side(QWEN, max_model_len=8192), side(QWEN, name="sglang", context_length=8192),
             side(QWEN, name="llamacpp", ctx_size=8192)]  # fmt: skip
    found = rows_of(sides)
    assert [cell.value for cell in found["context"].cells] == [8192, 8192, 8192]
    assert not found["context"].differs
    # What only one engine has, and nobody set, is no difference that a reader asks for.
    assert "block_size" not in {row.name for row in compare(sides) if row.section == "option"}


def test_what_one_lacks_counts_where_it_was_set() -> None:
    found = rows_of([side(QWEN), side(QWEN, name="llamacpp", n_gpu_layers="20")])
    assert [cell.value for cell in found["n_gpu_layers"].cells] == [None, "20"]


def test_a_plan_that_fails_is_told_with_its_stage() -> None:
    sides = [side(), side("meta-llama/Llama-3.1-70B-Instruct")]
    found = rows_of(sides)
    assert [cell.value for cell in found["state"].cells] == ["fits", "does_not_fit"]
    assert [cell.value for cell in found["stage"].cells] == [None, "weights"]
    assert [cell.state for cell in found["activations"].cells] == ["in_use", "not_reached"]
    assert "(not reached)" in "\n".join(told.lines(sides, compare(sides)))
    assert found["missing_bytes"].cells[1].value == sides[1].plan.missing_bytes  # type: ignore[union-attr]  # there is one, else the test ends here


def test_a_failing_stage_is_told_in_the_words_of_its_own_engine() -> None:
    """And of no other, which would have to be imported for that while the window waits."""
    sides = [
        Side(name, engine(name).plan(PlanRequest(models.load("Qwen/Qwen3-32B"), gpus.machine("2xL4"), name)))
        for name in ("vllm", "sglang")
    ]
    stages = {side.plan.stage for side in sides if side.plan is not None}
    assert stages == {"weights"}
    rows = [row._replace(cells=tuple(cell._replace(value="kv_cache_sizing") for cell in row.cells))
            for row in compare(sides) if row.name == "stage"]  # fmt: skip
    assert told.texts(rows[0], sides, "GiB") == ["sizing the KV cache", "sizing the pools"]


def test_failing_stages_are_told_as_people_say_them(terminal: Terminal) -> None:
    ran = terminal("compare", "Qwen2.5-72B-Instruct --gpu H100", "Qwen2.5-72B-Instruct --gpu 2xH100")
    assert re.search(r"fails at +loading the weights +sizing the KV cache", ran.out)


def test_a_plan_that_is_refused_stands_beside() -> None:
    sides = [side(), Side("other", None, "it knows no such layers")]
    assert rows_of(sides)["refused"].cells[1].value == "it knows no such layers"
    assert any("No plan: it knows no such layers" in line for line in told.lines(sides, compare(sides)))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_two_to_four(count: int) -> None:
    with pytest.raises(BadInput, match="cannot be compared"):
        compare([side()] * count)


def test_the_terminal_compares_a_plan_file_with_flags(terminal: Terminal, tmp_path: Path) -> None:
    kept = str(tmp_path / "my.kvplan.json")
    assert terminal("plan", LLAMA, "--gpu", "H100", "--load", "32@1500+500", "--save", kept).status == 0
    ran = terminal("compare", kept, "--", "--kv-cache-dtype", "fp8")
    assert ran.status == 0
    assert re.search(r"KV cache type +auto +fp8", ran.out)
    assert re.search(r"a token takes +131,072 B +65,536 B \(−65,536 B\)", ran.out)
    assert "release" not in ran.out
    assert re.search(r"release +0.33.0 +0.33.0", terminal("compare", kept, kept, "--all").out)


def test_the_terminal_takes_quoted_plans_and_what_is_said_for_all(terminal: Terminal) -> None:
    words = ("compare", f"{QWEN} --engine sglang", "--gpu", "H100", f"vllm serve {QWEN} --max-model-len 8k", "--load",
             "8@1500+500", "--json")  # fmt: skip
    document = json.loads(terminal(*words).out)
    assert document["schema"] == told.SCHEMA
    found = {row["name"]: row for row in document["rows"]}
    assert found["engine"]["values"] == ["sglang", "vllm"]
    assert found["machine"]["differs"] is False
    assert found["users"]["values"] == [8, 8]
    assert found["context"]["values"][1] == 8000


def test_the_terminal_says_why(terminal: Terminal) -> None:
    both = (f"{LLAMA} --engine-version 0.20", f"{LLAMA} --engine-version 0.33")
    ran = terminal("compare", *both, "--gpu", "H100", "--explain")
    assert "Workspace: why it differs" in ran.out
    assert "penalty counters: A –, B " in ran.out


def test_why_engines_differ_in_tokens_adds_up(terminal: Terminal) -> None:
    both = ("gpt-oss-20b", "gpt-oss-20b --engine sglang")
    (apart,) = json.loads(terminal("compare", *both, "--gpu", "H100", "--json").out)["tokens"]
    assert sum(cause["more_bytes"] for cause in apart["causes"]) == pytest.approx(
        apart["more_cache_bytes"], abs=1 << 20
    )
    assert apart["causes"][0]["name"] == "budget"
    assert "B has fewer tokens than A: " in terminal("compare", *both, "--gpu", "H100").out


@pytest.mark.parametrize("words", [(), (LLAMA,), ("a b 'c", LLAMA), (LLAMA,) * 5, (f"{LLAMA} --json", LLAMA)])
def test_the_terminal_says_what_to_do(terminal: Terminal, words: Sequence[str]) -> None:
    ran = terminal("compare", *words)
    assert ran.status == 2
    assert ran.err.count("\n") == 1


def test_every_field_and_row_is_documented() -> None:
    page = (files("kvplanner.resources") / "help" / "json.md").read_text(encoding="utf-8")
    named = {word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"\w+", quoted)}
    sides = [side(version="0.20"), side()]
    document = json.loads(json.dumps(told.to_json(sides, compare(sides))))
    because = next(row["because"][0] for row in document["rows"] if row["because"])
    assert {*document, *document["plans"][0], *document["rows"][0], *because} - {"schema"} <= named
    assert {row.section for row in compare(sides)} == set(told.SECTIONS)
    assert told.SCHEMA in page


def test_compare_says_them(terminal: Terminal) -> None:
    plans = [f"Llama-3.1-8B-Instruct --gpu H100 --engine-version {version}" for version in ("0.19.0", "0.20.0")]
    ran = terminal("compare", *plans)
    assert "Rules that changed between A and B" in ran.out
    assert "since 0.20.0 default share of the memory: 0.9 → 0.92 (config/cache.py" in ran.out
    document = json.loads(terminal("compare", *plans, "--json").out)
    assert document["rules_changed"][0]["between"] == ["A", "B"]
    assert "Rules that changed" not in terminal("compare", plans[0], f"{plans[0]} -- --enforce-eager").out
