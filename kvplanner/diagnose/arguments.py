"""The arguments that an engine prints: literals alone are read, nothing is evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 64 << 10
_PAIR: Final = re.compile(r"\b(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,\s(){}\[\]]+)")
_KEY: Final = re.compile(r"\s*'(\w+)': *")
# What the items of a dict are told apart by: texts, brackets and commas.
_MARK: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[({]|[\])}]|,")


class _NotLiteral:
    """A value that is none."""


_NONE: Final = _NotLiteral()


def parse_arguments(text: str) -> dict[str, object]:
    """The arguments that an engine prints as a Python dict or namespace; values that are no literals are left out.

    Nothing is evaluated: literals alone are read, and each pair by itself where the whole is not made of them.
    """
    text = text[:LONGEST]
    if not text.startswith("{"):
        return pairs_of(text)
    whole = _literal(text[: text.rfind("}") + 1])
    if isinstance(whole, dict):
        return {str(key): value for key, value in whole.items()}
    values: dict[str, object] = {}
    for item in _items(text[1:]):
        key = _KEY.match(item)
        value = _literal(item[key.end() :].strip()) if key is not None else _NONE
        if key is not None and value is not _NONE:
            values.setdefault(key[1], value)
    return values


def _items(text: str) -> Iterator[str]:
    """The items of a dict behind its brace: what is inside another is no item of its own, nor is what is cut off."""
    depth = begin = 0
    for mark in _MARK.finditer(text):
        if mark[0] in ("[", "(", "{"):
            depth += 1
        elif mark[0] in ("]", ")", "}"):
            depth -= 1
            if depth < 0:
                yield text[begin : mark.start()]
                return
        elif mark[0] == "," and not depth:
            yield text[begin : mark.start()]
            begin = mark.end()


def pairs_of(text: str) -> dict[str, object]:
    """The k=v pairs of a text; of a key that comes again, within another's value, the first counts."""
    found: dict[str, object] = {}
    for pair in _PAIR.finditer(text[:LONGEST]):
        value = _literal(pair[2])
        found.setdefault(pair[1], pair[2] if value is _NONE else value)
    return found


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return _NONE
    return value
