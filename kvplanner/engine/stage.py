"""Stages of start-up as an engine declares them: where it can fail, what is in use there, and what is compared."""

from __future__ import annotations

from typing import Literal

from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple

# What a stage's need is held against. free: what is free before the engine takes anything, against its budget.
# card: the device. budget: the engine's budget. request: the cache, against one full-length request.
Against = Literal["free", "card", "budget", "request"]


class StageRule(NamedTuple):
    """One way for start-up to fail.

    stage: its name in the plan schema; step: the stage of start-up (StageMemory.stage) in which it happens.
    when: "while loading the weights", after "fails"; doing: "loading the weights", as the subject of a sentence.
    in_use: what a device holds, or is reckoned to need, there; released: what it no longer holds.
    early: later stages lack more, all of it measured against the budget. starting: not early, yet no server comes of a
    start that fails here, so that what its range leaves open is a doubt of the start.
    """

    stage: str
    step: str
    when: str
    doing: str
    against: Against
    in_use: frozenset[SegmentKind]
    released: frozenset[SegmentKind] = frozenset()
    early: bool = False
    starting: bool = False


class StepLabel(NamedTuple):
    """A stage of start-up by name, as it is drawn and as people read it ("load weights")."""

    step: str
    label: str
