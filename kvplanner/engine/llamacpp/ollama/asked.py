"""What was asked of Ollama: an option that is given, else a parameter of the model itself, else the default."""

from __future__ import annotations

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest


class Asked:
    """A request's options; remembers where each came from in `resolved`."""

    def __init__(self, request: PlanRequest) -> None:
        self.options, self.asks = request.options, dict(request.model.asks)
        self.resolved: dict[str, Resolved] = {}

    def take(self, name: str, default: OptionValue | None, reason: str = "") -> OptionValue | None:
        """The value of an option. reason: why the default is what it is."""
        given = self.options.get(name)
        if given is None and name in self.asks:
            self.resolved[name] = Resolved(self.asks[name], "default", "a parameter of the model itself")
            return self.asks[name]
        self.resolved[name] = Resolved(given, "user") if given is not None else Resolved(default, "default", reason)
        return default if given is None else given
