"""The README tells the truth: its commands run, its files exist, its parts are filled."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvplanner.cli import plan
from kvplanner.cli.main import COMMANDS
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.engine.vllm.quirks import ROWS
from kvplanner.report.segments import name_of

ROOT = Path(__file__).parent.parent.parent
OF_OTHER_ENGINES = {"compute", "output"}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """The command of each example line, without the remark behind it."""
    block = README.split("## In the terminal")[1].split("```")[1]
    lines = [re.split(r"\s{4,}", line)[0] for line in block.strip().splitlines()]
    return [line for line in lines if line.startswith("kvplanner ")]


@pytest.mark.parametrize("line", commands())
def test_example_commands_are_understood(line: str) -> None:
    words = shlex.split(line.replace("[QUERY]", "llama"))[1:]
    assert words[0] in COMMANDS
    if words[0] == "plan":
        given, built = plan.words_from(words[1:])
        assert given.model or built.flags


def test_every_part_of_the_bar_is_explained() -> None:
    table = README.split("| part | what it is |")[1].split("\n\n")[0]
    assert [name_of(kind) for kind in SEGMENT_KINDS if kind not in OF_OTHER_ENGINES] == [
        row.split("|")[1].strip() for row in table.strip().splitlines()[1:]
    ]


def test_every_cache_that_is_not_confirmed_is_listed() -> None:
    limits = README.split("## Limits")[1].split("## ")[0]
    told = "".join(c for c in limits.lower() if c.isalnum())
    for architecture in (name for name, row in ROWS.items() if row.not_confirmed):
        assert architecture.split("For")[0].removesuffix("*").removesuffix("Sparse").lower() in told, architecture


def test_what_it_points_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"`((?:packaging|kvplanner|resources|tests)/[\w./]*)`", README):
        assert "NAME" in path or (ROOT / path).exists(), path


@pytest.mark.parametrize("part", ["example", "accuracy", "engines"])
def test_generated_parts_are_filled(part: str) -> None:
    body = README.split(f"<!-- {part}:begin -->")[1].split(f"<!-- {part}:end -->")[0]
    assert len(body.strip().splitlines()) >= 3


def test_the_tree_names_every_room_and_nothing_else() -> None:
    tree = README.split("## How it is laid out")[1].split("```")[1]
    rooms = {
        line.split()[0].removesuffix(".py") for line in tree.splitlines() if line.startswith("  ") and line[2] != " "
    }
    package = ROOT / "kvplanner"
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert packages <= rooms <= packages | modules
    told = set(re.findall(r"\w+", tree))
    assert modules <= told, modules - told
    assert {path.parent.name for path in (package / "ui").glob("*/__init__.py")} <= told


def test_the_way_of_an_option_and_of_a_plan_goes_through_files_that_are_there() -> None:
    way = README.split("### The way of an option")[1].split("###")[0]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", way)
    assert len(named) > 12
    for name in named:
        homes = ("", "engine/vllm/", "engine/vllm/startup/", "ui/bars/")
        assert any((ROOT / "kvplanner" / home / name).exists() for home in homes), name
    assert len(re.findall(r"^\d+\. ", way, re.MULTILINE)) <= 10
