"""A log read with an engine's grammar: its figures by process, how far each came, and the error that ended it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from kvplanner.diagnose.arguments import LONGEST, pairs_of, parse_arguments
from kvplanner.diagnose.compiled import Compiled, compiled_of
from kvplanner.diagnose.lines import Anchors, Line, Watch, interesting
from kvplanner.diagnose.wrapped import Wrapped
from kvplanner.engine.log import NO_STAGE, Across, Figure, LogFailure, LogGrammar
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, MIB

_SCALE: Final = {"GiB": GIB, "GB": GIB, "MiB": MIB, "KiB": 1024, "bytes": 1}
_MOST_PROCESSES: Final = 4096
_MOST_SOURCES: Final = 16
# A line of a traceback, or what a worker says that it was at.
_FRAME: Final = re.compile(r'line \d+, in (\w+)|File "[^"]*", line \d+, in (\w+)|while processing method (\w+)')

Value = int | float | str


class Stated(NamedTuple):
    """A figure that one process printed. size: whether the value is bytes."""

    name: str
    process: str
    value: Value
    size: bool
    line: int


class Ended(NamedTuple):
    """The error that ended a start. stage: of the plan schema. figures: what its line states, by name, in bytes."""

    cause: str
    stage: str
    process: str
    line: int
    text: str
    figures: dict[str, Value]


class LogReading(NamedTuple):
    """What a log says of its last start. starts: how many there were. stated: every figure, by process.

    arguments: what the command line set, as the engine prints it, by its own names; whole_arguments: with everything
    that nobody set. command: the words of its command line, where the log holds them. started: start-up came to its
    end.
    unread: lines that held a familiar word and said nothing that is understood. servers: how many servers' logs the
    file mixes, of which this is the one called source, by its collector. commanded: the log holds the line of
    arguments, so that what is not in it is at its default. settled: options whose value the configuration states,
    whoever set it. tags: of the processes that wrote.
    """

    grammar: LogGrammar
    stated: tuple[Stated, ...]
    arguments: dict[str, object]
    ended: Ended | None
    started: bool
    reached: str
    starts: int
    unread: int
    whole_arguments: bool = False
    command: str = ""
    servers: int = 1
    source: str = ""
    commanded: bool = False
    settled: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def best(self, name: str) -> Stated | None:
        """The figure of the process that counts: the least, the most or the first, as its kind asks."""
        found = [s for s in self.stated if s.name == name]
        if not found:
            return None
        across = _across(self.grammar).get(name, "first")
        if across == "first" or isinstance(found[0].value, str):
            return found[0]
        if self.grammar.by_device and found[0].size:  # no devices that hold nothing of it
            found = [s for s in found if s.value] or found
        return (min if across == "least" else max)(found, key=lambda s: float(s.value))


@cache
def _across(grammar: LogGrammar) -> dict[str, Across]:
    figures = [f for line in grammar.lines for f in line.figures]
    figures += [f for failure in grammar.failures for f in failure.figures]
    return {figure.name: figure.across for figure in reversed(figures)}


def read_log(read: Callable[[int], bytes], grammar: LogGrammar, number: int = 1) -> LogReading:
    """Reads a log to its end; memory stays bounded. read: gives up to so many bytes, b"" at the end. number: of its
    first line.

    Of several servers in one file (a compose file's, a namespace's) the first that failed counts, else the last.
    """
    compiled = compiled_of(grammar)
    reader = _Reader(grammar, compiled)
    apart: dict[str, _Reader] = {}
    early, late = Anchors(compiled.anchors), Anchors(compiled.late_anchors)

    def anchors() -> Anchors:
        done = reader.started and all(one.started or not one.begun for one in apart.values())
        return late if done else early

    def over() -> bool:
        return (reader.started or reader.ended is not None) and len(apart) < 2

    # What is kept from start to start is told by lines that no start of a row may leave out.
    restarts = () if grammar.kept else tuple(text.encode() for text in grammar.restarts)

    def repeated(more: int, number: int) -> None:
        for one in took:
            one.repeat(more, number)

    watch = Watch(anchors, restarts, over, reader.skip, repeated, compiled.begins, lambda: reader.starts)
    took = [reader]
    for line in interesting(read, watch, compiled.tags, number):
        took = [reader]
        if line.source and (line.source in apart or len(apart) < _MOST_SOURCES):
            took.append(apart.setdefault(line.source, _Reader(grammar, compiled)))
        for one in took:
            one.take(line)
    servers = {source: one for source, one in apart.items() if one.begun}
    if len(servers) < 2:
        return reader.result()
    chosen = next((source for source, one in servers.items() if one.ended), list(servers)[-1])
    return servers[chosen].result()._replace(servers=len(servers), source=chosen)


class _Reader:
    """Takes lines one at a time."""

    def __init__(self, grammar: LogGrammar, compiled: Compiled) -> None:
        self.grammar = grammar
        self.compiled = compiled
        self.starts = 0
        self.unread = 0
        self.begun = False  # whether lines of a server's start were among them
        self.last_unread = False
        self.line = Line(0, "")
        self.again = False  # whether the line is the one before it once more
        self.stated: dict[tuple[str, str], Stated] = {}
        self.wrapped = Wrapped()
        self.numbered: dict[str, int] = {}  # devices that lines were of, by their name
        self._begin()

    def _begin(self) -> None:
        self.stated = {key: s for key, s in self.stated.items() if s.name in self.grammar.kept}
        self.arguments: dict[str, object] = {}
        self.reached: dict[str, str] = {}
        self.frames: dict[str, str] = {}
        self.ended: Ended | None = None
        self.started = False
        self.whole_arguments = False
        self.command = ""
        self.commanded = False
        self.failed: set[str] = set()  # errors that were read: many print them over and over
        self.spent: set[str] = set()  # those of them that are no line of another kind as well
        self.settled: set[str] = set()
        self.tags: set[str] = set()
        self.aside = ""
        self.implied = False  # whether the stage of the error is what the step tells

    def skip(self, starts: int) -> None:
        """So many starts were left out: each ended before the next one."""
        self.starts += starts

    def repeat(self, more: int, last: int) -> None:
        """So many more lines are the one that was taken last. last: the number of the last of them."""
        self.unread += more * self.last_unread
        number = self.line.number
        self.line = self.line._replace(number=last)
        for key, stated in self.stated.items():
            if stated.line == number:
                self.stated[key] = stated._replace(line=last)

    def take(self, line: Line) -> None:
        same_line, before = line.number == self.line.number, self.line
        # The first line of a log may be cut.
        self.again = bool(before.text) and line.number == before.number + 1 and line.text.endswith(before.text)
        self.line = line
        if line.origin and len(self.tags) < _MOST_PROCESSES:
            self.tags.add(line.origin)
        understood = self._failure(line) or self._arguments(line)
        if line.text in self.spent:
            self.last_unread = False
            return
        read = False
        for words, pattern, known in self.compiled.lines:
            if words not in line.text:
                continue
            for found in pattern.finditer(line.text):
                self.begun = self.begun or known.restart or bool(known.reached)
                if known.restart and (self.started or self.ended is not None):
                    self._begin()
                    self.starts += 1
                understood = read = True
                self.aside = known.aside or self.aside
                if known.recovers:
                    self.ended = None
                if known.forgets and not self.aside:
                    self.stated = {key: s for key, s in self.stated.items() if s.name not in known.forgets}
                if known.after and not self._some_reached(known.after) and self._released(known.ahead_since):
                    ahead = tuple(f._replace(name=f"{f.name}_estimated") for f in known.figures)
                    self._keep(line, found, ahead, suffix="_estimated")
                    continue
                self._keep(line, found, known.figures, device=self._number(known.numbered))
                if known.reached:
                    self._step(line.origin, known.reached)
        if not read and line.text in self.failed:
            self.spent.add(line.text)
        unread = not understood and not same_line
        self.unread += unread
        self.last_unread = unread or (same_line and self.last_unread)

    def _some_reached(self, step: str) -> bool:
        order = self.compiled.order
        return any(order[reached] >= order[step] for reached in self.reached.values())

    def _released(self, since: str) -> bool:
        """Whether the log is of a release from `since` on; one that does not state its release may be."""
        stated = next((s.value for (name, _), s in self.stated.items() if name == "version"), None)
        return not since or not isinstance(stated, str) or numbers(stated) >= numbers(since)

    def _step(self, process: str, step: str) -> None:
        order = self.compiled.order
        if len(self.reached) < _MOST_PROCESSES and order[step] >= order.get(self.reached.get(process, ""), 0):
            self.reached[process] = step
        self.started = self.started or step == self.grammar.steps[-1][0]

    def _number(self, named: str) -> str:
        """The next device of its like, "" for a line that is of none."""
        if not named:
            return ""
        self.numbered[named] = self.numbered.get(named, -1) + 1
        return f"{named}{self.numbered[named]}"

    def _keep(
        self, line: Line, found: re.Match[str], figures: tuple[Figure, ...], *, suffix: str = "", device: str = ""
    ) -> dict[str, Value]:
        values: dict[str, Value] = {}
        groups = found.groupdict()
        process = groups.get("device") or device or line.origin
        for figure in figures:
            group = figure.name.removesuffix(suffix)
            text = groups.get(group)
            if text is None or (line.cut and found.end(group) == len(line.text) and figure.unit != "text"):
                continue
            value = _value(text, figure, groups.get(f"{group}_unit"))
            if value is None:
                continue
            values[figure.name] = value
            name = f"{self.aside}_{figure.name}" if self.aside else figure.name
            key = name, process
            if (
                (figure.keep == "sum" and self.again)
                or (figure.keep == "first" and key in self.stated)
                or len(self.stated) > 64 * _MOST_PROCESSES
            ):
                continue
            size = figure.unit in ("GiB", "MiB", "bytes")
            before = self.stated.get(key)
            if before is not None and figure.across == "least" and not line.origin and not isinstance(value, str):
                value = min(value, before.value) if not isinstance(before.value, str) else value
            if before is not None and figure.keep == "sum" and not isinstance(value, str):
                value += before.value if not isinstance(before.value, str) else 0
            self.stated[key] = Stated(name, process, value, size, line.number)
        return values

    def _failure(self, line: Line) -> bool:
        text, trace = line.text, False
        if text in self.failed:
            return True
        if "Traceback (most recent call last)" in text:
            self.frames.pop(line.origin, None)
            trace = True
        frame = _FRAME.search(text)
        if frame is not None:
            stage = self.compiled.frames.get(frame[1] or frame[2] or frame[3] or "")
            if stage and len(self.frames) < _MOST_PROCESSES:
                self.frames.setdefault(line.origin, stage)
            if not frame[3]:
                return True
        known = self._known_failure(text)
        if known is not None:
            if len(self.failed) < _MOST_PROCESSES:
                self.failed.add(text)
            self.wrapped.begin(line)
            self._ended_by(line, *known)
            return True
        joined = self._joined_failure(line)
        if joined is not None:
            self._ended_by(*joined)
            return True
        if any(opening in text for opening in self.compiled.openings):
            self.wrapped.begin(line)
        return trace or any(wrapper in text for wrapper in self.grammar.wrappers)

    def _known_failure(self, text: str) -> tuple[LogFailure, re.Match[str]] | None:
        """The first failure that the text holds, with the figures of whichever of its cause states the most."""
        first: LogFailure | None = None
        best: tuple[LogFailure, re.Match[str]] | None = None
        for words, pattern, failure in self.compiled.failures:
            found = pattern.search(text) if words in text and (first is None or first.cause == failure.cause) else None
            if found is None:
                continue
            first = first or failure
            if best is None or _stated_by(found) > _stated_by(best[1]):
                best = failure, found
        if first is None or best is None:
            return None
        return best[0]._replace(stage=first.stage or best[0].stage), best[1]

    def _joined_failure(self, line: Line) -> tuple[Line, LogFailure, re.Match[str]] | None:
        """The failure that goes on with this line, read as it says the most."""
        joined = ((one, self._known_failure(one.text)) for one in self.wrapped.go_on(line))
        read = [(one, *known) for one, known in joined if known is not None]
        return max(read, key=lambda known: _stated_by(known[2]), default=None)

    def _ended_by(self, line: Line, failure: LogFailure, found: re.Match[str]) -> None:
        values = self._keep(line, found, failure.figures)
        ended = self.ended
        if ended is None:
            self._end(line, failure, values)
        elif ended.cause != failure.cause:
            return
        elif self.implied and failure.stage:
            self.ended = ended._replace(stage=failure.stage)
            self.implied = False
        elif len(values) > len(ended.figures) and ended.figures.items() <= values.items() and (
            not ended.process or line.origin in ("", ended.process)
        ):  # fmt: skip
            self.ended = ended._replace(figures=values)

    def _end(self, line: Line, failure: LogFailure, values: dict[str, Value]) -> None:
        stage = failure.stage or self._stage(line.origin)
        self.implied = self.grammar.by_device and not failure.stage and not self.started
        self.ended = Ended(
            failure.cause,
            "" if stage == NO_STAGE else stage,
            line.origin,
            line.number,
            line.text.strip()[:2000],
            values,
        )

    def _stage(self, process: str) -> str:
        """The stage that an error without its own belongs to: what its traceback names, else how far it had come."""
        if process in self.frames and not (self.started and self.frames[process] != "graph_capture"):
            return self.frames[process]
        order, stages = self.compiled.order, dict(self.grammar.steps)
        step = self.reached.get(process)
        shared = [s for s in self.reached.values() if stages[s] in ("kv_cache_allocation", "graph_capture", "runtime")]
        candidates = [s for s in (step, *shared) if s is not None] or list(self.reached.values()) or [""]
        return stages[max(candidates, key=lambda s: order[s])]

    def _arguments(self, line: Line) -> bool:
        command = self.compiled.command.search(line.text) if self.compiled.command is not None else None
        if command is not None:
            self.command = command["command"][:LONGEST]
            self.commanded = True
            return True
        for pattern in (self.compiled.arguments, self.compiled.config):
            found = pattern.search(line.text) if pattern is not None else None
            if found is None:
                continue
            if "args" in found.groupdict():
                self.arguments |= parse_arguments(found["args"])
                self.commanded = True
                self.whole_arguments = not found["args"].startswith("{")
            else:
                self._config(found["config"])
            return True
        return False

    def _config(self, text: str) -> None:
        """What the whole configuration says of options that the arguments line left out."""
        pairs = dict(pairs_of(text))
        model = pairs.get("model")
        if isinstance(model, str):
            self.arguments.setdefault("model", model)
        for key, option in self.grammar.config_options:
            value = pairs.get(key)
            if key in pairs:
                self.settled.add(option)
            if value not in (None, "auto"):
                self.arguments.setdefault(f"config:{option}", value)

    def result(self) -> LogReading:
        order = self.compiled.order
        reached = max(self.reached.values(), key=lambda step: order[step], default="")
        return LogReading(
            grammar=self.grammar,
            stated=tuple(self.stated.values()),
            arguments=self.arguments,
            ended=self.ended,
            started=self.started,
            reached=reached,
            starts=self.starts + 1,
            unread=self.unread,
            whole_arguments=self.whole_arguments,
            command=self.command,
            commanded=self.commanded,
            settled=frozenset(self.settled),
            tags=frozenset(self.tags),
        )


def _stated_by(found: re.Match[str]) -> int:
    return sum(text is not None for text in found.groupdict().values())


def numbers(version: str) -> tuple[int, ...]:
    """A release as what compares."""
    return tuple(int(part) for part in re.findall(r"\d{1,6}", version)[:3])


def _value(text: str, figure: Figure, unit: str | None) -> Value | None:
    if figure.unit == "text":
        return text[:500]
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    if not abs(number) < 1e18:
        return None
    if figure.unit == "count":
        return int(number)
    if figure.unit == "number":
        return number
    return round(number * _SCALE.get(unit or figure.unit, 1))
