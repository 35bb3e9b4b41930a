"""Recordings: what goes in comes out, and a broken file is explained."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from kvplanner.errors import BadInput
from kvplanner.observe.player import AHEAD, Player, Step
from kvplanner.observe.reader import GpuReader
from kvplanner.observe.recording import FORMAT, HEADER, Recorder, replay
from kvplanner.observe.snapshot import GpuSample, ProcessSample, Reading, Snapshot
from kvplanner.printable import inert
from kvplanner.ui.gpu_panel.feed import Feed
from tests.nvml_stub.build import SCENARIOS
from tests.observe.kit import Stub
from tests.patience import LONG_S, wait_for


@pytest.mark.parametrize("name", ["desktop-4090", "a100-mig", "wsl2", "no-permission", "gb10-unified"])
def test_round_trip(stub: Stub, tmp_path: Path, name: str) -> None:
    stub.use(name)
    reader = GpuReader(host=lambda: (1 << 37, 1 << 36))
    recorder = Recorder(tmp_path / "run.csv")
    shots = [Snapshot(i, 10.0 + i, 1000.5 + i, reader.sample(), interval=1.0) for i in (1, 2, 3)]
    for shot in shots:
        recorder.add(shot)
    recorder.close()
    reader.close()
    back = list(replay(tmp_path / "run.csv"))
    assert [(s.seq, s.monotonic, s.wall, s.interval) for s in back] == [
        (s.seq, s.monotonic, s.wall, 1.0) for s in shots
    ]
    for was, now in zip(shots[0].gpus, back[0].gpus, strict=True):
        for field in ("number", "uuid", "pci", "name", "kind", "gpu_instance", "status", "shared"):
            assert getattr(was, field) == getattr(now, field)
        for field in ("total", "reserved", "allocated", "free", "utilization", "temperature", "power_mw"):
            assert getattr(was, field).value == getattr(now, field).value
        assert [(p.pid, p.memory.value, p.kinds) for p in was.processes or ()] == [
            (p.pid, p.memory.value, p.kinds) for p in now.processes or ()
        ]


def test_a_name_cannot_become_a_formula(tmp_path: Path) -> None:
    evil = ProcessSample(1, Reading(5), ("compute",), "=cmd|' /C calc'!A0")
    gpu = GpuSample(0, "GPU-1", name="+1", total=Reading(9), free=Reading(4), processes=(evil,))
    recorder = Recorder(tmp_path / "run.csv")
    recorder.add(Snapshot(1, 0.0, 0.0, (gpu,)))
    recorder.close()
    text = (tmp_path / "run.csv").read_text()
    assert ",=cmd" not in text
    assert '"=cmd' not in text
    assert ",+1" not in text


@given(st.binary(max_size=400))
def test_rubbish_is_refused_in_words(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("r") / "junk.csv"
    path.write_bytes(junk)
    with pytest.raises(BadInput):
        list(replay(path))


@given(st.lists(st.lists(st.text(max_size=12), max_size=len(HEADER) + 1), max_size=6))
def test_rubbish_lines_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    import csv

    path = tmp_path_factory.mktemp("r") / "lines.csv"
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((f"# {FORMAT}",))
        writer.writerow(HEADER)
        writer.writerows(rows)
    try:
        list(replay(path))
    except BadInput as error:
        assert str(path) in str(error)


def test_the_message_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    recorder = Recorder(path)
    recorder.add(Snapshot(1, 0.0, 0.0, (GpuSample(0, "GPU-1", total=Reading(9), free=Reading(4)),)))
    recorder.close()
    path.write_text(path.read_text().replace("GPU-1,,,gpu,,,9,", "GPU-1,,,gpu,,,nine,"))
    with pytest.raises(BadInput, match="line 3"):
        list(replay(path))


def test_a_scenario_is_no_recording() -> None:
    with pytest.raises(BadInput, match="no recording"):
        list(replay(SCENARIOS / "8xh100.ini"))


ROW = "gpu,1,1.0,1.0,1,0,GPU-1,0,X,gpu,,,9,1,2,6,0,5,40,1000,ok,,,,,,,,"
HEAD = f"# {FORMAT}\n{','.join(HEADER)}\n"
NUMBERS = (
    "seq", "wall_s", "monotonic_s", "interval_s", "number", "gpu_instance", "total_bytes", "reserved_bytes",
    "allocated_bytes", "free_bytes", "utilization_percent", "temperature_c", "power_mw",
)  # fmt: skip
ODD = (
    "9" * 400,
    "-1",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "1" * 5000,
    "1e300",
    "٣",
    "0x1",
    "1_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0",
    " ",
)


@pytest.mark.parametrize("column", NUMBERS)
@pytest.mark.parametrize("value", ODD, ids=lambda v: v[:8])
def test_no_number_of_any_field_is_believed_blindly(tmp_path: Path, column: str, value: str) -> None:
    cells = ROW.split(",")
    cells[HEADER.index(column)] = value
    path = tmp_path / "odd.csv"
    path.write_text(HEAD + ",".join(cells) + "\n", encoding="utf-8")
    try:
        found = list(replay(path))
    except BadInput as error:
        assert "line 3" in error.where
        assert len(str(error)) < 400
        return
    figure = getattr(found[0].gpus[0], column.removesuffix("_bytes"), None)
    assert len(repr(figure)) < 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + '"x\n' + "x\n" * 400_000, "a cell is no text"),
        (HEAD + "x" * 200_000, "a line is no text"),
        (HEAD + ROW[:3] + "\0" + ROW[3:], "a line is no text"),
        (HEAD + "\n".join(ROW.replace("GPU-1", f"GPU-{i}") for i in range(400)), "more than 256 GPUs"),
        (
            HEAD + ROW + "\n" + "\n".join([f"process,1,1.0,1.0,,0,GPU-1{',' * 16}7{',' * 6}"] * 30_000),
            "more than 20,000 rows",
        ),
        ("# kvplanner.recording/2\n", "of another version"),
        (f"# {FORMAT}\n{','.join(HEADER)},kind\n", "a column twice"),
        ('"' * 3, "is no recording"),
    ],
)
def test_every_size_has_its_limit(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "large.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        list(replay(path))


def test_a_pipe_and_a_device_are_no_recordings(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path, tmp_path / "none.csv", tmp_path / ("x" * 400)):
        with pytest.raises(BadInput) as caught:
            list(replay(path))
        assert caught.value.remedy


def test_names_of_a_recording_are_printable(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text(HEAD + ROW.replace(",X,", ",\x1b[31m\u202eX,") + "\n", encoding="utf-8")
    (shot,) = replay(path)
    assert shot.gpus[0].name == "␛[31m�X"


@pytest.mark.parametrize("name", [" =1+1", "\t=1", "\n=1", "\u00a0=1", "  -1", "=1"])
def test_blanks_before_a_formula_make_it_no_name(name: str) -> None:
    assert inert(name).startswith("'")


@pytest.mark.slow
def test_a_long_recording_is_read_ahead_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    rows = (ROW.replace("gpu,1,1.0,1.0", f"gpu,{i},{i}.0,{i / 10}") for i in range(1, 5000))
    path.write_text(HEAD + "\n".join(rows) + "\n")
    player = Player(path)
    seen: list[Snapshot] = []

    def ended() -> bool:
        step = player.take(9.0)
        assert len(step.snapshots) <= AHEAD
        seen.extend(step.snapshots)
        return step.ended

    wait_for(ended)
    assert seen[-1].seq == 4999
    player.close()


def test_the_place_is_of_what_is_shown_and_not_of_what_is_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text(HEAD + "\n".join(ROW.replace("gpu,1,1.0,1.0", f"gpu,{i},{i}.0,{i}.0") for i in range(1, 21)) + "\n")
    player = Player(path)
    player._thread.join(LONG_S)  # all of it is read ahead by now
    shares = [player.take(0.1).share for _ in range(9)]
    player.close()
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] < 1


def test_what_is_not_read_yet_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def slow(path: Path, progress: Callable[[float], None]) -> Iterator[Snapshot]:
        go.wait(LONG_S)
        yield from shots(1)

    monkeypatch.setattr("kvplanner.observe.player.replay", slow)
    player = Player(tmp_path / "slow.csv")
    assert player.take(1.0) == Step((), 0.0, False, 0.0)
    go.set()
    wait_for(lambda: player.take(1.0).snapshots)
    player.close()


def test_closing_leaves_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(HEAD + "\n".join(ROW.replace("gpu,1,", f"gpu,{i},") for i in range(1, 5000)) + "\n")
    player = Player(path)
    player.close()
    player._thread.join(LONG_S)
    assert not player._thread.is_alive()


def shots(count: int) -> list[Snapshot]:
    """Snapshots of eight GPUs: some 1.5 kB each."""
    gpus = tuple(
        GpuSample(i, f"GPU-{i:036}", name="NVIDIA H100 80GB HBM3", total=Reading(80 << 30), free=Reading(9 << 30))
        for i in range(8)
    )
    return [Snapshot(i, float(i), float(i), gpus, interval=1.0) for i in range(1, count + 1)]


@pytest.mark.parametrize("room", [3000, 4001, 5003])
def test_a_full_disk_ends_a_recording_after_its_last_whole_snapshot(tmp_path: Path, room: int) -> None:
    """The system itself writes half a line; closing tries to write the rest once more."""
    path = tmp_path / "run.csv"
    recorder = Recorder(path)
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        for shot in shots(20):
            recorder.add(shot)
            written += 1
    except OSError as error:
        assert error.errno == errno.EFBIG
        recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert 0 < written < 20
    assert [shot.seq for shot in replay(path)] == list(range(1, written + 1))


def test_of_a_recording_whose_program_was_killed_all_whole_snapshots_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    recorder = Recorder(path)
    for shot in shots(3):
        recorder.add(shot)
    recorder.close()
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in range(len(data) - len(lines[-1]) + 1, len(data) - len(lines[-1]) + 80, 7):
        path.write_bytes(data[:cut])
        assert [shot.seq for shot in replay(path)] == [1, 2]
    path.write_bytes(data[: len(data) - len(lines[-1]) - 90] + data[len(data) - len(lines[-1]) :])
    with pytest.raises(BadInput, match="cells where"):
        list(replay(path))


def test_a_feed_whose_disk_is_full_says_so_and_goes_on(tmp_path: Path, qtbot: QtBot) -> None:
    feed = Feed()
    problems: list[str] = []
    feed.problem.connect(problems.append)
    feed.record(tmp_path / "run.csv")
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        feed._record(tuple(shots(3)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        feed.detach()
    assert feed.recorder is None
    assert problems == [f"The recording {tmp_path / 'run.csv'} was ended: File too large."]
