"""What an engine package offers to everything that plans with it: request in, plan out, both frozen."""

from collections.abc import Mapping
from typing import Protocol

from kvplanner.engine.draft import DraftWish
from kvplanner.engine.lever import Lever
from kvplanner.engine.option import FlagRule, Option, OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.probe import Probe
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.stage import StageRule
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model


class Engine(Protocol):
    """What an engine package offers. All functions are pure."""

    name: str
    title: str
    versions: tuple[str, ...]
    launch: tuple[str, ...]  # the command that starts a server, before the model's name
    stages: tuple[StageRule, ...]  # where start-up can fail, in the order in which it comes to them

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

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        """Its own words for kinds of segments, as fields of report.segments.SegmentWords; {} for the usual ones."""
        ...

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        """The options of a server that is started with these: its own default where a plan derives one."""
        ...

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        """The draft model whose layers a plan needs, None for none. Raises BadInput where it must be named."""
        ...

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        """What may be changed about a request, given its plan: proposals, each with its cost."""
        ...

    def serves_at_most(self, request: PlanRequest) -> float | None:
        """More than a plan of the request ever serves, whatever memory there is; None where that is not known at once.

        In users of its load, else in requests of the full length times that length. May raise as `plan` does.
        """
        ...

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """What of its rules differs between two releases, for people, oldest change first; () where that is not known.

        Raises BadInput for what is no release.
        """
        ...

    def makes_room(self, request: PlanRequest, running: int) -> bool:
        """Whether a server that holds so many models unloads one of them, idle, before it loads this one.

        The request's machine is as it is then; False of an engine that serves one model.
        """
        ...

    def probe(self) -> Probe | None:
        """A program of the engine's own that says what a plan should come to, None where it has none."""
        ...

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that the engine refuses, NotModelled for models it does not know."""
        ...
