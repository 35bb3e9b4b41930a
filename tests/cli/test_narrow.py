"""Reports on narrow terminals, and on those whose encoding lacks what they are written with."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kvplanner.cli.output import PLAIN, emit_json, make_printable
from kvplanner.report import text as report
from kvplanner.report.table import fitted
from tests import sample_plans
from tests.cli.kit import Terminal

MODEL = "Llama-3.1-8B-Instruct"


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
@pytest.mark.parametrize("name", sorted(sample_plans.ALL))
def test_no_line_of_a_report_is_wider_than_the_terminal(name: str, width: int) -> None:
    plan = sample_plans.ALL[name]()
    lines = report.text(plan, width=width).splitlines()
    # A verdict and an engine's own words stay whole, to be searched for.
    long = [line for line in lines[1:] if len(line) > width and " says: " not in line]
    assert long == []
    if plan.fits is not None:
        assert any(line.endswith("how") for line in lines) == (width >= 80)
    assert all(f"{segment.bytes / 2**30:.2f}" in " ".join(lines) for segment in plan.devices[0].segments)


def test_a_table_leaves_out_what_can_be_spared() -> None:
    rows = [("id", "size", "more"), ("x" * 20, "12", "y" * 30)]
    assert [len(line) for line in fitted(rows, "<><", (2, 1), None)][1] == 58
    assert next(fitted(rows, "<><", (2, 1), 40)).split() == ["id", "size"]
    assert list(fitted(rows, "<><", (2, 1), 24))[1] == "x" * 20
    assert list(fitted(rows, "<><", (2, 1), 5))[1] == "x" * 20


def plain(text: str) -> bytes:
    make_printable()
    return text.encode("ascii", PLAIN)


def test_a_plain_terminal_gets_the_nearest_characters() -> None:
    told = plain("≈ 452,000 (430,000–458,000) · 2 × H100 − 0.5 ≥ 1 … 模")
    assert told == b"~ 452,000 (430,000-458,000) . 2 x H100 - 0.5 >= 1 . ?"


def test_all_of_a_report_has_a_plain_form() -> None:
    for make in sample_plans.ALL.values():
        text = report.text(make())
        assert plain(text).count(b"?") == text.count("?")


def test_json_on_a_plain_terminal_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
        emit_json({"summary": "≈ 452,000"})
        assert json.loads(raw.getvalue()) == {"summary": "≈ 452,000"}


def test_another_format_is_told_as_what_it_is(terminal: Terminal) -> None:
    told = terminal("plan", MODEL, "--gpu", "H100", "--weight-format", "fp8").out
    assert "8.03 B parameters · as if stored in FP8 · 9.08 GB = 8.46 GiB\n" in told
    assert "bfloat16 · 16.06 GB = 14.96 GiB stored\n" in terminal("plan", MODEL, "--gpu", "H100").out
