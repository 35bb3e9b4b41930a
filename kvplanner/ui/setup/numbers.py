"""Option values as people write them, and back. Shown as everywhere in the app: a comma between thousands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplanner.errors import BadInput
from kvplanner.ui.theme.figures import separators
from kvplanner.units import GIB, KIB, MIB, format_count

if TYPE_CHECKING:
    from kvplanner.engine.option import Option, OptionValue

GROUPING_BLANKS = "\u00a0\u202f\u2009 '’"


def plain(text: str, *, whole: bool = True) -> str:
    """A number as a program reads it: no group separators, a point for decimals; words stay as they are.

    A comma or, in whole numbers, a point between groups of three digits separates thousands; any other single comma
    is a decimal one, as several languages write it; so is every single comma of a fraction where figures are shown so.
    """
    text = text.strip()
    if text.count(",") == 1 and "." in text and text.rindex(".") < text.index(","):
        text = text.replace(".", "")  # "1.234,5"
    for blank in GROUPING_BLANKS:
        if text.replace(blank, "").replace(",", "").isdigit():
            text = text.replace(blank, "")
    for group in (",", ".") if whole else () if separators().decimal == "," and "." not in text else (",",):
        text = _without_groups(text, group)
    return text.replace(",", ".") if text.count(",") == 1 and "." not in text else text


def _without_groups(text: str, group: str) -> str:
    """Remove a separator only where it stands between digits, three to a group; "0.925" has none."""
    head, *rest = text.split(group)
    digits = head.lstrip("+-")
    grouped = all(len(part) == 3 and part.isdigit() for part in rest[:-1])
    last = rest[-1] if rest else ""
    ends = last[:3].isdigit() and len(last[:3]) == 3 and not last[3:4].isdigit()
    if rest and digits.isdigit() and len(digits) <= 3 and digits[0] != "0" and grouped and ends:
        return head + "".join(rest)
    return text


def read(option: Option, text: str) -> OptionValue | None:
    """The value that a person typed, None for an empty field (the default). Raises BadInput."""
    from kvplanner.engine.values import parse_value

    text = text.strip()
    if not text:
        return None
    if option.type not in ("int", "tokens", "float", "bytes"):
        return parse_value(option, text)
    cleaned = plain(text, whole=option.type in ("int", "tokens"))
    if option.type == "float" and option.high == 1 and cleaned.endswith("%"):
        cleaned = _share(cleaned[:-1].strip()) or cleaned
    try:
        return parse_value(option, cleaned)
    except BadInput as error:
        raise BadInput(as_typed(error.what, cleaned, text), error.where, error.remedy) from None


def _share(percent: str) -> str:
    """Per cent as a share of one, to the digit; "" for what is no number."""
    from decimal import Decimal, InvalidOperation

    try:
        return f"{Decimal(percent) / 100:f}"
    except InvalidOperation:
        return ""


def as_typed(said: str, cleaned: str, text: str) -> str:
    """What is said of a cleaned text, said of the text that was typed."""
    return said.replace(repr(cleaned), repr(text.strip()))


def show(option: Option, value: OptionValue | None) -> str:
    """A value for a field: numbers with their separators, sizes with their unit."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        if option.type == "bytes" and value:
            return _size(value)
        return format_count(value) if value >= 0 else str(value)
    if isinstance(value, float):
        return f"{value:g}"
    return value


def _size(value: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("GB", 10**9), ("MB", 10**6), ("KiB", KIB), ("kB", 1000)):
        if value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value:,} B"
