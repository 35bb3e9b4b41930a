"""What a server's environment sets: options by their variables, and variables that nothing here reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvplanner.engine.option import FlagRule, Option, OptionValue
from kvplanner.engine.values import parse_value


def values_of(options: Sequence[Option], environment: Mapping[str, str]) -> dict[str, OptionValue]:
    """Options by name. Raises BadInput that names the variable's flag."""
    by_name = {name: option for option in options for name in (option.env, option.env_also) if name}
    off = {option.env_negation: option for option in options if option.env_negation}
    values = {by_name[n].name: parse_value(by_name[n], text) for n, text in environment.items() if n in by_name}
    # Its presence counts, whatever its value.
    return values | {off[name].name: False for name in environment if name in off}


def unread(
    prefixes: Sequence[str], options: Sequence[Option], rules: Mapping[str, FlagRule], environment: Mapping[str, str]
) -> Iterator[str]:
    """The engine's own variables that nothing here reads, in a sentence each. prefixes: how they begin."""
    known = {name for option in options for name in (option.env, option.env_also, option.env_negation)}
    for name in environment:
        if name.startswith(tuple(prefixes)) and name not in known and name not in rules:
            yield f"{name} is not modelled: left out"
