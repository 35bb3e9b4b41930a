"""Builds the stand-in for NVML with the machine's compiler, outside the tree, once per run of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.patience import LONG_S

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / "scenarios"
# Scenarios that stand for a driver without some functions need a library without those symbols.
VARIANTS = {"old-driver-470": ("OLD=470",), "r535-transition": ("MISSING=nvmlDeviceGetRunningProcessDetailList",)}


def compiler_missing() -> str:
    """Why the stub cannot be built here, "" when it can."""
    if os.name == "nt":
        return "the NVML stand-in is for Linux"
    for tool in ("make", "gcc"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine: the NVML stand-in cannot be built"
    return ""


@cache
def library_folder(*variant: str) -> Path:
    """A folder with libnvidia-ml.so.1 in it; skips the test where there is no compiler."""
    reason = compiler_missing()
    if reason:
        pytest.skip(reason)
    folder = Path(mkdtemp(prefix="nvml-stub-"))
    subprocess.run(["make", "-s", "-C", str(HERE), f"OUT={folder}", *variant], check=True, timeout=LONG_S)
    return folder


def environment(scenario: Path, *variant: str, log: Path | None = None) -> dict[str, str]:
    """Environment variables that make a child process load the stub with a scenario."""
    found = {
        "LD_LIBRARY_PATH": str(library_folder(*variant)),
        "NVML_STUB_SCENARIO": str(scenario),
        "NVML_STUB_STRICT": "1",
    }
    if log is not None:
        found["NVML_STUB_LOG"] = str(log)
    return found


def scenario_variant(name: str) -> tuple[str, ...]:
    """How the library for a scenario is to be built."""
    return VARIANTS.get(name, ())


def rewrite(path: Path, text: str) -> None:
    """Replaces a scenario in one step, so that a call never sees half of it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
