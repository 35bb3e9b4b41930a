"""How the window is started: arguments, screenshots, and a real window driven through a real display."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QRect
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.app.start import first_state, start_state
from kvplanner.cli.main import gui_usage
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device
from kvplanner.request.words import PlanWords
from kvplanner.ui import run
from kvplanner.ui.log.view import LogView
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.screenshot import prepared_window, settle
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import GIB
from tests.packaged.driving import come_to_rest
from tests.patience import LONG_S

pytestmark = pytest.mark.slow


def test_the_quick_start_is_what_no_words_mean() -> None:
    assert first_state() == start_state(PlanWords(), lambda: None)
    assert first_state() == start_state(None, lambda: None)


def test_nothing_asked_is_told_from_something() -> None:
    assert parse([]).words is None
    assert parse(["--theme", "dark"]).words is None
    words = parse(["--gpu", "H100", "vllm", "serve", "m", "-tp", "2"]).words
    assert words is not None
    assert (words.gpu, words.flags) == ("H100", ("vllm", "serve", "m", "-tp", "2"))
    words = parse(["llama", "--gpu", "2xL4", "--load", "3@10+20", "--", "-tp", "2"]).words
    assert words is not None
    assert (words.model, words.gpu, words.load, words.flags) == ("llama", "2xL4", "3@10+20", ("-tp", "2"))


def test_a_log_in_the_models_place_is_read_beside_what_else_is_asked() -> None:
    found = parse(["server.log", "--gpu", "H100"])
    assert found.log == Path("server.log")
    assert found.words is not None
    assert (found.words.model, found.words.gpu) == ("", "H100")
    assert parse(["server.log"]).words is None
    assert parse(["llama"]).log is None


def test_a_screenshot_shows_a_log(qapp: QApplication, tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "diagnose" / "logs" / "vllm" / "0110-kv-too-small.log"
    application = Application(qapp, keep=False, theme="light")
    window = prepared_window(application, parse([str(log), "--gpu", "RTX 4090", "--size", "1024x640"]))
    page = window.centre.below.page("log")
    assert isinstance(page, LogView)
    assert window.centre.below.current is page
    assert page.found is not None
    assert page.visibleRegion().boundingRect().height() > 100  # in sight, though the window is low
    application.shut_down()
    window.hide()
    window.deleteLater()


@pytest.mark.parametrize(
    "argv",
    [
        ["--size", "1x1"],
        ["--size", "640x400"],
        ["--size", "9000x800"],
        ["--size", "wide"],
        ["--gpu", ""],
        ["--bogus"],
        ["--scale", "9"],
        ["--theme", "pink"],
    ],
)
def test_arguments_that_make_no_sense_are_refused(argv: list[str]) -> None:
    with pytest.raises(BadInput):
        parse(argv)


def test_the_help_lists_every_option() -> None:
    from kvplanner.ui.window.arguments import _parser

    options = [flag for action in _parser()._actions for flag in action.option_strings]
    assert len(options) > 10
    assert [flag for flag in options if f"{flag} " not in gui_usage()] == []


def test_a_screenshot_is_written_and_leaves_no_trace(qapp: QApplication, tmp_path: Path, own_data_folder: Path) -> None:
    path = tmp_path / "shot.png"
    argv = ["--screenshot", str(path), "--size", "1024x640", "--theme", "dark", "--tab", "start-up", "--gpu", "8xH100"]
    assert run(argv) == 0
    image = QImage(str(path))
    assert (image.width(), image.height()) == (1024, 640)
    assert not own_data_folder.exists()


def test_the_smallest_picture_has_the_size_asked_for(qapp: QApplication, tmp_path: Path) -> None:
    from kvplanner.ui.window.arguments import SMALLEST

    size = f"{SMALLEST[0]}x{SMALLEST[1]}"
    assert run(["--screenshot", str(tmp_path / "s.png"), "--size", size, "--gpu", "8xH100"]) == 0
    image = QImage(str(tmp_path / "s.png"))
    assert (image.width(), image.height()) == SMALLEST
    assert f"{size} or more" in gui_usage()


@pytest.mark.parametrize("name", ["none/shot.png", "shot.jpg", "folder.png"])
def test_a_picture_goes_only_where_it_can(
    qapp: QApplication, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    assert run(["--screenshot", str(tmp_path / name), "--gpu", "H100"]) == 2
    assert name in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["nothing-is-called-that"], "nothing-is-called-that"),
        (["--tab", "Nowhere"], "Nowhere"),
        (["--gpu", "RTX 9999"], "9999"),
        (["--load", "many"], "many"),
    ],
)
def test_a_screenshot_of_nonsense_says_what_is_wrong(
    qapp: QApplication, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], word: str
) -> None:
    assert run(["--screenshot", str(tmp_path / "x.png"), *argv]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert word in said[0]
    assert not (tmp_path / "x.png").exists()


def xdotool(display: str, *words: str) -> str:
    done = subprocess.run(
        ["xdotool", *words],
        env={**os.environ, "DISPLAY": display},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    return done.stdout.strip()


@pytest.mark.x11
def test_a_real_window_answers_to_real_keys(display: str, own_data_folder: Path) -> None:
    environment = {**os.environ, "DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}
    command = [sys.executable, "-c", "import sys; from kvplanner.ui import run; sys.exit(run([]))"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + LONG_S
        found: list[str] = []
        while not found and time.monotonic() < deadline and process.poll() is None:
            found = xdotool(display, "search", "--onlyvisible", "--name", "Llama").split()[-1:]
            time.sleep(0.2)
        if process.poll() is not None and process.stderr is not None:
            said = process.stderr.read()
            if "could not load the Qt platform plugin" in said.lower():
                pytest.skip("Qt's X11 libraries are not installed")
            raise AssertionError(said)
        assert found, "no window came up"
        come_to_rest(process.pid)
        xdotool(display, "windowfocus", "--sync", found[0])
        for words in (("type", "qwen3 30b"), ("key", "Return"), ("type", "2"), ("key", "Return")):
            xdotool(display, *words)
            come_to_rest(process.pid)
        xdotool(display, "key", "ctrl+q")
        assert process.wait(LONG_S) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(LONG_S)
    plan = json.loads((own_data_folder / "sessions" / "last.json").read_text())["windows"][0]["plan"]
    assert plan["model"] == "Qwen/Qwen3-30B-A3B"
    assert plan["machine"] == "2xrtx-4090"


def test_nothing_is_cut_at_the_right_of_the_smallest_window(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(window.minimumSize())
    window.show()
    qtbot.waitUntil(lambda: window.centre.copy_button.isVisible())
    settle()
    button = window.centre.copy_button
    edge = button.mapTo(window, button.rect().topRight()).x()
    shown = button.visibleRegion().boundingRect()
    assert edge < window.width()
    assert shown == button.rect()


class Frames(QObject):
    """Where the parts stand in each frame that the window shows, from the first with bars on."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__()
        self.window = window
        self.seen: dict[str, list[QRect]] = {}
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The window is about to paint."""
        if event.type() == QEvent.Type.UpdateRequest and self.window.assembled and self.window.centre.plan is not None:
            self.look()
        return False

    def look(self) -> None:
        """Notes where everything is that can be seen."""
        centre, window = self.window.centre, self.window
        parts: dict[str, QWidget] = {"headline": centre.verdict.headline, "details": centre.verdict.details}
        parts |= {"buttons": centre._buttons, "bars": centre.bars}
        if centre.built:
            parts |= {"table": centre.below.table_card, "tabs": centre.below.tabs_card}
        if window.furnished:
            parts |= {"gpus": window.panel.gpus.button, "slider": window.panel.fields["max_model_len"]}
            label = window.status.machine
            if label.text():
                parts["machine"] = label
                assert label.width() >= label.sizeHint().width()
            assert window.panel.gpus.button.height() == window.panel.gpus.button.sizeHint().height()
        for name, part in parts.items():
            if part.isVisibleTo(window):
                place = QRect(part.mapTo(window, QPoint(0, 0)), part.size())
                if self.seen.setdefault(name, [place])[-1] != place:
                    self.seen[name].append(place)


@pytest.mark.parametrize("late", [False, True], ids=["", "read-last"])
@pytest.mark.parametrize("argv", [[], ["--gpu", "RTX 4090"], ["--gpu", "2xRTX 4090"]])
def test_nothing_moves_once_it_shows(
    application: Application, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, argv: list[str], late: bool
) -> None:
    """Nor where the model is read when all else stands already, as from a slow disk."""
    window, go = application.first_window(), threading.Event()
    monkeypatch.setattr("kvplanner.app.start.start_state", lambda *of: go.wait(LONG_S) and start_state(*of))
    (window.filled if late else window.ready).connect(go.set)
    window.resize(1280, 800)
    window.ready.connect(lambda: begin(application, window, parse(argv)))
    frames = Frames(window)
    window.show()
    qtbot.waitUntil(lambda: window.assembled and window.centre.built and window.centre.plan is not None)
    application.library.probe_gpus()
    for _ in range(4):
        settle()
    frames.look()
    assert {"headline", "buttons", "bars", "table", "tabs", "gpus", "slider", "machine"} <= set(frames.seen)
    assert {name: places for name, places in frames.seen.items() if len(places) > 1} == {}


def test_the_form_is_never_seen_squeezed(window: MainWindow) -> None:
    gpu = window.document.state.devices[0].gpu
    held = tuple(Device(i, gpu, free_bytes=9 * GIB, free_source="NVML", uuid=f"GPU-{i}") for i in range(4))
    section = window.panel.gpus
    before = section.height()
    window.document.edit("Plan here", devices=held, machine_source="this machine", machine_text="")
    # before any other event: as the next frame would have it
    assert "Used by others" in section.button.accessibleDescription()
    assert section.button.height() == section.button.sizeHint().height()
    assert section.height() > before + 2 * section.button.height()
