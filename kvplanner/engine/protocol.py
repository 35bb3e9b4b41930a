"""What an engine package offers to everything that plans with it: request in, plan out, both frozen."""

from collections.abc import Mapping
from typing import Protocol

from kvplanner.engine.option import FlagRule, Option
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model


class Engine(Protocol):
    """What an engine package offers. All functions are pure."""

    name: str
    title: str
    versions: tuple[str, ...]
    launch: tuple[str, ...]  # the command that starts a server, before the model's name

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        ...

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options that exist in a version (the newest when None)."""
        ...

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """The values of a whole-number option that a model allows, ascending; empty where it rules none out."""
        ...

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why a version loads no weights of a quantisation method as configs name it on a machine, "" when it does.

        machine None: on any.
        """
        ...

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that the engine refuses, NotModelled for models it does not know."""
        ...
