"""Command lines both ways: engine flags to option values, and a request to the command that starts it.

Everything comes from the engine's option declarations. A flag that cannot matter to memory is a warning, an unknown
one that may is an error.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from kvplanner.engine.base import Engine, Option, OptionValue, PlanRequest
from kvplanner.errors import BadInput, UnknownName
from kvplanner.units import parse_count, parse_size

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class ParsedFlags(NamedTuple):
    """values: by option name; positional: words that belong to no flag; warnings: one sentence each."""

    values: dict[str, OptionValue]
    positional: tuple[str, ...]
    warnings: tuple[str, ...]


def parse_value(option: Option, text: str) -> OptionValue:
    """The value that `text` gives to an option. Raises BadInput that names the flag and what was expected."""
    flag = option.flags[0]
    try:
        value = _convert(option, text.strip())
    except ValueError as error:
        raise BadInput(str(error), flag, f"Example: {flag} {_example(option)}") from None
    check_range(option, value)
    return value


def check_range(option: Option, value: OptionValue) -> None:
    """Raises BadInput for a number outside the option's range."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low, high = option.low, option.high
    if (low is not None and value < low) or (high is not None and value > high):
        if high is None:
            span = f"{low:g} or more"
        else:
            span = f"{low:g} to {high:g}" if low is not None else f"{high:g} at most"
        raise BadInput(f"{value:,} is out of range", option.flags[0], f"Give {span}")


def _convert(option: Option, text: str) -> OptionValue:
    kind = option.type
    if kind == "bool":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{text!r} is neither true nor false")
    if kind == "choice":
        found = next((c for c in option.choices if c.lower() == text.lower()), None)
        if found is None:
            raise ValueError(f"{text!r} is not one of {', '.join(option.choices)}")
        return found
    if kind == "float":
        return _number(text)
    if kind == "int":
        if not text.lstrip("+-").isdecimal():
            raise ValueError(f"{text!r} is not a whole number")
        return int(text)
    if kind == "tokens":
        return -1 if text.lower() in {"-1", "auto"} and option.low == -1 else parse_count(text)
    if kind == "bytes":
        return parse_size(text) if text.lower().endswith("b") else parse_count(text)
    return text


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _example(option: Option) -> str:
    if option.choices:
        return option.choices[0]
    return {"bool": "true", "int": "2", "tokens": "32k", "float": "0.9", "bytes": "20GiB"}.get(option.type, "VALUE")


class _Flags:
    """Looks flags up by spelling, unique prefix, dotted or dashed form, as the engine's own parser does."""

    def __init__(self, options: Sequence[Option], ignored: Mapping[str, bool]) -> None:
        self.ignored = ignored
        self.by_flag: dict[str, tuple[Option, bool]] = {}
        self.by_json: dict[str, dict[str, Option]] = {}
        for option in options:
            for flag in () if option.env else option.flags:
                self.by_flag[flag] = (option, True)
            if option.negation and not option.env:
                self.by_flag[option.negation] = (option, False)
            if option.json:
                parent, key = option.json.split(".", 1)
                self.by_json.setdefault("--" + parent.replace("_", "-"), {})[key] = option

    def find(self, flag: str) -> str:
        """The full spelling of a flag, "" when unknown. Raises UnknownName when a prefix fits several."""
        known = (*self.by_flag, *self.by_json, *self.ignored)
        if flag in known or not flag.startswith("--"):
            return flag if flag in known else ""
        fits = [k for k in known if k.startswith(flag)]
        if len({self._target(k) for k in fits}) > 1:
            raise UnknownName(f"{flag} fits several flags", flag, tuple(fits[:5]))
        return fits[0] if fits else ""

    def _target(self, flag: str) -> str:
        return self.by_flag[flag][0].name + str(self.by_flag[flag][1]) if flag in self.by_flag else flag

    def near(self, flag: str) -> tuple[str, ...]:
        """Flags spelled like an unknown one."""
        return tuple(get_close_matches(flag, [*self.by_flag, *self.by_json, *self.ignored], n=3, cutoff=0.7))


def parse_flags(
    options: Sequence[Option], argv: Sequence[str], ignored: Mapping[str, bool] | None = None
) -> ParsedFlags:
    """Option values from engine flags as the engine spells them.

    Raises BadInput for values and UnknownName for flags that are unknown and may matter to memory.
    """
    flags = _Flags(options, ignored or {})
    values: dict[str, OptionValue] = {}
    positional: list[str] = []
    warnings: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        spelled, _, inline = word.partition("=")
        spelled, _, key = spelled.partition(".")
        if spelled.startswith("--"):
            spelled = spelled.replace("_", "-")
        if spelled.startswith("-O") and spelled[2:].isdigit():
            spelled, inline = "-O", spelled[2:]
        flag = flags.find(spelled)
        if not flag:
            raise UnknownName(
                f"{spelled} is not a flag that is understood, and it may matter to memory", spelled, flags.near(spelled)
            )
        has_inline = "=" in word or bool(inline)
        if flag in flags.ignored:
            if flags.ignored[flag] and not has_inline and words:
                words.pop(0)
            warnings.append(f"{flag} does not change memory: left out")
        elif flag in flags.by_json:
            text = inline if has_inline else _next(words, flag)
            values.update(_from_json(flag, flags.by_json[flag], key, text, warnings))
        else:
            option, sense = flags.by_flag[flag]
            values[option.name] = _flag_value(option, sense, inline if has_inline else None, words, flag)
    return ParsedFlags(values, tuple(positional), tuple(warnings))


def _next(words: list[str], flag: str) -> str:
    if not words:
        raise BadInput("a value is missing", flag)
    return words.pop(0)


def _flag_value(option: Option, sense: bool, inline: str | None, words: list[str], flag: str) -> OptionValue:
    if option.type == "bool":
        if inline is None and words and words[0].lower() in {"true", "false"}:
            inline = words.pop(0)
        value = True if inline is None else parse_value(option, inline)
        return value if sense else not value
    if inline is not None:
        return parse_value(option, inline)
    text = _next(words, flag)
    if option.name == "cudagraph_capture_sizes":
        sizes = [text]
        while words and words[0].isdecimal():
            sizes.append(words.pop(0))
        text = ",".join(sizes)
    return parse_value(option, text)


def _from_json(
    flag: str, known: Mapping[str, Option], key: str, text: str, warnings: list[str]
) -> Iterator[tuple[str, OptionValue]]:
    if key:
        given: object = {key: text}
    else:
        try:
            given = json.loads(text)
        except ValueError as error:
            raise BadInput(f"not valid JSON ({error})", flag, """Example: '{"key": "value"}'""") from None
    if not isinstance(given, dict):
        raise BadInput("an object is expected", flag, """Example: '{"key": "value"}'""")
    for name, value in given.items():
        option = known.get(str(name))
        if option is None:
            warnings.append(f"{flag}: {name} is not modelled: left out")
        else:
            yield option.name, parse_value(option, json.dumps(value) if isinstance(value, bool) else str(value))


def format_command(engine: Engine, request: PlanRequest) -> str:
    """The shell command that starts a server as planned, with only what the user set."""
    words = [*engine.launch, shlex.quote(request.model.id)]
    env: list[str] = []
    nested: dict[str, dict[str, OptionValue]] = {}
    for option in engine.options(request.version):
        value = request.options.get(option.name)
        if value is None or option.name == "usage":
            continue
        if option.env:
            env.append(f"{option.env}={shlex.quote(str(int(value) if isinstance(value, bool) else value))}")
        elif option.json:
            parent, key = option.json.split(".", 1)
            nested.setdefault("--" + parent.replace("_", "-"), {})[key] = value
        elif option.type == "bool":
            words.append(option.flags[0] if value else option.negation)
        else:
            words += [option.flags[0], shlex.quote(str(value))]
    for flag, keys in nested.items():
        words += [flag, shlex.quote(json.dumps(keys))]
    return " ".join(env + words)
