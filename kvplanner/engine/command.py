"""Command lines both ways: engine flags to option values, and a request to the command that starts it.

Everything comes from the engine's option declarations. A flag that cannot matter to memory is a warning, an unknown
one that may is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kvplanner.engine.option import FlagRule, Option, OptionValue, Role
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.signature import signature
from kvplanner.engine.values import parse_value
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple
from kvplanner.units import GB, GIB, parse_size

if TYPE_CHECKING:
    from kvplanner.engine.protocol import Engine

_JSON_EXAMPLE: Final = """Example: '{"key": "value"}'"""
_LONGEST_JSON: Final = 1 << 20


class ParsedFlags(NamedTuple):
    """values: by option name; positional: words that belong to no flag; warnings: one sentence each."""

    values: dict[str, OptionValue]
    positional: tuple[str, ...]
    warnings: tuple[str, ...]


class _Flags:
    """Looks flags up by spelling, unique prefix, dotted or dashed form, as the engine's own parser does."""

    def __init__(self, options: Sequence[Option], rules: Mapping[str, FlagRule], *, hints: bool = True) -> None:
        self.rules = rules
        self.hints = hints
        self.by_flag: dict[str, tuple[Option, bool]] = {}
        self.by_variable = {flag: option.env for option in options if option.env for flag in option.flags}
        self.by_json: dict[str, dict[str, Option]] = {}
        for option in options:
            for flag in () if option.env else option.flags:
                self.by_flag[flag] = (option, True)
            for flag in (option.negation, *option.negation_also):
                if flag and not option.env:
                    self.by_flag[flag] = (option, False)
            for home in (option.json, *option.json_also):
                parent, dot, key = home.partition(".")
                if dot:
                    self.by_json.setdefault(_json_flag(parent), {})[key] = option

    def find(self, flag: str) -> str:
        """The full spelling of a flag, "" when unknown. Raises UnknownName when a prefix fits several."""
        known = (*self.by_flag, *self.by_json, *self.rules)
        if flag in known or not flag.startswith("--"):
            return flag if flag in known else ""
        fits = [k for k in known if k.startswith(flag)]
        if len({self._target(k) for k in fits}) > 1:
            raise UnknownName(f"{flag} fits several flags", flag, tuple(fits[:5]), "Write one in full")
        return fits[0] if fits else ""

    def json_twin(self, flag: str, key: str, value: str) -> str:
        """The JSON flag that a short one stands for when it is given a key or an object, else the flag itself."""
        rule = self.rules.get(flag)
        if rule is None or not rule.same_as:
            return flag
        return rule.same_as if key or value.lstrip().startswith("{") or flag not in self.by_flag else flag

    def _target(self, flag: str) -> str:
        return self.by_flag[flag][0].name + str(self.by_flag[flag][1]) if flag in self.by_flag else flag

    def near(self, flag: str) -> tuple[str, ...]:
        """Flags spelled like an unknown one, where hints are wanted: each takes milliseconds."""
        if not self.hints:
            return ()
        from difflib import get_close_matches

        return tuple(get_close_matches(flag, [*self.by_flag, *self.by_json, *self.rules], n=3, cutoff=0.7))


def _json_flag(parent: str) -> str:
    return "--" + parent.replace("_", "-")


class _Reader:
    """Reads words one flag at a time."""

    def __init__(self, flags: _Flags, argv: Sequence[str]) -> None:
        self.flags = flags
        self.words = list(argv)
        self.values: dict[str, OptionValue] = {}
        self.positional: list[str] = []
        self.warnings: list[str] = []

    def read(self) -> ParsedFlags:
        while self.words:
            word = self.words.pop(0)
            if not word.startswith("-") or word == "-":
                self.positional.append(word)
            else:
                self._flag(word)
        return ParsedFlags(self.values, tuple(self.positional), tuple(self.warnings))

    def _flag(self, word: str) -> None:
        spelled, equals, text = word.partition("=")
        inline = text if equals else None
        spelled, _, key = spelled.partition(".")
        if spelled.startswith("--"):
            spelled = spelled.replace("_", "-")
        if spelled.startswith("-O") and spelled[2:].isdigit():
            spelled, inline = "-O", spelled[2:]
        flag = self.flags.find(spelled)
        if not flag and (variable := self.flags.by_variable.get(spelled)):
            raise UnknownName(
                "is set by a variable, not by a flag",
                spelled,
                (),
                f"Write {variable}={inline or self._peek() or 'VALUE'}",
            )
        if not flag:
            raise UnknownName(
                "is no known flag, and it may matter to memory", spelled, self.flags.near(spelled),
                "Check its spelling and the engine's version, or leave it out",
            )  # fmt: skip
        flag = self.flags.json_twin(flag, key, inline if inline is not None else self._peek())
        if flag in self.flags.by_flag:
            option, sense = self.flags.by_flag[flag]
            value = _flag_value(option, sense, inline, self.words, flag, key)
            self.values[option.name] = value if not key else _with_key(option, key, value, self.values.get(option.name))
        elif flag in self.flags.by_json:
            text = inline if inline is not None else _next(self.words, flag)
            self.values.update(self._from_json(flag, key, text))
        else:
            self._by_rule(flag, inline)

    def _peek(self) -> str:
        return self.words[0] if self.words else ""

    def _by_rule(self, flag: str, inline: str | None) -> None:
        """A flag that is no option: left out with a warning, or refused."""
        rule = self.flags.rules[flag]
        given = [] if inline is None else [inline]
        if inline is None and rule.words == "1":
            given = [_next(self.words, flag)]
        elif inline is None and rule.words == "+":
            given = _run_of_words(self.words)
        if rule.reason and not (given and given[0].lower() in rule.harmless):
            raise BadInput(rule.reason, flag, rule.remedy)
        if rule.modelled or (given and given[0].lower() in rule.harmless):
            self.warnings.append(f"{flag} does not change memory: left out")
        else:
            self.warnings.append(f"{flag} is not modelled: planned without it")

    def _from_json(self, flag: str, key: str, text: str) -> Iterator[tuple[str, OptionValue]]:
        known = self.flags.by_json[flag]
        given: object = {key: text} if key else _json(flag, text)
        if isinstance(given, int) and not isinstance(given, bool) and "level" in known:
            given = {"level": given}
        if not isinstance(given, dict):
            raise BadInput("an object is expected", flag, _JSON_EXAMPLE)
        for name, value in given.items():
            option = known.get(str(name))
            if option is None:
                self.warnings.append(f"{flag}: {str(name)[:60]} is not modelled: left out")
            elif value is not None:
                yield option.name, parse_value(option, _json_text(option, value))


def parse_flags(
    options: Sequence[Option], argv: Sequence[str], ignored: Mapping[str, FlagRule] | None = None
) -> ParsedFlags:
    """Option values from engine flags as the engine spells them; ignored: the flags that are no option.

    Raises BadInput for values and refused flags, and UnknownName for flags that are unknown and may matter to memory.
    """
    return _Reader(_Flags(options, ignored or {}), argv).read()


def flag_reader(options: Sequence[Option], ignored: Mapping[str, FlagRule]) -> Callable[[Sequence[str]], ParsedFlags]:
    """`parse_flags` of the same options many times over: errors name no flags that are spelled alike."""
    flags = _Flags(options, ignored, hints=False)
    return lambda argv: _Reader(flags, argv).read()


def _next(words: list[str], flag: str) -> str:
    if not words:
        raise BadInput("a value is missing", flag, f"Write {flag} VALUE, or leave it out")
    return words.pop(0)


def _run_of_words(words: list[str]) -> list[str]:
    """The words up to the next flag, taken."""
    end = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    taken, words[:end] = words[:end], []
    return taken


def _flag_value(option: Option, sense: bool, inline: str | None, words: list[str], flag: str, key: str) -> OptionValue:
    if key and (option.type != "text" or option.many):
        raise UnknownName(f"{flag} takes no key", f"{flag}.{key[:60]}", (), f"Write {flag} VALUE")
    if option.type == "bool":
        if inline is None and words and words[0].lower() in {"true", "false"}:
            inline = words.pop(0)
        value = True if inline is None else parse_value(option, inline)
        return value if sense else not value
    text = inline if inline is not None else _next(words, flag)
    if inline is None and option.many:
        text = ",".join((text, *_run_of_words(words)))
    if option.type == "bytes" and option.role != "caller":
        _refuse_units(flag, text)
    if option.type == "text" and text.startswith("{") and '"' not in text and (found := _without_quotes(text)):
        text = json.dumps(found)
    return parse_value(option, text)


def _refuse_units(flag: str, text: str) -> None:
    """Raises BadInput for "20GiB" and the like: engines take "20G" (binary), "20g" (decimal) or a number of bytes."""
    try:
        size = parse_size(text) if text.strip().lower().endswith("b") else None
    except ValueError:
        size = None
    if size is not None:
        short = f"{size // GIB}G" if size % GIB == 0 else f"{size // GB}g" if size % GB == 0 else str(size)
        raise BadInput(f"{text[:40]!r} has a unit that the engine does not read", flag, f"Write {flag} {short}")


def _with_key(option: Option, key: str, value: OptionValue, before: OptionValue | None) -> str:
    """The object that a dotted flag adds a key to, as text."""
    found = _json(option.flags[0], str(before)) if before else {}
    try:
        inner: object = json.loads(str(value))
    except (ValueError, RecursionError):
        inner = value
    return json.dumps({**found, key: inner} if isinstance(found, dict) else {key: inner})


def _json(flag: str, text: str) -> object:
    try:
        if len(text) > _LONGEST_JSON:
            raise ValueError("it is too long")
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        loose = _without_quotes(text)
        if loose is None:
            raise BadInput(f"not valid JSON ({error})", flag, _JSON_EXAMPLE) from None
        return loose
    return found


_BARE: Final = re.compile(r"[^\s{}\[\],:'\"]+(?::[^\s{}\[\],:'\"]+)*")


def _without_quotes(text: str) -> object:
    """The object of JSON whose quotes a shell has taken, or whose quotes are single ones; None for no such text.

    "{method:mtp,num_speculative_tokens:3}": a name is what stands before the first colon.
    """
    if not text.lstrip().startswith("{") or len(text) > _LONGEST_JSON:
        return None
    plain = text.replace("'", '"')
    with suppress(ValueError, RecursionError):
        single: object = json.loads(plain)
        return single
    quoted = _BARE.sub(_in_quotes, text) if '"' not in plain else ""
    try:
        found: object = json.loads(quoted)
    except (ValueError, RecursionError):
        return None
    return found


def _in_quotes(found: re.Match[str]) -> str:
    """A bare word quoted, of a name and its value each; numbers and constants stay."""
    name, colon, value = found[0].partition(":")
    words = (name, value) if colon else (name,)
    return ":".join(word if not place and not colon and _constant(word) else _word(word, name=colon and not place)
                    for place, word in enumerate(words))  # fmt: skip


def _word(word: str, *, name: str | bool) -> str:
    return json.dumps(word) if name or not _constant(word) else word


def _constant(word: str) -> bool:
    return word in ("true", "false", "null") or re.fullmatch(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", word) is not None


def _json_text(option: Option, value: object) -> str:
    if isinstance(value, list) and option.many:
        return ",".join(str(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


# Remarks in which a command tells what it cannot say: read again where it is pasted.
NOT_SAID: Final = "Not on a command line: "
AS_IF: Final = "Planned as if stored in "
OF_RELEASE: Final = "Planned for release "


class CommandWords(NamedTuple):
    """A server's command as words, nothing quoted: environment, how the model is named, and the engine's flags."""

    environment: dict[str, str]
    model: tuple[str, ...]
    flags: tuple[str, ...]


def command_words(engine: Engine, request: PlanRequest, named: str = "") -> CommandWords:
    """The words that start a server as planned, with only what the user set.

    named: what to name the model by instead of its id: the path of one on this machine. Of a version that is none, as
    the newest spells them.
    """
    environment: dict[str, str] = {}
    words: list[str] = []
    nested: dict[str, dict[str, OptionValue]] = {}
    for option in declared(engine, request.version):
        value = request.options.get(option.name)
        if value is None or option.role == "caller":
            continue
        if option.role == "draft" and request.draft is not None:
            value = request.draft.id  # the whole name, where a short one was given
        if option.env:
            environment[option.env] = str(int(value) if isinstance(value, bool) else value)
        elif option.json:
            parent, key = option.json.split(".", 1)
            nested.setdefault(_json_flag(parent), {})[key] = value
        elif option.type == "bool":
            words += [option.flags[0]] if value else [option.negation] if option.negation else []
        elif option.many:
            parts = [part for part in str(value).replace(",", " ").split() if part]
            words += [option.flags[0], *parts] if parts else []
        else:
            words += [option.flags[0], str(value)]
    for flag, keys in nested.items():
        words += [flag, json.dumps(keys)]
    return CommandWords(environment, _model_words(engine, request.model, named), tuple(words))


def format_command(engine: Engine, request: PlanRequest, named: str = "") -> str:
    """The shell command that starts a server as planned, with only what the user set; named: as for the words."""
    import shlex

    found = command_words(engine, request, named)
    environment = [f"{name}={shlex.quote(value)}" for name, value in found.environment.items()]
    return " ".join([*environment, *engine.launch, *map(shlex.quote, (*found.model, *found.flags))])


def _model_words(engine: Engine, model: Model, named: str) -> tuple[str, ...]:
    """How the engine's command line names a model: by its name, or by a flag and a file."""
    found = signature(engine.name)
    if found is None or found.model_positional:
        return (named or model.id,)
    if not found.names_model:
        return ()
    file = model.source_detail if model.source_kind == "gguf" and model.source_detail.endswith(".gguf") else ""
    return found.model_flags[0], named or file or f"{model.id.rpartition('/')[2].removesuffix('.gguf')}.gguf"


def declared(engine: Engine, version: str | None) -> tuple[Option, ...]:
    """The options of a version; the newest one's of a version that is none, which a plan of it says."""
    try:
        return engine.options(version)
    except PlannerError:
        return engine.options()


def role_option(engine: Engine, version: str | None, role: Role) -> Option | None:
    """The option of an engine that plays a role, None where it has none; the newest one's of a version that is none."""
    return next((option for option in declared(engine, version) if option.role == role), None)
