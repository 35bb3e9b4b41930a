"""kvplanner report: the file that is asked for, the plan's status, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplanner.cli.main import run

PLAN = ("Llama-3.1-8B-Instruct", "--gpu", "H100")


def test_each_kind_of_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *PLAN, "-o", str(tmp_path / "plan.html")]) == 0
    assert (tmp_path / "plan.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert run(["report", *PLAN, "-o", str(tmp_path / "plan.md"), "--", "--max-model-len", "4096"]) == 0
    assert "--max-model-len 4096" in (tmp_path / "plan.md").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run(["report", "Qwen3-32B", "--gpu", "2xRTX 4090", "-o", "-"]) == 1
    assert capsys.readouterr().out.startswith("**Does not fit")


def test_a_pdf_is_made_by_who_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.pdf"
    assert run(["report", *PLAN, "-o", str(target)]) == 2
    assert "needs the window's packages" in capsys.readouterr().err
    assert run(["report", *PLAN, "-o", str(target)], lambda made, when: made.title.encode()) == 0
    assert target.read_bytes().startswith(b"Llama-3.1-8B-Instruct on ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*PLAN], "nothing says where to write"),
        ([*PLAN, "-o", "plan.docx"], "no kind of report"),
        ([*PLAN, "-o", "/nowhere/at/all/plan.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_written_says_so(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *words]) == 2
    assert said in capsys.readouterr().err
