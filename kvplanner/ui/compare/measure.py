"""What a sweep's picture may show of each point, with its band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any, Final

from kvplanner.record import NamedTuple
from kvplanner.report.sweep import shown

if TYPE_CHECKING:
    from kvplanner.solve.sweep import Point

Band = tuple[float, float, float]


class Measure(NamedTuple):
    """title: for a list. band(point): value, low and high; None where there is nothing to tell."""

    title: str
    band: Callable[[Point], Band | None]


def _tokens(point: Point) -> Band | None:
    if not point.fits or point.tokens is None:
        return None
    low, high = point.tokens_low, point.tokens_high
    return point.tokens, point.tokens if low is None else low, point.tokens if high is None else high


def _users(point: Point) -> Band | None:
    if not point.fits or point.serves_users is None:
        return None
    sure = point.sure_serves_users
    return point.serves_users, point.serves_users if sure is None else sure, point.serves_users


MEASURES: Final = (Measure("Tokens of KV cache", _tokens), Measure("Users served", _users))


def few(value: float) -> str:
    """Three digits and a decimal unit: "452k"."""
    for power, unit in ((3, "G"), (2, "M"), (1, "k")):
        if value >= 1000**power:
            return f"{value / 1000**power:.3g}{unit}"
    return f"{value:.3g}"


def round_steps(top: float) -> list[float]:
    """Three to six round values from nothing to `top`."""
    power = 10.0 ** floor(log10(max(top, 1e-9) / 4))
    step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= top / 5)
    return [step * part for part in range(int(top / step + 1e-9) + 1)]


def labelled(count: int, most: int) -> Sequence[int]:
    """Positions that have room for a label: evenly apart, the first among them."""
    step = max(-(-count // max(most, 1)), 1)
    return range(0, count, step)


def short_value(value: Any) -> str:
    """A value of an axis where room is scarce."""
    if isinstance(value, bool) or not isinstance(value, int):
        return shown(value)
    return shown(value) if value < 10_000 else few(value)
