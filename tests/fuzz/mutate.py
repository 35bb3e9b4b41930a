"""Changes of an input that keep its form: a reader of JSON is reached by few inputs of changed bytes.

`json_of` changes what a JSON text holds and `words_of` the words of a command line; each takes an input, the longest
that may come of it and a seed, as atheris asks of a mutator.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

from kvplanner.engine import registry
from tests.fuzz.targets import catalogue_configs, seeds

Plain = Callable[[bytes, int], bytes]
Mutator = Callable[[bytes, int, int], bytes]

_ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2, 7, 64, 1 << 31, 1 << 63, 1 << 70, -(1 << 63), 0.5, -0.0, 1e308, float("inf"),
    float("nan"), "", " ", "0", "auto", "none", "bfloat16", "fp8", "\x1b[31m", "\u202e", "x" * 300, [], [0], {}, [[]],
)  # fmt: skip


def _nodes(value: Any, kept: list[tuple[Any, Any]], depth: int = 0) -> list[tuple[Any, Any]]:
    """Every place inside a JSON value: what holds it, and its key or index there; not beyond a depth and a number."""
    keys: Sequence[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(min(len(value), 64))
    for key in keys:
        kept.append((value, key))
        if len(kept) < 4096 and depth < 40:
            _nodes(value[key], kept, depth + 1)
    return kept


def json_of(target: str, plain: Plain) -> Mutator:
    """A mutator of the JSON inputs of one target; `plain` changes bytes, one time in four and where it is not JSON."""
    texts = [path.read_bytes().lstrip(b"\0").partition(b"{") for path in seeds(target)]
    others = [json.loads(text) for parts in texts if _is(text := parts[1] + parts[2])]
    if target == "json":
        others += [json.loads(text) for _, text in catalogue_configs()]
    parts = [holder[key] for other in others for holder, key in _nodes(other, [])]
    names = sorted({key for other in others for holder, key in _nodes(other, []) if isinstance(holder, dict)})

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if not chance.randrange(4):
            return plain(data, longest)
        try:
            whole = [json.loads(data)]
        except (ValueError, RecursionError):
            whole = [deepcopy(chance.choice(others))] if others else []
        for _ in range(chance.randrange(1, 4)):
            if not (nodes := _nodes(whole, [])):
                return plain(data, longest)
            holder, key = chance.choice(nodes)
            _change(holder, key, chance, parts, names)
        try:
            text = json.dumps(whole[0] if whole else {}).encode()
        except RecursionError:
            return plain(data, longest)
        return text if len(text) <= longest else plain(data, longest)

    return mutate


def _is(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _change(holder: Any, key: Any, chance: random.Random, parts: list[Any], names: list[str]) -> None:
    """Makes one place another: an odd value, a part of another input, gone, named otherwise, or wrapped."""
    value = holder[key]
    match chance.randrange(6):
        case 0:
            holder[key] = deepcopy(chance.choice(_ODD))
        case 1 if parts:
            holder[key] = deepcopy(chance.choice(parts))
        case 2 if isinstance(holder, dict):
            del holder[key]
        case 3 if isinstance(holder, dict) and names:
            holder[chance.choice(names)] = holder.pop(key)
        case 4 if isinstance(value, int) and not isinstance(value, bool):
            holder[key] = value + chance.choice((-1, 1, value, -value, 1 << 40))
        case 5:
            holder[key] = chance.choice(([value], {"x": value}, str(value)[:200]))
        case _:
            holder[key] = deepcopy(chance.choice(_ODD))


def header_of(mutate: Mutator) -> Mutator:
    """A mutator of a JSON text behind its length in eight bytes, as safetensors have it."""

    def with_length(data: bytes, longest: int, seed: int) -> bytes:
        if seed % 8 == 0 or longest < 16:
            return mutate(data, longest, seed)
        text = mutate(data[8:], longest - 8, seed)
        return len(text).to_bytes(8, "little") + text

    return with_length


def vocabulary() -> list[str]:
    """The words of all engines' command lines."""
    found = {
        "vllm",
        "serve",
        "docker",
        "run",
        "-e",
        "python",
        "-m",
        "ollama",
        "llama-server",
        "|",
        "&&",
        "--",
        "\\",
    }
    for name in registry.names():
        one = registry.engine(name)
        for option in one.options():
            env = (f"{variable}=1" for variable in (option.env, option.env_also) if variable)
            found |= {*option.flags, option.negation, *option.choices, option.spelled, *env}
        found |= set(one.ignored_flags())
    return sorted(found - {""})


def words_of(plain: Plain) -> Mutator:
    """A mutator of command lines, by the words that the engines know."""
    words = vocabulary()

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if not chance.randrange(3):
            return plain(data, longest)
        text = data.decode("utf-8", "replace")
        try:
            line = shlex.split(text)
        except ValueError:
            line = text.split()
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(line) + 1)
            match chance.randrange(5):
                case 0 if line:
                    del line[min(at, len(line) - 1)]
                case 1 if line:
                    line[min(at, len(line) - 1)] = str(chance.choice(_ODD))
                case 2 if line:
                    name = line[min(at, len(line) - 1)]
                    line[min(at, len(line) - 1)] = f"{name}={chance.choice(_ODD)}"
                case _:
                    line[at:at] = [chance.choice(words), *(str(chance.choice(_ODD)),) * chance.randrange(2)]
        made = shlex.join(line).encode("utf-8", "replace")
        return made if len(made) <= longest else plain(data, longest)

    return mutate
