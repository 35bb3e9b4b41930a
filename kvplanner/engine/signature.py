"""How each engine's server is started and looks among processes: data of the engines' packages, read in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from kvplanner.record import NamedTuple

_PROGRAM_SUFFIXES: Final = (".exe", ".py")
_INTERPRETER: Final = "-m"


class Program(NamedTuple):
    """Another command of an engine's that loads a model as its server would.

    command: its pattern, as in Signature.commands. words: those of a server that does the same; its own flags win.
    talks: what follows the model is a prompt.
    dropped, switches: flags that size nothing, with and without a value. listed: flags may list several values, of
    which the largest counts. as_words: spellings of a flag, a value, and the words of a server for it. tests: flags
    with their usual values, of which the largest is the context; pairs: flags whose two values count together;
    depth: flags that add to it. serves: it is a server of its own kind, at this port. renamed: its flags, with the
    server's for each; joined: those of which several words follow; toggles: those with yes or no, and the server's
    words for either. variables: a variable called as a flag, in capitals, stands for it. of_repository: the flag that
    names a repository, the one that then names a file of it by a pattern, and the server's for that. beside: a pattern
    that one of the words behind a command must match whose name alone says little, "" for none.
    """

    command: tuple[str, ...]
    words: tuple[str, ...] = ()
    talks: bool = False
    dropped: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    listed: bool = False
    as_words: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = ()
    tests: tuple[tuple[tuple[str, ...], int], ...] = ()
    pairs: tuple[str, ...] = ()
    depth: tuple[str, ...] = ()
    serves: bool = False
    port: int = 0
    renamed: tuple[tuple[str, str], ...] = ()
    joined: tuple[str, ...] = ()
    toggles: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    variables: bool = False
    of_repository: tuple[str, str, str] = ("", "", "")
    beside: str = ""


class Signature(NamedTuple):
    """One engine's.

    commands: patterns (regular expressions, full match) for consecutive words of a command line that starts a server;
    programs are matched by base name without ".exe". titles: patterns for the title that a child gives itself.
    model_flags: flags that name the model; model_positional: whether the first word after `commands` that is no flag
    names it; names_model: whether the command that starts a server names one at all. packages: distributions whose
    installed version is the engine's version. planned: whether it can be planned. launch: the usual words that start a
    server. images: patterns of container images, without their tag. container: the usual image, with {version} in its
    tag; container_words: what stands between it and the model; container_model: the flag that names the model there.
    modelfile: options that its model files set. python: the class that an offline start makes and its argument for
    the model, as "module", "Class", "argument"; python_flags: that stand for being started so; python_also: further
    classes that take a server's arguments. model_env: variables that name the model. nodes_flag: the one that tells
    how many machines share the server. node_flags: flags and values of each machine, with {nodes} and {node} in them
    and $HEAD for the first one's address; replica_flags: the same where whole replicas are spread, with {local} and
    {first}; node_worker: of all but the first; ray_flags: of a server on a Ray cluster. programs: other commands that
    load a model. store: what names of its own store begin with here. repo_flags: flags that name a repository of
    model files; repo_file_flags: a file of it; repo_env, repo_file_env: variables that do. presets: flags that stand
    for a model and its settings, with the words that they stand for. kin: a pattern for the engine's other programs,
    which load no model as a server does. env_prefixes: how the engine's variables begin.
    child_options: options of the server that it starts for each model, with its own that came to them; child_share: of
    these the one that the server's counts for all requests together, and the one that says how many. usual: methods of
    quantisation that it is the usual engine of; files: how the names of such files end.
    """

    engine: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    titles: tuple[str, ...] = ()
    model_flags: tuple[str, ...] = ()
    model_positional: bool = False
    default_port: int = 0
    packages: tuple[str, ...] = ()
    planned: bool = False
    launch: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    names_model: bool = True
    container: str = ""
    container_words: tuple[str, ...] = ()
    container_model: str = ""
    modelfile: tuple[str, ...] = ()
    python: tuple[str, str, str] | None = None
    python_flags: tuple[str, ...] = ()
    python_also: tuple[str, ...] = ()
    model_env: tuple[str, ...] = ()
    nodes_flag: str = ""
    node_flags: tuple[tuple[str, str], ...] = ()
    node_worker: tuple[str, ...] = ()
    replica_flags: tuple[tuple[str, str], ...] = ()
    ray_flags: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    store: str = ""
    repo_flags: tuple[str, ...] = ()
    repo_file_flags: tuple[str, ...] = ()
    repo_env: tuple[str, ...] = ()
    repo_file_env: tuple[str, ...] = ()
    presets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    kin: str = ""
    env_prefixes: tuple[str, ...] = ()
    child_options: tuple[tuple[str, str], ...] = ()
    child_share: tuple[str, str] = ("", "")
    usual: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures, those of planned engines first. Ollama starts llama-server too, so it comes before that one."""
    from kvplanner.engine import registry

    planned = [_signature(fields) for fields in registry.signatures()]
    return tuple(sorted(planned, key=lambda found: found.engine != "ollama"))


def _signature(fields: Mapping[str, object]) -> Signature:
    programs: Any = fields.get("programs", ())
    found: Any = {**fields, "programs": tuple(Program(**program) for program in programs)}
    return Signature(**found)


def signature(engine: str) -> Signature | None:
    """The signature of an engine, None when it has none."""
    return next((s for s in signatures() if s.engine == engine), None)


def command_end(words: Sequence[str], pattern: Sequence[str], start: int) -> int | None:
    """Where the words after a command's pattern begin when it stands at `start`, None when it does not."""
    found = words[start : start + len(pattern)]
    if len(found) < len(pattern):
        return None
    first = found[0] if pattern[0] == _INTERPRETER else base_name(found[0])
    if all(re.fullmatch(p, w) for p, w in zip(pattern, (first, *found[1:]), strict=True)):
        return start + len(pattern)
    return None


def base_name(word: str) -> str:
    """A program's name without its folder and ending."""
    base = word.replace("\\", "/").rsplit("/", 1)[-1]
    for suffix in _PROGRAM_SUFFIXES:
        base = base.removesuffix(suffix)
    return base


class Start(NamedTuple):
    """Where an engine's own words begin: behind its launcher, or behind its image, whose tag is `tag`.

    program: the other command of the engine's that stands there, None for its server.
    """

    signature: Signature
    at: int
    tag: str = ""
    image: bool = False
    program: Program | None = None


_IMAGE: Final = r"(?:[^/\s][^\s]*/)?{}(?::([\w.-]+))?(?:@\S+)?"


def launchers(found: Signature) -> tuple[tuple[str, ...], ...]:
    """The patterns of all commands of an engine's that load a model: its servers', then its other programs'.

    Not of those whose name alone says little.
    """
    return (*found.commands, *(program.command for program in found.programs if not program.beside))


@cache
def _beginnings() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What the first word of any launcher looks like by its program's name, as a whole, and as a container's image."""
    first = [pattern[0] for found in signatures() for pattern in launchers(found)]
    first += [program.command[0] for found in signatures() for program in found.programs if program.beside]
    names = [word for word in first if word != _INTERPRETER]
    images = [_IMAGE.format(image) for found in signatures() for image in found.images]
    return re.compile("|".join(f"(?:{n})" for n in names)), re.compile(_INTERPRETER), re.compile("|".join(images))


_NEAR: Final = 64  # words behind a command's name among which those that tell what it is are looked for


def _is_there(program: Program, words: Sequence[str], end: int) -> bool:
    """Whether what stands behind a program's name is what it alone has."""
    near = words[end : end + _NEAR]
    return not program.beside or any(re.fullmatch(program.beside, word) for word in near)


def start_of(words: Sequence[str]) -> Start | None:
    """The first launcher, module or container of an engine among the words."""
    names, whole, images = _beginnings()
    for index, word in enumerate(words):
        if not names.fullmatch(base_name(word)) and not whole.fullmatch(word) and not images.fullmatch(word):
            continue  # most words, of what may be a hundred thousand
        for found in signatures():
            for pattern in found.commands:
                if (end := command_end(words, pattern, index)) is not None:
                    return Start(found, end)
            for program in found.programs:
                if (end := command_end(words, program.command, index)) is not None and _is_there(program, words, end):
                    return Start(found, end, program=program)
            for image in () if word.startswith("-") else found.images:
                named = re.fullmatch(_IMAGE.format(image), word)
                if named:
                    return Start(found, index + 1, named[1] or "", image=True)
    return None
