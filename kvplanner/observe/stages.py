"""Start-up stages of an engine as they are seen from outside, by how full its GPU is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.record import NamedTuple
from kvplanner.units import MIB, ByteUnit, format_bytes

# A stage counts as reached this close below its planned end.
_NEAR_SHARE: Final = 0.03
_NEAR_LEAST: Final = 256 * MIB


class StageEnd(NamedTuple):
    """A stage of start-up and the device memory in use at its end, in bytes."""

    label: str
    bytes: int


class EngineEnd(NamedTuple):
    """An engine that is gone. waiting: the stage whose end its memory never reached, "" after the last that can be told
    from outside, which is `after`. most_bytes: the most that was in use on its GPU.
    """

    title: str
    pid: int
    waiting: str
    after: str
    most_bytes: int

    def text(self, unit: ByteUnit = "GiB") -> str:
        """What its memory tells, in a sentence."""
        where = f"at the stage “{self.waiting}”" if self.waiting else f"after “{self.after}”" if self.after else ""
        most = f"at most {format_bytes(self.most_bytes, unit)} of its GPU was in use"
        return f"{self.title} (pid {self.pid}) ended {where}: {most}".replace("  ", " ").replace(" :", ":")


class StageWatch:
    """Follows one engine on one GPU; says each thing once. ended: the last one that is gone."""

    def __init__(self, stages: Sequence[StageEnd] = ()) -> None:
        self._stages = rising(stages)
        self._next = 0
        self._pid: int | None = None
        self._silent = False
        self._title, self._most = "", 0
        self.ended: EngineEnd | None = None

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
                waiting = self._stages[self._next].label if self._next < len(self._stages) else ""
                after = self._stages[self._next - 1].label if self._next else ""
                self.ended = EngineEnd(self._title, self._pid, waiting, after, self._most)
            if pid is not None:
                said.append(f"{title} seen")
            self._pid, self._next, self._most, self._title = pid, 0, 0, title
        if pid is None:
            return tuple(said)
        self._most = max(self._most, in_use)
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
