"""Estimate: a number of bytes (or tokens) with its band, its formula and where its inputs came from.

The formula is a template over the inputs' names and is rendered only when someone looks at it, so that
planning thousands of requests costs no text.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Final, Literal, Self

from kvplanner.record import NamedTuple, late
from kvplanner.units import GB, GIB, MB, MIB, ByteUnit, format_bytes

Basis = Literal["exact", "calibrated", "analytic", "assumed", "measured", "rest"]

# From the surest to the least sure; a sum is as sure as its least sure term.
BASES: Final[tuple[Basis, ...]] = ("exact", "measured", "calibrated", "analytic", "rest", "assumed")

# What each basis says of a number: the window's tips and the help page tell it in these words.
BASIS_MEANING: Final[dict[Basis, str]] = {
    "exact": "counted, without doubt",
    "measured": "given by you, or read from a GPU",
    "calibrated": "fitted to start-up reports: published ones, or runs of your own",
    "analytic": "from the engine's own rules, not checked on this combination",
    "rest": "what the others leave: as sure as they are",
    "assumed": "nothing better is known: a rule of thumb with a wide range",
}


class Input(NamedTuple):
    """One input of a formula.

    unit: "B" for bytes, else a word such as "tokens", "layers", "" for a plain number.
    source: where the value came from: "config.json", "catalogue", "vLLM 0.33 default", "--free" ...
    """

    name: str
    value: int | float | str
    unit: str = ""
    source: str = ""


@late("notes")
class Estimate(NamedTuple):
    """value, low and high are integers of one unit, low <= value <= high (a 90 % band).

    formula: a template over the inputs' names, for example "{layers} × {page}".
    """

    value: int
    low: int
    high: int
    basis: Basis
    formula: str = ""
    inputs: tuple[Input, ...] = ()
    notes: tuple[str, ...] = ()

    def in_words(self) -> str:
        """The formula with the inputs' names in place."""
        return self.formula.replace("{", "").replace("}", "")

    def in_numbers(self, unit: ByteUnit = "GiB") -> str:
        """The formula with this plan's numbers in place."""
        return self.formula.format_map({i.name: show_value(i, unit) for i in self.inputs})

    def with_notes(self, *notes: str) -> Self:
        """The same estimate with remarks added."""
        return self._replace(notes=self.notes + notes)


def show_value(item: Input, unit: ByteUnit = "GiB") -> str:
    """An input's value as text: bytes in the unit (GiB, GB) or its thousandth, integers with separators."""
    if isinstance(item.value, str):
        return item.value
    if item.unit == "B":
        small: ByteUnit = "MiB" if unit == "GiB" else "MB"
        giga, mega = (GIB, MIB) if unit == "GiB" else (GB, MB)
        if abs(item.value) >= giga:
            return format_bytes(item.value, unit)
        return format_bytes(item.value, small) if abs(item.value) >= mega else f"{item.value:,} B"
    return f"{item.value:,}" if isinstance(item.value, int) else f"{item.value:g}"


def exact(value: int, formula: str = "", *inputs: Input) -> Estimate:
    """An estimate without doubt."""
    return Estimate(value, value, value, "exact", formula, inputs)


def measured(value: int, source: str) -> Estimate:
    """A given value that replaces an estimate."""
    return Estimate(value, value, value, "measured", "{given}", (Input("given", value, "B", source),))


def banded(value: int, low: int, high: int, basis: Basis, formula: str = "", *inputs: Input) -> Estimate:
    """An estimate with a band; the band always holds the value and never goes below zero with it."""
    return Estimate(value, min(max(low, 0) if value >= 0 else low, value), max(high, value), basis, formula, inputs)


def band_of_sum(terms: Iterable[Estimate]) -> tuple[int, int]:
    """How far the sum of independent terms may lie (below, above): their doubts add in quadrature."""
    below = above = 0
    for term in terms:
        below += (term.value - term.low) ** 2
        above += (term.high - term.value) ** 2
    return isqrt(below), isqrt(above)


def least_sure(terms: Iterable[Estimate]) -> Basis:
    """The basis of a sum: that of its least sure term."""
    return max((term.basis for term in terms), key=BASES.index, default="exact")
