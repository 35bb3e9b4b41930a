"""observe: what watching eight GPUs costs (sampler and drawing), its NVML calls, and a day of samples.

The stand-in answers with the latency of real calls where it is a millisecond or more: process lists 4.5 ms (as 5).
CPU time is that of the whole helper process and of this process' event loop, over a fixed wall time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.bench import Row, repeats
from tests.nvml_stub.build import SCENARIOS, compiler_missing, environment, rewrite

_SECONDS: Final = 10.0
_WARM_S: Final = 4.0
_LATENCY: Final = """latency.nvmlDeviceGetGraphicsRunningProcesses_v2 = 5
latency.nvmlDeviceGetComputeRunningProcesses_v2 = 5
latency.nvmlDeviceGetMPSComputeRunningProcesses_v2 = 5
"""
_WATCH: Final = """
import json, sys, time
import psutil
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from kvplanner.ui.gpu_panel.panel import GpuPanel
from tests.observe.panel_kit import plan_for
fast, warm, seconds = sys.argv[1] == "fast", float(sys.argv[2]), float(sys.argv[3])
app = QApplication([])
panel = GpuPanel()
panel.resize(1240, 600)
panel.set_plan(plan_for("8xH100", tensor_parallel_size=8))
panel.show()
panel.toolbar.fast_box.setChecked(fast)
drawn = [0]
panel.feed.snapshots.connect(lambda batch: drawn.__setitem__(0, drawn[0] + 1))
found = {}
def cpu(process):
    times = process.cpu_times()
    return times.user + times.system
def begin():
    helper = psutil.Process(panel.feed.helper_pid)
    found.update(helper=helper, at=time.monotonic(), mine=time.process_time(), its=cpu(helper), drawn=drawn[0])
    print("begin", flush=True)
    QTimer.singleShot(int(seconds * 1000), end)
def end():
    wall = time.monotonic() - found["at"]
    print(json.dumps({
        "window": (time.process_time() - found["mine"]) / wall, "helper": (cpu(found["helper"]) - found["its"]) / wall,
        "drawn": (drawn[0] - found["drawn"]) / wall, "rows": len(panel.bars.rows()),
    }), flush=True)
    panel.stop()
    app.quit()
QTimer.singleShot(int(warm * 1000), begin)
app.exec()
"""


def run() -> list[Row]:
    """The rows; none where the stand-in cannot be built."""
    reason = compiler_missing()
    if reason:
        return [Row("watching GPUs", 0.0, unit="", note=f"not measured: {reason}")]
    rows: list[Row] = []
    for speed, budget in (("normal", 0.01), ("fast", 0.06)):
        best = min((_watched(speed) for _ in range(max(1, min(3, repeats())))), key=lambda m: m["cpu"])
        name = "8 GPUs at 1 Hz" if speed == "normal" else "8 GPUs at 10 Hz, drawn 4 times a second"
        parts = f"helper {best['helper']:.2%}, window {best['window']:.2%}, drawn {best['drawn']:.1f}/s"
        rows.append(Row(f"{name}: share of a core", best["cpu"] * 100, budget=budget * 100, unit="%", note=parts))
        rows.append(Row(f"{name}: NVML calls", best["calls"], unit="1/s", note=best["most"]))
    rows.append(_day())
    return rows


def _watched(speed: str) -> dict[str, Any]:
    import json

    with tempfile.TemporaryDirectory() as folder:
        scenario, log = Path(folder) / "scenario.ini", Path(folder) / "calls.log"
        rewrite(scenario, _LATENCY + (SCENARIOS / "8xh100.ini").read_text(encoding="utf-8"))
        env = os.environ | environment(scenario, log=log) | {"QT_QPA_PLATFORM": "offscreen"}
        command = [sys.executable, "-c", _WATCH, speed, str(_WARM_S), str(_SECONDS)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begin\n", child.stderr.read() if child.stderr else ""
            log.unlink(missing_ok=True)
            began = time.monotonic()
            answer: dict[str, Any] = json.loads(child.stdout.readline())
            wall = time.monotonic() - began
            counted = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert answer["rows"] == 8
    answer["cpu"] = answer["helper"] + answer["window"]
    answer["calls"] = sum(counted.values()) / wall
    answer["most"] = ", ".join(f"{n.removeprefix('nvmlDeviceGet')} {c / wall:.1f}" for n, c in counted.most_common(4))
    return answer


def _day() -> Row:
    from kvplanner.observe.history import History
    from tests.observe.kit import shot

    history = History()
    for second in range(86_400):
        history.add(shot(float(second), *range(8)))
    return Row("a day of samples of 8 GPUs", history.size_bytes / (1 << 20), budget=20, unit="MiB")
