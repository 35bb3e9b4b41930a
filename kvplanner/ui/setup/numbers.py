"""Option values as people write them in their locale, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QLocale

from kvplanner.errors import BadInput
from kvplanner.units import GIB, MIB

if TYPE_CHECKING:
    from kvplanner.engine.base import Option, OptionValue

LARGEST = 1 << 53
GROUPING_BLANKS = "\u00a0\u202f\u2009 '’"


def plain(text: str, locale: QLocale | None = None) -> str:
    """A number as a program reads it: no group separators, a point for decimals; words stay as they are."""
    locale = locale or QLocale()
    text = text.strip()
    group, point = locale.groupSeparator(), locale.decimalPoint()
    if group:
        text = _without_groups(text, group)
    for blank in GROUPING_BLANKS:
        if text.replace(blank, "").replace(",", "").isdigit():
            text = text.replace(blank, "")
    return text.replace(point, ".") if point != "." else text


def _without_groups(text: str, group: str) -> str:
    """Remove a separator only where it stands between digits, three to a group; "0.925" has none in any locale."""
    head, *rest = text.split(group)
    digits = head.lstrip("+-")
    if (
        rest
        and digits.isdigit()
        and digits[0] != "0"
        and all(part[:3].isdigit() and len(part[:3]) == 3 for part in rest)
    ):
        return head + "".join(rest)
    return text


def read(option: Option, text: str) -> OptionValue | None:
    """The value that a person typed, None for an empty field (the default). Raises BadInput."""
    from kvplanner.engine.command import parse_value

    text = text.strip()
    if not text:
        return None
    if option.type in ("int", "tokens", "float", "bytes"):
        text = plain(text)
    value = parse_value(option, text)
    if isinstance(value, int | float) and abs(value) > LARGEST:
        raise BadInput("the number is too large", option.flags[0])
    return value


def show(option: Option, value: OptionValue | None, locale: QLocale | None = None) -> str:
    """A value for a field: numbers with the locale's separators, sizes with their unit."""
    locale = locale or QLocale()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        if option.type == "bytes" and value:
            return _size(value)
        return count(value, locale) if value >= 0 else str(value)
    if isinstance(value, float):
        return f"{value:g}".replace(".", locale.decimalPoint())
    return value


def _size(value: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("GB", 10**9), ("MB", 10**6)):
        if value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value:,}".replace(",", "")


def count(value: int, locale: QLocale | None = None) -> str:
    """A whole number with the locale's separators; beyond Qt's integers (a plan file can hold any) with commas."""
    return (locale or QLocale()).toString(value) if abs(value) <= LARGEST else f"{value:,}"
