"""SGLang's options that move memory, each declared once; the default rules themselves are in `settle`."""

from __future__ import annotations

from functools import cache

from kvplanner.engine.option import Option
from kvplanner.engine.sglang.eras import Version
from kvplanner.engine.sglang.options.model import attention, features, graphs, weights
from kvplanner.engine.sglang.options.serving import everyday, parallel, pools


@cache
def declared() -> tuple[Option, ...]:
    """Every option, in the order of the form."""
    return (*everyday(), *parallel(), *pools(), *graphs(), *attention(), *weights(), *features())


@cache
def options_of(version: Version) -> tuple[Option, ...]:
    """The options that exist in a version."""
    return tuple(o for o in declared() if not o.since or tuple(map(int, o.since.split("."))) <= version)
