"""Recordings in the Local GPU panel: played again, stopped, sped up, sought; broken ones refused in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.observe.player import Player, Step
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text
from tests.observe.panel_kit import shown, until

pytestmark = pytest.mark.slow


def test_a_recording_can_be_played_again(stub: Stub, panel: GpuPanel, qtbot: QtBot, tmp_path: Path) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    panel.feed.record(tmp_path / "run.csv")
    assert panel.toolbar.record_button.text() == "End re&cording"
    for used in (3206, 9206):
        stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", f"used_mib = {used}"))
        until(qtbot, lambda used=used: panel.bars.rows()[0].parts[1].bytes == used * MIB)  # type: ignore[misc]  # keeps its loop's value
    panel.feed.end_recording()
    stub.use("desktop-4090")
    seen: list[int] = []
    panel.feed.snapshots.connect(lambda batch: seen.extend(s.gpus[0].allocated.value or 0 for s in batch))
    strip: list[tuple[bool, bool]] = []  # a recording that was read at once may have ended when `play` returns
    panel.feed.replaying.connect(
        lambda _: strip.append((panel.replay.isVisible(), panel.toolbar.replay_button.isHidden()))
    )
    panel.feed.play(tmp_path / "run.csv")
    assert strip[0] == (True, True), "its strip ends it: one button for that is enough"
    until(qtbot, lambda: 9206 * MIB in seen)
    assert 3206 * MIB in seen
    until(qtbot, lambda: not panel.toolbar.replay_button.isHidden())
    until(qtbot, lambda: panel.bars.rows() and panel.bars.rows()[0].parts[1].bytes == 1206 * MIB)


def test_a_replay_can_be_held_sped_up_and_sought(stub: Stub, panel: GpuPanel, qtbot: QtBot, tmp_path: Path) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    panel.feed.record(tmp_path / "run.csv")
    for used in (3206, 5206, 7206, 9206):
        stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", f"used_mib = {used}"))
        until(qtbot, lambda used=used: panel.bars.rows()[0].parts[1].bytes == used * MIB)  # type: ignore[misc]  # keeps its loop's value
    panel.feed.end_recording()

    def held() -> int:
        return panel.bars.rows()[0].parts[1].bytes // MIB if panel.bars.rows() else 0

    panel.feed.play(tmp_path / "run.csv")
    strip = panel.replay
    assert strip.isVisible()
    assert not panel.toolbar.record_button.isEnabled()
    assert not panel.free.use.isEnabled()
    strip.pause.click()
    until(qtbot, held)
    first = held()
    qtbot.wait(1500)
    assert held() == first
    assert time.strftime("%Y") in strip.text.full
    assert strip.text.full.endswith("run.csv")
    panel._seek(1.0)  # where the rest of it begins depends on how fast this machine was
    until(qtbot, lambda: held() == 9206)
    assert strip.place.value() >= 700
    strip.times.setCurrentIndex(3)
    assert panel.feed._speed == 16
    strip.pause.click()
    until(qtbot, lambda: not strip.isVisible())
    assert panel.toolbar.record_button.isEnabled()


def test_a_replay_that_is_held_at_once_shows_where_it_stands(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.use("desktop-4090")
    panel.show()
    shown(panel, qtbot)
    panel.feed.record(tmp_path / "run.csv")
    seen: list[object] = []
    panel.feed.snapshots.connect(seen.append)
    until(qtbot, lambda: seen)
    panel.feed.end_recording()
    take, asked = Player.take, list[float]()

    def late(player: Player, seconds: float) -> Step:
        asked.append(seconds)
        return take(player, seconds) if len(asked) > 5 else Step((), 0.0, False, 0.0)  # its worker has read nothing yet

    monkeypatch.setattr(Player, "take", late)
    panel.feed.play(tmp_path / "run.csv")
    panel.replay.pause.click()
    until(qtbot, lambda: panel.bars.rows())
    assert len(asked) == 6
    qtbot.wait(600)
    assert len(asked) == 6, "and goes no further"


def test_a_broken_recording_is_refused_in_words(stub: Stub, panel: GpuPanel, qtbot: QtBot, tmp_path: Path) -> None:
    stub.use("desktop-4090")
    panel.show()
    (tmp_path / "run.csv").write_text("a,b\n")
    panel.feed.play(tmp_path / "run.csv")
    until(qtbot, lambda: "is no recording of kvplanner" in panel.notice.notice().text)
    panel.notice.button.click()
    assert panel.notice.notice().text == ""
