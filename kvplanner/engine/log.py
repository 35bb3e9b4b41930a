"""The grammar of an engine's start-up log, as data: what its lines state, how far start-up has come, what went wrong.

An engine's package declares one in `log.py`; `kvplanner.diagnose` reads logs with it. A pattern is searched anywhere in
a line, since progress bars end without a newline, and anchors on the engine's words, never on files or line numbers.
"""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.record import NamedTuple

# bytes, GiB, MiB: sizes, as bytes; "GB" in an engine's line is what that engine means by it.
Unit = Literal["GiB", "MiB", "bytes", "count", "number", "text"]
# Of several values of one process: the last or the first that it prints, or all of them added. Of several processes:
# the least, the most, or the first printed.
Keep = Literal["last", "first", "sum"]
Across = Literal["least", "most", "first"]

# The stage of an error that is none of memory: settings that the engine refuses.
NO_STAGE: Final = "none"


class Figure(NamedTuple):
    """What a named group of a line states. unit: of a group that states none itself (`NAME_unit`)."""

    name: str
    unit: Unit
    across: Across = "first"
    keep: Keep = "last"


class LogLine(NamedTuple):
    """A line that the engine prints. pattern: a regular expression with a named group for each figure, and one called
    `device` where the figures are that device's.

    reached: the step of start-up that the process has entered with it. since, until: releases.
    restart: a new start begins here. after: a step that some process must have reached before; where none has, the
    line is an estimate made ahead (figures are named so) and marks no step; ahead_since: releases before it print no
    such estimate. forgets: figures that begin anew. aside:
    what follows is of something beside the model; its figures' names begin so. recovers: an error before it is over.
    numbered: the devices' name without their number, which is the line's among its like.
    """

    pattern: str
    figures: tuple[Figure, ...] = ()
    reached: str = ""
    restart: bool = False
    after: str = ""
    ahead_since: str = ""
    forgets: tuple[str, ...] = ()
    aside: str = ""
    recovers: bool = False
    numbered: str = ""
    since: str = ""
    until: str = ""


class LogFailure(NamedTuple):
    """An error. stage: of the plan schema, "" where the step that was reached tells, NO_STAGE where memory has no part
    in it. cause: a stable name.
    """

    pattern: str
    cause: str
    stage: str = ""
    figures: tuple[Figure, ...] = ()


class WholePrompts(NamedTuple):
    """Releases before `until` whose steps hold whole prompts, unless an option is set or the context is longer."""

    until: str
    option: str
    beyond: int


class LogGrammar(NamedTuple):
    """One engine's log.

    marks: texts that only this engine's logs hold. anchors: a line without any of them says nothing; late_anchors:
    those that count once start-up has come to its end. steps: of start-up, in order, each with the stage that fails in
    it. frames: functions of the engine's that a traceback names, each with the stage that they belong to; the first
    that a traceback lists decides. wrappers: errors that only repeat another. tags: a pattern for a process's tag.
    arguments: a pattern whose group `args` holds the command's arguments as a Python dict or namespace;
    argument_defaults: what a namespace states though nobody set it; not_options: what is no option of memory.
    config: a pattern whose group `config` holds k=v pairs, of which config_options are options. block_tokens: of a
    block, where a log tells blocks alone and block_option was not set. command: a pattern whose group `command` holds
    the words behind the program's name. figure_options: figures that are the value of a flag, for logs without any
    arguments. version_prefix: what the log leaves out of a release's name. by_device: figures are of devices, in the
    order of the machine's. kept: figures that outlive a restart, of a server that starts others. restarts:
    texts that stand once in each start, at its beginning. whole_prompts: see there.
    sums: figures that a log states in parts, each process its own, and parts that not every model has. cells: the
    figure that is the cache's tokens where none says so.
    first_start: an option, and its values where the log holds the figure `compiled`, or `cached` alone.
    """

    engine: str
    title: str
    marks: tuple[str, ...]
    anchors: tuple[str, ...]
    late_anchors: tuple[str, ...]
    lines: tuple[LogLine, ...]
    failures: tuple[LogFailure, ...]
    steps: tuple[tuple[str, str], ...]
    frames: tuple[tuple[str, str], ...] = ()
    wrappers: tuple[str, ...] = ()
    tags: str = ""
    arguments: str = ""
    config: str = ""
    config_options: tuple[tuple[str, str], ...] = ()
    block_tokens: int = 0
    block_option: str = ""
    argument_defaults: tuple[tuple[str, int | float | str | bool], ...] = ()
    not_options: tuple[str, ...] = ()
    command: str = ""
    figure_options: tuple[tuple[str, str], ...] = ()
    version_prefix: str = ""
    by_device: bool = False
    kept: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    whole_prompts: WholePrompts | None = None
    first_start: tuple[str, str, str] | None = None
    sums: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    cells: str = ""
