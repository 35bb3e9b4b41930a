"""An engine's grammar of logs, compiled: what lines are searched with."""

from __future__ import annotations

import re
from functools import cache

from kvplanner.diagnose.patterns import alternatives, opening, words_of
from kvplanner.engine.log import LogFailure, LogGrammar, LogLine
from kvplanner.record import NamedTuple


class Compiled(NamedTuple):
    """Its patterns, each with words that a line holds where it matches. begins: those of lines that begin a start."""

    anchors: tuple[bytes, ...]
    late_anchors: tuple[bytes, ...]
    begins: tuple[bytes, ...]
    tags: re.Pattern[str]
    lines: tuple[tuple[str, re.Pattern[str], LogLine], ...]
    failures: tuple[tuple[str, re.Pattern[str], LogFailure], ...]
    arguments: re.Pattern[str] | None
    command: re.Pattern[str] | None
    config: re.Pattern[str] | None
    order: dict[str, int]
    frames: dict[str, str]
    openings: tuple[str, ...]


@cache
def compiled_of(grammar: LogGrammar) -> Compiled:
    """What its patterns are searched with, made once."""
    return Compiled(
        anchors=tuple(text.encode() for text in grammar.anchors),
        late_anchors=tuple(text.encode() for text in grammar.late_anchors),
        begins=tuple(
            words_of(p).encode() for line in grammar.lines if line.restart for p in alternatives(line.pattern)
        ),
        tags=re.compile(grammar.tags or r"(?!)(?P<tag>)"),
        lines=tuple((words_of(p), re.compile(p), line) for line in grammar.lines for p in alternatives(line.pattern)),
        failures=tuple(
            (words_of(p), re.compile(p), one) for one in grammar.failures for p in alternatives(one.pattern)
        ),
        arguments=re.compile(grammar.arguments) if grammar.arguments else None,
        command=re.compile(grammar.command) if grammar.command else None,
        config=re.compile(grammar.config) if grammar.config else None,
        order={step: place for place, (step, _) in enumerate(grammar.steps)},
        frames=dict(grammar.frames),
        openings=tuple({text for one in grammar.failures for p in alternatives(one.pattern) if (text := opening(p))}),
    )
