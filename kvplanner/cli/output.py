"""What the terminal says: tables and JSON on standard output, one line per error on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from kvplanner.errors import BadInput, PlannerError
from kvplanner.printable import printable

FITS: Final = 0
DOES_NOT_FIT: Final = 1
BAD_INPUT: Final = 2

_NARROW, _WIDE = 48, 120
_TERMINAL: Final = 80
_MOST: Final = 1500
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


def _short(text: str) -> str:
    """A line without its middle where that is long: what is wrong stands first, and what to do last."""
    return text if len(text) <= _MOST else f"{text[:700]} … ({len(text):,} characters) … {text[-500:]}"


class OutputFailed(OSError):
    """Standard output takes no more: a full disk, a device that is gone."""


def say(text: str, *, painted: bool = False) -> None:
    """Lines of an answer on standard output, whoever named what stands in them. painted: they are safe already.

    Raises BrokenPipeError when the reader has gone, OutputFailed for whatever else goes wrong with writing.
    """
    safe = text if painted else "\n".join(map(printable, text.split("\n")))
    with written():
        sys.stdout.write(f"{safe}\n")


@contextmanager
def written() -> Iterator[None]:
    """Tells what goes wrong with writing from what goes wrong with reading."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.errno, error.strerror or str(error)) from error


def note(text: str) -> None:
    """Something worth knowing that is not the answer, on one line of standard error where there is one."""
    if sys.stderr is not None:
        print(f"kvplanner: {_short(printable(' '.join(text.split())))}", file=sys.stderr)


def give_up_output() -> None:
    """Sends what is still buffered nowhere: the interpreter's own flush at the end must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_file(name: str, data: bytes) -> None:
    """Writes a file that was asked for, whole or not at all. Raises BadInput where it cannot be written."""
    from kvplanner.files import write_whole

    try:
        write_whole(name, data)
    except (OSError, ValueError) as error:
        raise unwritable(name, error) from error


def unwritable(name: str, error: OSError | ValueError) -> BadInput:
    """The error for a file that the system refuses to make or to fill."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput(f"cannot be written: {reason.lower()}", name, "Choose another folder or name")


def emit_json(value: object, *, on_one_line: bool = False) -> None:
    """One JSON document on standard output, without anything that JSON lacks."""
    say(_json(value, None if on_one_line else 2), painted=True)


def emit_json_rows(head: Mapping[str, object], name: str, rows: Iterable[object]) -> None:
    """One JSON document whose last field is a list: each of its items on a line of its own as soon as it is there."""
    say(f"{_json(head, 2).removesuffix('}').rstrip()},\n  {_json(name, None)}: [", painted=True)
    line = ""
    for row in rows:
        if line:
            say(f"{line},", painted=True)
        line = f"    {_json(row, None)}"
        flush()
    say(f"{line}\n  ]\n}}", painted=True)


def _json(value: object, indent: int | None) -> str:
    import json

    escaped = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=escaped, allow_nan=False)
    if not text.isascii():
        # JSON itself escapes only what lies below a blank; what turns text or moves a cursor may lie above.
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    return text


def flush() -> None:
    """What was said so far is there for whoever reads."""
    with written():
        sys.stdout.flush()


def width() -> int:
    """Columns to write for: the terminal's within reason, and a fixed number into files and pipes."""
    return max(_NARROW, min(_WIDE, columns() or 100))


def columns() -> int | None:
    """The terminal's columns, None into files and pipes."""
    return terminal_columns() if sys.stdout.isatty() else None


def terminal_columns() -> int:
    """COLUMNS, else the terminal's, else 80: as shutil has it, which takes long to load for what else it does."""
    with suppress(KeyError, ValueError):
        if (asked := int(os.environ["COLUMNS"])) > 0:
            return asked
    with suppress(AttributeError, ValueError, OSError):
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _TERMINAL  # type: ignore[union-attr]  # what is none is caught
    return _TERMINAL


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
