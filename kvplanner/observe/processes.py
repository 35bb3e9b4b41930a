"""From a PID to a row: name, user, command line, and the engine whose process tree it is part of.

PIDs that NVML reports are the host's. Inside a container with its own PID namespace they may be someone else's, so a
local process only counts when nothing contradicts it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from kvplanner.observe.signatures import Recognised, recognise
from kvplanner.observe.snapshot import EngineSeen, GpuSample, ProcessSample, Reading

# The kernel gives its first PID namespace this inode number on every Linux (include/linux/proc_ns.h).
_FIRST_NAMESPACE: Final = "pid:[4026531836]"
_NOT_TOLD: Final = Reading(None, "the driver does not tell it per process")
_MAX_ANCESTORS: Final = 16
_MAX_COMMAND_WORDS: Final = 4096
_LOOK_AROUND_S: Final = 10.0
_FORGET_S: Final = 120.0


def foreign_pids() -> bool:
    """Whether this process lives in a PID namespace of its own, so that the driver's PIDs may be strangers."""
    try:
        return sys.platform == "linux" and str(Path("/proc/self/ns/pid").readlink()) != _FIRST_NAMESPACE
    except OSError:
        return False


class _Known:
    """What is remembered of a process: it is read once, as long as PID and start time stay the same."""

    __slots__ = ("command", "created", "name", "parent", "recognised", "seen", "user")

    def __init__(self, created: float) -> None:
        self.created = created
        self.seen = 0.0
        self.name = self.user = ""
        self.command: tuple[str, ...] = ()
        self.parent: int | None = None
        self.recognised: Recognised | None = None


class ProcessBook:
    """Describes processes by PID; remembers those it has read."""

    def __init__(self, foreign: bool | None = None) -> None:
        self._foreign = foreign_pids() if foreign is None else foreign
        self._known: dict[int, _Known] = {}
        self._roots: dict[int, EngineSeen] = {}
        self._looked_at = -_LOOK_AROUND_S

    def describe(self, pid: int, driver_name: str, memory: int | None) -> ProcessSample:
        """The row of a process; with only the driver's words where the local process may be another one."""
        amount = Reading(memory) if memory is not None else _NOT_TOLD
        known = self._read(pid)
        if known is None or not self._same(known, driver_name):
            mark = recognise((driver_name,)) if driver_name else None
            return ProcessSample(pid, amount, (), driver_name, engine=mark.signature.engine if mark else "")
        root = self._root(pid, known)
        return ProcessSample(
            pid, amount, (), known.name or driver_name, known.user, known.command, known.created, True,
            root.engine if root else "", root.pid if root else None,
        )  # fmt: skip

    def engines(self, gpus: tuple[GpuSample, ...]) -> tuple[EngineSeen, ...]:
        """The engines that hold memory on these GPUs, and those found by looking around, by PID."""
        used = {p.root_pid for g in gpus for p in g.processes or () if p.root_pid is not None}
        alive = [e for pid, e in self._roots.items() if pid in used or self._read(pid) is not None]
        return tuple(sorted(alive, key=lambda e: e.pid))

    def look_around(self, now: float | None = None) -> None:
        """Searches all local processes for engines: needed where the driver lists none of them."""
        import psutil

        now = time.monotonic() if now is None else now
        if now - self._looked_at < _LOOK_AROUND_S:
            return
        self._looked_at = now
        for pid in psutil.pids():
            known = self._read(pid)
            if known is not None and known.recognised is not None and known.recognised.server:
                self._root(pid, known)

    def forget_old(self) -> None:
        """Drops what has not been looked at for a while."""
        limit = time.monotonic() - _FORGET_S
        self._known = {pid: k for pid, k in self._known.items() if k.seen > limit}
        self._roots = {
            pid: e for pid, e in self._roots.items() if (k := self._read(pid)) is not None and k.created == e.created
        }

    def _same(self, known: _Known, driver_name: str) -> bool:
        if known.created > time.time() + 1.0:
            return False
        if not self._foreign:
            return True
        base = _base(driver_name.split(" ", 1)[0])
        return bool(base) and base in {known.name, *(_base(word) for word in known.command[:2])}

    def _read(self, pid: int) -> _Known | None:
        import psutil

        try:
            process = psutil.Process(pid)
            created = float(process.create_time())
            known = self._known.get(pid)
            if known is None or known.created != created:
                known = self._known[pid] = _fresh(process, created)
        except (psutil.Error, OSError, ValueError):
            self._known.pop(pid, None)
            return None
        known.seen = time.monotonic()
        return known

    def _root(self, pid: int, known: _Known) -> EngineSeen | None:
        """The engine that this process is part of: its topmost recognised ancestor."""
        chain = [(pid, known)]
        while len(chain) < _MAX_ANCESTORS and (parent := chain[-1][1].parent):
            above = self._read(parent)
            if above is None or above.created > chain[-1][1].created + 1.0:
                break
            chain.append((parent, above))
        marked = [(p, k, k.recognised) for p, k in chain if k.recognised is not None]
        if not marked:
            return None
        # The topmost: a llama-server that Ollama started is Ollama's.
        top_pid, top, mark = ([m for m in marked if m[2].server] or marked)[-1]
        engine = mark.signature.engine
        command = top.command if mark.server else ()
        seen = EngineSeen(top_pid, top.created, engine, mark.signature.title, command, top.user)
        self._roots[top_pid] = seen
        return seen


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _fresh(process: Any, created: float) -> _Known:
    """Reads a process; what may not be read stays empty."""
    import psutil

    known = _Known(created)
    with process.oneshot():
        known.parent = process.ppid() or None
        known.name = process.name()
        try:
            known.command = tuple(process.cmdline()[:_MAX_COMMAND_WORDS])
        except psutil.AccessDenied:
            known.command = ()
        try:
            known.user = process.username()
        except (psutil.AccessDenied, KeyError):
            known.user = ""
    known.recognised = recognise(known.command, known.name)
    return known


def installed_version(executable: Path, packages: tuple[str, ...]) -> str:
    """The version of a package in the environment that a program runs from, "" when it cannot be told.

    executable: .../bin/python or .../bin/vllm (not resolved: a virtual environment's link must stay).
    """
    prefix = executable.parent.parent
    for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages"):
        for folder in sorted(prefix.glob(pattern), reverse=True):
            for package in packages:
                found = sorted(folder.glob(f"{package}-*.dist-info"))
                if found:
                    return found[0].name.removesuffix(".dist-info").removeprefix(f"{package}-")
    return ""
