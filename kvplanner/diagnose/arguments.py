"""The arguments that an engine prints: literals alone are read, nothing is evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 64 << 10
_PAIR: Final = re.compile(r"\b(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,\s(){}\[\]]+)")
_ITEM: Final = re.compile(r"'(\w+)': ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|True|False|None|-?[\d.]+(?:e-?\d+)?)")


def parse_arguments(text: str) -> dict[str, object]:
    """The arguments that an engine prints as a Python dict or namespace; values that are no literals are left out.

    Nothing is evaluated: literals alone are read, and each pair by itself where the whole is not made of them.
    """
    text = text[:LONGEST]
    if text.startswith("{"):
        try:
            found = ast.literal_eval(text[: text.rindex("}") + 1])
            if isinstance(found, dict):
                return {str(key): value for key, value in found.items()}
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
        return dict(_pairs(_ITEM, text))
    return pairs_of(text)


def pairs_of(text: str) -> dict[str, object]:
    """The k=v pairs of a text."""
    return dict(_pairs(_PAIR, text))


def _pairs(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, object]]:
    for found in pattern.finditer(text[:LONGEST]):
        yield found[1], _literal(found[2])


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return value
