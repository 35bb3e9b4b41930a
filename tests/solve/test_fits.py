"""Every row of what fits is what its plan says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Ask, Load
from kvplanner.errors import PlannerError
from kvplanner.files import FOLDER_VARIABLE
from kvplanner.report import fits as told
from kvplanner.solve.fits import Fit, best_first, least, likely_first, machines_for, models_on, row
from tests.cli.kit import Terminal
from tests.source.kit import safetensors_files

pytestmark = pytest.mark.slow

ASK = Ask(load=Load(8, 1500, 500))


def by_plan(fit: Fit, ask: Ask) -> Fit:
    """The row that its plan gives, made anew."""
    request = ask._replace(weight_format=fit.weight_format if fit.what_if else None).request(
        models.load(fit.model), gpus.machine(fit.gpus)
    )
    try:
        plan = engine(ask.engine).plan(request)
    except PlannerError as error:
        return row(request, fit.gpus, None, error.what)
    return row(request, fit.gpus, plan)


@pytest.fixture(scope="module")
def catalogue() -> list[Fit]:
    return list(models_on(gpus.machine("RTX 4090"), ASK))


@pytest.mark.slow
def test_the_whole_catalogue_has_a_row_each(catalogue: list[Fit]) -> None:
    assert [fit.model for fit in catalogue] == [entry.id for entry in models.index()]
    assert 150 < sum(fit.sure for fit in catalogue) < len(catalogue)
    assert {told.verdict_of(fit) for fit in catalogue} >= {"fits", "may fit", "does not fit", "refused"}


@pytest.mark.slow
def test_rows_are_what_plan_says(catalogue: list[Fit]) -> None:
    shared = [fit for fit in catalogue if models.find(fit.model).like]
    assert len(shared) > 100
    for fit in (*catalogue[::9], *shared[::5]):
        assert fit == by_plan(fit, ASK), fit.model


def test_formats_are_what_plan_says() -> None:
    entries = models.search("qwen3 8b")
    rows = list(models_on(gpus.machine("2xRTX 3090"), ASK, formats=(None, "FP8", "AWQ 4-bit"), entries=entries))
    assert any(fit.what_if for fit in rows)
    for fit in rows:
        assert fit == by_plan(fit, ASK)
    keys = [(fit.model, fit.weight_format, fit.what_if) for fit in rows]
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_machines_of_a_model_are_what_plan_says() -> None:
    rows = list(machines_for(models.load("Qwen/Qwen3-32B"), ASK, counts=(1, 2), query="rtx"))
    assert len(rows) > 40
    for fit in rows[::7]:
        assert fit == by_plan(fit, ASK)


def test_the_least_machine_serves_the_load_and_fewer_gpus_do_not() -> None:
    ask = Ask(load=Load(16, 7000, 1000))
    rows = list(machines_for(models.load("Qwen/Qwen3-32B"), ask, counts=(1, 2, 4), query="h100"))
    chosen = list(least(models.load("Qwen/Qwen3-32B"), ask, counts=(1, 2, 4), query="h100"))
    assert chosen
    assert [fit.total_bytes for fit in chosen] == sorted(fit.total_bytes for fit in chosen)
    for fit in chosen:
        assert fit.sure
        assert (fit.sure_serves_users or 0) >= 16
        count, _, kind = fit.gpus.partition("x")
        fewer = [
            other
            for other in rows
            if other.gpus.partition("x")[2] == kind and int(other.gpus.partition("x")[0]) < int(count)
        ]
        assert all(not other.sure or (other.sure_serves_users or 0) < 16 for other in fewer)


def test_rows_come_one_by_one() -> None:
    assert len(list(islice(models_on(gpus.machine("H100"), ASK), 3))) == 3


def test_best_rows_first(catalogue: list[Fit]) -> None:
    ordered = [told.verdict_of(fit) for fit in best_first(catalogue)]
    first = {verdict: ordered.index(verdict) for verdict in ("fits", "may fit", "does not fit")}
    assert first["fits"] < first["may fit"] < first["does not fit"]
    assert len(ordered) == len(catalogue)


def test_what_surely_fits_is_told_as_soon_as_it_is_planned() -> None:
    """Of a thousand models the first few rows take a few plans: those that leave room in the memory are tried first."""
    planned: list[Fit] = []

    def rows() -> Iterator[Fit]:
        machine = gpus.machine("RTX 4090")
        for fit in models_on(machine, ASK, entries=likely_first(models.index(), machine)):
            planned.append(fit)
            yield fit

    told_ = list(islice(best_first(rows()), 3))
    assert all(fit.sure for fit in told_)
    assert len(planned) < 20
    sizes = [fit.parameters or 0 for fit in told_]
    assert sizes == sorted(sizes, reverse=True)


def test_models_that_the_memory_holds_come_first_large_before_small(catalogue: list[Fit]) -> None:
    machine = gpus.machine("RTX 4090")
    entries = likely_first(models.index(), machine)
    assert sorted(entry.id for entry in entries) == sorted(entry.id for entry in models.index())
    memory = 24564 << 20
    sizes = [(entry.stored_bytes or 0, entry.parameters or 0) for entry in entries]
    keys = [(0 if size <= 0.75 * memory else 1 if size <= memory else 2, -count) for size, count in sizes]
    assert keys == sorted(keys)


def test_the_terminal_both_ways(terminal: Terminal) -> None:
    found = terminal("fits", "--gpu", "RTX 4090", "--search", "llama 8b instruct", "--load", "8@1500+500")
    assert found.status == 0
    assert "Meta-Llama-3-8B-Instruct" in found.out
    assert "--all shows the others" in found.out
    machines = terminal("fits", "Qwen3-32B", "--search", "h100")
    assert machines.status == 0
    assert "h100" in machines.out
    formats = json.loads(
        terminal(
            "fits", "Qwen3-32B", "--gpu", "RTX 5090", "--formats", "fp8,awq", "--json", "--", "--max-model-len", "4k"
        ).out
    )
    assert formats["schema"] == "kvplanner.fits/1"
    assert [r["weight_format"] for r in formats["rows"]] == ["bfloat16", "FP8", "AWQ 4-bit"]
    assert formats["rows"][0]["fits"] is False
    assert formats["rows"][2]["sure_max_context_length"] > 4096


def test_lists_of_the_window_are_read_without_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    for name in ("HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "own" / "tiny"
    folder.mkdir(parents=True)
    for name, data in safetensors_files().items():
        (folder / name).write_bytes(data)
    lists = {"recent_models": ["Qwen/Qwen3-8B", str(folder), "/gone"], "starred_models": ["Qwen/Qwen3-32B", 7]}
    (tmp_path / "settings.json").write_text(json.dumps(lists | {"model_folders": [str(tmp_path / "own")]}))

    def names(*words: str) -> list[str]:
        found = terminal("fits", "--gpu", "RTX 4090", "--json", *words)
        return [Path(row["model"]).name for row in json.loads(found.out)["rows"]]

    assert names("--recent") == ["tiny", "Qwen3-8B"]
    assert "/gone" in terminal("fits", "--gpu", "RTX 4090", "--recent").err
    assert terminal("fits", "--gpu", "RTX 4090", "--starred").status == 2  # no list of texts: as if there were none
    assert names("--local") == ["tiny"]
    assert names("--local", "--recent", "--search", "qwen") == ["Qwen3-8B"]
    assert "Leave out one" in terminal("fits", "Qwen3-8B", "--recent").err


def test_what_fits_nowhere_has_its_own_status(terminal: Terminal) -> None:
    assert terminal("fits", "DeepSeek-V3", "--gpu", "RTX 4090").status == 1
    assert terminal("fits", "--gpu", "RTX 4090", "--search", "no such words").status == 2


def test_bad_words_say_what_to_do(terminal: Terminal) -> None:
    assert "Write kvplanner fits MODEL" in terminal("fits").err
    assert "--counts 1,2,4,8" in terminal("fits", "Qwen3-32B", "--counts", "x").err


def test_every_field_is_documented() -> None:
    page = (files("kvplanner.resources") / "help" / "json.md").read_text(encoding="utf-8")
    named = {word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"\w+", quoted)}
    row = told.row_to_json(next(models_on(gpus.machine("H100"), ASK)))
    assert {*told.head(machine="H100"), "rows", *row} - {"schema"} <= named
    assert told.SCHEMA in page


def test_what_runs_partly_in_ram_is_told_and_comes_after_what_fits_the_gpus() -> None:
    some = [models.find(name) for name in ("Qwen3-8B", "Llama-3.1-70B-Instruct")]
    rows = list(models_on(gpus.machine("RTX 4060 Ti 16GB"), Ask("llamacpp"), entries=some))
    by_model = {fit.model.rpartition("/")[2]: fit for fit in rows}
    small, large = by_model["Qwen3-8B"], by_model["Llama-3.1-70B-Instruct"]
    assert [told.verdict_of(fit) for fit in (small, large)] == ["fits", "needs RAM"]
    assert large.fits
    assert sorted((large, small), key=lambda fit: fit.order) == [small, large]
    assert told.row_to_json(large)["in_ram"] is True
