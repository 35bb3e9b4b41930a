"""vLLM's options that move memory, each declared once; the default rules themselves are in `defaults`."""

from __future__ import annotations

from functools import cache

from kvplanner.engine.option import Option
from kvplanner.engine.vllm.options.model import feature_options, graph_options, state_options, weight_options
from kvplanner.engine.vllm.options.serving import cache_options, everyday, parallel


@cache
def declared() -> tuple[Option, ...]:
    """Every option, in the order of the form."""
    return (*everyday(), *parallel(), *cache_options(), *graph_options(), *state_options(), *weight_options(),
            *feature_options())  # fmt: skip


@cache
def options_of(version: tuple[int, int]) -> tuple[Option, ...]:
    """The options that exist in a version of 0.x, given as (minor, patch)."""
    return tuple(
        o
        for o in declared()
        if (not o.since or _minor_patch(o.since) <= version) and (not o.until or version <= _minor_patch(o.until))
    )


def _minor_patch(text: str) -> tuple[int, int]:
    parts = [int(p) for p in text.split(".")]
    return parts[1], parts[2] if len(parts) > 2 else 0
