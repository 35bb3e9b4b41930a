"""The record of settling options: what the user set, what the engine chose in its place, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplanner.engine.option import OptionValue, Origin, Resolved

_record = tuple.__new__


class Book:
    """The user's options, and a record of each value as it is settled."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self.options = options
        self.resolved: dict[str, Resolved] = {}
        self.warnings: list[str] = []

    def settle(self, name: str, default: Any, reason: str = "", origin: Origin = "default") -> Any:
        """The user's value of `name`, or the default with its reason."""
        value = self.options.get(name)
        if value is not None:
            self.resolved[name] = Resolved(value, "user", "set by the user")
            return value
        self.resolved[name] = _record(Resolved, (default, origin, reason))  # as Resolved(...) does, for dozens a plan
        return default

    def override(self, name: str, value: OptionValue | None, reason: str) -> None:
        """Record a value that the engine puts in place of whatever was there."""
        self.resolved[name] = Resolved(value, "derived", reason)

    def given(self, name: str) -> bool:
        """Whether the user set it."""
        return self.options.get(name) is not None
