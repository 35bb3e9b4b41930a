"""Recordings: what goes in comes out, and a broken file is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.errors import BadInput
from kvplanner.observe.reader import GpuReader
from kvplanner.observe.recording import FORMAT, HEADER, Recorder, replay
from kvplanner.observe.snapshot import GpuSample, ProcessSample, Reading, Snapshot
from tests.nvml_stub.build import SCENARIOS
from tests.observe.kit import Stub


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
