"""The stand-in for NVML as fixtures: in this process, and for the helper process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.sampler import Sampler
from kvplanner.ui.gpu_panel.feed import Feed
from kvplanner.ui.gpu_panel.panel import GpuPanel
from tests.nvml_stub.build import environment, library_folder
from tests.observe.kit import Stub

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


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


@pytest.fixture
def panel(qtbot: QtBot) -> Iterator[GpuPanel]:
    """A panel that is not shown yet; sampling is quick so that tests are."""
    made = GpuPanel(feed=Feed(sampler=Sampler(HelperSettings(interval=0.2, others_interval=1.0), call_limit=4.0)))
    qtbot.addWidget(made)
    made.resize(1200, 460)
    yield made
    made.stop()
