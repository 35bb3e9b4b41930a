"""The words of a shell's text: a command over several lines, a script, what was copied from a page or a terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple

WHERE: Final = "after --"
# Of a POSIX shell, of cmd and of PowerShell.
_CONTINUED: Final = re.compile(r"[\\^`][ \t]*\r?\n")
_PROMPT: Final = re.compile(r"^[ \t]*(?:\$|%|PS [^>\n]{0,80}>|[\w.-]{1,40}@[\w.-]{1,60}:[^$#\n]{0,80}[$#])[ \t]+")
_FENCE: Final = re.compile(r"^[ \t]*(?:```|~~~)\S*[ \t]*$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w{0,100})(?::?-([^}]{0,1000}))?\}|([A-Za-z_]\w{0,100}))")
_ASSIGNMENT: Final = re.compile(r"(?s)([A-Za-z_][A-Za-z0-9_]*)=(.*)")


# Splitting takes 4 µs for each character; nobody writes a command of thirty pages.
_LONGEST: Final = 100_000
_BLANKS: Final = re.compile(r"\s+")
_MOST_KNOWN: Final = 1000


class Text(NamedTuple):
    """words: of the whole, ends of commands as words of their own."""

    words: tuple[str, ...]


def shell_text(text: str) -> Text:
    """The words of a text, variables that it sets itself put in.

    Raises BadInput for quotes that do not close, and for more than anyone writes as a command.
    """
    if len(text) > _LONGEST:
        raise BadInput(f"{len(text):,} characters are too many for a command", WHERE, "Give the command alone")
    plain = _FENCE.sub("", _CONTINUED.sub(" ", text.replace("\ufeff", "")))
    plain = "\n".join(_PROMPT.sub("", line, count=1) for line in plain.split("\n"))
    words = split_words("".join(_ended(plain)))
    return Text(tuple(_filled(words)))


def split_words(text: str) -> list[str]:
    """As a shell splits. Raises BadInput for quotes that do not close."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(f"the command line cannot be read: {error}", WHERE, "Check its quotes") from error


def _ended(text: str) -> Iterator[str]:
    """The text with an end of the command for each line's end, but for those that a flag follows, and without comments.

    A line that begins with a dash goes on with the one before: what is copied from a page has lost its marks.
    """
    quote = ""
    at, size = 0, len(text)
    while at < size:
        c = text[at]
        if quote:
            if c == "\\" and quote == '"' and at + 1 < size:
                yield text[at : at + 2]
                at += 2
                continue
            quote = "" if c == quote else quote
        elif c == "\\" and at + 1 < size:
            yield text[at : at + 2]
            at += 2
            continue
        elif c in "'\"":
            quote = c
        elif c == "#" and (at == 0 or text[at - 1].isspace()):
            end = text.find("\n", at)
            at = size if end < 0 else end
            continue
        elif c == "\n":
            blanks = _BLANKS.match(text, at)
            at = blanks.end() if blanks else at + 1
            yield " " if text.startswith("-", at) and not text.startswith("---", at) else " ; "
            continue
        yield c
        at += 1


def _filled(words: list[str]) -> Iterator[str]:
    """With what variables were set to earlier in the same text; a default stands in for those that were not."""
    known: dict[str, str] = {}
    left = _LONGEST

    def value(found: re.Match[str]) -> str:
        nonlocal left
        default = found[2] if found[2] is not None else found[0]
        put = known.get(found[1] or found[3], default)
        left -= len(put)
        if left < 0:  # a variable that holds the one before twice doubles with each line
            raise BadInput("its variables make it too long", WHERE, "Write their values in the command")
        return put

    for word in words:
        filled = _VARIABLE.sub(value, word)
        setting = _ASSIGNMENT.fullmatch(filled.rstrip(";"))
        if setting and len(known) < _MOST_KNOWN:
            known[setting[1]] = setting[2]
        yield filled
