"""A call in Python that starts an engine ("LLM(model=…)"), as words. The code is parsed and never run.

Only literals are read: what a variable was assigned from a literal above counts as one.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from kvplanner.engine.registry import engine
from kvplanner.engine.signature import Signature, signatures
from kvplanner.errors import BadInput

_WHERE: Final = "what was pasted"
_MOST_NODES: Final = 50_000


@cache
def classes() -> dict[str, tuple[Signature, tuple[str, ...]]]:
    """The classes of each engine, and the flags that stand for being started so."""
    found: dict[str, tuple[Signature, tuple[str, ...]]] = {}
    for one in signatures():
        if one.python is not None:
            found[one.python[1]] = one, one.python_flags
        found |= dict.fromkeys(one.python_also, (one, ()))
    return found


def calls(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each call. Raises BadInput for text that is no Python, or for arguments that are not literals."""
    tree = _tree(text)
    known: dict[str, Any] = {}
    settings: dict[str, str] = {}
    for node in _ordered(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _assigned(node, known, settings)
        elif isinstance(node, ast.Call) and (name := _name(node.func)) in classes():
            found, flags = classes()[name]
            environment = (f"{key}={value}" for key, value in settings.items())
            yield (*environment, *found.launch, *_arguments(node, found, known), *flags)


def _tree(text: str) -> ast.Module:
    from textwrap import dedent

    try:
        tree = ast.parse(dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        try:
            tree = ast.parse(_call_alone(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadInput(
                "it is no Python that can be read", _WHERE, "Paste the whole call, brackets included"
            ) from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise BadInput("it holds more than can be read", _WHERE, "Paste the call alone")
    return tree


def _call_alone(text: str) -> str:
    """From the first class's name to the bracket that closes its call: the rest may be cut off or of a page."""
    import re

    found = re.search(rf"\b(?:{'|'.join(classes())})\s*\(", text)
    if found is None:
        return text
    depth, quote = 0, ""
    for at in range(found.start(), len(text)):
        c = text[at]
        if quote:
            quote = "" if c == quote and text[at - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return text[found.start() : at + 1]
    return text[found.start() :]


def _ordered(tree: ast.Module) -> Iterator[ast.AST]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Call)]
    # Of one place, the call within an assignment comes first.
    yield from sorted(found, key=lambda node: (node.lineno, isinstance(node, ast.Assign)))


def _assigned(node: ast.Assign, known: dict[str, Any], settings: dict[str, str]) -> None:
    """A name, or a variable of the environment, that a literal is given to."""
    target = node.targets[0]
    value = _literal(node.value, known)
    if value is _UNKNOWN:
        return
    if isinstance(target, ast.Name):
        known[target.id] = value
    elif isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("environ"):
        name = _literal(target.slice, known)
        if isinstance(name, str) and isinstance(value, str):
            settings[name] = value


_UNKNOWN: Final = object()


def _literal(node: ast.AST, known: dict[str, Any]) -> Any:
    """The value of a literal, or of a name that was given one; _UNKNOWN otherwise."""
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Call) and _name(node.func) == "dict" and not node.args:
        found = {word.arg: _literal(word.value, known) for word in node.keywords}
        return _UNKNOWN if None in found or _UNKNOWN in found.values() else found
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = _literal(node.left, known), _literal(node.right, known)
        return sides[0] * sides[1] if all(type(side) is int and abs(side) < 1 << 40 for side in sides) else _UNKNOWN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _UNKNOWN


def _name(node: ast.AST) -> str:
    """The last part of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _arguments(call: ast.Call, found: Signature, known: dict[str, Any]) -> Iterator[str]:
    model = found.python[2] if found.python is not None else ""
    given: dict[str, ast.expr] = {}
    if call.args:
        given[model] = call.args[0]
    for word in call.keywords:
        if word.arg is not None:
            given[word.arg] = word.value
            continue
        spread = _literal(word.value, known)
        if not isinstance(spread, dict):
            raise BadInput(f"**{ast.unparse(word.value)[:40]} is not known", _WHERE, "Write the arguments out")
        given |= {str(name): ast.Constant(value) for name, value in spread.items()}
    for name, node in given.items():
        value = node.value if isinstance(node, ast.Constant) else _literal(node, known)
        if value is _UNKNOWN:
            raise BadInput(f"{name} = {ast.unparse(node)[:60]} is not known", _WHERE, "Write its value in its place")
        if value is None:
            continue
        if name in (model, "model", "model_path"):
            yield from (str(value),) if found.model_positional else (found.model_flags[0], str(value))
        else:
            yield from _flag(found, name, value)


def _flag(found: Signature, name: str, value: Any) -> Iterator[str]:
    """An argument as the flag of the same name."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        option = next((o for o in engine(found.engine).options() if flag in o.flags), None)
        if value:
            yield flag
        elif option is not None and option.negation:
            yield option.negation
        elif option is None:
            yield f"{flag}=false"
        return
    if isinstance(value, list | tuple):
        yield flag
        yield from (str(item) for item in value)
        return
    try:
        yield f"{flag}={json.dumps(value) if isinstance(value, dict) else value}"
    except (TypeError, ValueError):
        raise BadInput(f"{name} is no value that a command line has", _WHERE, "Leave it out") from None
