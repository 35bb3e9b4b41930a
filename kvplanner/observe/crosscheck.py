"""Runs an engine's own program on a model's file, within bounds, and hands on what it says of a plan.

The program runs without a shell, with closed input, in a group of its own that is ended with it; what it writes is
read up to a bound. Nothing is run that was not asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.probe import Answer, Output
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.reading import is_file

SECONDS: Final = 30.0
_MOST_BYTES: Final = 1 << 20  # of what a program writes
_POLL: Final = 0.05
_READ_OUT_S: Final = 5.0


def program_for(plan: Plan) -> str:
    """The path of the program that can answer on this machine, "" where there is none."""
    return next(iter(_programs(plan)), "")


def _programs(plan: Plan) -> list[str]:
    """The paths of all programs that may answer here, the best first."""
    probe = engine(plan.request.engine).probe()
    found = (shutil.which(name) for name in probe.programs) if probe is not None else ()
    return [path for path in found if path]


def lacking(plan: Plan, path: str) -> str:
    """Why a plan cannot be checked here, as a sentence; "" where it can. path: of the model's file, "" without one."""
    probe = engine(plan.request.engine).probe()
    if probe is None:
        return "This engine has no program that tells its sizes beforehand"
    if not program_for(plan):
        return f"Neither {' nor '.join(probe.programs)} is on this machine's PATH"
    if not path or not is_file(Path(path)):
        return f"The engine's own answer needs {probe.needs} on this machine: this model is known by its name only"
    return ""


def cross_check(
    plan: Plan, path: str, *, seconds: float = SECONDS, cancelled: Callable[[], bool] = lambda: False
) -> Answer:
    """The engine's own answer for the model's file. Raises BadInput where there is none, or not within the time."""
    why = lacking(plan, path)
    if why:
        raise BadInput(why, "--cross-check", "Install it, or name its folder in PATH" if "PATH" in why else "")
    probe, until = engine(plan.request.engine).probe(), monotonic() + seconds
    assert probe is not None
    refused: list[BadInput] = []
    # Where the best one gives no answer (an older build, a broken one), the next is asked in the time that is left.
    for program in _programs(plan):
        try:
            return probe.ask(Path(program).stem, _Running(program, until, seconds, cancelled), plan, path)
        except BadInput as error:
            refused.append(error)
        if cancelled() or monotonic() >= until:
            break
    raise refused[0]


class _Running:
    """Runs one program, several times if need be, until a moment that is set once."""

    def __init__(self, program: str, until: float, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._program = program
        self._until = until
        self._seconds = seconds
        self._cancelled = cancelled

    def __call__(self, words: Sequence[str], enough: str = "") -> Output:
        """As of probe.Run. Raises BadInput where time runs out or the program cannot be started."""
        try:
            process = subprocess.Popen(
                (self._program, *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=sys.platform != "win32",
            )  # fmt: skip
        except OSError as error:
            raise BadInput(
                f"it cannot be started: {error.strerror or error}", self._program, "Name a program that runs here"
            ) from error
        seen = threading.Event()
        pattern = re.compile(enough.encode()) if enough else None
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [_Reader(stream, pattern, seen) for stream in (process.stdout, process.stderr)]
        try:
            status = self._wait(process, seen)
        finally:
            _end(process)
            for reader in readers:  # its end is near: nobody of its group writes any more
                reader.join(_READ_OUT_S)
            process.stdout.close()
            process.stderr.close()
        return Output(readers[0].text, readers[1].text, status)

    def _wait(self, process: subprocess.Popen[bytes], seen: threading.Event) -> int | None:
        while True:
            if seen.wait(0) or self._cancelled():
                return None
            try:
                return process.wait(_POLL)
            except subprocess.TimeoutExpired:
                pass
            if monotonic() > self._until:
                raise BadInput(
                    f"no answer within {self._seconds:g} seconds",
                    Path(self._program).name,
                    "It was ended: run it by hand",
                )


class _Reader(threading.Thread):
    """Reads a stream to its end, keeps the first part, and says when a line matches."""

    def __init__(self, stream: IO[bytes], enough: re.Pattern[bytes] | None, seen: threading.Event) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._enough = enough
        self._seen = seen
        self._kept = bytearray()
        self.start()

    def run(self) -> None:
        """Lines, each of bounded length."""
        with suppress(OSError, ValueError):  # closed under it
            while line := self._stream.readline(_MOST_BYTES):
                if len(self._kept) < _MOST_BYTES:
                    self._kept += line
                if self._enough is not None and self._enough.search(line):
                    self._seen.set()

    @property
    def text(self) -> str:
        """What was kept."""
        return bytes(self._kept).decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program and what it started."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
