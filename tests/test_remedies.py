"""Every error says what to do: the source is read, so that none is forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kvplanner

ROOT = Path(kvplanner.__file__).parent
# Where the remedy stands among what is given by place.
REMEDY_AT = {"BadInput": 2, "NotModelled": 2, "UnknownName": 3}


def _errors(tree: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REMEDY_AT:
            yield node, REMEDY_AT[node.func.id]


def _lacks_remedy(call: ast.Call, place: int) -> bool:
    given = {word.arg: word.value for word in call.keywords}.get("remedy")
    remedy = given if given is not None else call.args[place] if len(call.args) > place else None
    return remedy is None or (isinstance(remedy, ast.Constant) and not remedy.value)


def test_every_error_says_what_to_do() -> None:
    seen, silent = 0, []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for call, place in _errors(ast.parse(text)) if any(name in text for name in REMEDY_AT) else ():
            seen += 1
            if _lacks_remedy(call, place):
                silent.append(f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)[:100]}")
    assert seen > 200
    assert silent == []


def test_an_error_without_a_remedy_is_found() -> None:
    tree = ast.parse("raise BadInput('is wrong', 'field')\nraise UnknownName('x', 'y', ('near',), remedy='Do this')")
    assert [_lacks_remedy(*found) for found in _errors(tree)] == [True, False]
