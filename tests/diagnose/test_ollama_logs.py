"""Ollama's logs: its own lines, and llama.cpp's from the server that it starts."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.diagnose.implied import gpus_named
from kvplanner.units import GIB, MIB

STAMP = "time=2026-01-05T10:00:00.000Z level=INFO "
HEAD = (
    f'{STAMP}source=routes.go:1 msg="server config" env="map[OLLAMA_CONTEXT_LENGTH:8192 OLLAMA_KV_CACHE_TYPE:q8_0 '
    'OLLAMA_NUM_PARALLEL:2 OLLAMA_SCHED_SPREAD:false]"\n'
    f'{STAMP}source=routes.go:2 msg="Listening on 127.0.0.1:11434 (version 0.13.1)"\n'
    f'{STAMP}source=types.go:42 msg="inference compute" id=GPU-1 filter_id="" library=CUDA compute=8.9 name=CUDA0 '
    'description="NVIDIA GeForce RTX 4090" libdirs=ollama driver=12.8 pci_id=0000:01:00.0 type=discrete '
    'total="23.5 GiB" available="22.9 GiB"\n'
    f'{STAMP}source=server.go:3 msg="starting runner" cmd="/bin/ollama runner --model /m/blobs/sha256-ab --port 4"\n'
)
OWN = (
    f'{STAMP}source=device.go:206 msg="model weights" device=CUDA0 size="4.3 GiB"\n'
    f'{STAMP}source=device.go:211 msg="model weights" device=CPU size="281.8 MiB"\n'
    f'{STAMP}source=device.go:217 msg="kv cache" device=CUDA0 size="1.1 GiB"\n'
    f'{STAMP}source=device.go:228 msg="compute graph" device=CUDA0 size="258.5 MiB"\n'
)
RUNS = f'{STAMP}source=server.go:9 msg="llama runner started in 1.50 seconds"\n'
RUNNER = (Path(__file__).parent / "logs" / "llamacpp" / "ok-1gpu-lv4.log").read_text(encoding="utf-8")


def read(text: str) -> Diagnosis:
    return diagnose(BytesIO(text.encode()).read)


def test_its_own_lines_are_read() -> None:
    found = read(HEAD + OWN + RUNS)
    assert (found.engine, found.version, found.model) == ("ollama", "0.13.1", "/m/blobs/sha256-ab")
    assert (found.stage, found.reading.started) == (None, True)
    assert found.options == {"num_ctx": 8192, "num_parallel": 2, "kv_cache_type": "q8_0"}
    sizes = [found.of_device(name, "CUDA0") for name in ("weights", "kv_cache", "compute")]
    assert sizes == [round(4.3 * GIB), round(1.1 * GIB), round(258.5 * MIB)]
    assert found.size("host_weights") == round(281.8 * MIB)
    assert gpus_named(found) == "1xrtx-4090"


def test_the_lines_of_the_server_that_it_starts_are_read() -> None:
    found = read(HEAD + RUNNER + RUNS)
    assert (found.engine, found.reading.started) == ("ollama", True)
    weights = found.of_device("weights", "CUDA0")
    assert weights is not None
    assert weights / MIB == pytest.approx(4403.49, abs=1e-3)
    assert read(RUNNER).engine == "llamacpp"


def test_a_failure_has_its_stage() -> None:
    failed = "alloc_buffer: allocating 464.04 MiB on device 0: cudaMalloc failed: out of memory\n"
    assert read(HEAD + failed).stage == "weights"
    assert read(HEAD + OWN + RUNS + failed).stage == "runtime"


def test_settings_of_the_server_hold_for_each_model_that_it_loads() -> None:
    again = HEAD.splitlines(keepends=True)[-1].replace("sha256-ab", "sha256-cd")
    found = read(HEAD + RUNNER + RUNS + again + OWN + RUNS)
    assert (found.version, found.model, found.reading.starts) == ("0.13.1", "/m/blobs/sha256-cd", 2)
    assert found.options["num_ctx"] == 8192
    assert found.of_device("weights", "CUDA0") == round(4.3 * GIB)
