"""A load in words: what each of its users asks for."""

from __future__ import annotations

from kvplanner.engine.request import Load, Part
from kvplanner.units import format_count


def tokens_of(kind: Load | Part) -> str:
    """The prompt and the answer of one kind: "1,500 + 500"."""
    return f"{format_count(kind.prompt_tokens)} + {format_count(kind.output_tokens)}"


def tokens_each(load: Load) -> str:
    """What a user has: "1,500 + 500 tokens", or "1,500 + 500 (70 %) or 8,000 + 1,000 (30 %) tokens"."""
    if not load.mix:
        return f"{tokens_of(load)} tokens"
    return f"{' or '.join(f'{tokens_of(part)} ({part.share * 100:.3g} %)' for part in load.mix)} tokens"


def prompts(load: Load) -> str:
    """What a user's prompt has, where there are no answers."""
    if not load.mix:
        return f"{format_count(load.prompt_tokens)} tokens"
    kinds = (f"{format_count(part.prompt_tokens)} ({part.share * 100:.3g} %)" for part in load.mix)
    return f"{' or '.join(kinds)} tokens"
