"""One option's value: read from text, checked against its declaration."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvplanner.engine.option import Option, OptionValue
from kvplanner.errors import BadInput
from kvplanner.units import LARGEST, parse_count, parse_size

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_MAX_DIGITS: Final = 19
_SHOWN: Final = 60
_WORDS: Final = {
    "bool": "true or false", "int": "a whole number", "tokens": "a whole number", "bytes": "a whole number of bytes",
    "float": "a number", "text": "a text", "choice": "a text",
}  # fmt: skip


def parse_value(option: Option, text: str) -> OptionValue:
    """The value that `text` gives to an option. Raises BadInput that names the flag and what was expected."""
    flag = option.spelled
    try:
        if _ENDLESS.search(text):
            raise ValueError("a number in it is beyond all range")
        value = _convert(option, text.strip())
    except _OutOfRange as error:
        raise BadInput(str(error), flag, f"Give {_span(option)}") from None
    except ValueError as error:
        raise BadInput(str(error), flag, f"Example: {flag} {_example(option)}") from None
    check_range(option, value)
    return value


def check_value(option: Option, value: object) -> OptionValue:
    """A value that did not come as text, when it is of the option's type and within its range. Raises BadInput."""
    if not isinstance(value, bool | int | float | str) or not _is_typed(option, value):
        raise BadInput(f"{_shown(value)} is not {_WORDS[option.type]}", option.spelled,
                       f"Example: {_example(option)}")  # fmt: skip
    if isinstance(value, str) and _ENDLESS.search(value):
        raise BadInput("a number in it is beyond all range", option.spelled, f"Example: {_example(option)}")
    if isinstance(value, str) and option.type == "choice" and value not in option.choices:
        raise BadInput(f"{_shown(value)} is not one of {', '.join(option.choices)}", option.spelled,
                       f"Example: {_example(option)}")  # fmt: skip
    check_range(option, value)
    return value


def _is_typed(option: Option, value: OptionValue) -> bool:
    if option.type in ("text", "choice"):
        return isinstance(value, str)
    if option.type == "bool" or isinstance(value, bool):
        return isinstance(value, bool) and option.type == "bool"
    return isinstance(value, int) or (option.type == "float" and isinstance(value, float))


def check_ranges(options: Iterable[Option], given: Mapping[str, OptionValue]) -> None:
    """Raises BadInput for the first of the options, in their order, whose given value is out of its range."""
    if given:
        for option in options:
            if option.name in given:
                check_range(option, given[option.name])


def check_range(option: Option, value: OptionValue) -> None:
    """Raises BadInput for a number outside the option's range, or beyond what any engine counts to."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low = -LARGEST if option.low is None else option.low
    high = LARGEST if option.high is None else option.high
    if low <= value <= high and not (option.above_low and value == low):
        return
    shown = f"{value:,}" if abs(value) <= LARGEST else "the number"
    shown = shown.removesuffix(".0")
    span = _span(option) if value <= low or option.high is not None else f"no more than {high:,}"
    raise BadInput(f"{shown} is out of range", option.spelled, f"Give {span}")


def _span(option: Option) -> str:
    """The range that an option makes sense in, in words."""
    low, high = option.low, option.high
    if low is None:
        return f"{LARGEST if high is None else high:,.10g} at most"
    if option.above_low:
        return f"more than {low:g}" if high is None else f"more than {low:g}, {high:g} at most"
    return f"{low:g} or more" if high is None else f"{low:g} to {high:g}"


# Within an object: what no number of bytes, tokens or layers has, and no float holds.
_ENDLESS: Final = re.compile(r"[:\[,]\s{0,9}-?\d{20,}(?![\w.])")


class _OutOfRange(ValueError):
    """More digits than any number has that makes sense here."""


def _convert(option: Option, text: str) -> OptionValue:
    kind = option.type
    if kind == "bool":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{_shown(text)} is neither true nor false")
    if kind == "choice":
        wanted = dict(option.synonyms).get(text.lower(), text).lower()
        found = next((c for c in option.choices if c.lower() == wanted), None)
        if found is None:
            raise ValueError(f"{_shown(text)} is not one of {', '.join(option.choices)}")
        return found
    if kind == "float":
        return _number(text)
    if kind == "int":
        return _whole(text)
    if kind == "tokens":
        return -1 if text.lower() in {"-1", "auto"} and option.low == -1 else parse_count(text)
    if kind == "bytes":
        return parse_size(text) if text.lower().endswith("b") else parse_count(text)
    return ",".join(part.strip(" \"'") for part in text.strip("[]").split(",")) if option.many else text


def _whole(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{_shown(text)} is not a whole number")
    if len(digits) > _MAX_DIGITS:
        raise _OutOfRange(f"{_shown(text)} is out of range")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{_shown(text)} is not a finite number")
    return value


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= LARGEST else "a number beyond all range"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _example(option: Option) -> str:
    if option.choices:
        return option.choices[0]
    return {"bool": "true", "int": "2", "tokens": "32k", "float": "0.9", "bytes": "20G"}.get(option.type, "VALUE")
