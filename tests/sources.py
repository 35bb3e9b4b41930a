"""What the tests of the house read in a source file, read once for all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parent.parent / "kvplanner"


class Import(NamedTuple):
    """`import module` or, for each name, `from module import name`. typing: for the type check alone."""

    module: str
    name: str | None
    line: int
    level: int
    typing: bool


class Source(NamedTuple):
    """A file's imports, within functions too, and its texts with their lines."""

    imports: tuple[Import, ...]
    texts: tuple[tuple[str, int], ...]
    lines: int


def modules() -> list[Path]:
    """Every module of kvplanner."""
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """A module's dotted name."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def source(path: Path) -> Source:
    """What stands in a file."""
    text = path.read_text(encoding="utf-8")
    imports: list[Import] = []
    texts: list[tuple[str, int]] = []

    def visit(node: ast.AST, *, typing: bool) -> None:
        if isinstance(node, ast.Import):
            imports.extend(Import(alias.name, None, node.lineno, 0, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.extend(
                Import(node.module or "", alias.name, node.lineno, node.level, typing) for alias in node.names
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append((node.value, node.lineno))
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.iter_child_nodes(node):
            visit(child, typing=typing or checked)

    visit(ast.parse(text), typing=False)
    return Source(tuple(imports), tuple(texts), len(text.splitlines()))


@cache
def used(path: Path, names: frozenset[str]) -> frozenset[str]:
    """Which of the modules of these names a file imports; what only a type check needs is left out."""
    found: set[str] = set()
    for entry in source(path).imports:
        if not entry.typing:
            whole = f"{entry.module}.{entry.name}"
            found.add(whole if whole in names else entry.module)
    return frozenset(found & names)
