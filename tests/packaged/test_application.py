"""The built application, launched: an exit status of the build proves nothing. KVPLANNER_PACKAGED names its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nvml_stub.build import SCENARIOS, library_folder
from tests.plan.contract import check_plan

pytestmark = pytest.mark.packaged

MODEL = "Llama-3.1-8B-Instruct"
SIZE_BUDGET_MB = 230
SCREEN_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def app() -> Path:
    folder = os.environ.get("KVPLANNER_PACKAGED", "")
    assert folder, "KVPLANNER_PACKAGED must name the built folder: python3 packaging/dev.py test --only packaged"
    return Path(folder)


def run(
    program: Path, *words: str, env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """The program on a machine without Python and without a display, but for what `env` adds."""
    bare = {k: v for k, v in os.environ.items() if k not in SCREEN_VARIABLES}
    return subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**bare, **(env or {})},
        check=False,
    )


def test_size_is_reported_and_within_budget(app: Path) -> None:
    files = [f for f in app.rglob("*") if f.is_file() and not f.is_symlink()]
    size_mb = sum(f.stat().st_size for f in files) / 1e6
    largest = sorted(files, key=lambda f: f.stat().st_size)[-5:]
    told = ", ".join(f"{f.name} {f.stat().st_size / 1e6:.0f}" for f in reversed(largest))
    sys.stdout.write(f"packaged application: {size_mb:.0f} MB in {len(files)} files; largest in MB: {told}\n")
    assert size_mb <= SIZE_BUDGET_MB


def test_the_terminal_twin_plans(app: Path) -> None:
    ran = run(app / "kvplanner", "plan", MODEL, "--gpu", "2xRTX 4090", "--json", "--", "--max-model-len", "16k")
    assert (ran.returncode, ran.stderr) == (0, "")
    check_plan(json.loads(ran.stdout))
    assert run(app / "kvplanner", "plan", "Llama-3.1-70B-Instruct", "--gpu", "H100").returncode == 1
    assert run(app / "kvplanner", "plan", "no such model", "--gpu", "H100").returncode == 2


def test_the_terminal_twin_knows_its_catalogues(app: Path) -> None:
    assert len(json.loads(run(app / "kvplanner", "gpus", "--json").stdout)["gpus"]) >= 160
    assert json.loads(run(app / "kvplanner", "models", "--json").stdout)["models"]
    version = (app / "VERSION").read_text().strip()
    assert run(app / "kvplanner", "--version").stdout == f"kvplanner {version}\n"


def test_the_helper_process_watches_gpus(app: Path) -> None:
    env = {"LD_LIBRARY_PATH": str(library_folder()), "NVML_STUB_SCENARIO": str(SCENARIOS / "desktop-4090.ini")}
    ran = run(app / "kvplanner", "gpus", "--local", "--json", env=env)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["gpus"][0]["name"] == "NVIDIA GeForce RTX 4090"


def test_without_a_display_the_window_gives_way_to_text(app: Path) -> None:
    for program in ("kvplanner", "kvplanner-gui"):
        ran = run(app / program)
        assert ran.returncode == 0, ran.stderr
        assert "no display" in ran.stderr
        assert ran.stdout.startswith("Fits")


@pytest.mark.parametrize("tab", ["explain", "startup"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_first_frame_and_one_plan_offscreen(app: Path, tmp_path: Path, theme: str, tab: str) -> None:
    out = tmp_path / "shot.png"
    words = (
        "gui",
        "--screenshot",
        str(out),
        "--size",
        "1280x800",
        "--theme",
        theme,
        "--tab",
        tab,
        MODEL,
        "--gpu",
        "H100",
    )
    ran = run(app / "kvplanner", *words)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert png_size(out) == (1280, 800)


@contextmanager
def window(app: Path, home: Path, more: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The window on the X server: its process and its id there. It keeps its settings in `home`."""
    display = os.environ.get("DISPLAY", "")
    assert display, "a display is needed: python3 packaging/dev.py test --only packaged"
    bare = {k: v for k, v in os.environ.items() if k not in SCREEN_VARIABLES and not k.startswith("XDG_")}
    env = {**bare, "DISPLAY": display, "HOME": str(home), **more}
    program = subprocess.Popen(
        [str(app / "kvplanner-gui")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        found = xdotool(display, "search", "--sync", "--onlyvisible", "--pid", str(program.pid), "--name", "kvplanner")
        yield program, found.split()[0]
    finally:
        program.kill()
        program.wait()


def xdotool(display: str, *words: str) -> str:
    done = subprocess.run(
        ["xdotool", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "DISPLAY": display},
        check=True,
    )
    return done.stdout


def ends_cleanly(program: subprocess.Popen[str]) -> None:
    """Asks the program to end, as Ctrl+C would."""
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=30)
    assert "Traceback" not in errors, errors
    assert program.returncode == 0, errors


def test_a_window_opens_on_x11_and_ends_cleanly(app: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    with window(app, tmp_path, {}) as (program, _):
        sys.stdout.write(f"window on X11 after {time.monotonic() - started:.2f} s\n")
        ends_cleanly(program)


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
