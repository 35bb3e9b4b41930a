"""From a running engine to a plan: its command line's flags, its model and the GPUs that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlunsplit

from kvplanner.engine.option import Option, OptionValue
from kvplanner.errors import BadInput, NotModelled
from kvplanner.gpu.spec import Device, Machine
from kvplanner.observe.machine import device_of, plannable, with_driver
from kvplanner.observe.overlay import engine_bytes
from kvplanner.observe.processes import installed_version
from kvplanner.observe.signatures import Recognised, Signature, recognise, signature
from kvplanner.observe.snapshot import EngineSeen, GpuSample, Snapshot
from kvplanner.observe.visible import visible
from kvplanner.reading import file_size, is_there
from kvplanner.record import NamedTuple

_MOST_WORDS = 2_000
_DIGITS = 10
_LOOPBACK = "127.0.0.1"
_ANY = frozenset({"0.0.0.0", "::", "", "localhost", "[::]"})  # read from a flag, not bound


class EngineLaunch(NamedTuple):
    """A running engine as a plan: everything that its command line and its environment say.

    model: as the engine got it, made absolute where it is an existing folder or file. machine: its GPUs with what
    was free before it started; None when it uses none that can be planned for. version: of the installed package,
    "" when it cannot be told. address: where its metrics may be read, "" when unknown. unasked: the flags and variables
    of one whose model is a repository's, which may be loaded with more than they name; None for any other.
    """

    seen: EngineSeen
    model: str
    options: dict[str, OptionValue]
    machine: Machine | None
    version: str = ""
    address: str = ""
    warnings: tuple[str, ...] = ()
    unasked: frozenset[str] | None = None


def launch_of(seen: EngineSeen, snapshot: Snapshot) -> EngineLaunch:
    """Reads a running engine's start. Raises NotModelled for engines that are not planned, BadInput for bad flags."""
    from kvplanner.engine import registry, repository
    from kvplanner.engine.beside import files_beside
    from kvplanner.engine.command import parse_flags
    from kvplanner.engine.environment import values_of

    kind = signature(seen.engine)
    found = recognise(seen.command)
    if kind is None or not kind.planned:
        raise NotModelled(f"{seen.title} is recognised but cannot be planned yet", f"process {seen.pid}",
                          f"Only {_planned_titles()} servers can")  # fmt: skip
    if found is None or not found.server:
        raise BadInput(
            "only this engine's inner processes can be seen, not the command that started it",
            f"process {seen.pid}", "Open the plan from the command line itself",
        )  # fmt: skip
    engine = registry.engine(seen.engine)
    environment, folder, programs = _surroundings(seen.pid)
    root = other_root(seen.pid)
    version = next((v for p in programs if (v := installed_version(_below(root, p), kind.packages))), "")
    options, rules = engine.options(), engine.ignored_flags()
    found = found._replace(rest=found.with_variables(environment))
    words, of_hub = repository.of_hub(kind, tuple(repository.presets(kind, found.rest)), environment)
    beside = files_beside(words, environment, rules, lambda path: file_size(Path(_absolute(path, folder, root))))
    for flag, path in beside.missing.items():
        raise BadInput(f"{flag} {path} cannot be seen from here", f"process {seen.pid}", rules[flag].remedy)
    flags = parse_flags(options, beside.words, rules)
    set_there = {name: value for name, value in environment.items() if value}
    values, positional = values_of(options, set_there) | beside.sizes | flags.values, list(flags.positional)
    model = str(values.pop("model", "") or (positional.pop(0) if positional and kind.model_positional else ""))
    named_there = next((environment[name] for name in kind.model_env if environment.get(name)), "")
    model = model or model_word(found) or named_there or of_hub
    warnings = list(flags.warnings)
    if not model and not kind.names_model:
        loaded = _loaded(seen.pid)
        if loaded:
            model, values = model_word(loaded[0]), {**values, **_of_child(kind, engine.options(), loaded[0])}
        if len(loaded) > 1:
            warnings.append(f"{len(loaded)} models are loaded: the first one is planned")
    machine, note = machine_of(seen, snapshot, environment)
    if note:
        warnings.append(note)
    if not model:
        warnings.append("the command line names no model: the engine's own default is used")
    return EngineLaunch(
        seen, _absolute(model, folder, root), engine.as_started(values), machine,
        version, address_of(seen), tuple(warnings),
        unasked=frozenset((*words, *set_there)) if model and model == of_hub else None,
    )  # fmt: skip


def _loaded(pid: int) -> list[Recognised]:
    """The servers that an engine started for its models, the oldest first."""
    import psutil

    found: list[Recognised] = []
    try:
        children = sorted(psutil.Process(pid).children(recursive=True), key=lambda child: child.pid)
    except psutil.Error:
        return []
    for child in children:
        with suppress(psutil.Error, OSError):
            command = recognise(child.cmdline()[:_MOST_WORDS])
            if command is not None and command.server and model_word(command):
                found.append(command)
    return found


def _of_child(kind: Signature, options: Sequence[Option], child: Recognised) -> dict[str, OptionValue]:
    """What an engine gave the server of a model, as its own options."""
    from kvplanner.engine import registry
    from kvplanner.engine.command import parse_flags
    from kvplanner.engine.values import check_value

    server = registry.engine(child.signature.engine)
    try:
        given = parse_flags(server.options(), child.rest, server.ignored_flags()).values
    except BadInput:
        return {}
    declared = {option.name: option for option in options}
    found: dict[str, OptionValue] = {}
    for theirs, own in kind.child_options:
        value = given.get(theirs)
        if isinstance(value, str) and declared[own].type != "choice":
            value = int(value) if value.isdecimal() and len(value) < _DIGITS else None
        with suppress(BadInput):
            if value is not None:
                found[own] = check_value(declared[own], value)
    whole, count = (found.get(name) for name in kind.child_share)
    if isinstance(whole, int) and isinstance(count, int) and count > 0:
        found[kind.child_share[0]] = whole // count
    return found


def _planned_titles() -> str:
    """The engines whose servers become a plan: "vLLM" or "vLLM and SGLang"."""
    from kvplanner.engine import registry

    titles = [title for _, title in registry.titles()]
    return " and ".join(filter(None, (", ".join(titles[:-1]), titles[-1])))


def model_word(found: Recognised) -> str:
    """The model as the command line names it, "" when it does not."""
    words = found.rest
    for i, word in enumerate(words):
        name, _, inline = word.partition("=")
        if name in (*found.signature.model_flags, *found.signature.repo_flags):
            return inline or (words[i + 1] if i + 1 < len(words) else "")
    if found.signature.model_positional and words and not words[0].startswith("-"):
        return words[0]
    return ""


def address_of(seen: EngineSeen) -> str:
    """The address that this engine listens on as its command line says, with loopback for "all interfaces"."""
    kind, found = signature(seen.engine), recognise(seen.command)
    if kind is None or found is None or not found.server or not kind.default_port:
        return ""
    host, port = _flag(found, "--host") or _LOOPBACK, _flag(found, "--port")
    port = port or str(found.program.port if found.program is not None else kind.default_port)
    if not port.isdecimal():
        return ""
    host = _LOOPBACK if host in _ANY else host
    return urlunsplit(("http", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "", "", ""))


def _flag(found: Recognised, flag: str) -> str:
    words, value = found.rest, ""
    for i, word in enumerate(words):
        name, _, inline = word.partition("=")
        if name == flag:  # the last one counts
            value = inline or (words[i + 1] if i + 1 < len(words) else "")
    return value


def machine_of(seen: EngineSeen, snapshot: Snapshot, environment: dict[str, str]) -> tuple[Machine | None, str]:
    """The GPUs that an engine uses, free memory as it was before the engine; and what is not sure.

    GPUs on which its processes hold memory come first; without any, those that CUDA_VISIBLE_DEVICES leaves it.
    """
    used = [g for g in snapshot.gpus if plannable(g) and any(p.root_pid == seen.pid for p in g.processes or ())]
    note = ""
    if not used:
        usable = [g for g in snapshot.gpus if plannable(g)]
        shown = visible(usable, environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER", ""))
        used, note = list(shown.gpus), shown.note
    devices = tuple(_before(g, seen.pid, snapshot.wall, i) for i, g in enumerate(used))
    return (with_driver(devices, snapshot) if devices else None), note


def _before(gpu: GpuSample, root_pid: int, wall: float, index: int) -> Device:
    """A device with what was free before the engine: its own memory counts as free."""
    device = device_of(gpu, wall, index)
    mine = engine_bytes(gpu, root_pid).value
    if device.free_bytes is None or not mine:
        return device
    return device._replace(
        free_bytes=device.free_bytes + mine, free_source=f"{device.free_source}, without this engine"
    )


def _surroundings(pid: int) -> tuple[dict[str, str], Path | None, list[Path]]:
    """Environment, working folder and programs (interpreter, script) of a process, as far as they may be read."""
    import psutil

    try:
        process = psutil.Process(pid)
        command = process.cmdline()
    except (psutil.Error, OSError):
        return {}, None, []
    environment: dict[str, str] = {}
    folder: Path | None = None
    with suppress(psutil.Error, OSError):
        environment = dict(process.environ())
        folder = Path(process.cwd())
    programs = [Path(word) for word in command[:2] if "/bin/" in word or "\\Scripts\\" in word]
    return environment, folder, programs


def other_root(pid: int) -> Path | None:
    """Where the file system of a process in another container is seen from here; None when it has this one's."""
    process = Path(f"/proc/{pid}")
    try:
        if (process / "ns" / "mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
            return process / "root"
    except OSError:  # no such process, not Linux, or another user's
        pass
    return None


def _below(root: Path | None, path: Path) -> Path:
    return path if root is None else root / path.relative_to(path.anchor)


def _absolute(model: str, folder: Path | None, root: Path | None) -> str:
    """The model as a path that can be opened here, where it is one; else as it stands."""
    if not model or (folder is None and not Path(model).is_absolute()):
        return model
    candidate = _below(root, (folder or Path()) / model)
    return str(candidate) if is_there(candidate) else model
