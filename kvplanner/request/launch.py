"""A whole command line taken apart: its environment, the launcher or container, the model, the engine's own flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from kvplanner.engine import repository
from kvplanner.engine.programs import as_server, variables_of
from kvplanner.engine.signature import Signature, base_name, command_end, signatures, start_of
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device, Machine
from kvplanner.record import NamedTuple
from kvplanner.request.pasted import has_launcher, read

_WHERE: Final = "after --"
_PYTHON: Final = r"(?:.*/)?python[\d.]*"
_SEVERAL: Final = re.compile(r"[\s(]")  # blanks between words, or a call
_ASSIGNMENT: Final = r"(?s)[A-Za-z_][A-Za-z0-9_]*=.*"
_ENVIRONMENT_FLAG: Final = r"(?:--env=|-e)(?=[A-Za-z_][A-Za-z0-9_]*=)"
_DOCKER_DEVICES: Final = r"""["']?device=([\w,-]+)["']?"""
_ENDS: Final = frozenset({"|", "||", "|&", "&&", ";", "&"})
_REDIRECT: Final = r"(?s)(?:\d*|&)(?:>>?|<)(?:\||&)?(.*)"
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_ALL: Final = frozenset({"all", "void", "none", ""})
_MAX_DIGITS: Final = 4
_FIRST: Final = 8  # words among which a program stands
_COMMAND: Final = r"[a-z]+(?:-[a-z]+)*"


class Launch(NamedTuple):
    """A command line taken apart: environment of the engine, the model it names ("" when none), its flags.

    engine: the one whose launcher stands in it, so that what it leaves out has that engine's defaults; "" for flags
    alone. version: of the container's tag, else of the text's
    remarks, "" when neither tells one. kind: of the text, "" for words. weight_format: that
    the text's remarks tell. servers: how many the text starts; this is the first. store: what stands before a name of
    the engine's own store here, where the model is named so. repository: it names a repository of model files.
    """

    environment: dict[str, str]
    model: str
    flags: tuple[str, ...]
    engine: str = ""
    version: str = ""
    kind: str = ""
    weight_format: str = ""
    servers: int = 1
    store: str = ""
    repository: bool = False

    @property
    def launched(self) -> bool:
        """Whether it is a whole command line."""
        return bool(self.engine)


def take_apart(words: Sequence[str]) -> Launch:
    """Separates environment, launcher and flags of what stands after "--": a whole command line or flags alone.

    Knows each engine's launcher ("vllm serve M ..."), its module ("python -m vllm.… --model M") and its container
    ("docker run ... vllm/vllm-openai --model M ..."). One word with blanks is split as a shell would, and what a
    shell keeps for itself (pipes, redirections, "&") is left out. Raises BadInput for quotes that do not close and for
    another command of the engine's.
    """
    kind = weight_format = release = ""
    count = 1
    if len(words) > 1 and has_launcher(words[0]):  # more of a command that is held together by quotes
        words = (f"{words[0]} {shlex.join(words[1:])}",)
    if len(words) == 1 and _SEVERAL.search(words[0]):
        text = read(words[0])
        words, kind, weight_format, count = text.words, text.kind, text.weight_format, len(text.servers)
        release = text.version
    found = start_of(words)
    if found is None:
        refuse_other_command(words, _WHERE)
        set_first = next((at for at, word in enumerate(words) if not re.fullmatch(_ASSIGNMENT, word)), len(words))
        return Launch(
            dict(_environment(words[:set_first])), "", tuple(_without_shell(words[set_first:])), version=release,
            kind=kind, weight_format=weight_format,
        )  # fmt: skip
    at = _after_image(found.signature, words, found.at) if found.image else found.at
    environment = dict(_environment(words[: found.at]))
    rest = tuple(repository.presets(found.signature, tuple(_without_shell(words[at:]))))
    named = ""
    if found.program is not None:
        named, rest = as_server(found.program, (*variables_of(found.program, environment), *rest))
    flags, model = _without_model(rest, found.signature.model_flags)
    model = model or next((environment[name] for name in found.signature.model_env if environment.get(name)), "")
    flags, of_hub = repository.of_hub(found.signature, flags, environment)
    version = _version(found.tag) or release
    return Launch(
        environment, model or named or of_hub, flags, found.signature.engine, version, kind, weight_format, count,
        store=found.signature.store, repository=bool(of_hub and not model and not named),
    )  # fmt: skip


def refuse_other_command(words: Sequence[str], where: str) -> None:
    """Raises BadInput for a command of an engine's that starts no server, such as "vllm bench throughput"."""
    known = signatures()
    for word in words[:_FIRST]:
        title = next((found.launch[0] for found in known if found.kin and re.fullmatch(found.kin, base_name(word))), "")
        if title:
            raise BadInput(f"{base_name(word)} starts no server", where,
                           f"Write -- {title} and the flags that a server would have")  # fmt: skip
    launches = [found.launch for found in known if len(found.launch) > 1]
    for word, following in pairwise(words):
        for launch in launches:
            if (
                launch[0] in word
                and PurePath(word).name == launch[0]
                and following not in launch
                and re.fullmatch(_COMMAND, following)
            ):
                raise BadInput(
                    f"{launch[0]} {following} starts no server", where,
                    f"Write -- {' '.join(launch)} MODEL and the flags that a server would have",
                )  # fmt: skip


def _after_image(found: Signature, words: Sequence[str], start: int) -> int:
    """Behind a launcher that is repeated after the image, whole or without its first word (an --entrypoint)."""
    interpreter = start < len(words) and re.fullmatch(_PYTHON, words[start]) is not None
    for pattern in found.commands:
        if (end := command_end(words, pattern, start + interpreter)) is not None:
            return end
    rest = found.launch[1:]
    return start + len(rest) if rest and tuple(words[start : start + len(rest)]) == rest else start


def _version(tag: str) -> str:
    """The release or build that a tag names: "v0.33.0", "0.30.0-rocm", "server-cuda-b9500"."""
    match = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", tag) or re.search(r"(?:^|-)(b\d{3,6})$", tag)
    return match[1] if match else ""


def _environment(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the words before the engine's own set: assignments, docker's -e and --env, the devices of its --gpus."""
    for index, word in enumerate(words):
        plain = re.sub(_ENVIRONMENT_FLAG, "", word).rstrip(";")
        if re.fullmatch(_ASSIGNMENT, plain):
            name, value = plain.split("=", 1)
            yield name, value
        flag, _, inline = word.partition("=")
        if flag == "--gpus":
            devices = re.fullmatch(_DOCKER_DEVICES, inline or (words[index + 1] if index + 1 < len(words) else ""))
            if devices:
                yield _VISIBLE[1], devices[1]


def _without_shell(words: Sequence[str]) -> Iterator[str]:
    """The words up to a pipe or the command's end, without redirections and lone continuation marks."""
    rest = iter(words)
    for word in rest:
        if word in _ENDS:
            return
        redirect = re.fullmatch(_REDIRECT, word)
        if redirect:
            if not redirect[1]:
                next(rest, "")
            continue
        if word.strip() in ("\\", "") and word:
            continue
        if word.endswith(";") and len(word) > 1:
            yield word[:-1]
            return
        yield word


def _without_model(words: Sequence[str], model_flags: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The words without the flag that names the model, and its value."""
    flags: list[str] = []
    model = ""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in model_flags:
            model = value if equals else next(rest, "")
        else:
            flags.append(word)
    return tuple(flags), model


def visible(machine: Machine, environment: Mapping[str, str]) -> Machine:
    """The machine as CUDA_VISIBLE_DEVICES (or docker's devices) shows it to the engine.

    Entries are indices or the beginnings of UUIDs. As many alike GPUs as there are entries are taken for those that
    are meant, whatever their indices. Raises BadInput for other devices that the machine does not have.
    """
    for name in _VISIBLE:
        text = environment.get(name)
        if text is not None and not (name == _VISIBLE[1] and text.lower() in _ALL):
            machine = _shown(machine, name, text)
    return machine


def _shown(machine: Machine, name: str, text: str) -> Machine:
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries or entries == ["-1"]:
        raise BadInput(f"{name}={text} hides every GPU", _WHERE, "Leave it out, or name GPUs")
    found = [_device(machine, entry) for entry in entries]
    devices = [device for device in found if device is not None]
    if len(devices) < len(found) or len(set(entries)) < len(entries):
        alike = len({device.gpu for device in machine.devices}) == 1
        if alike and len(entries) == len(machine.devices) == len(set(entries)):
            return machine
        raise BadInput(
            f"{name}={text[:60]} names GPUs that are not among the {len(machine.devices)} given", _WHERE,
            "Name all GPUs of the machine with --gpu, or leave it out",
        )  # fmt: skip
    return machine._replace(devices=tuple(device._replace(index=i) for i, device in enumerate(devices)))


def _device(machine: Machine, entry: str) -> Device | None:
    if entry.isascii() and entry.isdecimal():
        index = int(entry) if len(entry) <= _MAX_DIGITS else len(machine.devices)
        return machine.devices[index] if index < len(machine.devices) else None
    named = [device for device in machine.devices if device.uuid and device.uuid.lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None
