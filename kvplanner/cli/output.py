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

_NARROW, _WIDE = 72, 120


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

    json.dump(value, sys.stdout, indent=None if on_one_line else 2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def width() -> int:
    """Columns to write for: the terminal's within reason, and a fixed number into files and pipes."""
    if not sys.stdout.isatty():
        return 100
    import shutil

    return max(_NARROW, min(_WIDE, shutil.get_terminal_size().columns))
