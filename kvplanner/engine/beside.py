"""Files that a command names beside the model (a projector, adapters), as the sizes that a plan counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kvplanner.engine.option import FlagRule
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple

# llama.cpp writes an adapter's scale behind its file: "adapter.gguf:0.5".
_SCALE: Final = re.compile(r":-?\d+(?:\.\d+)?$")


class Beside(NamedTuple):
    """words: those that are left. sizes: bytes by option. missing: files that are not here, by the flag of each."""

    words: tuple[str, ...]
    sizes: dict[str, int]
    missing: dict[str, str]


def files_beside(
    words: Sequence[str], environment: Mapping[str, str], rules: Mapping[str, FlagRule],
    size_of: Callable[[str], int | None],
) -> Beside:  # fmt: skip
    """The files that flags and variables name. size_of: bytes of a file, None for one that is not here."""
    found = Beside((), {}, {})
    for name, value in environment.items():
        rule = rules.get(name)
        if rule is not None and rule.sizes and value:
            _add(found, name, value, rule, size_of)
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        rule = rules.get(flag)
        if rule is None or not rule.sizes:
            kept.append(word)
            continue
        value = value if equals else next(rest, "")
        if value:
            _add(found, flag, value, rule, size_of)
        else:
            kept.append(word)
    return found._replace(words=tuple(kept))


def _add(found: Beside, flag: str, value: str, rule: FlagRule, size_of: Callable[[str], int | None]) -> None:
    for path in value.split(","):
        size = size_of(_SCALE.sub("", path.strip()))
        if size is None:
            found.missing[flag] = path.strip()
        else:
            found.sizes[rule.sizes] = found.sizes.get(rule.sizes, 0) + size


def option_of(rules: Mapping[str, FlagRule], *, encoders: bool) -> str:
    """The option that takes the size of a projector, or of an adapter; "" where the engine loads no such file."""
    return next((rule.sizes for rule in rules.values() if rule.sizes and rule.encoders == encoders), "")


def encoder_bytes(model: Model) -> int:
    """Bytes of a model's own encoders: as its GGUF file has them, else in 16 bits, as projector files do; 0 without."""
    groups = model.inventory.outside if model.inventory is not None else ()
    exact = model.inventory is not None and model.inventory.exact
    return sum(g.stored_bytes if exact else 2 * g.elements for g in groups if g.place == "tower")
