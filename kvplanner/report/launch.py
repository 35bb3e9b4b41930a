"""What starts a server as planned, to be copied: a shell line, containers, a service, or Python.

Only what the user set is written, and what the engine would not choose by itself on these GPUs. Everything is quoted
for where it stands: names and values may come from files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, Literal, get_args

from kvplanner.engine.command import AS_IF, NOT_SAID, OF_RELEASE, CommandWords, command_words
from kvplanner.engine.option import Option, OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.signature import Signature, signature
from kvplanner.errors import BadInput
from kvplanner.printable import printable
from kvplanner.record import NamedTuple
from kvplanner.report.facts import engine_title
from kvplanner.report.launch_nodes import on_nodes, through_ray
from kvplanner.report.nodes import memory_by_node
from kvplanner.report.options import option_label

Form = Literal["shell", "docker", "compose", "kubernetes", "systemd", "python", "modelfile", "nodes", "ray"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
TITLES: Final[dict[Form, str]] = {
    "shell": "Shell", "docker": "Docker", "compose": "Compose file", "kubernetes": "Kubernetes manifest",
    "systemd": "systemd unit", "python": "Python", "modelfile": "Model file",
    "nodes": "Several machines", "ray": "Ray cluster",
}  # fmt: skip

# Below a home: of the Hub, and of an engine that keeps its models itself.
_CACHE: Final = "/.cache/huggingface"
_STORE: Final = "/.ollama"
_MODELS: Final = "/models"
# What a server and an offline start choose differently (vLLM's defaults by usage context).
_BATCH: Final = ("step_tokens", "max_requests")
_TOKEN: Final = "HF_TOKEN"
# GPUs of a machine where nothing is said of it.
_USUAL_NODE: Final = 8
# Their image's tag tells the release.
_WITH_IMAGE: Final = ("docker", "compose", "kubernetes")
_DNS_LABEL: Final = 63
# Of a compose file's and a manifest's strings.
_SUPPLEMENTARY: Final = 0x10000


class _Launch(NamedTuple):
    """What every form is made of. gpus: how many the plan uses; path: of a local model, "" for a name.

    nodes: machines that the GPUs are of; held: what each holds.
    """

    request: PlanRequest
    signature: Signature
    words: CommandWords
    launch: tuple[str, ...]
    image: str
    gpus: int
    path: str
    remarks: tuple[str, ...]
    replicas: int = 1
    nodes: int = 1
    memory: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """What stands behind the container's image."""
        found = self.signature
        model = (found.container_model, self.model_inside) if found.container_model and self.words.model else ()
        return (*found.container_words, *model, *self.words.flags)

    @property
    def model_inside(self) -> str:
        """The model as a container opens it: a local one at its own path, a file that is only named below /models."""
        named = self.words.model[-1]
        return f"{_MODELS}/{named}" if self.only_named else named

    @property
    def only_named(self) -> bool:
        """Whether the model is a file of which only the name is known."""
        return bool(self.words.model) and self.words.model[-1].endswith(".gguf") and "/" not in self.words.model[-1]

    @property
    def folder(self) -> str:
        """The folder on this machine that holds the model, "" where there is none."""
        named = self.words.model[-1] if self.words.model else ""
        if named.endswith(".gguf") and not self.only_named:
            return str(PurePath(named).parent)
        return self.path

    @property
    def parallel(self) -> bool:
        """Whether processes share memory on the host."""
        return self.gpus > 1


def snippet(form: Form, plan: Plan, path: str = "", nodes: int = 0) -> str:
    """The text of a form; path: where a model on this machine lies, as the server is to open it.

    nodes: machines that the plan's GPUs are of, 0 for as few as hold them, 8 each. Raises BadInput where the engine
    cannot be started that way.
    """
    found = _launch(plan, path)
    if form in ("nodes", "ray"):
        count = nodes or -(-found.gpus // _USUAL_NODE)
        found = found._replace(nodes=count, memory=tuple(memory_by_node(plan, count)), replicas=plan.replicas)
    if form not in _WITH_IMAGE and plan.request.version:
        found = found._replace(remarks=(*found.remarks, f"{OF_RELEASE}{plan.request.version}"))
    placed = found.signature.modelfile if form == "modelfile" else ()
    if form == "python":
        declared = engine(plan.request.engine).options(plan.request.version)
        placed = tuple(option.name for option in declared if option.flags[0] in found.signature.python_flags)
        return _python(_as_served(found._replace(remarks=(*found.remarks, *_unsaid(plan, placed))), plan))
    return _FORMS[form](found._replace(remarks=(*found.remarks, *_unsaid(plan, placed))))


def started(plan: Plan) -> PlanRequest:
    """The request as a whole command line must state it.

    A plan spreads over all its GPUs by itself, a server does not: where it would choose otherwise, the plan's value is
    written out, and what it would choose anyway is not. Nor is a switch that is off and has no flag to say so.
    """
    request, chosen = plan.request, engine(plan.request.engine)
    switches = {o.name for o in chosen.options(request.version)
                if o.type == "bool" and not (o.negation or o.env or o.json or o.role == "caller")}  # fmt: skip
    options = {name: value for name, value in request.options.items() if value is not False or name not in switches}
    for name in tuple(options):
        others = {other: value for other, value in options.items() if other != name}
        if name in (alone := chosen.as_started(others, request.version)) and alone[name] == options[name]:
            options = others
    for name, value in chosen.as_started(options, request.version).items():
        resolved = plan.options.get(name)
        if name not in options and resolved is not None and resolved.value not in (None, value):
            options[name] = resolved.value
    return request._replace(options=options)


def _launch(plan: Plan, path: str) -> _Launch:
    request, found = started(plan), signature(plan.request.engine)
    if found is None:
        raise BadInput(f"it is not known how {engine_title(plan)} is started", "--launch", "Read its documentation")
    words = command_words(engine(request.engine), request, path)
    gpus = len(plan.gpus) or 1
    version = plan.engine_version if plan.engine_version.count(".") != 1 else f"{plan.engine_version}.0"
    image = found.container.format(version=version)
    return _Launch(request, found, words, engine(request.engine).launch, image, gpus, path, tuple(_remarks(plan)))


def _remarks(plan: Plan) -> Iterator[str]:
    """What the command cannot say."""
    request = plan.request
    if request.weight_format:
        yield f"{AS_IF}{request.weight_format}: name a repository that is"
    if plan.fits is False:
        yield "By the plan this does not start"


def _unsaid(plan: Plan, placed: Sequence[str]) -> Iterator[str]:
    """What was planned with and no command line says; placed: options that the form has places for."""
    for option in engine(plan.request.engine).options(plan.request.version):
        if option.role == "caller" and option.name in plan.request.options and option.name not in placed:
            yield f"{NOT_SAID}{option.flags[0]} {plan.request.options[option.name]} ({option_label(option)})"


def _as_served(found: _Launch, plan: Plan) -> _Launch:
    """With the batch sizes of the plan, where an offline start has others than the server that is planned."""
    declared = engine(plan.request.engine).options(plan.request.version)
    usage = [o for o in declared if o.flags[0] in found.signature.python_flags]
    if not usage or any(plan.request.options.get(o.name) not in (None, o.default) for o in usage):
        return found
    options = dict(found.request.options)
    for option in declared:
        value = plan.options[option.name].value if option.name in plan.options else None
        if option.role in _BATCH and value is not None:
            options.setdefault(option.name, value)
    return found._replace(request=found.request._replace(options=options))


def _commented(found: _Launch, text: str) -> str:
    return "".join(f"# {printable(remark)}\n" for remark in found.remarks) + text.rstrip() + "\n"


def _pairs(words: Sequence[str]) -> list[list[str]]:
    """Words by lines: each flag with its values."""
    lines: list[list[str]] = []
    for word in words:
        if lines and not word.startswith("-"):
            lines[-1].append(word)
        else:
            lines.append([word])
    return lines


def _quoted(lines: Sequence[Sequence[str]]) -> str:
    return " \\\n  ".join(" ".join(map(shlex.quote, line)) for line in lines)


def _shell(found: _Launch) -> str:
    return _commented(found, " \\\n  ".join(_command(found)))


def _command(found: _Launch) -> list[str]:
    """The shell command: what starts, then a flag with its values a line."""
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in found.words.environment.items())
    start = " ".join([*found.launch, *map(shlex.quote, found.words.model)])
    flags = (" ".join(map(shlex.quote, line)) for line in _pairs(found.words.flags))
    return [f"{environment} {start}".strip(), *flags]


def _nodes(found: _Launch) -> str:
    text = on_nodes(_command(found), found.signature, found.nodes, found.replicas, found.memory)
    return _commented(found, text)


def _ray(found: _Launch) -> str:
    return _commented(found, through_ray(_command(found), found.signature, found.nodes, found.memory))


def _ports(found: _Launch) -> str:
    return f"{found.signature.default_port}:{found.signature.default_port}"


def _volumes(found: _Launch, home: str) -> list[tuple[str, str]]:
    """What the container must see of the host: (there, here); a local model at its own path, for its command's sake."""
    if not found.words.model:
        return [(f"{home}{_STORE}", f"/root{_STORE}")]
    if found.folder:
        return [(found.folder, f"{found.folder}:ro")]
    if found.only_named:
        return [(f"{home}{_MODELS}", f"{_MODELS}:ro")]
    return [(f"{home}{_CACHE}", f"/root{_CACHE}")]


def _from_hub(found: _Launch) -> bool:
    return not found.folder and not found.only_named and bool(found.words.model)


def _need_image(found: _Launch) -> None:
    if not found.image:
        raise BadInput(f"no container image of {found.signature.title} is known", "--launch", "Use --launch shell")


def _docker(found: _Launch) -> str:
    _need_image(found)
    lines = ["docker run --rm --gpus all" + (" --ipc=host" if found.parallel else ""), f"-p {_ports(found)}"]
    for host, inside in _volumes(found, "$HOME"):
        lines.append(f'-v "{host}:{inside}"' if host.startswith("$HOME/") else f"-v {shlex.quote(f'{host}:{inside}')}")
    lines += [f"-e {_TOKEN}"] if _from_hub(found) else []
    lines += [f"-e {shlex.quote(f'{name}={value}')}" for name, value in found.words.environment.items()]
    lines.append(shlex.quote(found.image))
    text = " \\\n  ".join(lines)
    first = len(found.signature.container_words)
    arguments = [*([list(found.arguments[:first])] if first else []), *_pairs(found.arguments[first:])]
    return _commented(found, f"{text} \\\n  {_quoted(arguments)}" if arguments else text)


def yaml_text(text: str) -> str:
    """A string as YAML's double-quoted scalar: JSON's, but for what lies beyond 16 bits."""
    return f'"{"".join(map(_scalar, text))}"'


def _scalar(c: str) -> str:
    if ord(c) >= _SUPPLEMENTARY:
        return f"\\U{ord(c):08X}"
    return "\\x7f" if c == "\x7f" else json.dumps(c)[1:-1]


def _compose(found: _Launch) -> str:
    _need_image(found)

    def quoted(text: str) -> str:
        return yaml_text(text.replace("$", "$$"))  # compose puts variables in for a single one

    lines = ["services:", f"  {found.request.engine}:", f"    image: {quoted(found.image)}"]
    lines += ["    ipc: host"] if found.parallel else []
    lines += ["    ports:", f"      - {quoted(_ports(found))}"]
    volumes = [
        yaml_text(f"${{HOME}}{host.removeprefix('$HOME')}:{inside}") if host.startswith("$HOME/")
        else quoted(f"{host}:{inside}") for host, inside in _volumes(found, "$HOME")
    ]  # fmt: skip
    lines += ["    volumes:", *(f"      - {volume}" for volume in volumes)] if volumes else []
    environment = [f"      {quoted(name)}: {quoted(value)}" for name, value in found.words.environment.items()]
    if _from_hub(found):
        environment.append(f'      "{_TOKEN}": "${{{_TOKEN}:-}}"')
    lines += ["    environment:", *environment] if environment else []
    if found.arguments:
        lines += ["    command:", *(f"      - {quoted(word)}" for word in found.arguments)]
    lines += [
        "    deploy:", "      resources:", "        reservations:", "          devices:",
        "            - driver: nvidia", f"              count: {found.gpus}", "              capabilities: [gpu]",
    ]  # fmt: skip
    return _commented(found, "\n".join(lines))


def _dns_label(text: str) -> str:
    """A name that Kubernetes takes: lower-case letters, digits and dashes, beginning and ending with no dash."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return plain[:_DNS_LABEL].strip("-") or "server"


def _kubernetes(found: _Launch) -> str:
    _need_image(found)

    def quoted(text: str) -> str:
        return yaml_text(text.replace("$(", "$$("))  # a variable's place in arguments and values

    name = _dns_label(found.request.model.id.rpartition("/")[2])
    folder = _MODELS if found.only_named else found.folder
    mounts = [(folder, "model")] if folder else []
    mounts += [("/dev/shm", "shm")] if found.parallel else []
    lines = [
        "apiVersion: apps/v1", "kind: Deployment", "metadata:", f"  name: {yaml_text(name)}", "spec:", "  replicas: 1",
        "  selector:", "    matchLabels:", f"      app: {yaml_text(name)}", "  template:", "    metadata:",
        "      labels:", f"        app: {yaml_text(name)}", "    spec:", "      containers:",
        f"        - name: {found.request.engine}", f"          image: {quoted(found.image)}",
    ]  # fmt: skip
    # The words of an image without an entry point of its own are its command.
    program = 3 if found.signature.container_words[:1] == ("python3",) else 0
    for title, words in (("command", found.arguments[:program]), ("args", found.arguments[program:])):
        lines += [f"          {title}:", *(f"            - {quoted(word)}" for word in words)] if words else []
    if found.words.environment:
        lines.append("          env:")
        for variable, value in found.words.environment.items():
            lines += [f"            - name: {quoted(variable)}", f"              value: {quoted(value)}"]
    lines += [
        "          ports:", f"            - containerPort: {found.signature.default_port}", "          resources:",
        "            limits:", f"              nvidia.com/gpu: {found.gpus}",
    ]  # fmt: skip
    if mounts:
        lines.append("          volumeMounts:")
        for place, volume in mounts:
            lines += [f"            - name: {volume}", f"              mountPath: {yaml_text(place)}"]
        lines.append("      volumes:")
        for place, volume in mounts:
            lines.append(f"        - name: {volume}")
            lines += (
                ["          emptyDir:", "            medium: Memory"] if volume == "shm"
                else ["          hostPath:", f"            path: {yaml_text(place)}"]
            )  # fmt: skip
    return _commented(found, "\n".join(lines))


def unit_word(word: str) -> str:
    """A word of a systemd command line or an assignment: quoted where needed, no specifier and no variable in it."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and all(c.isalnum() or c in "-_./:=,@+%$" for c in plain):
        return plain
    escaped = (
        f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else f"\\{c}" if c in '\\"' else c for c in plain
    )  # fmt: skip
    return f'"{"".join(escaped)}"'


def _systemd(found: _Launch) -> str:
    words = (*found.launch, *found.words.model, *found.words.flags)
    title = printable(f"{found.signature.title}: {found.words.model[-1] if found.words.model else 'models on request'}")
    # An assignment has no variables to put in, only specifiers.
    environment = [
        f"Environment={unit_word(f'{name}={value}').replace('$$', '$')}"
        for name, value in found.words.environment.items()
    ]
    lines = [
        "[Unit]", f"Description={title.replace('%', '%%')}", "After=network-online.target",
        "Wants=network-online.target", "", "[Service]", *environment,
        f"ExecStart=/usr/bin/env {' '.join(map(unit_word, words))}", "Restart=on-failure", "", "[Install]",
        "WantedBy=multi-user.target",
    ]  # fmt: skip
    return _commented(found, "\n".join(lines))


def _python(found: _Launch) -> str:
    if found.signature.python is None:
        raise BadInput(f"{found.signature.title} is not started from Python", "--launch", "Use --launch shell")
    module, name, model = found.signature.python
    arguments: dict[str, object] = {model: found.words.model[-1]}
    options = engine(found.request.engine).options(found.request.version)
    for option in options:
        value = found.request.options.get(option.name)
        if value is None or option.role == "caller" or option.env:
            continue
        if option.role == "draft" and found.request.draft is not None:
            value = found.request.draft.id
        if option.json:
            parent, key = option.json.split(".", 1)
            inner = arguments.setdefault(parent, {})
            if isinstance(inner, dict):
                inner[key] = _python_value(option, value)
        else:
            arguments[option.name] = _python_value(option, value)
    lines = _environment(found.words.environment)
    lines += [f"from {module} import {name}", "", f"engine = {name}("]
    lines += [*(f"    {key}={value!r}," for key, value in arguments.items()), ")"]
    return _commented(found, "\n".join(lines))


def _environment(environment: Mapping[str, str]) -> list[str]:
    if not environment:
        return []
    return ["import os", "", *(f"os.environ[{name!r}] = {value!r}" for name, value in environment.items()), ""]


def _python_value(option: Option, value: OptionValue) -> object:
    """As the argument is typed: lists and objects are no text there."""
    if option.many:
        parts = [part for part in str(value).replace(",", " ").split() if part]
        return [int(part) if part.lstrip("-").isdecimal() and len(part) < 20 else part for part in parts]
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            found: object = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found
    return value


def _modelfile(found: _Launch) -> str:
    if not found.signature.modelfile:
        raise BadInput(f"{found.signature.title} has no model files", "--launch", "Use --launch shell")
    model = found.request.model
    stored = model.source_kind == "ollama"
    named = found.path or (model.id if stored else f"./{model.id.rpartition('/')[2].removesuffix('.gguf')}.gguf")
    options = found.request.options
    lines = [f"# Of the service: {name}={value}" for name, value in found.words.environment.items()
             if name not in _set_there(found)]  # fmt: skip
    lines.append(f"FROM {printable(named)}")
    lines += [f"PARAMETER {name} {options[name]}" for name in found.signature.modelfile if name in options]
    return _commented(found, "\n".join(lines))


def _set_there(found: _Launch) -> set[str]:
    """Variables of the service whose options a model file sets."""
    declared = engine(found.request.engine).options(found.request.version)
    return {option.env for option in declared if option.name in found.signature.modelfile}


_FORMS: Final = {
    "shell": _shell, "docker": _docker, "compose": _compose, "kubernetes": _kubernetes, "systemd": _systemd,
    "python": _python, "modelfile": _modelfile, "nodes": _nodes, "ray": _ray,
}  # fmt: skip
