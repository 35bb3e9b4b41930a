"""Start-up stages of an engine as they are seen from outside, by how full its GPU is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.record import NamedTuple
from kvplanner.units import MIB

# A stage counts as reached this close below its planned end.
_NEAR_SHARE: Final = 0.03
_NEAR_LEAST: Final = 256 * MIB


class StageEnd(NamedTuple):
    """A stage of start-up and the device memory in use at its end, in bytes."""

    label: str
    bytes: int


class StageWatch:
    """Follows one engine on one GPU; says each thing once."""

    def __init__(self, stages: Sequence[StageEnd] = ()) -> None:
        self._stages = rising(stages)
        self._next = 0
        self._pid: int | None = None
        self._silent = False

    def set_stages(self, stages: Sequence[StageEnd]) -> None:
        """Another plan: what it takes for reached already is no news."""
        changed = rising(stages)
        if changed != self._stages:
            self._stages, self._next, self._silent = changed, 0, True

    def see(self, pid: int | None, title: str, in_use: int) -> tuple[str, ...]:
        """What has newly happened. pid: of the engine, None when there is none; in_use: bytes on the GPU."""
        said: list[str] = []
        # An engine that was already running when it was first seen shows nothing of its start-up.
        silent, self._silent = self._silent or (pid is not None and pid != self._pid), False
        if pid != self._pid:
            if self._pid is not None and pid is None:
                said.append("engine ended")
            if pid is not None:
                said.append(f"{title} seen")
            self._pid, self._next = pid, 0
        if pid is None:
            return tuple(said)
        reached = self._next
        while reached < len(self._stages) and in_use >= self._stages[reached].bytes - near(self._stages[reached].bytes):
            reached += 1
        if reached > self._next and not silent:
            said.extend(s.label for s in self._stages[self._next : reached])
        self._next = max(self._next, reached)
        return tuple(said)


def near(end_bytes: int) -> int:
    """How far below a planned end still counts as reached."""
    return max(int(end_bytes * _NEAR_SHARE), _NEAR_LEAST)


def rising(stages: Sequence[StageEnd]) -> tuple[StageEnd, ...]:
    """The stages whose end lies clearly above all before: the others cannot be told apart from outside."""
    kept: list[StageEnd] = []
    for stage in stages:
        if not kept or stage.bytes - near(stage.bytes) > kept[-1].bytes:
            kept.append(stage)
    return tuple(kept)
