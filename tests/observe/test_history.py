"""Rings of samples."""

from __future__ import annotations

import pytest

from kvplanner.observe.history import History
from kvplanner.observe.snapshot import Snapshot
from tests.observe.kit import shot

pytestmark = pytest.mark.slow


def test_a_day_of_eight_gpus_stays_small() -> None:
    history = History()
    for i in range(90_000):
        history.add(shot(float(i), *range(8)))
    assert history.size_bytes < 20 << 20
    window = history.window(3600, 90_000.0)
    assert len(window.times) == 3600
    assert list(window.series["GPU-7"][-3:]) == [7, 7, 7]


def test_the_last_minutes_are_kept_in_full() -> None:
    history = History(fine=100, coarse=100)
    for i in range(250):
        history.add(shot(i / 10, i))
    window = history.window(5.0, 24.9)
    assert [round(t, 1) for t in window.times] == [round(19.9 + i / 10, 1) for i in range(51)]
    assert list(window.series["GPU-0"]) == list(range(199, 250))
    older = history.window(20.0, 24.9)
    assert all(b - a > 0.9 for a, b in zip(older.times, older.times[1:], strict=False))


def test_a_gpu_that_comes_later_and_goes_has_gaps() -> None:
    history = History(fine=10)
    history.add(shot(0.0, 5))
    history.add(shot(1.0, 5, 6))
    history.add(Snapshot(3, 2.0, 2.0, shot(2.0, 5, 6).gpus[:1]))
    series = history.window(10, 2.0).series
    assert list(series["GPU-0"]) == [5, 5, 5]
    assert [v == v for v in series["GPU-1"]] == [False, True, False]


def test_clear() -> None:
    history = History()
    history.add(shot(0.0, 5))
    history.mark(0.0, "start")
    history.clear()
    assert not history.window(10, 0.0).times
    assert not history.marks
