"""One look and watching, as the terminal does it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from kvplanner.observe.local import probe, watch
from kvplanner.observe.snapshot import to_json
from tests.observe.kit import Stub, scenario_text
from tests.patience import LONG_S

pytestmark = pytest.mark.slow


def test_one_look(stub: Stub) -> None:
    stub.use("desktop-4090")
    shot = probe(LONG_S)
    assert (shot.state, len(shot.gpus)) == ("ok", 1)
    assert shot.gpus[0].processes
    document = to_json(shot)
    assert document["schema"] == "kvplanner.gpus/1"


def test_a_driver_that_hangs_is_given_up(stub: Stub) -> None:
    stub.use(scenario_text("desktop-4090") + "latency.nvmlDeviceGetMemoryInfo_v2 = 60000\n")
    started = time.monotonic()
    shot = probe(limit_s=1.5)
    assert time.monotonic() - started < 30.0, "the call itself takes a minute"
    assert shot.state == "failed"
    assert "did not answer" in shot.message


@pytest.mark.parametrize("name", ["no-driver", "version-mismatch", "no-devices"])
def test_trouble_is_an_answer(stub: Stub, name: str) -> None:
    stub.use(name)
    shot = probe(LONG_S)
    assert shot.state != "ok"
    assert shot.message
    assert shot.remedy


def test_a_machine_without_the_library_answers_at_once_and_starts_nothing() -> None:
    code = (
        "import sys; from kvplanner.observe import local; local.Sampler = None;"
        "print(local.probe().state if local._no_library() else 'ok', 'pynvml' in sys.modules, 'PySide6' in sys.modules)"
    )
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    if "ok" in done.stdout.split():
        pytest.skip("this machine has an NVIDIA driver")
    assert done.stdout.split() == ["no_driver", "False", "False"]


def test_watching(stub: Stub) -> None:
    stub.use("desktop-4090")
    shots = watch(0.1)
    assert [next(shots).seq for _ in range(3)] == [1, 2, 3]
    shots.close()  # type: ignore[attr-defined]  # a generator
