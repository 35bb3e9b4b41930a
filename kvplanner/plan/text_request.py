"""From the words of a command to a PlanRequest: the same reading for the terminal and for the window's arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final, NamedTuple

from kvplanner.engine.base import SEGMENT_KINDS, Engine, Load, Model, OptionValue, PlanRequest
from kvplanner.errors import BadInput, UnknownName
from kvplanner.gpu.spec import Device, Machine
from kvplanner.plan import planfile
from kvplanner.units import format_bytes, parse_count, parse_size

START_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
START_GPU: Final = "NVIDIA H100 80GB HBM3"
LOCAL: Final = "local"

_LOAD: Final = re.compile(r"([^@+]+)@([^@+]+)\+([^@+]+)")
_CONTINUED: Final = re.compile(r"\\\r?\n")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


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


class Sources(NamedTuple):
    """How names become things. local: this machine's GPUs, None when there are none to be seen."""

    open_model: Callable[[str], Model]
    local: Callable[[], Machine | None]


class Built(NamedTuple):
    """A request, the words that name its model and machine, and what is worth saying about them.

    opened: the model as it is stored, which the request's is not when another weight format was asked for.
    kept: the plan file that was named as the model, if one was.
    """

    request: PlanRequest
    model: str
    machine: str
    warnings: tuple[str, ...]
    opened: Model
    kept: planfile.PlanFile | None = None


class Launch(NamedTuple):
    """A command line taken apart: environment of the engine, the model it names ("" when none), its flags."""

    environment: dict[str, str]
    model: str
    flags: tuple[str, ...]


def build(words: PlanWords, sources: Sources) -> Built:
    """The request that the words stand for.

    Raises BadInput, UnknownName and NotModelled, each naming the flag or the file.
    """
    from kvplanner.engine.registry import engine, names

    kept = planfile.load(words.model) if words.model.endswith(planfile.SUFFIX) else None
    chosen = engine(words.engine or (kept.engine if kept else names()[0]))
    version = words.version or (kept.version if kept else None) or None
    options, launched, warnings = _engine_flags(chosen, version, words.flags)
    named = kept.model if kept else words.model
    if named and launched and named != launched:
        raise BadInput(f"{launched!r} stands where {named!r} was named as the model", "after --", "Name one model")
    model_text = named or launched
    if not model_text:
        raise BadInput("no model is named", "MODEL", "Example: kvplanner plan Llama-3.1-8B-Instruct --gpu H100")
    machine, machine_text, said = machine_of(words.gpu or (kept.machine if kept else ""), sources.local)
    model = sources.open_model(model_text)
    if kept:
        request = planfile.to_request(kept, model, machine)
        request = replace(request, engine=chosen.name, version=version, options={**request.options, **options})
    else:
        request = PlanRequest(model, machine, chosen.name, version, options)
    return Built(_with_words(request, words), model_text, machine_text, (*said, *warnings), model, kept)


def _with_words(request: PlanRequest, words: PlanWords) -> PlanRequest:
    """The request with what its own flags say."""
    wished = words.weight_format or request.weight_format
    name = format_name(wished) if wished else None
    return replace(
        request,
        machine=with_free(request.machine, words.free),
        load=parse_load(words.load) if words.load else request.load,
        weight_format=name,
        measured={**request.measured, **parse_measured(words.measured)},
    )


def format_name(text: str) -> str:
    """The weight format that a text such as "fp8", "awq" or "q4_k_m" names. Raises UnknownName."""
    from kvplanner.model.whatif import WHATIF_FORMATS

    wanted = _plain(text)
    names = {_plain(name): name for name in WHATIF_FORMATS}
    found = names.get(wanted) or names.get(f"gguf{wanted}")
    if found:
        return found
    near = [name for plain, name in names.items() if wanted and plain.startswith(wanted)]
    if len(near) == 1:
        return near[0]
    raise UnknownName(f"{text!r} is no weight format", "--weight-format", tuple(near or WHATIF_FORMATS))


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _engine_flags(
    engine: Engine, version: str | None, words: Sequence[str]
) -> tuple[dict[str, OptionValue], str, tuple[str, ...]]:
    """Options, the model that the command line names, and warnings."""
    from kvplanner.engine.command import parse_flags, parse_value

    options = engine.options(version)
    launch = take_apart(engine.launch, words)
    parsed = parse_flags(options, launch.flags, engine.ignored_flags)
    named = dict.fromkeys(w for w in (launch.model, *parsed.positional) if w)
    if len(named) > 1:
        extra = list(named)[1]
        raise BadInput(f"{extra!r} belongs to no flag", "after --", f"Write it with its flag, after {engine.launch[0]}")
    by_env = {o.env: o for o in options if o.env}
    values = {by_env[n].name: parse_value(by_env[n], v) for n, v in launch.environment.items() if n in by_env}
    ours = engine.name.upper() + "_"
    ignored = [n for n in launch.environment if n.startswith(ours) and n not in by_env]
    warnings = [f"{name} is not modelled: left out" for name in ignored]
    return {**values, **parsed.values}, next(iter(named), ""), (*parsed.warnings, *warnings)


def take_apart(launch: Sequence[str], words: Sequence[str]) -> Launch:
    """Separates environment, launcher and flags of what stands after "--": a whole command line or flags alone.

    Knows the launcher itself ("vllm serve M ..."), its module ("python -m vllm.… --model M") and its container
    ("docker run ... vllm/vllm-openai --model M ..."). One word with blanks is split as a shell would.
    """
    if len(words) == 1 and any(c.isspace() for c in words[0]):
        try:
            words = shlex.split(_CONTINUED.sub(" ", words[0]), comments=True)
        except ValueError as error:
            raise BadInput(f"the command line cannot be read: {error}", "after --", "Check its quotes") from error
    start = _flags_start(launch, words)
    before = words[:start]
    environment = dict(w.split("=", 1) for w in before if _ASSIGNMENT.fullmatch(w))
    flags, model = _without_model(words[start:]) if start else (tuple(words), "")
    return Launch(environment, model, flags)


def _flags_start(launch: Sequence[str], words: Sequence[str]) -> int:
    """Where the engine's own words begin: 0 when there is no launcher."""
    size, name = len(launch), launch[0]
    for index, word in enumerate(words):
        if PurePath(word).name == name and tuple(words[index + 1 : index + size]) == tuple(launch[1:]):
            return index + size
        if word == "-m" and index + 1 < len(words) and words[index + 1].split(".")[0] == name:
            return index + 2
        if f"{name}/{name}" in word and not word.startswith("-"):
            return index + 1
    return 0


def _without_model(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The words without --model, and its value."""
    flags: list[str] = []
    model = ""
    rest = iter(words)
    for word in rest:
        if word == "--model":
            model = next(rest, "")
        elif word.startswith("--model="):
            model = word.partition("=")[2]
        else:
            flags.append(word)
    return tuple(flags), model


def machine_of(text: str, local: Callable[[], Machine | None]) -> tuple[Machine, str, tuple[str, ...]]:
    """The machine that --gpu names, its words, and what to say when nothing was named.

    Without words: this machine's GPUs when they can be seen, else the start GPU. Raises UnknownName, BadInput.
    """
    from kvplanner.catalog import gpus

    if text and text.strip().lower() != LOCAL:
        return gpus.machine(text), text, ()
    seen = local()
    if seen is not None:
        said = () if text else (f"No --gpu was given: planned for this machine's {seen.describe()}",)
        return seen, LOCAL, said
    if text:
        raise BadInput("no NVIDIA GPU can be seen on this machine", "--gpu local", "Name a GPU, for example --gpu H100")
    said = (f"No --gpu was given and no NVIDIA GPU can be seen here: planned for one {START_GPU}",)
    return gpus.machine(START_GPU), START_GPU, said


def parse_load(text: str) -> Load:
    """Load from "32@1500+500". Raises BadInput."""
    match = _LOAD.fullmatch(text.strip())
    try:
        users, prompt, output = (parse_count(part) for part in match.groups()) if match else (0, 0, 0)
    except ValueError as error:
        raise BadInput(str(error), "--load") from error
    if users < 1 or prompt + output < 1:
        raise BadInput(
            f"{text!r} is not a load", "--load", "Write users@prompt+output in tokens, for example 32@1500+500"
        )
    return Load(users, prompt, output)


def parse_measured(items: Sequence[str]) -> dict[str, int]:
    """Bytes by segment kind from "activations=3GB", one or several with commas. Raises BadInput."""
    given: dict[str, int] = {}
    known = [kind for kind in SEGMENT_KINDS if kind not in ("driver_reserved", "headroom")]
    for item in _split(items):
        kind, equals, size = (part.strip() for part in item.partition("="))
        kind = kind.replace("-", "_")
        if not equals or kind not in known:
            raise BadInput(f"{item!r} is not KIND=SIZE", "--measured", f"KIND is one of {', '.join(known)}")
        given[kind] = _size(size, "--measured")
    return given


def with_free(machine: Machine, items: Sequence[str]) -> Machine:
    """The machine with what --free says is free: "70GiB" for each device, "0=70GiB" for one. Raises BadInput."""
    if not items:
        return machine
    free: dict[int, int] = {}
    for item in _split(items):
        index, equals, size = (part.strip() for part in item.rpartition("="))
        if equals and not (index.isascii() and index.isdecimal() and int(index) < len(machine.devices)):
            last = len(machine.devices) - 1
            raise BadInput(f"there is no GPU {index!r}", "--free", f"Write GPU=SIZE with a GPU from 0 to {last}")
        targets = [int(index)] if equals else range(len(machine.devices))
        free |= dict.fromkeys(targets, _size(size, "--free"))
    return replace(machine, devices=tuple(_free_devices(machine, free)))


def _free_devices(machine: Machine, free: Mapping[int, int]) -> Iterator[Device]:
    for position, device in enumerate(machine.devices):
        given = free.get(position)
        total = device.gpu.cuda_total
        if given is not None and total is not None and given > total.high:
            raise BadInput(
                f"{format_bytes(given)} free is more than {device.gpu.name} has ({format_bytes(total.value)})", "--free"
            )
        yield device if given is None else replace(device, free_bytes=given, free_source="--free")


def _split(items: Sequence[str]) -> Iterator[str]:
    for item in items:
        yield from (part for part in item.split(",") if part.strip())


def _size(text: str, flag: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadInput(str(error), flag) from error
