"""The tests keep the house's order: helpers in kits, and what is slow marked so that daily work can leave it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources import PACKAGE, source

TESTS = Path(__file__).parent


def imported(path: Path) -> set[str]:
    """Every module, and every name of one, that a file imports anywhere."""
    return {name for one in source(path).imports for name in (one.module, f"{one.module}.{one.name}")}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda p: p.relative_to(TESTS).as_posix())
def test_no_test_is_imported_by_another(path: Path) -> None:
    borrowed = [
        n for n in imported(path) if n.startswith("tests.") and n.split(".")[-1].startswith(("test_", "conftest"))
    ]
    assert not borrowed, f"{borrowed}: move what is shared to a kit.py"


def test_a_room_of_the_tests_is_a_room_of_the_house() -> None:
    """Every folder of tests is named after what it tests; those that test the whole are named here."""
    whole = {"bench", "fuzz", "nvml_stub", "oracle", "packaged", "truth"}
    made_up = {Path("engine/abacus")}
    for folder in sorted(TESTS.rglob("__init__.py")):
        place = folder.parent.relative_to(TESTS)
        if place.parts and place.parts[0] not in whole and place not in made_up:
            assert (PACKAGE / place).is_dir(), f"tests/{place} has no kvplanner/{place}"
