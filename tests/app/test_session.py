"""Sessions: written soon, found again, and never in the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app.jobs import Jobs
from kvplanner.app.session import OpenPlan, Session

PLAN = OpenPlan({"schema": "x", "model": "m"}, "", modified=True)


@pytest.fixture
def jobs(qtbot: QtBot) -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.stop()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_edits_are_written_within_half_a_second_even_when_they_never_pause(jobs: Jobs, qtbot: QtBot) -> None:
    count = 0

    def collect() -> tuple[OpenPlan, ...]:
        nonlocal count
        count += 1
        return (PLAN,)

    session = Session(collect, jobs)
    for _ in range(30):
        session.touch()
        qtbot.wait(20)
    assert session.own.exists()
    assert count >= 1
    session.close()
    assert not session.own.exists()
    assert session.restore() == ((PLAN,), False)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "kvplanner.session/1", "windows": 3}', "\x00"])
def test_a_broken_session_file_is_passed_over(jobs: Jobs, content: str) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    (session.folder / f"{dead_pid()}.json").write_text(content)
    session.last.write_text(content)
    assert session.restore() == ((), False)


def test_a_living_process_keeps_its_session(jobs: Jobs) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        document = {"schema": "kvplanner.session/1", "windows": [{"plan": {}, "path": "", "modified": True}]}
        path = session.folder / f"{other.pid}.json"
        path.write_text(json.dumps(document))
        assert session.restore() == ((), False)
        assert path.exists()
    finally:
        other.communicate()


def test_a_folder_that_cannot_be_written_stops_nothing(jobs: Jobs, qtbot: QtBot, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("x")
    session = Session(lambda: (PLAN,), jobs, blocker / "sessions")
    session.touch()
    qtbot.waitUntil(lambda: not jobs.active)
    session.write_now()
    session.close()
    assert session.restore() == ((), False)


def test_what_was_found_outlives_an_end_before_it_was_read(jobs: Jobs) -> None:
    """Neither a second crash nor a window that is closed at once loses the plans of a session."""
    plan = OpenPlan({"schema": "x", "model": "m"}, "", modified=True)
    document = {"schema": "kvplanner.session/1", "windows": [plan._asdict()]}
    first = Session(lambda: (), jobs)
    first.folder.mkdir(parents=True)
    crashed = first.folder / f"{dead_pid()}.json"
    crashed.write_text(json.dumps(document))
    assert first.restore() == ((plan,), True)
    assert not crashed.exists()
    first.own.rename(crashed)  # that process crashed, too
    second = Session(lambda: (), jobs)
    assert second.restore() == ((plan,), True)
    second.close()
    assert Session(lambda: (), jobs).restore() == ((plan,), False)
    Session(lambda: (), jobs).close()
    assert Session(lambda: (), jobs).restore() == ((plan,), False)
