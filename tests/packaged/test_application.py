"""The built application, launched: an exit status of the build proves nothing. KVPLANNER_PACKAGED names its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kvplanner.files import FOLDER_VARIABLE
from tests.nvml_stub.build import SCENARIOS, environment, library_folder, scenario_variant
from tests.packaged.driving import SCREEN_VARIABLES, SOURCE_VARIABLES, picture, png_size, window, without
from tests.patience import LONG_S, process_slowness
from tests.report.contract import check_plan
from tests.source.hub_server import Repository, running

pytestmark = pytest.mark.packaged

MODEL = "Llama-3.1-8B-Instruct"
SIZE_BUDGET_MB = 165
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu",
}  # fmt: skip


@pytest.fixture(scope="module")
def app() -> Path:
    folder = os.environ.get("KVPLANNER_PACKAGED", "")
    assert folder, "KVPLANNER_PACKAGED must name the built folder: python3 packaging/dev.py test --only packaged"
    return Path(folder)


def run(
    program: Path, *words: str, env: dict[str, str] | None = None, timeout: float = LONG_S
) -> subprocess.CompletedProcess[str]:
    """The program on a machine without Python and without a display, but for what `env` adds."""
    bare = without((*SCREEN_VARIABLES, *SOURCE_VARIABLES))
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


def test_a_plan_reads_nothing_of_the_window(app: Path) -> None:
    """What glibc says it loaded: Qt at each start doubled the time of a plan."""
    ran = run(app / "kvplanner", "plan", MODEL, "--gpu", "H100", env={"LD_DEBUG": "files"})
    assert ran.returncode == 0
    assert "libpython3" in ran.stderr
    assert not [name for name in ("libQt6", "shiboken", "_socket", "_pickle") if name in ran.stderr]


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


def test_the_hub_is_asked_when_it_is_named(app: Path, tmp_path: Path) -> None:
    with running() as server:
        server.repositories["org/small"] = Repository({"config.json": json.dumps(CONFIG).encode()})
        env = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path), "HOME": str(tmp_path)}
        ran = run(app / "kvplanner", "inspect", "hub:org/small", "--json", env=env)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["architecture"] == "LlamaForCausalLM"
        assert server.requests


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


def test_a_window_opens_on_x11_and_ends_cleanly(app: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    with window([str(app / "kvplanner-gui")], tmp_path) as shown:
        sys.stdout.write(f"window on X11, at rest, after {time.monotonic() - started:.2f} s\n")
        shown.interrupt()


def test_the_gpu_panel_plots_what_the_helper_sees(app: Path, tmp_path: Path) -> None:
    stub = {"LD_LIBRARY_PATH": str(library_folder()), "NVML_STUB_SCENARIO": str(SCENARIOS / "desktop-4090.ini")}
    settings = tmp_path / ".config" / "kvplanner" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"toured": true}')  # no card that takes keys
    with window([str(app / "kvplanner-gui")], tmp_path, **stub) as shown:
        pid = shown.process.pid
        loaded, children = Path(f"/proc/{pid}/maps"), Path(f"/proc/{pid}/task/{pid}/children")
        shown.press("ctrl+g")
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline and not children.read_text().split():
            time.sleep(0.2)
        while time.monotonic() < deadline and "multiarray_umath" not in loaded.read_text():
            shown.press("shift+F6")  # to the last pane, wherever the keyboard is
            for _ in range(9):
                shown.press("Tab", "ctrl+Tab")  # on to the tabs, and to the one with the plot
                time.sleep(0.2)
        assert "multiarray_umath" in loaded.read_text(), "the plot was never drawn"
        time.sleep(2)
        picture(shown, tmp_path / "panel.png")
        assert png_size(tmp_path / "panel.png")[0] >= 860
        helpers = children.read_text().split()
        assert len(helpers) == 1, "one helper process watches the driver"
        shown.interrupt()


DRIVERS = sorted(path.stem for path in SCENARIOS.glob("*.ini"))


@pytest.fixture(scope="module")
def watched(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str]]]:
    """What is wrong with the window of each driver, "" for nothing; they mostly wait, so three run at a time."""
    for variant in {scenario_variant(name) for name in DRIVERS}:
        library_folder(*variant)  # built once, not by three at a time
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(_watched, app, tmp_path_factory.mktemp(name), name) for name in DRIVERS}


@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_is_watched_with_the_panel_open(watched: dict[str, Future[str]], name: str) -> None:
    """Whatever the driver says, the window stays, one helper watches, and both end when they are asked to."""
    assert watched[name].result() == ""


def _watched(app: Path, folder: Path, name: str) -> str:
    (folder / "settings.json").write_text('{"toured": true, "gpu_panel": true}')
    env = without((*SCREEN_VARIABLES, *SOURCE_VARIABLES))
    env |= {"QT_QPA_PLATFORM": "offscreen", FOLDER_VARIABLE: str(folder)}
    env |= environment(SCENARIOS / f"{name}.ini", *scenario_variant(name))
    with subprocess.Popen(
        [str(app / "kvplanner-gui")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as shown:
        children = Path(f"/proc/{shown.pid}/task/{shown.pid}/children")
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline and shown.poll() is None and not children.read_text().split():
            time.sleep(0.1)
        time.sleep(3)  # several snapshots
        if shown.poll() is not None:
            return f"the window ended by itself: {shown.communicate()[1]}"
        helpers = children.read_text().split()
        asked = time.monotonic()
        shown.send_signal(signal.SIGINT)
        _, errors = shown.communicate(timeout=LONG_S)
        took = time.monotonic() - asked
    wrong = {
        f"{len(helpers)} helpers": len(helpers) != 1,
        f"the end took {took:.1f} s": took > 5 and took > 5 * process_slowness(),
        errors: "Traceback" in errors,
        f"status {shown.returncode}": shown.returncode != 0,
        "its helper stays": any(Path(f"/proc/{helper}").exists() for helper in helpers),
        "a crash was recorded": bool(list(folder.glob("native-crash-*"))),
    }
    return "; ".join(what for what, so in wrong.items() if so)
