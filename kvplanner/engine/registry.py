"""The engines that kvplanner knows. Adding one: a package beside this module and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from kvplanner.engine.base import Engine
from kvplanner.errors import UnknownName

_ENGINES: Final[dict[str, str]] = {"vllm": "kvplanner.engine.vllm.planner"}


def names() -> tuple[str, ...]:
    """The engines' names, the default one first."""
    return tuple(_ENGINES)


def engine(name: str) -> Engine:
    """The engine called `name`; its rules are imported now. Raises UnknownName."""
    module = _ENGINES.get(name.lower())
    if module is None:
        raise UnknownName(f"no engine is called {name!r}", "--engine", names())
    found: Engine = import_module(module).ENGINE
    return found
