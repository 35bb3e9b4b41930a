"""Bytes and tokens: plain integers, with the few functions that read and show them.

GB is 10**9 bytes and GiB is 2**30 bytes; text made here always carries its unit.
"""

from __future__ import annotations

import re
from typing import Final, Literal

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
KB: Final = 10**3
MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12

ByteUnit = Literal["GiB", "GB", "MiB", "MB"]

_BYTES_PER: Final[dict[str, int]] = {
    "": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": KB, "mb": MB, "gb": GB, "tb": TB,
}  # fmt: skip
# No size or count is larger.
LARGEST: Final = (1 << 63) - 1
_MAX_DIGITS: Final = 40
# A number of fewer digits is within LARGEST.
_MAX_PLAIN: Final = 19
_SIZE: Final = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*"
_COUNT: Final = r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?)\s*"
# vLLM's own reading (human_readable_int of engine/arg_utils.py, 0.33): a lower-case suffix is decimal and takes a
# fraction, whose rest below one is dropped; an upper-case one is binary and takes none, nor does a plain number.
_COUNT_FACTOR: Final[dict[str, int]] = {
    "": 1, "k": KB, "m": MB, "g": GB, "K": KIB, "M": MIB, "G": GIB,
}  # fmt: skip


def ceil_div(numerator: int, denominator: int) -> int:
    """The smallest integer not below numerator / denominator."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def whole(value: float) -> float:
    """An integer where the value is one: a rate such as bytes per token seldom has a fraction."""
    return int(value) if value == int(value) else value


def parse_size(text: str) -> int:
    """Bytes named by text such as "3GB", "1.5 GiB" or "1073741824".

    Raises ValueError for anything else and for more than LARGEST; a unit is never guessed.
    """
    match = re.fullmatch(_SIZE, text)
    factor = _BYTES_PER.get(match[2].lower()) if match else None
    if match is None or factor is None or (factor == 1 and "." in match[1]):
        raise ValueError(f"{_shown(text)} is not a size: write for example 3GB, 1.5GiB or a number of bytes")
    return _times(match[1], factor, text)


def parse_count(text: str) -> int:
    """Tokens or sequences named by text such as "8192", "32k" (32,000) or "32K" (32,768).

    Raises ValueError for anything else, for a fraction of a token and for more than LARGEST.
    """
    if text.isascii() and text.isdecimal() and len(text) < _MAX_PLAIN:
        return int(text)  # most are plain numbers
    match = re.fullmatch(_COUNT, text)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a count: write for example 8192, 32k (32,000) or 32K (32,768)")
    number, suffix = match.groups()
    if "." in number and not suffix:
        raise ValueError(f"{_shown(text)} is not a whole number: only 1.5k (1,500) and the like take a fraction")
    if "." in number and suffix.isupper():
        raise ValueError(f"{_shown(text)}: {suffix} takes no fraction, {number}{suffix.lower()} would be read")
    return _times(number, _COUNT_FACTOR[suffix], text, down=True)


def _times(number: str, factor: int, text: str, *, down: bool = False) -> int:
    """Exactly number × factor, rounded half to even or down. Raises ValueError beyond LARGEST."""
    from decimal import Decimal  # 2 ms of imports that plans without typed sizes never need

    exact = Decimal(number) * factor if len(number) <= _MAX_DIGITS else Decimal(LARGEST + 1)
    value = int(exact if down else exact.to_integral_value())
    if value > LARGEST:
        raise ValueError(f"{_shown(text)} is out of range: larger than any size or count that makes sense")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_DIGITS else text[: _MAX_DIGITS - 1] + "…")


def format_bytes(value: int | float, unit: ByteUnit = "GiB", digits: int = 2) -> str:
    """Text such as "14.96 GiB"; the sign of a negative value is kept."""
    return f"{value / _BYTES_PER[unit.lower()]:,.{digits}f} {unit}"


def in_unit(value: int | float, unit: ByteUnit = "GiB") -> float:
    """The value as a number of `unit`."""
    return value / _BYTES_PER[unit.lower()]


def format_both(value: int) -> str:
    """Both readings side by side: "16.06 GB = 14.96 GiB"."""
    return f"{format_bytes(value, 'GB')} = {format_bytes(value, 'GiB')}"


def format_parameters(value: int, digits: int = 3) -> str:
    """A number of parameters in so many digits: "8.03 B", "494 M", "1.57 T"."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        # What rounds up to a thousand of one letter is one of the next.
        if float(f"{value / factor:.{digits}g}") >= 1:
            return f"{value / factor:.{digits}g} {letter}"
    return f"{value:,}"


def format_count(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def counted(count: int, one: str, many: str) -> str:
    """The words that go with a number: "1 GPU is", "2 GPUs are", "0 GPUs are"."""
    return f"{format_count(count)} {one if count == 1 else many}"


def round_to_band(value: int, low: int, high: int) -> int:
    """The value with no more digits than its nearer bound allows, and never fewer than two.

    An exact value (low == high) comes back unchanged.
    """
    sides = [side for side in (value - low, high - value) if side > 0]
    if not sides or value == 0:
        return value
    places = min(len(str(min(sides))) - 1, max(len(str(abs(value))) - 2, 0))
    step = int("1" + "0" * places)
    return round(value / step) * step


def round_band(value: int, low: int, high: int) -> tuple[int, int, int]:
    """The value as `round_to_band` has it, and each end with no more digits than its way from the value allows.

    So ends enclose the value as shown, and a near end keeps the digits that tell it from the value.
    """
    near = round_to_band(value, low, high)
    least = near if low == value else round_to_band(low, low, value)
    most = near if high == value else round_to_band(high, value, high)
    return near, least, most
