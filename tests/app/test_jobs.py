"""Jobs: results and errors on the main thread, cancel, replacement, shutdown."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QRunnable, Qt, QTimer
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from kvplanner.app.jobs import JobControl, Jobs
from tests.patience import LONG_S


@pytest.fixture
def jobs(qtbot: QtBot) -> Iterator[Jobs]:
    made = Jobs()
    yield made
    assert made.stop()


def fail(error: object) -> None:
    raise AssertionError(f"unexpected failure: {error!r}")


def test_work_runs_elsewhere_and_its_result_arrives_here(qtbot: QtBot, jobs: Jobs) -> None:
    seen: list[tuple[int, int]] = []
    main = threading.get_ident()
    jobs.submit("t", lambda c: threading.get_ident(), lambda r: seen.append((r, threading.get_ident())), fail)
    qtbot.waitUntil(lambda: bool(seen))
    worker, receiver = seen[0]
    assert receiver == main
    assert worker != main
    qtbot.waitUntil(lambda: not jobs.active)


def test_an_error_arrives_at_failed(qtbot: QtBot, jobs: Jobs) -> None:
    errors: list[Exception] = []

    def work(control: JobControl) -> None:
        raise KeyError("missing")

    jobs.submit("t", work, fail, errors.append)
    qtbot.waitUntil(lambda: bool(errors))
    assert isinstance(errors[0], KeyError)


def test_a_newer_job_of_the_same_key_wins(qtbot: QtBot, jobs: Jobs) -> None:
    gate = threading.Event()
    results: list[str] = []

    def slow(control: JobControl) -> str:
        gate.wait(LONG_S)
        return "old"

    jobs.submit("a", slow, results.append, fail, key="model")
    jobs.submit("b", lambda c: "new", results.append, fail, key="model")
    qtbot.waitUntil(lambda: bool(results))
    gate.set()
    qtbot.waitUntil(lambda: not jobs.active)
    qtbot.wait(20)
    assert results == ["new"]


def test_progress_and_cancel(qtbot: QtBot, jobs: Jobs) -> None:
    reports: list[tuple[float | None, str]] = []
    started = threading.Event()

    def work(control: JobControl) -> None:
        deadline = time.monotonic() + LONG_S
        for step in count():
            assert time.monotonic() < deadline, "it was not cancelled"
            control.progress(None, f"step {step}")
            started.set()
            time.sleep(0.001)

    job = jobs.submit("t", work, fail, fail)
    assert job is not None
    job.progressed.connect(lambda share, text: reports.append((share, text)))
    assert started.wait(LONG_S)
    qtbot.waitUntil(lambda: bool(reports))
    with qtbot.waitSignal(job.finished):
        job.cancel()
    assert not jobs.active


def test_stop_ends_running_jobs_and_starts_no_more(qtbot: QtBot) -> None:
    jobs = Jobs()
    started, ended = threading.Event(), threading.Event()

    def work(control: JobControl) -> None:
        started.set()
        while not control.cancelled:
            time.sleep(0.001)
        ended.set()

    jobs.submit("t", work, fail, fail)
    assert started.wait(LONG_S)
    assert jobs.stop()
    assert ended.is_set()
    assert jobs.submit("t", work, fail, fail) is None


def _seven(_of: object, _control: JobControl) -> int:
    return 7


def test_stop_finishes_what_writes_a_file(qtbot: QtBot) -> None:
    """What was asked for just before the end was dropped: its job had not begun."""
    jobs = Jobs(threads=1)
    go, written = threading.Event(), list[str]()

    def other(control: JobControl) -> None:
        go.wait(60)

    jobs.submit("other", other, lambda _: None, fail)
    jobs.submit("Saving", lambda control: written.append("whole"), lambda _: None, fail, writes=True)
    jobs.submit("more", lambda control: written.append("never"), lambda _: None, fail)
    threading.Timer(0.05, go.set).start()
    assert jobs.stop()
    assert written == ["whole"]


@pytest.mark.parametrize("well", [True, False])
def test_the_end_of_writing_is_told(qtbot: QtBot, jobs: Jobs, well: bool) -> None:
    ended: list[bool] = []
    errors: list[Exception] = []
    jobs.written.connect(ended.append)

    def write(control: JobControl) -> None:
        if not well:
            raise OSError(28, "No space left on device")

    jobs.submit("Looking", lambda control: 1 // 0, lambda _: None, errors.append)
    jobs.submit("Saving", write, lambda _: None, errors.append, writes=True)
    assert len(jobs.writing) == 1
    qtbot.waitUntil(lambda: bool(ended) and not jobs.active)
    assert ended == [well]
    assert not jobs.writing


def test_an_ended_job_keeps_nothing_alive(qtbot: QtBot, jobs: Jobs) -> None:
    class Window:
        """Something large that a job was for."""

        def take(self, result: object) -> None:
            seen.append(result)

    seen: list[object] = []
    window = Window()
    there = weakref.ref(window)
    known = jobs.submit("t", partial(_seven, window), window.take, fail)
    qtbot.waitUntil(lambda: seen == [7])
    ended = weakref.ref(known) if known is not None else None
    del window
    gc.collect()
    assert there() is None, "whoever still knows the job keeps alive what it was for"
    del known
    assert ended is not None

    def gone() -> bool:
        gc.collect()
        return ended() is None  # its thread may be on its way back from it

    qtbot.waitUntil(gone)  # else every edit would leave a job behind


def test_many_jobs_leave_nothing_behind(qtbot: QtBot, jobs: Jobs) -> None:
    """What a pool has once started stays for good: as many are made as ran at once, however many follow."""

    def made() -> int:
        return sum(isinstance(thing, QRunnable) for thing in gc.get_objects())

    before = made()
    ended: list[int] = []
    for number in range(100):
        jobs.submit("one of many", partial(_seven, number), ended.append, fail)
        qtbot.waitUntil(lambda: not jobs.active, timeout=5000)
    assert ended == [7] * 100
    assert made() - before <= 3


class _Orphan(QTimer):
    """Like a widget of the application's own: derived from Qt's, and part of what refers to itself."""

    def __init__(self, ended: list[str]) -> None:
        super().__init__()
        self.me = self
        self.destroyed.connect(
            lambda: ended.append(threading.current_thread().name), Qt.ConnectionType.DirectConnection
        )


def test_what_refers_to_itself_ends_on_the_main_thread_whatever_a_job_makes(qtbot: QtBot, jobs: Jobs) -> None:
    ended: list[str] = []
    done: list[object] = []

    def work(control: JobControl) -> int:
        made: list[object] = []
        for _ in range(20_000):  # enough for Python to look for garbage again and again
            one: list[object] = []
            one.append(one)
            made = [one, *made[:3]]
        return len(made)

    gc.collect()  # none comes by itself until the job is there
    _Orphan(ended)
    jobs.submit("t", work, done.append, fail)
    qtbot.waitUntil(lambda: bool(done))
    assert ended in ([], [threading.main_thread().name])
    qtbot.waitUntil(lambda: bool(ended))
    assert ended == [threading.main_thread().name]
    assert jobs.garbage.active
    jobs.stop()
    assert gc.isenabled()


def test_the_thread_wakes_for_garbage_while_jobs_run_and_only_then(qtbot: QtBot, jobs: Jobs) -> None:
    go, done = threading.Event(), list[object]()
    jobs.submit("t", lambda control: go.wait(LONG_S), done.append, fail)
    assert jobs.garbage._while_jobs.isActive()
    go.set()
    qtbot.waitUntil(lambda: bool(done) and not jobs.garbage._while_jobs.isActive())


def test_all_garbage_is_gone_through_in_a_pause_else_after_many_looks_and_seldom(
    jobs: Jobs, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the event loop sleeps: a panel that draws ten times a second leaves no pause."""
    looked: list[int] = []
    clock = [100.0]

    def collect(generation: int = 2) -> int:
        looked.append(generation)
        clock[0] += 0.1 if generation == 2 else 0.0
        return 0

    # Stand-ins of this module alone: Python's own clock and search go on as they are.
    looking = SimpleNamespace(collect=collect, get_count=lambda: (701, 0, 0), disable=gc.disable, enable=gc.enable)
    monkeypatch.setattr("kvplanner.app.garbage.gc", looking)
    monkeypatch.setattr("kvplanner.app.garbage.time", SimpleNamespace(monotonic=lambda: clock[0]))
    for _ in range(99):
        jobs.garbage._look()
    assert not jobs.garbage._pause.isActive()
    assert looked.count(1) == 9
    jobs.garbage._look()
    assert jobs.garbage._pause.isActive()
    qtbot.waitUntil(lambda: 2 in looked)
    for _ in range(4000):
        jobs.garbage._look()
    assert looked.count(2) == 1  # it took a tenth of a second: not again within five
    clock[0] += 5.1
    jobs.garbage._look()
    assert looked.count(2) == 2
    jobs.garbage._pause.stop()


def test_an_error_of_a_callback_is_not_lost_where_nothing_was_closed(qtbot: QtBot, jobs: Jobs) -> None:
    def done(result: object) -> None:
        raise RuntimeError("a fault of the program's")

    with qtbot.captureExceptions() as caught:
        jobs.submit("t", lambda control: 7, done, fail)
        qtbot.waitUntil(lambda: bool(caught))
    assert "a fault of the program's" in str(caught[0][1])


def test_what_a_window_kept_for_it_is_not_told_once_it_is_closed(qtbot: QtBot, jobs: Jobs) -> None:
    class Keeper:
        """No part of Qt's, as many that a window is made of."""

        def __init__(self) -> None:
            self.label = QLabel()

        def show(self, result: object) -> None:
            self.label.setText(str(result))

    keeper = Keeper()
    job = jobs.submit("t", lambda control: 7, lambda found: keeper.show(found), fail)
    assert job is not None
    keeper.label.deleteLater()
    QCoreApplication.sendPostedEvents(keeper.label, QEvent.Type.DeferredDelete)
    qtbot.waitUntil(lambda: not jobs.active)  # pytest-qt sees what a slot raises
