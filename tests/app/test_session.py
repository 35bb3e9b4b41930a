"""Sessions: written soon, found again, and never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app.jobs import Jobs
from kvplanner.app.session import MOST_WINDOWS, OpenPlan, Restored, Session

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


@pytest.mark.slow
def test_edits_are_written_within_half_a_second_even_when_they_never_pause(jobs: Jobs, qtbot: QtBot) -> None:
    count = 0

    def collect() -> tuple[OpenPlan, ...]:
        nonlocal count
        count += 1
        return (PLAN,)

    session = Session(collect, jobs)
    assert session._timer.interval() <= 500

    def written() -> bool:
        session.touch()
        return session.own.exists()

    qtbot.waitUntil(written)
    assert count >= 1
    session.close()
    assert not session.own.exists()
    assert session.restore() == Restored((PLAN,), crashed=False)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "kvplanner.session/1", "windows": 3}', "\x00"])
def test_a_broken_session_file_is_passed_over(jobs: Jobs, content: str) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    (session.folder / f"{dead_pid()}.json").write_text(content)
    session.last.write_text(content)
    found = session.restore()
    assert (found.plans, found.crashed) == ((), False)
    assert [path.read_text() for path in found.aside] == [content, content]
    assert session.restore().aside == (), "what was put aside is not told again"


def test_a_living_process_keeps_its_session(jobs: Jobs) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        document = {"schema": "kvplanner.session/1", "windows": [{"plan": {}, "path": "", "modified": True}]}
        path = session.folder / f"{other.pid}.json"
        path.write_text(json.dumps(document))
        assert session.restore() == Restored((), crashed=False)
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
    assert session.restore() == Restored((), crashed=False)


def test_what_was_found_outlives_an_end_before_it_was_read(jobs: Jobs) -> None:
    """Neither a second crash nor a window that is closed at once loses the plans of a session."""
    plan = OpenPlan({"schema": "x", "model": "m"}, "", modified=True)
    document = {"schema": "kvplanner.session/1", "windows": [plan._asdict()]}
    first = Session(lambda: (), jobs)
    first.folder.mkdir(parents=True)
    crashed = first.folder / f"{dead_pid()}.json"
    crashed.write_text(json.dumps(document))
    assert first.restore() == Restored((plan,), crashed=True)
    assert not crashed.exists()
    first.own.rename(crashed)  # that process crashed, too
    second = Session(lambda: (), jobs)
    assert second.restore() == Restored((plan,), crashed=True)
    second.close()
    assert Session(lambda: (), jobs).restore() == Restored((plan,), crashed=False)
    Session(lambda: (), jobs).close()
    assert Session(lambda: (), jobs).restore() == Restored((plan,), crashed=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["9" * 30 + ".json", "x" * 200 + ".json", "0.json", "-1.json", "1e5.json", "٣.json"])
def test_a_file_of_any_name_stops_nothing(jobs: Jobs, name: str) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    (session.folder / name).write_text("{}")
    (session.folder / f"{dead_pid()}.json").mkdir()
    (session.folder / f"{dead_pid()}-1.json").symlink_to(session.folder / "nowhere")
    os.mkfifo(session.folder / f"{dead_pid()}-2.json")
    assert session.restore().plans == ()
    assert any(path.name == name or ".aside" in path.name for path in session.folder.iterdir())


def test_of_more_windows_than_are_opened_the_rest_is_kept(jobs: Jobs) -> None:
    plans = tuple(PLAN._replace(path=f"/{number}.kvplan.json") for number in range(MOST_WINDOWS + 3))
    Session(lambda: plans, jobs).close()
    found = Session(lambda: (), jobs).restore()
    assert found.plans == plans[:MOST_WINDOWS]
    (kept,) = found.aside
    assert [one["path"] for one in json.loads(kept.read_bytes())["windows"]] == [plan.path for plan in plans]


def test_a_session_of_a_newer_version_is_kept(jobs: Jobs) -> None:
    session = Session(lambda: (PLAN,), jobs)
    session.folder.mkdir(parents=True)
    session.last.write_text('{"schema": "kvplanner.session/2", "rooms": []}')
    (kept,) = session.restore().aside
    session.close()
    assert "session/2" in kept.read_text()
    assert Session(lambda: (), jobs).restore().plans == (PLAN,)


@pytest.mark.slow
def test_two_starts_at_once_never_open_one_plan_twice(jobs: Jobs) -> None:
    first, second = Session(lambda: (), jobs), Session(lambda: (), jobs)
    first.folder.mkdir(parents=True)
    document = {"schema": "kvplanner.session/1", "windows": [PLAN._asdict()]}
    for _ in range(5):
        (first.folder / f"{dead_pid()}.json").write_text(json.dumps(document))
    second.own = second.folder / "another.json"
    claimed = first._left_behind()
    assert len(claimed) >= 1
    assert not set(claimed) & set(second.folder.glob("another*"))
    plans = [plan for path in claimed for plan in first._read(path, []) or ()]
    assert plans == [PLAN] * len(claimed)


def test_a_full_disk_leaves_the_files_of_a_crash(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(lambda: (), jobs)
    session.folder.mkdir(parents=True)
    document = {"schema": "kvplanner.session/1", "windows": [PLAN._asdict()]}
    (session.folder / f"{dead_pid()}.json").write_text(json.dumps(document))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("kvplanner.app.storage.write_whole", full)
        assert session.restore() == Restored((PLAN,), crashed=True)
    assert Session(lambda: (), jobs).restore().plans == (PLAN,), "and they are found again"


@pytest.mark.slow
def test_a_session_of_large_plans_opens_again(jobs: Jobs) -> None:
    large = OpenPlan({"schema": "kvplanner.planfile/1", "x": ["y" * 1000] * 900}, "", modified=True)
    session = Session(lambda: (large,) * 20, jobs)
    session.close()
    assert session.last.stat().st_size > 16 << 20
    assert Session(lambda: (), jobs).restore().plans == (large,) * 20


def test_an_older_state_never_overwrites_a_newer_one(qtbot: QtBot, tmp_path: Path) -> None:
    """What a job still has to write may reach the disk after what a crash made write at once."""
    late: list[Callable[[object], None]] = []

    class Late:
        def submit(self, title: str, work: Callable[[object], None], *rest: object, key: str) -> None:
            late.append(work)

    open_now = [PLAN._replace(modified=False)]
    session = Session(lambda: tuple(open_now), cast("Jobs", Late()), tmp_path)
    session._write_soon()
    open_now[0] = PLAN
    assert session.write_now()
    late[0](None)
    assert json.loads(session.own.read_text())["windows"][0]["modified"] is True
    session._write_soon()
    open_now[0] = PLAN._replace(path="later")
    late[1](None)
    assert json.loads(session.own.read_text())["windows"][0]["path"] == ""


def edited(name: str, *, modified: bool = True) -> OpenPlan:
    return OpenPlan({"schema": "x", "model": name}, "", modified=modified)


def test_of_two_processes_that_end_neither_loses_its_edits(jobs: Jobs) -> None:
    """Each ends without asking, since the session keeps its edits; the later one must not write over them."""
    first, second = Session(lambda: (edited("a"),), jobs), Session(lambda: (edited("b"),), jobs)
    second.own = second.folder / "1-2.json"
    first.close()
    second.close()
    assert Session(lambda: (), jobs).restore() == Restored((edited("b"), edited("a")), crashed=False)
    third = Session(lambda: (edited("c"),), jobs)
    third.restore()
    third.close()
    assert Session(lambda: (), jobs).restore().plans == (edited("c"),), "what it saw and closed does not come back"


def test_what_others_left_without_edits_is_not_gathered(jobs: Jobs) -> None:
    first, second = Session(lambda: (edited("a", modified=False),), jobs), Session(lambda: (edited("b"),), jobs)
    first.close()
    second.close()
    assert Session(lambda: (), jobs).restore().plans == (edited("b"),)


@pytest.mark.parametrize("year", [1980, 2090])
def test_no_jump_of_the_clock_loses_a_session(jobs: Jobs, year: int) -> None:
    """Neither the last one, nor one of a crash, nor what another process has edited meanwhile."""
    then = float((year - 1970) * 365 * 86_400)
    first = Session(lambda: (edited("a"),), jobs)
    second = Session(lambda: (edited("b"),), jobs)
    first.close()
    os.utime(first.last, (then, then))
    second.close()
    assert Session(lambda: (), jobs).restore().plans == (edited("b"), edited("a"))
    crashed = first.folder / f"{dead_pid()}.json"
    first.own = crashed
    assert first.write_now()
    os.utime(crashed, (then, then))
    assert Session(lambda: (), jobs).restore() == Restored((edited("a"),), crashed=True)


def test_a_disk_that_was_full_takes_the_session_once_there_is_room(
    jobs: Jobs, qtbot: QtBot, full_disk: Callable[[], AbstractContextManager[None]]
) -> None:
    plans = [edited("a")]
    session = Session(lambda: tuple(plans), jobs)
    assert session.write_now()
    plans.append(edited("b"))
    with full_disk():
        assert not session.write_now()
        session.touch()
        session._timer.timeout.emit()
        qtbot.waitUntil(lambda: not jobs.active)
    assert json.loads(session.own.read_text())["windows"] == [{**edited("a")._asdict(), "pinned": []}], "as it was"
    assert [path.name for path in session.folder.iterdir()] == [session.own.name]
    session._timer.timeout.emit()
    qtbot.waitUntil(lambda: not jobs.active)
    assert len(json.loads(session.own.read_text())["windows"]) == 2
