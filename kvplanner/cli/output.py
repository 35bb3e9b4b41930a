"""What the terminal says: tables and JSON on standard output, one line per error on standard error."""

from __future__ import annotations

import os
import sys
from typing import Final

from kvplanner.errors import PlannerError
from kvplanner.printable import printable

FITS: Final = 0
DOES_NOT_FIT: Final = 1
BAD_INPUT: Final = 2

_NARROW, _WIDE = 48, 120
# What stands for a character in an encoding that lacks it, so that "430,000–458,000" stays a range.
_STAND_INS: Final = str.maketrans({
    "≈": "~", "–": "-", "−": "-", "·": ".", "×": "x", "÷": "/", "…": ".", "─": "-", "└": "+", "┘": "+", "▲": "^",
    "→": ">", "≥": ">=", "≤": "<=", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " ", "\u2009": " ",
})  # fmt: skip
PLAIN: Final = "kvplanner.plain"


def complain(error: PlannerError) -> int:
    """Tells what, where and what to do in one line; returns the exit status of bad input."""
    note(str(error))
    return BAD_INPUT


def note(text: str) -> None:
    """Something worth knowing that is not the answer, on one line of standard error where there is one."""
    if sys.stderr is not None:
        print(f"kvplanner: {printable(' '.join(text.split()))}", file=sys.stderr)


def give_up_output() -> None:
    """Sends what is still buffered nowhere: the interpreter's own flush at the end must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_json(value: object, *, on_one_line: bool = False) -> None:
    """One JSON document on standard output, without anything that JSON lacks."""
    import json

    escaped = not (sys.stdout.encoding or "").lower().startswith("utf")
    json.dump(value, sys.stdout, indent=None if on_one_line else 2, ensure_ascii=escaped, allow_nan=False)
    sys.stdout.write("\n")


def width() -> int:
    """Columns to write for: the terminal's within reason, and a fixed number into files and pipes."""
    return max(_NARROW, min(_WIDE, columns() or 100))


def columns() -> int | None:
    """The terminal's columns, None into files and pipes."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def make_printable() -> None:
    """Keeps output going on terminals whose encoding lacks a character, with the nearest plain one in its place."""
    import codecs

    codecs.register_error(PLAIN, _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_STAND_INS)
    return "".join(c if c.isascii() else "?" for c in text), error.end
