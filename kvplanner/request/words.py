"""From the words of a command to a PlanRequest: the same reading for the terminal and for the window's arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kvplanner.catalog import gpus
from kvplanner.engine.option import FlagRule, Option, OptionValue
from kvplanner.engine.protocol import Engine
from kvplanner.engine.request import Calibration, PlanRequest
from kvplanner.engine.segment import SEGMENT_KINDS, SegmentKind
from kvplanner.engine.signature import signature, signatures
from kvplanner.errors import BadInput, UnknownName
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.model import Model
from kvplanner.printable import cut
from kvplanner.reading import expanded, file_size
from kvplanner.record import NamedTuple
from kvplanner.request import planfile
from kvplanner.request.draft import open_draft
from kvplanner.request.flags import OURS, PLAN_FLAGS
from kvplanner.request.launch import Launch, take_apart, visible
from kvplanner.request.named import LOCAL, format_name, machine_of, parse_load
from kvplanner.request.nodes import nodes_of, over_nodes
from kvplanner.request.standin import Standing, is_elsewhere, of_file, of_store, stand_in
from kvplanner.units import GIB, MIB, format_bytes, parse_size

if TYPE_CHECKING:
    from argparse import Namespace

_EXAMPLES: Final = {"--free": "70GiB", "--measured": "activations=3GB"}
# A size that was copied from what is shown may be rounded up by as much.
_ROUNDING: Final = GIB // 200
_SHOWN: Final = 200


class PlanWords(NamedTuple):
    """What a person typed. flags: everything after "--"."""

    model: str = ""
    gpu: str = ""
    engine: str = ""
    version: str = ""
    weight_format: str = ""
    load: str = ""
    free: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def words_of(found: Namespace, flags: tuple[str, ...]) -> PlanWords:
    """The words among parsed arguments. Raises BadInput for an empty one: often a shell variable that is not set."""
    given = {flag.field: getattr(found, flag.field) for flag in PLAN_FLAGS}
    for flag in PLAN_FLAGS:
        value = given[flag.field]
        if value is not None and any(not text.strip() for text in ([value] if isinstance(value, str) else value)):
            raise BadInput("is empty", flag.name, "Give a value, or leave the flag out")
    given["version"] = given.pop("engine_version")
    texts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value or "" for name, value in given.items()
    }
    return PlanWords(model=found.model or "", flags=flags, **texts)


class Sources(NamedTuple):
    """How names become things. local: this machine's GPUs, None when there are none to be seen.

    open_kept: for names that a plan file holds, which must not go online by being opened; open_model when None.
    remembered: what the user once named in place of a path of another machine. calibration: what runs measured.
    """

    open_model: Callable[[str], Model]
    local: Callable[[], Machine | None]
    open_kept: Callable[[str], Model] | None = None
    remembered: Mapping[str, str] = {}
    calibration: tuple[Calibration, ...] = ()


class Built(NamedTuple):
    """A request, the words that name its model and machine, and what is worth saying about them.

    opened: the model as it is stored, which the request's is not when another weight format was asked for.
    kept: the plan file that was named as the model, if one was. nodes: machines that its command names, 0 for none.
    """

    request: PlanRequest
    model: str
    machine: str
    warnings: tuple[str, ...]
    opened: Model
    kept: planfile.PlanFile | None = None
    nodes: int = 0


def build(words: PlanWords, sources: Sources) -> Built:
    """The request that the words stand for.

    Raises BadInput, UnknownName and NotModelled, each naming the flag or the file.
    """
    from kvplanner.engine.registry import engine, names
    from kvplanner.engine.suited import suited, suited_name

    kept = planfile.load(words.model) if words.model.endswith(planfile.SUFFIX) else None
    launch = take_apart(words.flags)
    said_engine = _engine_of(words, launch) or (kept.ask.engine if kept else "")
    # A version is of the usual engine where none is named.
    by_name = "" if said_engine or words.version else suited_name(words.model)
    chosen = engine(said_engine or by_name or names()[0])
    version = words.version or launch.version or (kept.ask.version if kept else None) or None
    command = _command(chosen, version, launch)
    named = kept.model if kept else words.model
    elsewhere = launch.launched and is_elsewhere(command.model)
    if named and command.model and not elsewhere and not _same_name(named, command.model):
        raise BadInput(
            f"{cut(command.model, _SHOWN)!r} stands where {cut(named, _SHOWN)!r} was named as the model",
            "after --",
            "Name one model",
        )
    model_text = named or command.model
    stood_in: tuple[str, ...] = ()
    wished = launch.weight_format
    if elsewhere and not named:
        model_text, stood_in, found = _here(command.model, launch.flags, sources)
        wished = wished or found
    elif (launch.store or launch.repository) and command.model and not named:
        model_text, stood_in, found = _of_store(command.model, launch, sources)
        wished = wished or found
    elif not kept and (store := next((s.store for s in signatures() if s.store and named.startswith(s.store)), "")):
        held = of_store(named.removeprefix(store), store, sources.open_model)
        model_text, stood_in, found = held or Standing(named)
        wished = wished or found
    if not model_text:
        example = "ollama:qwen3:8b compose.yaml" if launch.launched else "Llama-3.1-8B-Instruct --gpu H100"
        raise BadInput("no model is named", "MODEL", f"Example: kvplanner plan {example}")
    machine, machine_text, said = machine_of(words.gpu or (kept.machine if kept else ""), sources.local)
    open_kept = sources.open_kept or sources.open_model
    model = (open_kept if kept else sources.open_model)(model_text)
    if not (said_engine or words.version or words.flags) and (other := suited(model, chosen.name)) != chosen.name:
        chosen, by_name = engine(other), other
        command = _command(chosen, version, launch)
    if by_name and chosen.name != names()[0]:
        said = (*said, f"Planned for {chosen.title}, which such files are for; --engine names another")
    given, counted = _with_encoders(command, chosen, model)
    if kept:
        request = planfile.to_request(kept, model, machine)
        options = {**request.options, **given}
        request = request._replace(engine=chosen.name, version=version, options=options)
    else:
        request = PlanRequest(model, machine, chosen.name, version, given)
    request = _with_words(request, words._replace(weight_format=words.weight_format or wished))
    if launch.launched:
        shown = visible(request.machine, launch.environment)
        if shown is not request.machine:
            machine_text = gpus.machine_words(shown) if machine_text != LOCAL else LOCAL
        options = chosen.as_started(request.options, request.version)
        count = nodes_of(chosen, launch.flags)
        whole, spread = over_nodes(shown, count, chosen, options, request.version)
        if whole is not shown:
            machine_text = gpus.machine_words(whole)
        stood_in = (*stood_in, *spread)
        request = request._replace(machine=whole, options=options)
    nodes = nodes_of(chosen, launch.flags) if launch.launched else 0
    draft = chosen.draft_wanted(request.options)
    typed = not kept or (draft is not None and draft.name in command.options.values())
    drafting = open_draft(draft, sources.open_model if typed else open_kept)
    request = request._replace(draft=drafting, calibration=sources.calibration)
    further = (f"{launch.servers} servers are started: the first one is planned",) if launch.servers > 1 else ()
    warnings = (*said, *(planfile.notes(kept) if kept else ()), *stood_in, *counted, *command.warnings, *further)
    return Built(request, model_text, machine_text, warnings, model, kept, nodes if nodes > 1 else 0)


def _of_store(name: str, launch: Launch, sources: Sources) -> Standing:
    """The model that a name of the engine's store or of a repository means.

    Raises UnknownName for one that is in no store here and stands for no known model.
    """
    found = of_store(name, launch.store, sources.open_model)
    if found is not None:
        return found
    if launch.repository:
        raise UnknownName("is not fetched here, and no known model is called so", name, (),
                          "Name the model before --, or its file with -m")  # fmt: skip
    return Standing(name)


_NAMED: Final = re.compile(r"--(?:served-model-name|alias)(?:=(.+))?")


def _here(path: str, flags: Sequence[str], sources: Sources) -> Standing:
    """The model that stands in for a path of another machine. Raises ModelElsewhere for none."""
    remembered = sources.remembered.get(path)
    if remembered:
        return Standing(remembered, (f"{path} is not on this machine: planned as {remembered}, as you said before",))
    served = [m[1] or following for flag, following in pairwise((*flags, ""))
              if (m := _NAMED.fullmatch(flag))]  # fmt: skip
    for text in (path, *served):
        found = stand_in(text)
        if found:
            return Standing(found, (f"{path} is not on this machine: planned as {found} by its name",))
    mixed = of_file(path)
    if mixed is not None:
        return mixed
    raise ModelElsewhere(path)


class ModelElsewhere(BadInput):
    """A command names a model by a path that is not on this machine, and no known model is called so."""

    def __init__(self, path: str) -> None:
        super().__init__("is not on this machine, and no known model is called so", path,
                         "Name the model that lies there: kvplanner plan MODEL -- …")  # fmt: skip
        self.path = path


def _engine_of(words: PlanWords, launch: Launch) -> str:
    """The engine that is named, or whose command line stands there. Raises BadInput where they differ."""
    from kvplanner.engine.registry import engine

    if words.engine and launch.engine and engine(words.engine).name != launch.engine:
        raise BadInput(f"a command line of {launch.engine} stands where {words.engine} was named as the engine",
                       "--engine", "Leave it out: the command line tells")  # fmt: skip
    return words.engine or launch.engine


def _same_name(one: str, other: str) -> bool:
    """Whether two names are the same model: alike but for case, or one is the last part of the other."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return long == short or ("/" not in short and long.endswith(f"/{short}"))


def _with_words(request: PlanRequest, words: PlanWords) -> PlanRequest:
    """The request with what its own flags say."""
    wished = words.weight_format or request.weight_format
    name = format_name(wished) if wished else None
    return request._replace(
        machine=with_free(request.machine, words.free),
        load=parse_load(words.load) if words.load else request.load,
        weight_format=name,
        measured={**request.measured, **parse_measured(words.measured)},
    )


def _refuse_ours(words: Sequence[str], options: Sequence[Option]) -> None:
    """Raises BadInput for a flag of kvplanner's own that the engine does not have too."""
    flags = (word.partition("=")[0] for word in words)
    for flag in flags:
        if flag in OURS and not any(flag in option.flags for option in options):
            raise BadInput(
                "is kvplanner's flag, not the engine's", flag, f"Write it before the command: plan {flag} ... COMMAND"
            )


class _Command(NamedTuple):
    """What stands after "--", understood. missing: files that it names and that are not here, by flag."""

    options: dict[str, OptionValue]
    model: str
    warnings: tuple[str, ...]
    launch: Launch
    missing: dict[str, str]


def _command(engine: Engine, version: str | None, launch: Launch) -> _Command:
    """Options, the model that the command line names, and warnings."""
    from kvplanner.engine import environment
    from kvplanner.engine.beside import files_beside
    from kvplanner.engine.command import parse_flags

    options, rules, given = engine.options(version), engine.ignored_flags(), launch.environment
    _refuse_ours(launch.flags, options)
    beside = files_beside(launch.flags, given, rules, lambda path: file_size(expanded(path)))
    parsed = parse_flags(options, beside.words, rules)
    named = dict.fromkeys(w for w in (launch.model, *parsed.positional) if w)
    if len(named) > 1:
        extra = list(named)[1]
        raise BadInput(
            f"{extra!r} belongs to no flag",
            "after --",
            f"Write {' '.join(engine.launch)} MODEL and its flags, or flags alone",
        )
    _refuse_variables(given, rules)
    own = signature(engine.name)
    prefixes = (f"{engine.name.upper()}_", *(own.env_prefixes if own is not None else ()))
    warnings = (*parsed.warnings, *environment.unread(prefixes, options, rules, given))
    values = {**environment.values_of(options, given), **beside.sizes, **parsed.values}
    return _Command(values, next(iter(named), ""), warnings, launch, beside.missing)


def _refuse_variables(given: Mapping[str, str], rules: Mapping[str, FlagRule]) -> None:
    """Raises BadInput for a variable that a plan cannot leave out."""
    for name, value in given.items():
        rule = rules.get(name)
        if rule is not None and rule.reason and not rule.sizes and value not in rule.harmless:
            raise BadInput(rule.reason, f"{name}={value[:40]}", rule.remedy)


def _with_encoders(command: _Command, engine: Engine, model: Model) -> tuple[dict[str, OptionValue], tuple[str, ...]]:
    """The options with the files beside the model that are not here, where the model itself says what they hold.

    Raises BadInput for another file that is not here.
    """
    from kvplanner.engine.beside import encoder_bytes

    rules, options = engine.ignored_flags(), dict(command.options)
    size, said = encoder_bytes(model), []
    for flag, path in command.missing.items():
        rule = rules[flag]
        if not (rule.encoders and size):
            raise BadInput(rule.reason, f"{flag} {cut(path, _SHOWN)}", rule.remedy)
        if rule.sizes not in options:
            options[rule.sizes] = size
            said.append(f"{cut(path, _SHOWN)} is not on this machine: counted as the model's own encoder in 16 bits, "
                        f"{format_bytes(size)}")  # fmt: skip
    if not command.launch.repository:
        return options, tuple(said)
    from kvplanner.request.unasked import with_projector

    options, more = with_projector(rules, {*command.launch.flags, *command.launch.environment}, options, model)
    return options, (*said, *more)


def kind_of(text: str) -> SegmentKind | None:
    """The kind of segment that a name such as "kv cache", "KV" or "graphs" stands for, None for no or several."""
    wanted = text.strip().lower().replace("-", "_").replace(" ", "_")
    found = [kind for kind in SEGMENT_KINDS if wanted and wanted in kind.split("_")] or [
        kind for kind in SEGMENT_KINDS if len(wanted) > 2 and kind.startswith(wanted)
    ]
    exact = [kind for kind in SEGMENT_KINDS if kind == wanted]
    return exact[0] if exact else found[0] if len(found) == 1 else None


def parse_measured(items: Sequence[str]) -> dict[str, int]:
    """Bytes by segment kind from "activations=3GB", one or several with commas. Raises BadInput."""
    given: dict[str, int] = {}
    known: list[str] = [kind for kind in SEGMENT_KINDS if kind not in ("driver_reserved", "headroom")]
    for item in _split(items):
        name, equals, size = (part.strip() for part in item.partition("="))
        kind = kind_of(name)
        if not equals or kind not in known:
            raise BadInput(f"{item!r} is not KIND=SIZE", "--measured", f"KIND is one of {', '.join(known)}")
        given[kind] = _size(size, "--measured")
    return given


def with_free(machine: Machine, items: Sequence[str]) -> Machine:
    """The machine with what --free says is free: "70GiB" for each device, "0=70GiB" for one. Raises BadInput."""
    if not items:
        return machine
    free: dict[int, int] = {}
    everywhere = [item for item in _split(items) if "=" not in item]
    if len(everywhere) > 1:
        each = ",".join(f"{index}={size.strip()}" for index, size in enumerate(everywhere))
        raise BadInput(f"{len(everywhere)} sizes are given for every GPU", "--free", f"Write {each[:60]}")
    for item in _split(items):
        index, equals, size = (part.strip() for part in item.rpartition("="))
        if equals and not (
            index.isascii() and index.isdecimal() and len(index) < 6 and int(index) < len(machine.devices)
        ):
            last = len(machine.devices) - 1
            which = f"GPU=SIZE with a GPU from 0 to {last}" if last else f"0={size or '70GiB'} for the only GPU"
            raise BadInput(f"there is no GPU {index[:40]!r}", "--free", f"Write {which}")
        targets = [int(index)] if equals else range(len(machine.devices))
        free |= dict.fromkeys(targets, _size(size, "--free"))
    return machine._replace(devices=tuple(_free_devices(machine, free)))


def _free_devices(machine: Machine, free: Mapping[int, int]) -> Iterator[Device]:
    for position, device in enumerate(machine.devices):
        given = free.get(position)
        total = device.gpu.cuda_total
        if given is not None and total is not None and given > total.high + _ROUNDING:
            raise BadInput(
                f"{format_bytes(given)} free is more than {device.gpu.name} has ({format_bytes(total.value)})",
                "--free", f"Give at most {format_bytes(total.value)}",
            )  # fmt: skip
        most = given if given is None or total is None else min(given, total.high)
        yield device if most is None else device._replace(free_bytes=most, free_source="--free")


def _split(items: Sequence[str]) -> Iterator[str]:
    for item in items:
        yield from (part for part in item.split(",") if part.strip())


def _size(text: str, flag: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise BadInput(str(error), flag, f"Example: {flag} {_EXAMPLES[flag]}") from error
    if 0 < size < MIB and text.strip().isdecimal():
        raise BadInput(f"{text.strip()} has no unit and would be bytes", flag, f"Write for example {text.strip()}GiB")
    return size
