"""Where the panel's snapshots come from: the sampler's helper process, or a recording that is played again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, QTimer, Signal

from kvplanner.errors import PlannerError
from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.player import Player
from kvplanner.observe.recording import Recorder
from kvplanner.observe.sampler import FAST_S, NORMAL_S, Sampler, SamplerStatus
from kvplanner.observe.snapshot import Snapshot

# Snapshots are fetched, and so drawn, at most four times a second however fast they are taken.
POLL_MS: Final = 250
# A recording that is still being read is asked again soon.
AHEAD_MS: Final = 20


class Feed(QObject):
    """Snapshots for the panel. All work happens in the helper; a tick here takes well under a millisecond.

    snapshots(tuple of Snapshot): what has come in, oldest first. status(SamplerStatus). recording(path or None).
    problem(str): something that the user asked for did not work. replaying(path or None). played(share): so much of
    the recording has been shown.
    """

    snapshots = Signal(object)
    status = Signal(object)
    recording = Signal(object)
    replaying = Signal(object)
    problem = Signal(str)
    played = Signal(float)

    def __init__(self, parent: QObject | None = None, sampler: Sampler | None = None) -> None:
        super().__init__(parent)
        self._sampler = sampler or Sampler(HelperSettings(interval=NORMAL_S))
        self._said: SamplerStatus | None = None
        self._recorder: Recorder | None = None
        self._replay: Player | None = None
        self._wanted = self._visible = self._paused = False
        self._unseen = False  # nothing was shown yet of where the replay stands: that is shown even while it is held
        self._speed = 1.0
        self._path: Path | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._tick)
        self._player = QTimer(self)
        self._player.setSingleShot(True)
        self._player.timeout.connect(self._play)

    @property
    def wanted(self) -> bool:
        """Whether the user wants the GPUs watched."""
        return self._wanted

    @property
    def fast(self) -> bool:
        """Whether memory is sampled ten times a second."""
        return self._sampler.interval < NORMAL_S

    @property
    def sampler_status(self) -> SamplerStatus:
        """How the sampler fares now."""
        return self._sampler.status

    @property
    def helper_pid(self) -> int | None:
        """The helper's PID while there is one."""
        return self._sampler.helper_pid

    def attach(self) -> None:
        """Watches the GPUs while the panel can be seen."""
        self._wanted = True
        self.end_replay()
        self._apply()

    def detach(self) -> None:
        """Ends the helper and a recording."""
        self._wanted = False
        self.end_recording()
        self.end_replay()
        self._timer.stop()
        self._sampler.stop()
        self._say()

    def set_visible(self, visible: bool) -> None:
        """Whether anyone can see the panel: nothing is sampled for nobody, except for a recording."""
        self._visible = visible
        self._apply()

    def set_fast(self, fast: bool) -> None:
        """Ten times a second, or once."""
        self._sampler.set_interval(FAST_S if fast else NORMAL_S)

    def reconnect(self) -> None:
        """Tries again at once."""
        if self._wanted:
            self._sampler.reconnect()
            self._timer.start()
            self._say()

    def _apply(self) -> None:
        if not self._wanted or self._replay is not None:
            return
        if self._visible or self._recorder is not None:
            self._sampler.start()
            self._timer.start()
        else:
            self._sampler.pause()
            self._timer.stop()
        self._say()

    def _tick(self) -> None:
        found = self._sampler.poll()
        if found:
            self._record(found)
            self.snapshots.emit(found)
        self._say()

    def _say(self) -> None:
        status = self._sampler.status
        if status != self._said:
            self._said = status
            self.status.emit(status)

    # -- recordings -----------------------------------------------------------------------------------------------

    @property
    def recorder(self) -> Recorder | None:
        """The recording that is being written."""
        return self._recorder

    def record(self, path: Path) -> None:
        """Writes every snapshot from now on to a CSV file."""
        self.end_recording()
        try:
            self._recorder = Recorder(path)
        except OSError as error:
            self.problem.emit(f"Cannot record to {path}: {error.strerror or error}.")
            return
        self.recording.emit(path)
        self._apply()

    def end_recording(self) -> None:
        """Closes the file."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()
            self.recording.emit(None)
            self._apply()

    def _record(self, found: tuple[Snapshot, ...]) -> None:
        if self._recorder is None:
            return
        try:
            for snapshot in found:
                self._recorder.add(snapshot)
        except OSError as error:
            path = self._recorder.path
            self.end_recording()
            self.problem.emit(f"The recording {path} was ended: {error.strerror or error}.")

    def play(self, path: Path) -> None:
        """Plays a recording in its own rhythm instead of watching."""
        self.end_replay()
        self._timer.stop()
        self._sampler.pause()
        self._replay, self._path, self._paused, self._speed = Player(path), path, False, 1.0
        self._unseen = True
        self.replaying.emit(path)
        self._play()

    def seek(self, share: float) -> None:
        """Go on from another place of the recording, 0 to 1."""
        if self._replay is None or self._path is None:
            return
        self._replay.close()
        self._player.stop()
        self._replay, self._unseen = Player(self._path, min(max(share, 0.0), 1.0)), True
        self._play()

    def set_paused(self, on: bool) -> None:
        """Hold the recording, or let it go on."""
        self._paused = on
        if self._replay is not None and not on and not self._player.isActive():
            self._play()

    def set_speed(self, times: float) -> None:
        """So many times as fast as it was recorded."""
        self._speed = times

    def end_replay(self) -> None:
        """Back to watching, if that is wanted."""
        if self._replay is None:
            return
        self._replay.close()
        self._replay = self._path = None
        self._player.stop()
        self.replaying.emit(None)
        self._apply()

    def _play(self) -> None:
        """Shows what the recording holds for the next quarter of a second."""
        if self._replay is None or (self._paused and not self._unseen):
            return
        try:
            step = self._replay.take(POLL_MS / 1000 * self._speed)
        except PlannerError as error:
            self.problem.emit(f"{error}.")
            self.end_replay()
            return
        if step.snapshots:
            self.snapshots.emit(step.snapshots)
            self.played.emit(step.share)
            self._unseen = False
        if step.ended:
            self.end_replay()
            return
        wait = round(step.wait_s / self._speed * 1000)
        self._player.start(max(POLL_MS, wait) if step.snapshots else AHEAD_MS)
