"""Colour adds nothing but colour, and only where it is wanted."""

from __future__ import annotations

import re

import pytest

from kvplanner.cli.colour import coloured, wanted
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.report import text as report
from kvplanner.report.segments import words_of
from tests import sample_plans


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_without_the_colours_the_text_is_the_same(name: str) -> None:
    plan = sample_plans.ALL[name]()
    text = report.text(plan)
    shown = coloured(text, plan.fits)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == text
    assert shown.splitlines()[0].startswith("\x1b[1;38;5;")


def test_each_part_has_its_own_colour() -> None:
    bar = "[" + "".join(words_of(kind).letter for kind in SEGMENT_KINDS) + "]"
    shown = coloured(f"verdict\n{bar}\n", True).splitlines()[1]
    assert len(set(re.findall(r"38;5;(\d+)m", shown))) == len(SEGMENT_KINDS)


@pytest.mark.parametrize(
    ("environ", "terminal", "is_wanted"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color"}, False, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
    ],
)
def test_when_colour_is_wanted(environ: dict[str, str], terminal: bool, is_wanted: bool) -> None:
    assert wanted(environ, terminal=terminal) is is_wanted
