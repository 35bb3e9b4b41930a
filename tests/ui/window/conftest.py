"""A display of its own, for tests that drive a real window."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

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
        server.wait(10)
