"""A text that starts a server, whatever its form, as the words of its command.

A shell command, a compose file, a Kubernetes manifest, a call in Python, a systemd unit, a Dockerfile, a model file or
an environment. The texts come from anywhere: they are read, never run, and read in bounded time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from kvplanner.engine.command import AS_IF, NOT_SAID, OF_RELEASE
from kvplanner.engine.signature import Signature, base_name, signatures, start_of
from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple
from kvplanner.request.shell import Text, shell_text, split_words

MOST: Final = 1 << 18
WHERE: Final = "what was pasted"
# Words of one server: its environment as assignments, then what starts it.
Words = tuple[str, ...]

# How lines of logs begin: a level behind a process's or a container's tag, a time, a line of JSON, llama.cpp's parts.
_LEVEL: Final = re.compile(
    r"^(?:(?:[\w.-]{1,60}[ \t]{1,20}\||│)[ \t])?(?:b['\"])?(?:"  # Compose's name, a frame; Python's literal
    r"(?:\x1b\[[\d;]{0,9}m){0,3}(?:\([^)\n]{1,60}\)|\[[^\]\n]{1,60}\])?(?:\x1b\[[\d;]{0,9}m){0,3} ?"
    r"(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\b[ :]"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d|time=\S{1,60} level="
    r"|(?:\[[^\]\n]{1,60}\] ?){0,3}\d+\.\d\d\.\d{3}\.\d{3} [A-Z] "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} [\w.@/-]{1,60}(?:\[\d{1,9}\])?: |MESSAGE: ?\[\d"  # a journal's
    r"|\{\"(?:asctime|timestamp|time|level|levelname|type|__REALTIME_TIMESTAMP|__CURSOR|MESSAGE)\": ?"
    r"|(?:llama_|ggml_|load_tensors:|load_backend:|srv |slot |print_info:|main: )|Traceback \(most recent)",
    re.MULTILINE,
)
_LOG_LINES: Final = 2
_LONGEST_LINE: Final = 1 << 13
# Blanks of one line only, and one run of them in a place: what may match a run in two ways takes its square.
_EXEC: Final = re.compile(r"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)
_FROM: Final = re.compile(r"^[ \t]*FROM[ \t]+(?!\S+[ \t]+import\b)\S", re.MULTILINE | re.IGNORECASE)
_PARAMETER: Final = re.compile(r"^[ \t]*PARAMETER[ \t]+(\w+)[ \t]+(\S+)[ \t\r]*$", re.MULTILINE | re.IGNORECASE)
_QUOTED_BLOCK: Final = re.compile(r'"""[^"]*(?:"{1,2}[^"]+)*(?:"""|\Z)')
_FROM_LINE: Final = re.compile(r"^[ \t]*FROM[ \t]+(\S.*)$", re.MULTILINE | re.IGNORECASE)
_ADAPTER_LINE: Final = re.compile(r"^[ \t]*ADAPTER[ \t]+(\S.*)$", re.MULTILINE | re.IGNORECASE)
_DOCKERFILE: Final = re.compile(r"^[ \t]*(?:RUN|CMD|ENTRYPOINT|COPY|ENV|WORKDIR)\s", re.MULTILINE)
_YAML: Final = re.compile(
    r"^[ \t]*(?:-[ \t]+)?(?:services|apiVersion|kind|containers|args|command|image|spec|template|environment)[ \t]*:"
    r"|^[ \t]*-[ \t]+[\"']?--?[A-Za-z]", re.MULTILINE,
)  # fmt: skip
_SETTING: Final = re.compile(r"(?:export\s+|set\s+|\$env:)?([A-Za-z_][A-Za-z0-9_]*)\s?=\s?(.*)")
_COMMENT: Final = re.compile(r"\s#.*", re.DOTALL)
_SAID: Final = re.compile(rf"^[ \t]*(?:#[ \t]*)?{re.escape(NOT_SAID)}(--[\w-]+) (\S+)", re.MULTILINE)
_WISHED: Final = re.compile(rf"^[ \t]*(?:#[ \t]*)?{re.escape(AS_IF)}([\w .-]{{1,40}}): ", re.MULTILINE)
_RELEASE: Final = re.compile(rf"^[ \t]*(?:#[ \t]*)?{re.escape(OF_RELEASE)}(b?\d[\d.]{{0,20}})[ \t\r]*$", re.MULTILINE)


class Pasted(NamedTuple):
    """What a text starts. servers: the words of each, in its order; kind: what the text is, for people.

    weight_format, version: that a plan was made with and no command can say, "" for none.
    """

    kind: str
    servers: tuple[Words, ...]
    weight_format: str = ""
    version: str = ""

    @property
    def words(self) -> Words:
        """Of the first server."""
        return self.servers[0]


def is_log(text: str) -> bool:
    """Whether a text is what a server printed."""
    return next(islice(_LEVEL.finditer(text[:MOST]), _LOG_LINES - 1, None), None) is not None


def read(text: str) -> Pasted:
    """What a text starts. Raises BadInput for one that is too long, is no text of its kind, or is a log."""
    if len(text) > MOST:
        raise BadInput(
            f"{len(text):,} characters are too many for a command", WHERE, "Paste only what starts the server"
        )
    found = _read_once(text.rstrip())
    if isinstance(found, Pasted):
        return found
    what, where, remedy = found
    raise BadInput(what, where, remedy)


@lru_cache(maxsize=2)
def _read_once(text: str) -> Pasted | tuple[str, str, str]:
    """Of a text that is dragged over a window, dropped there and planned, which takes half a second for a long one.

    What is wrong with it is kept in words: an exception keeps all frames of its traceback, and of its cause's.
    """
    try:
        return _read(text)
    except BadInput as error:
        return error.what, error.where, error.remedy


def _read(text: str) -> Pasted:
    if is_log(text):
        raise BadInput("it is a start-up log", WHERE, "Read it with kvplanner diagnose LOG")
    wished, release = _WISHED.search(text), _RELEASE.search(text)
    kind, servers = _kind_of(text)
    extra = tuple(word for name, value in _SAID.findall(text) for word in (name, value))
    servers = tuple((*words, *extra) for words in servers) if extra else servers
    return Pasted(kind, servers or ((),), wished[1] if wished else "", release[1] if release else "")


def _kind_of(text: str) -> tuple[str, tuple[Words, ...]]:
    for kind, looks, servers_of in _FORMS:
        if looks(text):
            found = tuple(_opened(words) for words in servers_of(text))
            if found:
                return kind, found
    return "command line", tuple(_commands(shell_text(text)))


def starts_server(text: str) -> bool:
    """Whether a text is one that `read` makes a server's words of, and no log."""
    if len(text) > MOST or is_log(text) or not text.strip():
        return False
    try:
        found = read(text)
    except BadInput:
        return any(signature.launch and signature.launch[0] in text for signature in signatures())
    return found.kind != "command line" or any(start_of(words) is not None for words in found.servers)


# A shell's text ------------------------------------------------------------------------------------------------------


def _commands(text: Text) -> Iterator[Words]:
    """The words of each server in a script, with all that was set before it; the whole where there is none."""
    words = _opened(text.words)
    start, found = 0, False
    settings: list[str] = []
    for end in [*(at for at, word in enumerate(words) if word in ("&", ";", "&&")), len(words)]:
        part = words[start:end]
        start = end + 1
        if start_of(part) is not None:
            found = True
            yield (*settings, *part)
        else:
            settings += [word for word in part if re.fullmatch(r"(?s)[A-Za-z_][A-Za-z0-9_]*=.*", word)]
    if not found:
        yield words


def _opened(words: Sequence[str]) -> Words:
    """With the script that a shell is handed ("bash -c '…'") in the shell's place."""
    found = list(words)
    for at, word in enumerate(found):
        if re.fullmatch(r"-[a-z]*c", word) and at + 1 < len(found) and any(c.isspace() for c in found[at + 1]):
            inner = next(_commands(shell_text(found[at + 1])))
            if start_of(inner) is not None:
                before = found[:at]
                if before and base_name(before[-1]) in ("sh", "bash", "zsh", "ash", "dash"):
                    before = before[:-1]
                return (*before, *inner)
    return tuple(found)


# Units, model files, environments ------------------------------------------------------------------------------------


def _unit(text: str) -> Iterator[Words]:
    """A systemd unit: ExecStart in its own quoting, and Environment before it."""
    joined = re.sub(r"\\\r?\n", " ", text)
    settings: list[str] = []
    commands: list[list[str]] = []
    for line in joined.splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith(("#", ";")):
            continue
        if len(value) > _LONGEST_LINE:
            raise BadInput("a line is too long", WHERE, "Paste the command alone")
        if name.strip() == "Environment":
            settings += [_unit_plain(word, variables=False) for word in _unit_words(value)]
        elif name.strip() == "ExecStart" and value.strip():
            words = [_unit_plain(word) for word in _unit_words(value)]
            if not words:
                raise BadInput("the quotes of ExecStart do not close", WHERE, "Check its quotes")
            words[0] = words[0].lstrip("@-:+!")
            commands.append(words)
    for words in commands:
        yield (*settings, *words)


def _unit_words(value: str) -> list[str]:
    return [_c_unescaped(quoted) for quoted in _QUOTED.findall(value)]


_QUOTED: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[^\s"\']+(?:"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s"\'])*'
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _c_unescaped(word: str) -> str:
    """A word of a unit without its quotes and escapes."""
    if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
        word = word[1:-1]
    return _ESCAPE.sub(_one_escape, word)


def _one_escape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)


def _unit_plain(word: str, *, variables: bool = True) -> str:
    plain = word.replace("%%", "%")
    return plain.replace("$$", "$") if variables else plain


def _model_file(text: str) -> Iterator[Words]:
    """FROM and PARAMETER of a model file; what belongs to the service stands in its comments."""
    found = next((s for s in signatures() if s.modelfile), None)
    if found is None:
        return
    text = _QUOTED_BLOCK.sub("", text)  # of a prompt or a template, any of whose lines may begin so
    named = [name.strip().strip("\"'") for name in re.findall(_FROM_LINE, text)]
    if not named:
        raise BadInput("the model file names no model", WHERE, "Begin it with a line such as FROM qwen3:8b")
    from kvplanner.engine.registry import engine

    options = {option.name: option for option in engine(found.engine).options()}
    settings = re.findall(r"^[ \t]*# Of the service: ([A-Z_]+=\S*)[ \t\r]*$", text, re.MULTILINE)
    flags: list[str] = []
    for name, value in re.findall(
        r"^[ \t]*PARAMETER[ \t]+(\w+)[ \t]+(\S+)[ \t\r]*$", text, re.MULTILINE | re.IGNORECASE
    ):
        option = options.get(name.lower())
        if option is not None and option.env:
            settings.append(f"{option.env}={value}")
        elif option is not None:
            flags += [option.flags[0], value]
    # A second FROM names the projector's file.
    beside = [word for name in named[1:2] for word in ("--projector", name)]
    beside += [word for name in re.findall(_ADAPTER_LINE, text) for word in ("--adapter", name.strip().strip("\"'"))]
    yield (*settings, *found.launch, found.model_flags[0], named[0], *flags, *beside)


def _docker_file(text: str) -> Iterator[Words]:
    """FROM, ENV, ENTRYPOINT and CMD of a Dockerfile."""
    import json

    image = ""
    entry: list[str] = []
    command: list[str] = []
    settings: list[str] = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if name.upper() == "FROM":
            image = rest.split(" ")[0]
        elif name.upper() == "ENV":
            settings += split_words(rest if "=" in rest else rest.replace(" ", "=", 1))
        elif name.upper() in ("CMD", "ENTRYPOINT"):
            try:
                words = [str(word) for word in json.loads(rest)] if rest.startswith("[") else split_words(rest)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{name} cannot be read: {error}", WHERE, "Check its quotes") from None
            entry, command = (words, command) if name.upper() == "ENTRYPOINT" else (entry, words)
    words = [image, *entry, *command]
    if start_of(words) is not None:
        yield (*settings, *words)


def _is_environment(text: str) -> bool:
    """Whether every line that says something is an assignment."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = [_SETTING.fullmatch(line) for line in lines]
    return bool(lines) and all(match and not has_launcher(match[2]) for match in found)


def has_launcher(text: str) -> bool:
    """Whether a text of several words starts as a command line that serves."""
    return any(c.isspace() for c in text) and start_of(text.split()) is not None


def _environment(text: str) -> Iterator[Words]:
    """Assignments of an environment file, behind them the launcher of the engine whose variables they are."""
    from kvplanner.engine.registry import engine

    lines = (line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    settings = {m[1]: _unquoted(m[2]) for line in lines if (m := _SETTING.fullmatch(line))}
    best: tuple[int, Signature | None] = (0, None)
    for found in signatures():
        chosen = engine(found.engine)
        known = {name for o in chosen.options() for name in (o.env, o.env_also) if name} | set(found.model_env)
        own = sum(name in known for name in settings)
        own += sum(name.startswith(f"{found.engine.upper()}_") for name in settings)
        if own > best[0]:
            best = own, found
    if best[1] is None:
        return
    found = best[1]
    model = next((settings[name] for name in found.model_env if name in settings), "")
    named = (found.model_flags[0], model) if model else ()
    rest = (f"{name}={value}" for name, value in settings.items() if name not in found.model_env)
    yield (*rest, *found.launch, *named)


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return _COMMENT.sub("", value).strip()


def _looks_like_python(text: str) -> bool:
    from kvplanner.request.pasted_python import classes

    names = "|".join(map(re.escape, classes()))
    return bool(re.search(rf"(?<![\w'\"/-])(?:\w{{1,60}}\.){{0,6}}(?:{names})\s{{0,40}}\(", text))


def _python(text: str) -> Iterator[Words]:
    from kvplanner.request.pasted_python import calls

    return calls(text)


def _yaml(text: str) -> Iterator[Words]:
    from kvplanner.request.pasted_yaml import containers

    return containers(text)


_FORMS: Final[tuple[tuple[str, Callable[[str], bool], Callable[[str], Iterator[Words]]], ...]] = (
    ("systemd unit", lambda text: bool(_EXEC.search(text)), _unit),
    ("Dockerfile", lambda text: bool(_FROM.search(text) and _DOCKERFILE.search(text)), _docker_file),
    ("model file", lambda text: bool(_FROM.search(text) or _PARAMETER.search(text)), _model_file),
    ("Python call", _looks_like_python, _python),
    ("environment", _is_environment, _environment),
    ("compose file or manifest", lambda text: bool(_YAML.search(text)), _yaml),
)
