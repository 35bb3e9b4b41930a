"""Names from files, made safe to show: on one line, without what a terminal obeys or what hides or turns text."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with an escape such as "\\x1b" or "\\n" for each character that has no shape of its own.

    Kept are blanks of every width; control characters, line ends, marks of the reading direction and halves of
    characters (from file names that are not UTF-8) are escaped.
    """
    if text.isprintable():
        return text
    from unicodedata import category

    return "".join(
        c if c.isprintable() or category(c) == "Zs" else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )
