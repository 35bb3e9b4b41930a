"""The engines that kvplanner knows. Adding one: a package beside this module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kvplanner.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from kvplanner.engine.protocol import Engine
    from kvplanner.engine.serving import MetricNames

_ENGINES: Final[dict[str, str]] = {
    "vllm": "kvplanner.engine.vllm",
    "sglang": "kvplanner.engine.sglang",
    "llamacpp": "kvplanner.engine.llamacpp",
    "ollama": "kvplanner.engine.llamacpp.ollama",
}


def names() -> tuple[str, ...]:
    """The engines' names, the default one first."""
    return tuple(_ENGINES)


def titles() -> tuple[tuple[str, str], ...]:
    """Name and title of each engine: the TITLE of its package; no rules are imported."""
    return tuple((name, import_module(package).TITLE) for name, package in _ENGINES.items())


def engine(name: str) -> Engine:
    """The engine called `name`, whatever its case and marks ("llama.cpp"); its rules are imported now.

    Raises UnknownName.
    """
    package = _ENGINES.get("".join(c for c in name.lower() if c.isalnum()))
    if package is None:
        raise UnknownName(f"no engine is called {name!r}", "--engine", names(), "Leave it out for the first")
    return _rules(package)


@cache
def _rules(package: str) -> Engine:
    found: Engine = import_module(f"{package}.planner").ENGINE
    return found


def check_constants(name: str, given: Mapping[str, list[dict[str, Any]]], where: str) -> None:
    """Whether an engine can take a data pack's constants: `check` of its package's `constants`, where it has one.

    Raises BadInput naming the field, and UnknownName.
    """
    package = _ENGINES.get(name)
    if package is None:
        raise UnknownName(f"no engine is called {name[:60]!r}", where, names(), "Leave its constants out")
    try:
        module = import_module(f"{package}.constants")
    except ModuleNotFoundError as error:
        raise BadInput(f"{name} takes no constants from packs", where, "Leave them out") from error
    module.check(given, where)


def metrics() -> tuple[MetricNames, ...]:
    """What engines call the figures of their metrics pages: METRICS of packages that have it; imports no rules."""
    return tuple(import_module(f"{package}.metrics").METRICS for package in _with("metrics"))


def log_packages() -> tuple[str, ...]:
    """The packages of engines whose logs are understood: each has a GRAMMAR in `log`."""
    return _with("log")


def _with(module: str) -> tuple[str, ...]:
    """The packages that have a module: what an engine does not say of itself is not asked of it."""
    return tuple(package for package in _ENGINES.values() if find_spec(f"{package}.{module}") is not None)


def signatures() -> tuple[Mapping[str, object], ...]:
    """How each engine looks in a process list: the SIGNATURE of its package; no rules are imported."""
    return tuple(import_module(f"{package}.signature").SIGNATURE for package in _ENGINES.values())
