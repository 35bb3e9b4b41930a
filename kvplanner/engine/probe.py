"""How an engine's own program is asked what a plan should come to; what runs it lives with the machine's processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kvplanner.engine.segment import SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from kvplanner.engine.plan import Plan


class Output(NamedTuple):
    """What a program wrote, standard output and error apart. status: None where it was ended once enough was seen."""

    out: str
    err: str
    status: int | None


class Run(Protocol):
    """Runs the program with these words, for as long as time is left."""

    def __call__(self, words: Sequence[str], enough: str = "") -> Output:
        """enough: a regular expression; after a line in which it is found the program is ended."""
        ...


class Answered(NamedTuple):
    """What the program says that a device holds. device: as it names it; position: in the plan's devices, None where
    the plan has no such device. step_bytes: to which it rounds. planned: what the plan comes to as the program counts,
    None where the plan has nothing of the kind there."""

    device: str
    position: int | None
    kind: SegmentKind
    bytes: int
    step_bytes: int
    planned: Estimate | None = None


class Answer(NamedTuple):
    """All that a program says. command: how it was asked; notes: what to know about it, as sentences."""

    program: str
    command: str
    rows: tuple[Answered, ...]
    notes: tuple[str, ...] = ()


class Probe(NamedTuple):
    """programs: names of programs to look for, the best first. needs: what of the model must lie on this machine, as a
    noun. ask(program, run, plan, path): its answer; raises BadInput with what it says where it gives none."""

    programs: tuple[str, ...]
    needs: str
    ask: Callable[[str, Run, Plan, str], Answer]
