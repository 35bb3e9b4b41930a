"""Names from files, made safe to show: on one line, without what a terminal obeys or what hides or turns text."""

from __future__ import annotations

from typing import Final

# The pictures that Unicode has of control characters; anything else without a shape of its own becomes a mark.
_PICTURES: Final = 0x2400
# Of what is said in one line of the window.
LONGEST_LINE: Final = 600
_DELETE: Final = 0x7F
_MARK: Final = "�"
# A cell that begins with one of these is a formula to a spreadsheet, which passes over blanks before it.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def printable(text: str) -> str:
    """The text with a picture such as "␛" or "␊" for each control character and "�" for what else has no shape.

    Kept are blanks of every width. Marks of the reading direction, ends of lines and paragraphs, and halves of
    characters (from file names that are not UTF-8) have no shape. No backslash comes in: names are parted at those.
    """
    if text.isprintable():
        return text
    from unicodedata import category

    return "".join(c if c.isprintable() or category(c) == "Zs" else _shape(ord(c)) for c in text)


def _shape(code: int) -> str:
    if code < 0x20:
        return chr(_PICTURES + code)
    return "␡" if code == _DELETE else _MARK


def inert(text: str) -> str:
    """The text as a cell of a CSV file that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def cut(text: str, most: int) -> str:
    """The text on at most so many characters, with a mark of how many more there were."""
    return text if len(text) <= most else f"{text[: max(0, most - 12)]}… ({len(text):,})"


def in_sight(text: str, most: int) -> str:
    """Lines in plain characters, with the middle left out of what is longer: its end stays."""
    half = most // 2
    shown = text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
    return "\n".join(map(printable, shown.split("\n")))
