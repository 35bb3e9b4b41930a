"""From a log to a diagnosis: engine, release, model, options, figures, stage, cause, and the request it implies."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Final

from kvplanner.diagnose.decoding import as_text, as_utf8, spaced, spelled_out, unbroken, width_of
from kvplanner.diagnose.reading import LogReading, Stated, read_log
from kvplanner.engine import registry
from kvplanner.engine.command import flag_reader, role_option
from kvplanner.engine.log import LogGrammar
from kvplanner.engine.option import Option, OptionValue, Role
from kvplanner.engine.protocol import Engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.signature import signature
from kvplanner.engine.values import parse_value
from kvplanner.errors import BadInput, PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.reading import open_file
from kvplanner.record import NamedTuple

HEAD_BYTES: Final = 4 << 20
# What comes before a server's first line, a line of 100 MB among it, is passed over up to here.
MOST_SEARCHED: Final = 256 << 20
_UNBREAKABLE: Final = "\u00a0".encode()
_NUMBER: Final = re.compile(r"-\d+(?:\.\d+)?")
_PARALLEL: Final[tuple[Role, ...]] = ("tensor_parallel", "pipeline_parallel", "data_parallel")
# What decides a plan most, and a log without its command line may leave open.
_DECIDING: Final[tuple[Role, ...]] = ("context", *_PARALLEL, "budget_share", "max_requests", "kv_dtype")
# How processes name their place: "Worker_DP0_TP1", "VllmWorker rank=1", "DP0 TP3".
_PLACES: Final[tuple[tuple[Role, re.Pattern[str]], ...]] = (
    ("tensor_parallel", re.compile(r"(?:TP|rank=)(\d{1,4})")), ("pipeline_parallel", re.compile(r"PP(\d{1,4})")),
    ("data_parallel", re.compile(r"DP(\d{1,4})")),
)  # fmt: skip


class Diagnosis(NamedTuple):
    """What a log says. options: those that its command line set, by the engine's names. asked: what a plan of it still
    needs ("model", "gpu"). gpus: how many its options use. problems: what of its command line is not understood.
    """

    engine: str
    reading: LogReading
    version: str | None
    model: str | None
    options: dict[str, OptionValue]
    gpus: int
    problems: tuple[str, ...]

    @property
    def stage(self) -> str | None:
        """Where start-up failed, None where it did not."""
        return (self.reading.ended.stage or None) if self.reading.ended else None

    def size(self, name: str) -> int | None:
        """A figure of the log in bytes, of the process that counts; one that is stated in parts as their sum."""
        found = self.reading.best(name)
        if found is None:
            return self._sum(name)
        return int(found.value) if found.size else None

    def _sum(self, name: str) -> int | None:
        """The least of what each process states in parts, where it states all that every model has."""
        parts, more = next(((parts, more) for n, parts, more in self.reading.grammar.sums if n == name), ((), ()))
        stated: dict[str, dict[str, int]] = {}
        for s in self.reading.stated:
            if s.name in (*parts, *more) and s.size:
                stated.setdefault(s.process, {})[s.name] = int(s.value)
        return min(
            (sum(each.values()) for each in stated.values() if each.keys() >= set(parts) and parts), default=None
        )

    @property
    def first_start(self) -> bool | None:
        """Whether it compiled what later starts find; None where the log does not tell."""
        if self.reading.best("compiled") is not None:
            return True
        return False if self.reading.best("cached") or self.reading.best("cached_whole") else None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of an engine that prints by device, by the log's names, in their order: "CUDA0", "CUDA1"."""
        if not self.reading.grammar.by_device:
            return ()
        names = {s.process for s in self.reading.stated if s.process and s.name in ("weights", "free_at_start")}
        return tuple(sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name)))

    def stated_of(self, name: str, device: str) -> Stated | None:
        """A figure of one device."""
        return next((s for s in self.reading.stated if (s.name, s.process) == (name, device)), None)

    def of_device(self, name: str, device: str) -> int | None:
        """A figure of one device in bytes."""
        found = self.stated_of(name, device)
        return int(found.value) if found is not None and found.size else None

    @property
    def tokens(self) -> int | None:
        """The KV cache in tokens, as printed or as blocks of the engine's size."""
        found = self.reading.best("tokens")
        if found is None and self.size("kv_cache") is not None:
            found = self.reading.best(self.reading.grammar.cells)
        if found is not None:
            return int(found.value)
        blocks = self.reading.best("blocks")
        each = self.options.get(self.reading.grammar.block_option, self.reading.grammar.block_tokens)
        return int(blocks.value) * int(each) if blocks is not None and each else None


def grammars() -> tuple[LogGrammar, ...]:
    """The grammars of every engine whose package has one."""
    return tuple(import_module(f"{package}.log").GRAMMAR for package in registry.log_packages())


def diagnose(read: Callable[[int], bytes], name: str = "the log") -> Diagnosis:
    """Reads a log. read: gives up to so many bytes, b"" at the end. Raises BadInput where no engine is recognised."""
    number, searched = 1, 0
    read = as_utf8(read, name)
    while True:
        head = _head(read)
        if spelled_out(head):
            first = BytesIO(head)
            read = as_text(_after(first, read))
            head = _head(read)
        if any(mark.encode() in head for mark in dict.fromkeys(m for g in grammars() for m in g.marks)):
            break
        searched += len(head)
        number += head.count(b"\n")
        if len(head) < HEAD_BYTES or searched > MOST_SEARCHED:
            titles = ", ".join(g.title for g in grammars())
            remedy = f"Give the server's own output from its first line on; read are logs of {titles}"
            raise BadInput("is no start-up log of an engine that is known here", name, remedy)
    grammar = max(grammars(), key=lambda g: _marks(head, g))
    chained = _after(BytesIO(head), read)
    width, lines = width_of(head), spaced(chained) if _UNBREAKABLE in head else chained
    return _diagnosis(read_log(unbroken(lines, width) if width else lines, grammar, number))


def _after(first: BytesIO, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """A stream with another before it."""
    return lambda size: first.read(size) or read(size)


def diagnose_file(path: Path) -> Diagnosis:
    """Reads a log file. Raises BadInput where it cannot be read, or no engine is recognised."""
    with open_file(path) as file:
        return diagnose(_sequential(file.read, file.size), str(path))


def _sequential(read_at: Callable[[int, int], bytes], size: int) -> Callable[[int], bytes]:
    """Reads one part after another, as a stream does."""
    position = 0

    def read(length: int) -> bytes:
        nonlocal position
        part = read_at(position, min(length, size - position)) if position < size else b""
        position += len(part)
        return part

    return read


def _head(read: Callable[[int], bytes]) -> bytes:
    parts: list[bytes] = []
    left = HEAD_BYTES
    while left > 0 and (part := read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _marks(head: bytes, grammar: LogGrammar) -> tuple[int, int]:
    """How many of an engine's marks there are, and how often: a container may be called after another engine."""
    counts = [min(head.count(mark.encode()), 50) for mark in grammar.marks]
    return sum(map(bool, counts)), sum(counts)


def _diagnosis(reading: LogReading) -> Diagnosis:
    options, problems = _options(reading)
    model = _named(reading) or _text(reading.best("model"))
    found = Diagnosis(reading.grammar.engine, reading, _version(reading), model, options, 1, problems)
    return found._replace(gpus=_gpus(found, options))


def _version(reading: LogReading) -> str | None:
    stated = _text(reading.best("version"))
    return stated and reading.grammar.version_prefix + stated


def _modelled(engine: Engine, version: str | None) -> str | None:
    """The release, or None where the engine has no rules of it: its options are then read as the newest's."""
    try:
        engine.options(version)
    except PlannerError:
        return None
    return version


def _text(found: Stated | None) -> str | None:
    return str(found.value) if found is not None else None


def _named(reading: LogReading) -> str | None:
    named = reading.arguments.get("model") or reading.arguments.get("model_tag")
    return named if isinstance(named, str) else None


def _options(reading: LogReading) -> tuple[dict[str, OptionValue], tuple[str, ...]]:
    """The options that the command line set, and what of it is not understood."""
    engine = registry.engine(reading.grammar.engine)
    version = _version(reading)
    declared = engine.options(_modelled(engine, version))
    defaults = set(reading.grammar.argument_defaults) if reading.whole_arguments else set()
    values: dict[str, OptionValue] = {}
    problems: list[str] = []
    read = flag_reader(declared, engine.ignored_flags())
    if reading.command:
        for words in _flags(reading):
            try:
                values |= read(words).values
            except PlannerError as error:
                problems.append(f"{words[0]}: {error.what}")
        return values, tuple(problems)
    stated = {k: v for k, v in reading.arguments.items() if not k.startswith("config:")}
    if set(stated) <= {"model"}:  # no line of arguments: what the whole configuration says
        stated = {k.removeprefix("config:"): v for k, v in reading.arguments.items()}
        stated |= {o: s.value for name, o in reading.grammar.figure_options if (s := reading.best(name)) is not None}
    for key, value in stated.items():
        if key in reading.grammar.not_options or value in (None, "auto") or _is_default(key, value, defaults):
            continue
        words = [*_words(key, value)]
        if not words:
            continue
        try:
            variable = next((o for o in declared if o.env and words[0] in o.flags), None)
            if variable is not None:  # set by the environment: no flag of the engine's
                values[variable.name] = parse_value(variable, words[-1])
                continue
            values |= read(words).values
        except PlannerError as error:
            problems.append(f"{words[0]}: {error.what}")
    return values, tuple(problems)


def _flags(reading: LogReading) -> Iterator[list[str]]:
    """The words of a command line, flag by flag, without the model's."""
    try:
        words = shlex.split(reading.command)
    except ValueError:
        words = reading.command.split()
    known = signature(reading.grammar.engine)
    own = known.model_flags if known else ()
    flag: list[str] = []
    for word in words:
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            if flag and flag[0] not in own:
                yield flag
            flag = [word]
        elif flag:
            flag.append(word)
    if flag and flag[0] not in own:
        yield flag


def _is_default(key: str, value: object, defaults: set[tuple[str, int | float | str | bool]]) -> bool:
    return isinstance(value, int | float | str | bool) and (key, value) in defaults


def _words(key: str, value: object) -> Iterator[str]:
    flag = "--" + key.replace("_", "-")
    if isinstance(value, bool):
        if value:
            yield flag
    elif isinstance(value, dict):
        if value:
            yield from (flag, json.dumps(value, default=str))
    elif isinstance(value, list | tuple):
        if value:
            yield from (flag, *map(str, value))
    else:
        yield from (flag, str(value))


def unstated(found: Diagnosis) -> tuple[Option, ...]:
    """Options that decide a plan and that the log states nowhere: a plan of it takes the engine's defaults.

    Where the log holds the engine's line of arguments, whatever is not in it is at its default, which is no guess.
    """
    reading, engine = found.reading, registry.engine(found.engine)
    if reading.commanded:
        return ()
    stated = {o.replace("-", "_") for name, o in reading.grammar.figure_options if reading.best(name) is not None}
    known = stated | set(found.options) | reading.settled
    version = _modelled(engine, found.version)
    every = (role_option(engine, version, role) for role in _DECIDING)
    return tuple(option for option in every if option is not None and option.name not in known)


def places_seen(found: Diagnosis) -> dict[str, int]:
    """How many ranks the processes that wrote the log name, by option: at least as many there were."""
    engine, made = registry.engine(found.engine), {}
    for role, place in _PLACES:
        most = max((int(seen[1]) for tag in found.reading.tags if (seen := place.search(tag))), default=0)
        option = role_option(engine, _modelled(engine, found.version), role)
        if option is not None and most:
            made[option.name] = most + 1
    return made


def with_options(found: Diagnosis, given: Mapping[str, OptionValue]) -> Diagnosis:
    """The diagnosis with options that the log does not state."""
    return found._replace(options={**found.options, **given}, gpus=_gpus(found, {**found.options, **given}))


def _gpus(found: Diagnosis, options: Mapping[str, OptionValue]) -> int:
    """How many GPUs options use."""
    if found.reading.grammar.by_device:
        return max(len(found.devices), 1)
    engine, gpus = registry.engine(found.engine), 1
    for role in _PARALLEL:
        option = role_option(engine, _modelled(engine, found.version), role)
        value = options.get(option.name) if option else None
        gpus *= value if isinstance(value, int) and 0 < value < 1 << 16 else 1
    return gpus


def request_of(found: Diagnosis, model: Model, machine: Machine) -> PlanRequest:
    """The request that a log implies, for the model that it names and the GPUs that it ran on."""
    engine = registry.engine(found.engine)
    options = engine.as_started({**_of_first_start(found), **found.options}, found.version)
    request = PlanRequest(model, machine, found.engine, found.version, options)
    return request._replace(weight_format=_stored_in(found, model))


def _of_first_start(found: Diagnosis) -> dict[str, OptionValue]:
    """The option that says whether a start compiles, as the log shows it, where its release has one."""
    known, first = found.reading.grammar.first_start, found.first_start
    if known is None or first is None:
        return {}
    engine = registry.engine(found.engine)
    there = any(o.name == known[0] for o in engine.options(_modelled(engine, found.version)))
    return {known[0]: known[1] if first else known[2]} if there else {}


def _stored_in(found: Diagnosis, model: Model) -> str | None:
    """The format of a GGUF file by the log's words ("Q4_K - Medium"), for a model that is known in floats alone."""
    stated = _text(found.reading.best("file_type"))
    if stated is None or model.spec.quantization is not None:
        return None
    for words, short in ((" - Small", "_S"), (" - Medium", "_M"), (" - Large", "_L")):
        stated = stated.replace(words, short)
    name = "GGUF " + stated.removeprefix("(guessed) ").partition(" ")[0]
    return name if name in WHATIF_FORMATS and name != model.weight_format else None
