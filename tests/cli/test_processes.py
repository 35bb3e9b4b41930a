"""What only a process of its own shows: what is loaded, how it ends, what a pipe or a defect does to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import process
from tests.nvml_stub.build import SCENARIOS, library_folder
from tests.patience import LONG_S

pytestmark = pytest.mark.slow

LOADED = """
import json, sys
from kvplanner.__main__ import main
status = main(sys.argv[1:])
sys.stdout.flush()
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(status)
"""
HEAVY = {"PySide6", "shiboken6", "numpy", "pyqtgraph", "huggingface_hub", "pynvml", "psutil"}


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "Llama-3.1-8B-Instruct", "--gpu", "H100"],
        ["plan", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--json"],
        ["plan", "Llama-3.1-8B-Instruct", "--gpu", "2xH100", "--", "vllm", "serve", "Llama-3.1-8B-Instruct"],
        ["inspect", "Llama-3.1-8B-Instruct"],
        ["models", "llama"],
        ["gpus", "h100"],
        ["--version"],
        ["plan", "No-Such-Model", "--gpu", "H100"],
    ],
)
def test_the_terminal_loads_no_qt_and_nothing_heavy(words: list[str]) -> None:
    ran = process(words, code=LOADED)
    loaded = set(json.loads(ran.err.splitlines()[-1]))
    assert "kvplanner" in loaded
    assert not loaded & HEAVY


def test_without_a_display_the_start_model_is_planned() -> None:
    ran = process([], env={"LD_LIBRARY_PATH": ""})
    assert ran.status == 0
    assert "no display" in ran.err
    assert ran.err.count("\n") == 1
    assert "meta-llama/Llama-3.1-8B-Instruct" in ran.out
    assert "planned for one NVIDIA H100 80GB HBM3" in ran.out


def test_a_file_cannot_be_shown_without_a_display(tmp_path: Path) -> None:
    plan = tmp_path / "a.kvplan.json"
    plan.write_text("{}")
    for words in (["gui", str(plan)], [str(plan)], [str(tmp_path)]):
        ran = process(words)
        assert (ran.status, ran.out) == (2, "")
        assert "no display" in ran.err
    assert "there is no command" in process([str(tmp_path / "none")]).err


def test_a_display_that_does_not_answer_is_no_display() -> None:
    ran = process([], env={"DISPLAY": ":987", "WAYLAND_DISPLAY": "no-such-socket"})
    assert ran.status == 0
    assert "no display" in ran.err


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m kvplanner gpus --json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    line = command.replace("KV", f"{sys.executable} -m kvplanner")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=LONG_S)


@pytest.mark.parametrize("more", ["", "--json", "--explain", "--markdown"])
@pytest.mark.parametrize(("model", "status"), [("Llama-3.1-8B-Instruct", 0), ("Llama-3.1-70B-Instruct", 1)])
def test_a_closed_pipe_keeps_the_verdict(model: str, status: int, more: str) -> None:
    done = _shell(f"KV plan {model} --gpu H100 {more} | head -c 5 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("words", ["plan Llama-3.1-8B-Instruct --gpu H100", "models --json", "gpus", "--help"])
@pytest.mark.parametrize("place", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_told_in_a_line(words: str, place: str) -> None:
    done = _shell(f"KV {words} {place}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("kvplanner: ")


def test_closed_standard_error_is_no_error() -> None:
    assert _shell("KV plan No-Such-Model --gpu H100 2>&-").returncode == 2


def test_output_survives_a_terminal_that_lacks_characters() -> None:
    ran = process(
        ["plan", "Llama-3.1-8B-Instruct", "--gpu", "H100"], env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    assert ran.status == 0
    assert ran.out.startswith("Fits")


def test_a_defect_is_no_verdict() -> None:
    code = "import sys, kvplanner.cli.plan as p; p.run = lambda argv: 1 / 0\n" + LOADED
    ran = process(["plan", "x"], code=code)
    assert ran.status == 70
    assert "ZeroDivisionError" in ran.err
    assert "internal error" in ran.err


def _with(scenario: str) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(library_folder()), "NVML_STUB_SCENARIO": str(SCENARIOS / f"{scenario}.ini")}


def test_this_machines_gpus_are_listed() -> None:
    ran = process(["gpus", "--local"], env=_with("desktop-4090"))
    assert ran.status == 0
    assert "NVIDIA GeForce RTX 4090" in ran.out
    assert "23.99 GiB" in ran.out
    assert "firefox" in ran.out
    document = json.loads(process(["gpus", "--local", "--json"], env=_with("8xh100")).out)
    assert document["schema"] == "kvplanner.gpus/1"
    assert len(document["gpus"]) == 8


def test_this_machines_gpus_are_planned_for() -> None:
    words = ["plan", "Llama-3.1-8B-Instruct", "--json", "--", "--max-model-len", "8k"]
    document = json.loads(process(words, env=_with("desktop-4090")).out)
    device = document["devices"][0]
    assert device["gpu"] == "NVIDIA GeForce RTX 4090"
    assert device["free_bytes"] < device["cuda_total_bytes"]
    assert "other" in [s["kind"] for s in device["segments"]]
    assert any("this machine" in w for w in document["warnings"])
    local = process(["plan", "Llama-3.1-8B-Instruct", "--gpu", "local", *words[2:]], env=_with("desktop-4090"))
    assert json.loads(local.out)["devices"][0]["uuid"] == device["uuid"]


@pytest.mark.parametrize("scenario", ["no-driver", "version-mismatch"])
def test_a_driver_in_trouble_is_told_and_does_not_stop_planning(scenario: str) -> None:
    seen = process(["gpus", "--local"], env=_with(scenario))
    assert seen.status == 2
    assert seen.err.startswith("kvplanner: ")
    assert "Traceback" not in seen.err
    planned = process(["plan", "Llama-3.1-8B-Instruct", "--json"], env=_with(scenario))
    assert json.loads(planned.out)["devices"][0]["gpu"] == "NVIDIA H100 80GB HBM3"


def test_watching_prints_a_document_a_line_until_interrupted() -> None:
    env = {**os.environ, **_with("desktop-4090")}
    command = [sys.executable, "-m", "kvplanner", "gpus", "--local", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(LONG_S) == 0
        assert watching.stderr is not None
        assert "Traceback" not in watching.stderr.read()
    first, second = (json.loads(line) for line in lines)
    assert second["seq"] > first["seq"]
