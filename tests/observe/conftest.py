"""The stand-in for NVML as fixtures: in this process, and for the helper process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_stub.build import SCENARIOS, environment, library_folder, rewrite

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


class Stub:
    """A scenario file that may be rewritten at any time, and the log of calls."""

    def __init__(self, folder: Path) -> None:
        self.scenario = folder / "scenario.ini"
        self.log = folder / "calls.log"

    def use(self, text: str) -> None:
        """Takes a scenario's text, or the name of one of the files."""
        named = SCENARIOS / f"{text}.ini"
        rewrite(self.scenario, named.read_text(encoding="utf-8") if "\n" not in text else text)

    def calls(self) -> list[str]:
        """The functions that were called so far."""
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def forget_calls(self) -> None:
        self.log.unlink(missing_ok=True)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """The stub loaded into this process; a helper process that is started finds it as well."""
    folder = library_folder()
    ctypes.CDLL(str(folder / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    made = Stub(tmp_path)
    for name, value in environment(made.scenario, log=made.log).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield made
    made.use("driver = 1\ninit = UNKNOWN\n")


def scenario_text(name: str) -> str:
    """The text of a scenario file."""
    return (SCENARIOS / f"{name}.ini").read_text(encoding="utf-8")
