"""The application's side of the helper process: starts, watches, restarts and ends it; never blocks.

The owner calls poll() on a timer (four times a second is enough) and gets what has come in since.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, Literal

from kvplanner.observe.helper import RETRY_S, Command, HelperSettings, Stalled
from kvplanner.observe.launch import forget, start_helper
from kvplanner.observe.snapshot import GpuSample, Snapshot
from kvplanner.record import NamedTuple

SamplerState = Literal["off", "starting", "running", "paused", "stalled", "waiting"]
FAST_S: Final = 0.1
NORMAL_S: Final = 1.0
CALL_LIMIT_S: Final = 10.0
SKIP_S: Final = 30.0
_START_LIMIT_S: Final = 30.0
_END_LIMIT_S: Final = 2.0
_HEALTHY_S: Final = 60.0
_MAX_PER_POLL: Final = 64


class SamplerStatus(NamedTuple):
    """How the sampler fares. message: one sentence for people, "" when all is well.

    pci: the GPU that hangs, when one does; retry_in: seconds until the next try when state is "waiting".
    """

    state: SamplerState
    message: str = ""
    pci: str = ""
    retry_in: float = 0.0


class Sampler:
    """One helper process at most. Not thread-safe: one owner."""

    def __init__(
        self,
        settings: HelperSettings | None = None,
        call_limit: float = CALL_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or HelperSettings()
        self._limit = call_limit
        self._clock = clock
        self._helper: BaseProcess | None = None
        self._link: Connection | None = None
        self._started = self._heard = 0.0
        self._quiet = 0.0
        self._paused = False
        self._retry_at: float | None = None
        self._gone: float | None = None  # when the pipe was found closed
        self._failures = 0
        self._skip: dict[str, float] = {}
        self._status = SamplerStatus("off")
        self._last: Snapshot | None = None

    # -- for the owner --------------------------------------------------------------------------------------------

    @property
    def status(self) -> SamplerStatus:
        """The present state; retry_in is counted down."""
        if self._retry_at is None:
            return self._status
        return self._status._replace(retry_in=max(0.0, self._retry_at - self._clock()))

    @property
    def helper(self) -> BaseProcess | None:
        """The helper while there is one."""
        return self._helper

    @property
    def helper_pid(self) -> int | None:
        """The helper's PID while there is one."""
        return self._helper.pid if self._helper is not None else None

    @property
    def interval(self) -> float:
        """Seconds between samples as asked for."""
        return self._settings.interval

    def start(self) -> None:
        """Starts the helper, or lets it go on after a pause."""
        if self._paused:
            self.resume()
        elif self._helper is None and self._retry_at is None:
            self._launch()

    def stop(self) -> None:
        """Ends the helper; returns within about two seconds even when a driver call hangs."""
        self._retry_at, self._paused, self._failures = None, False, 0
        self._end(politely=True)
        self._status = SamplerStatus("off")

    def pause(self) -> None:
        """Nothing is sampled any more; the driver is let go of after a while."""
        if self._helper is not None and not self._paused:
            self._paused = True
            self._tell(Command("pause"))
            self._status = SamplerStatus("paused")

    def resume(self) -> None:
        """Goes on after pause()."""
        if self._paused:
            self._paused = False
            self._heard = self._clock()
            self._status = SamplerStatus("running")
            self._tell(Command("resume"))

    def set_interval(self, seconds: float) -> None:
        """Changes the cadence of memory samples."""
        self._settings = self._settings._replace(interval=seconds)
        self._quiet = seconds
        self._tell(Command("interval", seconds))

    def reconnect(self) -> None:
        """Tries again at once: a new connection to the driver, also for GPUs that were left alone."""
        had_skips, self._failures, self._retry_at = bool(self._skip), 0, None
        self._skip.clear()
        if self._helper is None or had_skips or self._status.state == "stalled":
            self._end(politely=False)
            self._launch()
        else:
            self._tell(Command("reconnect"))

    def poll(self) -> tuple[Snapshot, ...]:
        """What has come in since the last poll, oldest first. Looks after the helper as well. Never blocks."""
        now = self._clock()
        if self._helper is None:
            if self._retry_at is not None and now >= self._retry_at:
                self._launch()
            return ()
        found: list[Snapshot] = []
        alive = self._drain(found, now)
        helper = self.helper
        if helper is None:  # it hung and was ended
            return tuple(found)
        if alive and helper.is_alive():
            self._check_time(now)
        elif not helper.is_alive() or self._has_ended_for(now, _END_LIMIT_S):
            self._died()
        return tuple(found)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        now = self._clock()
        self._retry_at = None
        self._skip = {pci: until for pci, until in self._skip.items() if until > now}
        seq = self._last.seq if self._last else 0
        settings = self._settings._replace(skip=frozenset(self._skip), first_seq=seq)
        self._helper, self._link = start_helper(settings)
        self._started = self._heard = now
        self._gone = None
        self._quiet = _START_LIMIT_S
        self._status = SamplerStatus("starting")

    def _drain(self, found: list[Snapshot], now: float) -> bool:
        try:
            for _ in range(_MAX_PER_POLL):
                if self._link is None or not self._link.poll(0):
                    return True
                message = self._link.recv()
                self._heard = now
                if isinstance(message, Stalled):
                    self._stalled(message)
                else:
                    found.append(message)
                    self._last = message
                    self._quiet = message.interval
                    self._status = SamplerStatus("paused" if self._paused else "running")
        except (EOFError, OSError):
            return False
        return True

    def _stalled(self, message: Stalled) -> None:
        name = self._name_of(message.pci)
        if message.seconds < self._limit:
            text = f"{name} has not answered for {message.seconds:.0f} s."
            self._status = SamplerStatus("stalled", text, message.pci)
            return
        if message.pci:
            self._skip[message.pci] = self._clock() + SKIP_S
        self._end(politely=False)
        if message.pci:
            self._retry(f"{name} did not answer for {message.seconds:.0f} s: left alone for {SKIP_S:.0f} s.", soon=True)
        else:
            self._retry(f"The NVIDIA driver did not answer for {message.seconds:.0f} s.")

    def _name_of(self, pci: str) -> str:
        gpus: tuple[GpuSample, ...] = self._last.gpus if self._last else ()
        known = next((g for g in gpus if g.pci == pci), None)
        return f"{known.label} ({pci})" if known else (f"The GPU at {pci}" if pci else "The NVIDIA driver")

    def _check_time(self, now: float) -> None:
        if self._helper is None or self._paused:
            return
        if now - self._heard > self._quiet + max(self._limit, 3 * self._settings.interval) + 2.0:
            self._end(politely=False)
            self._retry("The helper that reads the GPUs went silent and was ended.")
            return
        if self._status.state != "running":
            return
        if now - self._started > _HEALTHY_S:
            self._failures = 0
        if self._skip and all(until <= now for until in self._skip.values()):
            # Only a new helper tries again the GPU that hung: it alone may be lost to it.
            self._end(politely=True)
            self._launch()

    def _has_ended_for(self, now: float, seconds: float) -> bool:
        """Whether so long ago it closed its end: a process that the system still writes to disk has no exit status."""
        if self._gone is None:
            self._gone = now
        return now - self._gone >= seconds

    def _died(self) -> None:
        code = self._helper.exitcode if self._helper is not None else None
        how = f"exit status {code}" if code is not None else "it closed its end of the pipe"
        why = "a defect of kvplanner"
        if code is not None and code < 0:
            how, why = f"signal {-code}", "the NVIDIA driver may have crashed it"
            if -code in set(signal.Signals):
                how += f", {signal.Signals(-code).name}"
        self._end(politely=False)
        self._retry(f"The helper that reads the GPUs ended ({how}): {why}.")

    def _retry(self, why: str, soon: bool = False) -> None:
        delay = 0.5 if soon and self._failures == 0 else RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._retry_at = self._clock() + delay
        self._status = SamplerStatus("waiting", why)

    def _tell(self, command: Command) -> None:
        if self._link is not None:
            with suppress(OSError, ValueError):  # poll() finds out that the helper is gone
                self._link.send(command)

    def _end(self, politely: bool) -> None:
        helper, self._helper = self._helper, None
        link, self._link = self._link, None
        if helper is None or link is None:
            return
        if politely:
            with suppress(OSError, ValueError):
                link.send(Command("stop"))
                helper.join(_END_LIMIT_S / 2)
        link.close()
        if helper.is_alive():
            helper.kill()
            helper.join(_END_LIMIT_S / 2)
        if helper.is_alive():
            forget(helper)
        else:
            helper.close()
