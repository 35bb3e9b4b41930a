"""The last minutes in full and the last day once a second, in rings of fixed size."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from kvplanner.observe.snapshot import Snapshot
from kvplanner.record import NamedTuple
from kvplanner.units import MIB

FINE_LENGTH: Final = 6000  # ten minutes at 10 Hz
COARSE_LENGTH: Final = 86_400  # a day at 1 Hz
COARSE_S: Final = 1.0
MAX_SERIES: Final = 32
NAN: Final = float("nan")


class Window(NamedTuple):
    """A piece of history: times in seconds (monotonic), and one series in MiB per key, NaN where nothing was seen."""

    times: array[float]
    series: dict[str, array[float]]


class _Ring:
    """Times and series of one cadence; grows up to `length` samples and then overwrites the oldest."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._next = 0
        self._times = array("d")
        self._series: dict[str, array[float]] = {}

    @property
    def last(self) -> float:
        """Time of the newest sample, minus infinity when there is none."""
        return self._times[self._next - 1] if self._times else float("-inf")

    @property
    def full(self) -> bool:
        """Whether older samples have been overwritten, or will be with the next."""
        return len(self._times) == self.length

    @property
    def first(self) -> float:
        """Time of the oldest sample, plus infinity when there is none."""
        return self._times[self._next % len(self._times)] if self.full else next(iter(self._times), float("inf"))

    def add(self, time: float, values: dict[str, float]) -> None:
        for key in values:
            if key not in self._series and len(self._series) < MAX_SERIES:
                self._series[key] = array("f", [NAN]) * len(self._times)
        if len(self._times) < self.length:
            self._times.append(time)
            for key, series in self._series.items():
                series.append(values.get(key, NAN))
            self._next = len(self._times) % self.length
            return
        at = self._next
        self._times[at] = time
        for key, series in self._series.items():
            series[at] = values.get(key, NAN)
        self._next = (at + 1) % self.length

    def since(self, start: float) -> Window:
        times = self._rolled(self._times)
        first = bisect_left(times, start)
        return Window(times[first:], {key: self._rolled(s)[first:] for key, s in self._series.items()})

    def _rolled(self, values: array[float]) -> array[float]:
        if len(values) < self.length or self._next == 0:
            return values
        return values[self._next :] + values[: self._next]

    @property
    def size_bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self._times, *self._series.values())
        return sum(a.buffer_info()[1] * a.itemsize for a in arrays)


class Mark(NamedTuple):
    """Something that happened: a stage of a start-up, a process that came or went, a GPU that was lost."""

    time: float
    text: str


class History:
    """Allocated memory per GPU over time, with marks."""

    def __init__(self, fine: int = FINE_LENGTH, coarse: int = COARSE_LENGTH) -> None:
        self._fine = _Ring(fine)
        self._coarse = _Ring(coarse)
        self.marks: list[Mark] = []

    def add(self, snapshot: Snapshot) -> None:
        """Takes in one snapshot: what is in use per device, the driver's reserved part included."""
        values = {
            g.uuid: (g.total.value - g.free.value) / MIB
            for g in snapshot.gpus
            if g.status == "ok" and g.total.value is not None and g.free.value is not None
        }
        self._fine.add(snapshot.monotonic, values)
        if snapshot.monotonic - self._coarse.last >= COARSE_S * 0.95:
            self._coarse.add(snapshot.monotonic, values)

    def mark(self, time: float, text: str) -> None:
        """Remembers that something happened (the last 200)."""
        self.marks = [*self.marks[-199:], Mark(time, text)]

    def window(self, seconds: float, now: float) -> Window:
        """The last `seconds`: in full where the fine ring reaches back that far, else once a second."""
        complete = not self._fine.full or self._fine.first <= now - seconds
        return (self._fine if complete else self._coarse).since(now - seconds)

    def clear(self) -> None:
        """Forgets everything."""
        self._fine, self._coarse = _Ring(self._fine.length), _Ring(self._coarse.length)
        self.marks = []

    @property
    def size_bytes(self) -> int:
        """Memory that the rings take."""
        return self._fine.size_bytes + self._coarse.size_bytes
