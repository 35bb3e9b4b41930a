"""The servers in a compose file, a Kubernetes manifest or a list of arguments, as words.

The loader is YAML's safe one, in bounded time: no tags, and few aliases, which would otherwise let a short text grow
without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvplanner.engine.signature import start_of
from kvplanner.errors import BadInput
from kvplanner.request.shell import split_words

_WHERE: Final = "what was pasted"
_REMEDY: Final = "Paste the whole file, or the command alone"
_MOST: Final = 1 << 17
_MOST_ALIASES: Final = 64
_MOST_NODES: Final = 20_000
# What aliases may make of it, at the most.
_MOST_REPEATED: Final = 100_000
_DEEPEST: Final = 40
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w{0,100})(?::?[-?]([^}]{0,1000}))?\}|\$\$")
_NAMED: Final = ("containers", "initContainers")


def containers(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each container that may be a server: its environment, image and command. Raises BadInput."""
    if len(text) > _MOST:
        raise BadInput(f"{len(text):,} characters are too many for a file of services", _WHERE, _REMEDY)
    for document in _documents(text):
        for found in _containers(document, compose=isinstance(document, Mapping) and "services" in document):
            if start_of(found) is not None or (isinstance(document, list) and found):
                yield found


def _documents(text: str) -> list[Any]:
    import yaml

    depth = deepest = 0
    for c in text:  # nesting costs the parser the square of its depth
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise BadInput("its brackets are nested too deeply", _WHERE, _REMEDY)
    try:
        found = list(_loaded(_events(text)))
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise BadInput(f"it is no YAML{place}: {problem}", _WHERE, _REMEDY) from None
    _check(found)
    return found


def _events(text: str) -> list[Any]:
    """The parser's events, which cost most of the time: no more than a file of the most nodes has."""
    import yaml

    events: list[Any] = []
    aliases = nodes = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C where it was built with it
        events.append(event)
        aliases += isinstance(event, yaml.AliasEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > _MOST_NODES:
            raise BadInput("it holds more than can be read", _WHERE, _REMEDY)
        if aliases > _MOST_ALIASES or aliases * nodes > _MOST_REPEATED:
            raise BadInput("it holds too many aliases", _WHERE, _REMEDY)
    return events


def _loaded(events: list[Any]) -> Iterator[Any]:
    """The documents that events make, as yaml.safe_load_all makes them of a text."""
    from yaml.composer import Composer
    from yaml.constructor import SafeConstructor
    from yaml.resolver import Resolver

    class Loader(Composer, SafeConstructor, Resolver):  # type: ignore[misc]  # PyYAML's classes have no types
        def __init__(self) -> None:
            for part in (Composer, SafeConstructor, Resolver):
                part.__init__(self)
            self.events = events[::-1]

        def check_event(self, *choices: type) -> bool:
            return bool(self.events) and (not choices or isinstance(self.events[-1], choices))

        def peek_event(self) -> Any:
            return self.events[-1] if self.events else None

        def get_event(self) -> Any:
            return self.events.pop()

    loader = Loader()
    while loader.check_data():
        yield loader.get_data()


def _check(documents: list[Any]) -> None:
    """Raises BadInput for more than anyone writes by hand: aliases make a tree of a few lines endless."""
    count = 0
    left: list[tuple[Any, int]] = [(documents, 0)]
    while left:
        value, depth = left.pop()
        count += 1
        if count > _MOST_NODES or depth > _DEEPEST:
            raise BadInput("it holds more than can be read", _WHERE, _REMEDY)
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        left += [(item, depth + 1) for item in inner]


def _containers(value: Any, *, compose: bool) -> Iterator[tuple[str, ...]]:
    """Whatever has a command, arguments or an image, in the order of the text."""
    if isinstance(value, list):
        if value and all(isinstance(item, str | int | float) for item in value):
            words = tuple(map(_text, value))
            if any(word.startswith("--") for word in words):
                yield words
            return
        for item in value:
            yield from _containers(item, compose=compose)
    elif isinstance(value, Mapping):
        if any(isinstance(value.get(name), str | list) for name in ("command", "args", "image", "entrypoint")):
            words = tuple(_words(value, compose=compose))
            if words:
                yield words
        for name, inner in value.items():
            if name not in ("command", "args", "env", "environment", "entrypoint"):
                yield from _containers(inner, compose=compose) if isinstance(inner, Mapping | list) else ()


def _words(found: Mapping[Any, Any], *, compose: bool) -> Iterator[str]:
    environment = _environment(found.get("environment", found.get("env")))
    yield from (f"{name}={_filled(value, compose=compose)}" for name, value in environment)
    if compose:
        devices = _device_ids(found)
        if devices:
            yield f"CUDA_VISIBLE_DEVICES={devices}"
    image = found.get("image")
    if isinstance(image, Mapping):  # a chart's values
        image = ":".join(str(image[key]) for key in ("repository", "tag") if image.get(key))
    parts = [image] if isinstance(image, str) else []
    for name in ("entrypoint", "command", "args"):
        parts += _command(found.get(name))
    yield from (_filled(part, compose=compose) for part in parts)


def _command(value: Any) -> list[str]:
    """A list of words, or a text that a shell splits."""
    if isinstance(value, str):
        return split_words(value)
    return [_text(item) for item in value] if isinstance(value, list) else []


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """A mapping, a list of "NAME=VALUE", or a list of names and values."""
    if isinstance(value, Mapping):
        yield from ((str(name), _text(item)) for name, item in value.items() if not isinstance(item, Mapping | list))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            if isinstance(item, str) and "=" in item:
                name, _, text = item.partition("=")
                yield name, text
            elif isinstance(item, Mapping) and "value" in item and isinstance(item.get("name"), str):
                yield item["name"], _text(item["value"])


def _device_ids(found: Mapping[Any, Any]) -> str:
    """The GPUs that a service reserves by number or identity, "" for none named."""
    value: Any = found
    for key in ("deploy", "resources", "reservations", "devices"):
        value = value.get(key) if isinstance(value, Mapping) else None
    ids = (
        [device.get("device_ids") for device in value if isinstance(device, Mapping)] if isinstance(value, list) else []
    )
    return ",".join(str(one) for some in ids if isinstance(some, list) for one in some)


def _filled(text: str, *, compose: bool) -> str:
    """A default in the place of a variable; doubled signs are plain ones."""
    if not compose:
        return text.replace("$$(", "$(")
    return _VARIABLE.sub(
        lambda m: "$" if m[0] == "$$" else m[2] if m[2] is not None and "?" not in m[0] else m[0], text
    )
