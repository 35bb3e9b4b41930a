"""The helper process: owns NVML, samples on a cadence and sends snapshots to the application.

It is a process because a driver call may never return or may take the process down. It ends when the application
ends, even while a driver call hangs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from kvplanner.observe.nvml import Unavailable
from kvplanner.observe.power import SYSFS, PowerState, PowerWatch
from kvplanner.observe.processes import ProcessBook
from kvplanner.observe.reader import DRIVER, UNLISTED_WORTH_SAYING, GpuReader
from kvplanner.observe.snapshot import DriverState, GpuSample, Snapshot
from kvplanner.record import NamedTuple

RETRY_S: Final = (5.0, 30.0, 60.0)
GAUGES_S: Final = 2.0
OTHER_LISTS_S: Final = 6.0
CLOSE_AFTER_PAUSE_S: Final = 10.0
STALL_AFTER_S: Final = 2.0
SLOW_SAMPLE_S: Final = 0.2
IDLE_BEFORE_REST_S: Final = 30.0
REST_S: Final = 10.0


class HelperSettings(NamedTuple):
    """interval, list_interval: seconds between memory samples and between process lists (at least 2).

    others_interval: seconds between lists of processes that compute nothing; close_after: seconds of a pause after
    which the driver is let go; stall_after: seconds after which a call that has not returned is reported.
    skip: PCI ids to leave alone; first_seq: number of the first snapshot; sysfs: where PCI devices are listed.
    """

    interval: float = 1.0
    list_interval: float = 2.0
    others_interval: float = OTHER_LISTS_S
    close_after: float = CLOSE_AFTER_PAUSE_S
    stall_after: float = STALL_AFTER_S
    skip: frozenset[str] = frozenset()
    first_seq: int = 0
    sysfs: Path = SYSFS


class Stalled(NamedTuple):
    """A driver call has not returned yet. pci: the GPU that was asked, "" for the driver as a whole."""

    pci: str
    seconds: float


class Command(NamedTuple):
    """From the application: "interval" (value: seconds), "pause", "resume", "reconnect", "stop"."""

    word: str
    value: float = 0.0


def run(link: Connection, settings: HelperSettings) -> None:
    """The helper's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal is the application's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    helper = Helper(link, settings)
    threading.Thread(target=helper.watch, daemon=True).start()
    try:
        helper.loop()
    except (EOFError, OSError):  # the application is gone
        pass
    finally:
        helper.close()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(0)  # the main thread may be inside a driver call that never returns


class Helper:
    """The loop and its state: open or not, paused or not, when what is due."""

    def __init__(self, link: Connection, settings: HelperSettings) -> None:
        self._link = link
        self._settings = settings
        self._interval = settings.interval
        self._sending = threading.Lock()
        self._busy: tuple[str, float] | None = None
        self._reader: GpuReader | None = None
        self._book = ProcessBook()
        self._power = PowerWatch(settings.sysfs)
        self._seq = settings.first_seq
        self._failures = 0
        self._paused_at: float | None = None
        self._due = self._gauges_due = self._lists_due = self._others_due = 0.0
        self._lists_at: float | None = None
        self._last: tuple[GpuSample, ...] = ()
        self._slow = 1.0
        self._idle_since: float | None = None
        self._resting_since: float | None = None
        self._only: tuple[str, ...] | None = None
        self._all_lost_before = False

    # -- talking --------------------------------------------------------------------------------------------------

    def _send(self, message: Snapshot | Stalled) -> None:
        with self._sending:
            self._link.send(message)

    def _enter(self, pci: str) -> None:
        self._busy = (pci, time.monotonic()) if pci else None

    def watch(self) -> None:
        """Reports a call that does not return, from its own thread."""
        while True:
            time.sleep(self._settings.stall_after / 4)
            busy = self._busy
            if busy is not None and (taken := time.monotonic() - busy[1]) >= self._settings.stall_after:
                try:
                    self._send(Stalled(busy[0] if busy[0] != DRIVER else "", taken))
                except OSError:
                    return

    def loop(self) -> None:
        """Samples and obeys until told to stop. Raises EOFError or OSError when the application is gone."""
        while True:
            if self._link.poll(self._wait()):
                command = self._link.recv()
                if command.word == "stop":
                    return
                self._obey(command)
            elif self._paused_at is None:
                self._tick()
            else:
                self._close_reader()

    def _wait(self) -> float | None:
        now = time.monotonic()
        if self._paused_at is not None:
            return max(0.0, self._paused_at + self._settings.close_after - now) if self._reader else None
        return max(0.0, self._due - now)

    def _obey(self, command: Command) -> None:
        if command.word == "interval":
            self._interval, self._slow = command.value, 1.0
            self._due = min(self._due, time.monotonic() + command.value)
        elif command.word == "pause":
            self._paused_at = self._paused_at or time.monotonic()
        elif command.word == "resume":
            self._paused_at, self._due = None, 0.0
        elif command.word == "reconnect":
            self._close_reader()
            self._failures, self._due, self._resting_since = 0, 0.0, None

    def close(self) -> None:
        """Ends the use of NVML."""
        self._close_reader()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._enter(DRIVER)
            self._reader.close()
            self._enter("")
            self._reader = None

    # -- sampling -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        started = time.monotonic()
        states = self._power.states(started)
        if self._rests(states, started):
            self._say_asleep(states)
            self._due = started + max(self._interval, 1.0)
            return
        if self._reader is None and not self._open(states):
            return
        lists = self._lists_now(started)
        gauges = started >= self._gauges_due
        assert self._reader is not None
        gpus = self._reader.sample(gauges, lists)
        taken = time.monotonic() - started
        if gauges:
            self._gauges_due = started + GAUGES_S - 0.05
        if lists:
            self._look_for_engines(gpus)
        self._last = gpus
        self._slow = 2.0 if taken > max(SLOW_SAMPLE_S, self._interval) else 1.0
        self._due = max(started + self._interval * self._slow, time.monotonic() + taken * (self._slow - 1.0))
        self._report(gpus, taken)
        self._note_idleness(gpus, states, started)

    def _lists_now(self, now: float) -> tuple[str, ...]:
        lists: tuple[str, ...] = ()
        if now >= self._lists_due:
            self._lists_due = now + max(2.0, self._settings.list_interval) - 0.05
            lists = ("compute",)
        if now >= self._others_due:
            self._others_due = now + self._settings.others_interval - 0.05
            lists = ("compute", "graphics", "mps")
        if lists:
            self._lists_at = now
        return lists

    def _look_for_engines(self, gpus: tuple[GpuSample, ...]) -> None:
        self._book.forget_old()
        in_use = any((g.unlisted.value or 0) > UNLISTED_WORTH_SAYING for g in gpus)
        if in_use and not any(p.local for g in gpus for p in g.processes or ()):
            self._book.look_around()

    def _report(self, gpus: tuple[GpuSample, ...], taken: float) -> None:
        assert self._reader is not None
        state: DriverState = "ok"
        message = remedy = ""
        if not gpus:
            state, message = "no_devices", "The NVIDIA driver runs, but no GPU is visible."
            remedy = "A GPU that is plugged in or given to this container is picked up by itself."
        elif self._reader.all_lost:
            state, message = "lost", "All GPUs stopped answering."
            remedy = "Restart the computer; in a container, recreate it."
        notes = ("Sampling is slow on this machine and was made rarer.",) if self._slow > 1.0 else ()
        reader = self._reader
        self._send(
            Snapshot(
                self._next(), time.monotonic(), time.time(), gpus, state, message, remedy, reader.driver, reader.cuda,
                self._interval * self._slow, self._lists_at, self._book.engines(gpus), notes,
            )
        )  # fmt: skip
        if state == "lost":
            self._close_reader()
            self._put_off()
        elif state == "ok":
            self._failures = 0
        elif state == "no_devices":
            self._close_reader()
            self._due = time.monotonic() + RETRY_S[0]

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _open(self, states: tuple[PowerState, ...]) -> bool:
        asleep = {s.pci for s in states if s.asleep}
        self._only = tuple(s.pci for s in states if not s.asleep) if asleep else None
        self._enter(DRIVER)
        try:
            self._reader = GpuReader(
                self._settings.skip, self._book.describe, entered=self._enter, only=self._only
            )  # fmt: skip
        except Unavailable as refused:
            self._enter("")
            self._put_off()
            wait = self._due - time.monotonic()
            self._send(
                Snapshot(
                    self._next(), time.monotonic(), time.time(), _greyed(self._last, refused.message), refused.state,
                    refused.message, refused.remedy, interval=wait,
                )
            )  # fmt: skip
            return False
        self._enter("")
        self._gauges_due = self._lists_due = self._others_due = 0.0
        return True

    def _put_off(self) -> None:
        self._due = time.monotonic() + RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1

    # -- letting GPUs sleep ---------------------------------------------------------------------------------------

    def _note_idleness(self, gpus: tuple[GpuSample, ...], states: tuple[PowerState, ...], now: float) -> None:
        sleepers = {s.pci for s in states if s.may_sleep}
        idle = bool(gpus) and all(
            g.pci in sleepers and not g.processes and not g.utilization.value for g in gpus
        )  # fmt: skip
        if not idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_BEFORE_REST_S:
            # An open NVML keeps a laptop's GPU awake: let go of it and watch sysfs instead.
            self._close_reader()
            self._resting_since, self._idle_since = now, None

    def _rests(self, states: tuple[PowerState, ...], now: float) -> bool:
        if states and all(s.asleep for s in states):
            self._close_reader()
            self._resting_since = now
            return True
        if self._resting_since is not None:
            if now - self._resting_since < REST_S:
                return True
            self._resting_since = None
        return False

    def _say_asleep(self, states: tuple[PowerState, ...]) -> None:
        known = {g.pci: g for g in self._last if g.kind == "gpu"}
        gpus = tuple(
            known.get(s.pci, GpuSample(i, f"pci-{s.pci}", s.pci, "NVIDIA GPU"))._replace(
                status="asleep", message="Asleep: left alone to save power." if s.asleep else "Idle: left alone.",
            )
            for i, s in enumerate(states)
        )  # fmt: skip
        self._send(
            Snapshot(
                self._next(), time.monotonic(), time.time(), gpus, "asleep", "The GPU sleeps and is left to sleep.",
                "It shows its memory as soon as a program uses it.", interval=max(self._interval, 1.0),
            )
        )  # fmt: skip


def _greyed(gpus: tuple[GpuSample, ...], message: str) -> tuple[GpuSample, ...]:
    now = time.time()
    return tuple(g._replace(status="lost", message=message, since=g.since or now) for g in gpus)
