"""A way back to a plan from settings that have none."""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.record import NamedTuple


class Back(NamedTuple):
    """text: of its button or link; run: what it does; tip: what it is for, or what comes of it."""

    text: str
    run: Callable[[], object]
    tip: str
