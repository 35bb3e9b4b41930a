"""Crash records: readable, without the user's name, once each, and never lost."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app import crash


def test_a_report_names_versions_and_hides_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    home = str(Path.home())
    text = crash.report_text(f'File "{home}/models/x.py"\nValueError', "plan: Llama")
    assert "kvplanner: " in text
    assert "Qt: " in text
    assert "plan: Llama" in text
    assert "hunter2" not in text
    assert f"{home}/models" not in text
    assert "~/models/x.py" in text


def test_an_exception_saves_first_and_is_reported_once(qtbot: QtBot, capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    catcher = crash.ExceptionCatcher(lambda: order.append("saved"), lambda: "plan: x")
    catcher.caught.connect(lambda text: order.append(text))
    catcher.install()
    try:
        for _ in range(3):
            try:
                raise ValueError("broken slot")
            except ValueError as error:
                sys.excepthook(type(error), error, error.__traceback__)
        qtbot.waitUntil(lambda: len(order) >= 2)
        qtbot.wait(10)
    finally:
        catcher.uninstall()
    assert order[0] == "saved"
    assert len(order) == 2
    assert "ValueError: broken slot" in order[1]


def test_an_exception_on_a_thread_is_reported_here(qtbot: QtBot) -> None:
    texts: list[str] = []
    catcher = crash.ExceptionCatcher(lambda: None, lambda: "")
    catcher.caught.connect(texts.append)
    catcher.install()
    try:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        qtbot.waitUntil(lambda: bool(texts))
    finally:
        catcher.uninstall()
    assert "ZeroDivisionError" in texts[0]


def test_a_native_crash_is_offered_once_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "native-crash.txt").write_text(
        "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):"
    )
    log = crash.NativeCrashLog(tmp_path)
    assert "Segmentation fault" in log.take_previous()
    assert log.take_previous() == ""
    log.start()
    log.stop()
    assert not log.path.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_the_native_record_stops_no_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "native-crash.txt")
    log = crash.NativeCrashLog(tmp_path)
    assert log.take_previous() == ""
    log.start()
    log.stop()
    assert log.path.is_fifo()
