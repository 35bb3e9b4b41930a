"""Crash records: readable, without the user's name, once each, and never lost."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app import crash


def test_a_report_names_versions_and_no_other_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    text = crash.report_text("ValueError", "plan: Llama")
    assert "kvplanner: " in text
    assert "Qt: " in text
    assert "plan: Llama" in text
    assert "hunter2" not in text


TRACE = """Traceback (most recent call last):
  File "/home/ada/secret/.venv/lib/python3.11/site-packages/PySide6/x.py", line 3, in call
    return run(path / "models")
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/secret/kvplanner/kvplanner/app/jobs.py", line 12, in work
    raise OSError("not to be read")
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
OSError: [Errno 5] not to be read: '/mnt/acme/ada/llama.gguf' of GPU-5b8f2e40-90c1-4a55-8c11-000000000000 at http://node7.acme.internal:8000/metrics
  beside /srv/ada/other.gguf, token hf_abcdefghijklmnop
"""


def test_a_report_says_nothing_of_whose_machine_it_is() -> None:
    """Only the home folder was hidden: paths elsewhere, hosts and keys stood in it."""
    text = crash.report_text(TRACE)
    for private in ("ada", "acme", "secret", "5b8f2e40", "hf_", "8000", "/mnt", "/srv"):
        assert private not in text, private
    for kept in ('File "PySide6/x.py", line 3', 'File "kvplanner/app/jobs.py", line 12, in work', "json/decoder.py",
                 '    raise OSError("not to be read")', "return run(path / ", "llama.gguf", "[Errno 5]"):  # fmt: skip
        assert kept in text, kept


def test_a_native_report_names_files_by_their_packages() -> None:
    native = 'Current thread 0x7f (most recent call first):\n  File "/home/ada/kvplanner/ui/x.py", line 9 in paint\n'
    assert '  File "kvplanner/ui/x.py", line 9 in paint' in crash.report_text(native)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/ada/run.py", "run.py"),
        (r"C:\Users\ada\go.py", "go.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
    ],
)
def test_a_file_of_no_package_is_named_alone(path: str, shown: str) -> None:
    assert f'  File "{shown}", line 1 in f' in crash.report_text(f'  File "{path}", line 1 in f')


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
