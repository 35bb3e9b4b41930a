"""The window's rooms: which may import which, and that no two modules need each other, however late they ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[2] / "kvplanner"
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
    "launch": {"theme"},
    "window": {
        "theme", "widgets", "bars", "breakdown", "startup", "explain", "verdict", "export", "setup", "gpu_panel",
        "dialogs", "remedies", "fits", "log", "compare", "launch",
    },
}  # fmt: skip


def _modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for room in ("ui", "app"):
        for path in (PACKAGE / room).rglob("*.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES: Final = _modules()


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported anywhere in a file, within functions too; what only a type check needs is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from _imported(node)


def _uses(path: Path) -> set[str]:
    return {name for name in _imported(ast.parse(path.read_text(encoding="utf-8"))) if name in MODULES}


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("kvplanner.ui.") and m.count(".") > 2])
def test_a_room_uses_those_below_it(name: str) -> None:
    room = name.split(".")[2]
    for used in _uses(MODULES[name]):
        target = used.split(".")[2] if used.count(".") >= 2 and used.startswith("kvplanner.ui.") else room
        assert target in BELOW[room] | {room}, f"{name} imports {used}"


def test_no_two_modules_need_each_other() -> None:
    TopologicalSorter({name: _uses(path) - {name} for name, path in MODULES.items()}).prepare()
