"""One command scores the reports of every engine, in each of its forms, whatever the file is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.truth.score import engine_of, main

HERE = Path(__file__).parent
_FILES = {
    "vllm": "vllm-found.jsonl",
    "sglang": "sglang.jsonl",
    "llamacpp": "llamacpp.jsonl",
}


def _few(engine: str, folder: Path, name: str, count: int = 3) -> Path:
    path = folder / name
    lines = (HERE / _FILES[engine]).read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("engine", "title"),
    [("vllm", "## Accuracy against public"), ("sglang", "### SGLang"), ("llamacpp", "### llama.cpp")],
)
def test_markdown_is_made_of_every_engine(
    engine: str, title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(_few(engine, tmp_path, f"{engine}-x.jsonl")), "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(title)
    assert "3 public" in shown
    assert main([str(_few(engine, tmp_path, f"{engine}-x.jsonl")), "--json"]) == 0
    assert "skipped" in json.loads(capsys.readouterr().out)["all"]


def test_markdown_of_reports_that_state_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.jsonl"
    path.write_text('{"id": "x", "source": "s", "flags": {}, "reported": {}, "outcome": "ok"}\n', encoding="utf-8")
    assert main([str(path), "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert "0 state enough to compare loaded weights" in shown
    assert "off by" not in shown


def test_files_of_several_engines_give_one_part_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(_few("sglang", tmp_path, "sglang.jsonl")), str(_few("llamacpp", tmp_path, "rows.jsonl"))]
    assert main([*files, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [data["sglang"]["all"]["rows"], data["llamacpp"]["all"]["reports"]] == [3, 3]


def test_engines_are_known_by_name_or_by_what_reports_state(tmp_path: Path) -> None:
    assert engine_of(_few("llamacpp", tmp_path, "kept-apart.jsonl")) == "llamacpp"
    assert engine_of(_few("vllm", tmp_path, "others.jsonl")) == "vllm"
    assert engine_of(_few("sglang", tmp_path, "sglang-uncited.jsonl")) == "sglang"
