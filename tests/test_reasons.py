"""What lint, types or a test run leave out says why, in words, where it does so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LEFT_OUT = re.compile(r"# (?:noqa|type: ignore)\b(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[a-z, -]+\])?(?P<rest>.*)")
_WORDS = re.compile(r"[a-z]{2,}.* [a-z]{1,}|[a-z]{3,}")


def reasons_lacking(source: str) -> list[str]:
    """The lines whose comment leaves something out without a word."""
    lacking = []
    for number, line in enumerate(source.splitlines(), 1):
        found = _LEFT_OUT.search(line) if "# noqa" in line or "# type: ignore" in line else None
        if found and not _WORDS.search(re.sub(r"# (?:fmt|noqa|type): \S+( \S+)?", "", found["rest"])):
            lacking.append(f"{number}: {line.strip()}")
    return lacking


@pytest.mark.parametrize("folder", ["kvplanner", "packaging", "tests"])
def test_whatever_is_left_out_says_why(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if not path.samefile(__file__)]
    assert paths
    found = {str(path): reasons_lacking(path.read_text("utf-8")) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("comment", "lacks"),
    [
        ("# noqa: E501", True), ("# type: ignore[misc]", True), ("# type: ignore[misc]  # fmt: skip", True),
        ("# noqa: E501 - whole lines", False), ("# type: ignore[misc]  # of another's class", False),
        ("# what noqa does", False),
    ],
)  # fmt: skip
def test_a_reason_is_a_word(comment: str, lacks: bool) -> None:
    assert bool(reasons_lacking(f"x = 1  {comment}\n")) is lacks


def test_no_test_is_left_out_for_want_of_what_is_always_there() -> None:
    """What kvplanner needs to run is there: a test that is skipped without it would hide that it is not."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        assert path.samefile(__file__) or "importorskip" not in path.read_text("utf-8"), path
