"""What a verdict offers as a button."""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.record import NamedTuple


class Offer(NamedTuple):
    """text: of the button where it has room; tip: what it is for; run: what it does; short: the text with less room."""

    text: str
    tip: str
    run: Callable[[], object]
    short: str = ""
