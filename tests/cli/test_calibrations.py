"""Runs that calibrate plans: read from logs, listed, switched off, handed on, deleted; exact figures stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.diagnose import runs
from kvplanner.errors import BadInput
from tests.cli.kit import Terminal

LOG = Path(__file__).parents[1] / "diagnose" / "logs" / "vllm" / "066-v0-ok.log"
GPU = "RTX 4090 24696MiB"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("KVPLANNER_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def plan(terminal: Terminal, version: str = "0.6.6", gpu: str = GPU, *flags: str) -> dict[str, Any]:
    words = ("plan", LLAMA, "--gpu", gpu, "--engine-version", version, "--json", "--", "--max-model-len", "8192")
    found: dict[str, Any] = json.loads(terminal(*words, *flags).out)
    return found


def parts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {s["kind"]: s for s in document["devices"][0]["segments"]}


def test_a_run_replaces_estimates_of_plans_like_it_and_of_no_other(terminal: Terminal) -> None:
    before, other = plan(terminal), plan(terminal, "0.24.0")
    smaller = plan(terminal, "0.6.6", "RTX 3090")
    assert terminal("calibrations", "add", str(LOG), "--gpu", GPU).status == 0
    after = plan(terminal)
    found = parts(after)["activations"]
    assert (found["basis"], found["bytes"]) == ("calibrated", round(1.21 * (1 << 30)))
    assert found["high_bytes"] - found["low_bytes"] < (lambda s: s["high_bytes"] - s["low_bytes"])(
        parts(before)["activations"]
    )
    for kind, one in parts(before).items():
        if one["basis"] == "exact" and kind not in ("kv_cache", "headroom"):
            assert parts(after)[kind]["bytes"] == one["bytes"]
    assert plan(terminal, "0.24.0") == other
    assert plan(terminal, "0.6.6", "RTX 3090") == smaller
    told = terminal("plan", LLAMA, "--gpu", GPU, "--engine-version", "0.6.6", "--explain", "activations").out
    assert "same engine rules, GPU, model family and number of ranks" in told


def test_runs_are_listed_switched_off_handed_on_and_deleted(terminal: Terminal, folder: Path) -> None:
    before = plan(terminal)
    terminal("calibrations", "add", str(LOG), "--gpu", GPU)
    listed = terminal("calibrations").out
    assert "activations 1.21 GiB" in listed
    name = listed.splitlines()[1].split()[0]
    assert terminal("calibrations", "off", name[:5]).status == 0
    assert plan(terminal) == before
    assert terminal("calibrations", "on", "all").status == 0
    calibrated = plan(terminal)
    assert calibrated != before
    handed = folder / "runs.json"
    terminal("calibrations", "export", str(handed))
    terminal("calibrations", "delete", name)
    assert plan(terminal) == before
    assert json.loads(terminal("calibrations", "--json").out)["runs"] == []
    assert terminal("calibrations", "import", str(handed)).status == 0
    assert plan(terminal) == calibrated


def test_runs_that_older_rules_were_set_beside_are_listed_and_not_used(terminal: Terminal, folder: Path) -> None:
    before = plan(terminal)
    terminal("calibrations", "add", str(LOG), "--gpu", GPU)
    place = folder / "data" / "calibrations.json"
    document = json.loads(place.read_text("utf-8"))
    document["runs"][0]["kvplanner"] = "0.0.1"
    place.write_text(json.dumps(document), "utf-8")
    assert plan(terminal) == before
    assert "no, of older rules" in terminal("calibrations").out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("off", "ffff"), "no single run"),
        (("add",), "a log is missing"),
        (("import", "nothing.json"), "nothing.json"),
        (("add", str(LOG)), "does not name its GPUs"),
    ],
)
def test_what_cannot_be_done_is_said(terminal: Terminal, words: tuple[str, ...], what: str) -> None:
    ran = terminal("calibrations", *words)
    assert ran.status == 2
    assert what in ran.err


@pytest.mark.parametrize(
    "change",
    [
        {"measured": []}, {"id": "../x"}, {"measured": [{"kind": "kv_cache", "bytes": 1}]}, {"model": "a\nb"},
        {"measured": [{"kind": "activations", "bytes": -1}]}, {"gpu": "x" * 5000},
    ],
)  # fmt: skip
def test_files_of_runs_are_not_trusted(terminal: Terminal, folder: Path, change: dict[str, object]) -> None:
    terminal("calibrations", "add", str(LOG), "--gpu", GPU)
    place = folder / "data" / "calibrations.json"
    document = json.loads(place.read_text("utf-8"))
    document["runs"][0] |= change
    place.write_text(json.dumps(document), "utf-8")
    ran = terminal("calibrations")
    assert (ran.status, ran.out) == (2, "")
    assert "calibrations.json" in ran.err
    with pytest.raises(BadInput):
        runs.kept(place)
