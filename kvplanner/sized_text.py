"""Sentences about sizes that can be read in GiB or in GB.

Whoever makes one writes each size as a mark and keeps the whole as a `SizedText`: as text it reads in GiB, as engines
print sizes, and `sizes_in` reads it in another unit.
"""

from __future__ import annotations

import re
from typing import Final

from kvplanner.units import GIB, MIB, ByteUnit, counted, format_bytes

MINUS: Final = "−"
# Below this a size stands in the smaller unit.
SMALL: Final = GIB // 10
# Below this two decimals of the smaller unit do not show it.
_TINY: Final = MIB // 100
_MARK: Final = re.compile("\x02(-?[0-9]+),([0-9]*)\x03")


def show_size(value: int | float, unit: ByteUnit = "GiB", digits: int | None = None) -> str:
    """A size as sentences and views tell it: "14.96 GiB"; below a tenth of one "52 MiB", "9.8 MiB", "0.31 MiB".

    What two decimals of those would show as nothing is told in bytes. digits: decimals in place of those.
    """
    if not 0 < abs(value) < SMALL:
        return format_bytes(value, unit, 2 if digits is None else digits).replace("-", MINUS)
    if abs(value) < _TINY:
        return counted(round(value), "byte", "bytes").replace("-", MINUS)
    decimals = 0 if abs(value) >= 9.95 * MIB else 1 if abs(value) >= MIB else 2
    small: ByteUnit = "MB" if unit in ("GB", "MB") else "MiB"
    return format_bytes(value, small, decimals if digits is None else digits).replace("-", MINUS)


def show_both(value: int | float) -> str:
    """Both readings side by side: "16.06 GB = 14.96 GiB", "2.9 MB = 2.8 MiB"."""
    return f"{show_size(value, 'GB')} = {show_size(value, 'GiB')}"


def size_mark(value: int, digits: int | None = None) -> str:
    """A size within the text of a `SizedText`."""
    return f"\x02{value},{'' if digits is None else digits}\x03"


class SizedText(str):
    """Text with sizes: read as it is they are in GiB. marked: the same text with a mark for each size."""

    __slots__ = ("marked",)
    marked: str

    def __new__(cls, marked: str) -> SizedText:
        """From text with marks."""
        made = super().__new__(cls, _read(marked, "GiB"))
        made.marked = marked
        return made

    def __getnewargs__(self) -> tuple[str]:
        """So that a copy keeps its marks."""
        return (self.marked,)


def sizes_in(text: str, unit: ByteUnit) -> str:
    """A sentence with its sizes in `unit`; other text as it is."""
    return _read(text.marked, unit) if isinstance(text, SizedText) else text


def _read(marked: str, unit: ByteUnit) -> str:
    if "\x02" not in marked:
        return marked

    def shown(found: re.Match[str]) -> str:
        return show_size(int(found[1]), unit, int(found[2]) if found[2] else None)

    return _MARK.sub(shown, marked)
