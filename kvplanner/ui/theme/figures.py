"""How figures look in the window: separators as the user's language has them, or as chosen.

The core writes every text with a comma between thousands and a point before decimals, which is what engines print, and
what JSON, tables, plan files, commands and terminals keep. Where a widget takes a text to show, `shown` puts in the
separators of the user: in figures, not in versions, names of models or what stands in quotes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    import re


class Separators(NamedTuple):
    """Between groups of three digits, and before decimals."""

    group: str
    decimal: str


ENGLISH: Final = Separators(",", ".")
SYSTEM: Final = "system"
# By the name under which a choice is kept.
CHOICES: Final[dict[str, Separators]] = {
    "comma_point": ENGLISH,
    "point_comma": Separators(".", ","),
    "space_comma": Separators("\u202f", ","),
    "apostrophe_point": Separators("’", "."),
}
_UNITS: Final = "GiB|GB|MiB|MB|KiB|kB|TiB|TB|[BMT]\\b|ms\\b|s\\b|W\\b|%|bytes|tokens|requests|users|bits|usable|free"
_BLANK: Final = "(?:[ \u00a0\u202f]|&nbsp;)?"
# A figure does not begin or end within a word, a version, a path, a flag or quotes.
_BEFORE: Final = r"(?<![\w.,'\"“`/:\\@#-])"
_AFTER: Final = r"(?!\w|[.,]\d|['\"”`/\\]|-\d)"
_GROUPED: Final = rf"\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?{_AFTER}"
# "0.33" may be a version: a lone point is a decimal one beside a unit or a sign, or where nothing else stands.
_MEASURED: Final = (
    rf"\d+\.\d+(?={_BLANK}(?:{_UNITS}|[×÷+−=]))"
    rf"|\d+\.\d+(?={_BLANK}(?:–|to|of|and|,|·){_BLANK}[+−≈]?\d[\d.,]*{_BLANK}(?:{_UNITS}|[×÷]))"
    r"|(?<=[×÷+−=±≈≤≥<>] )\d+\.\d+(?![\w.])|(?<=[×÷+−±≈≤≥<>\u00a0])\d+\.\d+(?![\w.])"
    r"|(?:(?<=measured )|(?<=planned )|(?<=tilisation )|(?<=efault: )|(?<=raction ))\d+\.\d+(?![\w.])"
    r"|(?<!.)\d+\.\d+(?: ?– ?\d+\.\d+)?(?!.)|(?<=\()\d+\.\d+–\d+\.\d+(?=\))"
)

_separators = ENGLISH


def separators() -> Separators:
    """Those in use."""
    return _separators


def choose(choice: str) -> bool:
    """Use a choice by its name, or what the system's language has; whether that is a change."""
    global _separators
    found = CHOICES.get(choice) or of_system()
    changed, _separators = found != _separators, found
    if changed:
        _localised.cache_clear()
    return changed


def of_system() -> Separators:
    """The system's separators; those of the core where its language writes other digits, or none at all."""
    from PySide6.QtCore import QLocale

    system = QLocale.system()
    found = Separators(system.groupSeparator(), system.decimalPoint())
    usual = system.zeroDigit() == "0" and found.decimal in (".", ",") and found.group and found.group != found.decimal
    return found if usual else ENGLISH


def shown(text: str) -> str:
    """The text with the user's separators in its figures; to be asked once for a text."""
    return text if _separators == ENGLISH else _localised(text)


def shown_figures(text: str) -> str:
    """The same of a text in which every lone number is a figure, as on a bar: none of a version or a name."""
    return text if _separators == ENGLISH else _bare().sub(lambda found: found[0].translate(_table()), _localised(text))


def verbatim(text: str) -> str:
    """The text as it is."""
    return text


def shown_html(html: str) -> str:
    """The same of rich text, whose tags stay as they are."""
    if _separators == ENGLISH:
        return html
    import re

    return "".join(part if part.startswith("<") else shown(part) for part in re.split(r"(<[^>]*>)", html))


@lru_cache(maxsize=1)
def _figure() -> re.Pattern[str]:
    import re

    return re.compile(rf"{_BEFORE}(?:{_GROUPED}|{_MEASURED})")


@lru_cache(maxsize=4096)
def _localised(text: str) -> str:
    return _figure().sub(lambda found: found[0].translate(_table()), text)


@lru_cache(maxsize=1)
def _bare() -> re.Pattern[str]:
    """A lone number with one or two decimals: one of three may be a group, written anew already."""
    import re

    return re.compile(rf"{_BEFORE}\d+\.\d{{1,2}}(?![\w.])")


def _table() -> dict[int, str]:
    return str.maketrans({",": _separators.group, ".": _separators.decimal})
