"""A display of its own, a card that answers as NVML does, and a process that looks like a server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_stub.build import environment
from tests.observe.kit import Stub, imitated_vllm
from tests.patience import LONG_S

NEEDED = ("Xvfb", "xdotool")


@pytest.fixture
def display() -> Iterator[str]:
    """A display of its own."""
    if any(shutil.which(tool) is None for tool in NEEDED):
        pytest.skip(f"needs {' and '.join(NEEDED)}")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-noreset", "-displayfd", str(write), "-screen", "0", "1400x900x24"],
        pass_fds=(write,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read) as answer:
            yield f":{answer.readline().strip()}"
    finally:
        server.terminate()
        server.wait(LONG_S)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A desktop with one RTX 4090, for helper processes."""
    made = Stub(tmp_path)
    made.use("desktop-4090")
    for name, value in environment(made.scenario, log=made.log).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that looks like `vllm serve`."""
    flags = ("--max-model-len", "4096", "--gpu-memory-utilization", "0.85")
    with imitated_vllm(tmp_path, "meta-llama/Llama-3.1-8B-Instruct", *flags) as process:
        yield process
