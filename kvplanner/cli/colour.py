"""Colour for terminals that show it: the verdict and the bars, by the letters that are there without colour too."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import groupby
from typing import Final

from kvplanner.engine.segment import SEGMENT_KINDS, SegmentKind
from kvplanner.report.segments import MISSING_LETTER, words_of

# Of the 256-colour palette, nearest to the window's colours; bold where a letter must stand out.
_OF_KIND: Final[dict[SegmentKind, int]] = {
    "driver_reserved": 245, "other": 240, "runtime_outside": 137, "runtime": 180, "weights": 32, "workspace": 117,
    "activations": 214, "compute": 208, "output": 223, "cuda_graphs": 176, "fragmentation": 138,
    "kv_cache": 35, "headroom": 250,
}  # fmt: skip
_OF_LETTER: Final = {words_of(kind).letter: _OF_KIND[kind] for kind in SEGMENT_KINDS} | {MISSING_LETTER: 160}
_VERDICT: Final = {True: 35, False: 160, None: 172}
_RESET: Final = "\x1b[0m"


def wanted(environ: Mapping[str, str] | None = None, *, terminal: bool | None = None) -> bool:
    """Whether to colour: on a terminal that can, unless NO_COLOR is set."""
    environ = os.environ if environ is None else environ
    on_terminal = sys.stdout.isatty() if terminal is None else terminal
    return on_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def coloured(report: str, fits: bool | None) -> str:
    """A text report with its first line, its bars and the letters of its tables in colour."""
    first, *rest = report.split("\n")
    return "\n".join([_paint(first, _VERDICT[fits], bold=True), *map(_line, rest)])


def _line(line: str) -> str:
    if len(line) > 2 and line[0] == "[" and line[-1] == "]" and set(line[1:-1]) <= _OF_LETTER.keys():
        runs = ((letter, len(list(run))) for letter, run in groupby(line[1:-1]))
        return "[" + "".join(_paint(letter * count, _OF_LETTER[letter]) for letter, count in runs) + "]"
    if line[:1] in _OF_LETTER and line[1:2] == " ":
        return _paint(line[0], _OF_LETTER[line[0]], bold=True) + line[1:]
    return line


def _paint(text: str, colour: int, *, bold: bool = False) -> str:
    return f"\x1b[{'1;' if bold else ''}38;5;{colour}m{text}{_RESET}"
