"""What a grammar's patterns hold for certain: a search for it costs a tenth of the pattern's."""

from __future__ import annotations

import re
from typing import Final

_LEAST_OPENING: Final = 12
# A pattern's pieces: an escape, a class of characters, how often what stands before is repeated, or one character.
_PIECE: Final = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|[*+?]\??|\{\d+(?:,\d*)?\}\??|.", re.DOTALL)


def alternatives(pattern: str) -> tuple[str, ...]:
    """The patterns that stand side by side in one."""
    parts, depth = [""], 0
    for found in _PIECE.finditer(pattern):
        depth += (found[0] == "(") - (found[0] == ")")
        if found[0] == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += found[0]
    return tuple(parts)


def words_of(pattern: str) -> str:
    """The longest text that whatever matches a pattern without alternatives holds; "" where no part of it is certain.

    Groups are left out, and what may be missing or repeated ends a text.
    A search for it costs a tenth of the pattern's.
    """
    runs, run, depth = [""], "", 0
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        depth += (piece == "(") - (piece == ")")
        if depth or piece == ")":
            runs.append(run)
            run = ""
        elif piece[0] in "*?{":
            runs.append(run[:-1])
            run = ""
        elif piece[0] == "[" or piece in ".^$+" or (piece[0] == "\\" and piece[1].isalnum()):
            runs.append(run)
            run = ""
        else:
            run += piece[-1]
    return max((*runs, run), key=len)


def opening(pattern: str) -> str:
    """The words that whatever matches a pattern begins with, "" where they say too little."""
    text = ""
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if piece[0] in "*?{(":
            text = text[:-1] if piece[0] != "(" else text
            break
        if piece[0] == "[" or piece in ".^$+" or (piece[0] == "\\" and piece[1].isalnum()):
            break
        text += piece[-1]
    return text if len(text) >= _LEAST_OPENING else ""
