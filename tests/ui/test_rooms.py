"""The window's rooms: which may import which, and that no two modules need each other, however late they ask."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tests.sources import PACKAGE, name_of, used

pytestmark = pytest.mark.xdist_group("sources")
# Each room with those below it; all of them may use their own modules and everything outside ui.
BELOW: Final[dict[str, set[str]]] = {
    "theme": set(),
    "widgets": {"theme"},
    "bars": {"theme"},
    "breakdown": {"theme", "widgets", "bars"},
    "startup": {"theme", "widgets", "bars"},
    "explain": {"theme", "widgets"},
    "verdict": {"theme", "widgets"},
    "export": {"theme", "bars", "verdict"},
    "setup": {"theme", "widgets"},
    "gpu_panel": {"theme", "widgets", "bars"},
    "dialogs": {"theme", "widgets"},
    "remedies": {"theme", "widgets"},
    "fits": {"theme", "widgets"},
    "log": {"theme", "widgets"},
    "compare": {"theme", "widgets"},
    "launch": {"theme", "widgets"},
    "window": {
        "theme", "widgets", "bars", "breakdown", "startup", "explain", "verdict", "export", "setup", "gpu_panel",
        "dialogs", "remedies", "fits", "log", "compare", "launch",
    },
}  # fmt: skip


def _modules() -> dict[str, Path]:
    return {name_of(path): path for room in ("ui", "app") for path in sorted((PACKAGE / room).rglob("*.py"))}


MODULES: Final = _modules()


def _uses(path: Path) -> frozenset[str]:
    return used(path, frozenset(MODULES))


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("kvplanner.ui.") and m.count(".") > 2])
def test_a_room_uses_those_below_it(name: str) -> None:
    room = name.split(".")[2]
    for needed in _uses(MODULES[name]):
        parts = needed.split(".")
        target = parts[2] if needed.startswith("kvplanner.ui.") else room
        assert target in BELOW[room] | {room}, f"{name} imports {needed}"


def test_no_two_modules_need_each_other() -> None:
    TopologicalSorter({name: _uses(path) - {name} for name, path in MODULES.items()}).prepare()
