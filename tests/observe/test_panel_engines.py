"""The panel and running engines: recognised, made the plan, compared, and asked how full they are."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.diagnose.attached import Attached
from kvplanner.observe.engines import EngineLaunch
from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.sampler import Sampler
from kvplanner.ui.gpu_panel.feed import Feed
from kvplanner.ui.gpu_panel.panel import GpuPanel
from kvplanner.units import GIB, MIB
from tests.observe.kit import VLLM_NEW, Stub, imitated_vllm
from tests.observe.panel_kit import plan_for, until
from tests.patience import LONG_S

pytestmark = pytest.mark.slow

CARD = """driver = 580.95.05
process.{pid} = {name}
[gpu 0]
name = NVIDIA GeForce RTX 4090
uuid = GPU-4b8f0c1e-3d57-4a55-9c1d-0a7b5c2e4090
pci = 00000000:01:00.0
cc = 8.9
total_mib = 24564
reserved_mib = 454
used_mib = {used}
compute = {pid}:{mine}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that looks like `vllm serve`."""
    with imitated_vllm(tmp_path, "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192") as process:
        yield process


@pytest.fixture
def panel(qtbot: QtBot) -> Iterator[GpuPanel]:
    made = GpuPanel(feed=Feed(sampler=Sampler(HelperSettings(interval=0.2))))
    qtbot.addWidget(made)
    made.resize(1200, 460)
    yield made
    made.stop()


def card(server: subprocess.Popen[str], mine: int, used: int) -> str:
    name = Path(sys.executable).name
    return CARD.format(pid=server.pid, name=name, mine=mine, used=used)


def test_a_running_server_becomes_the_plan_and_is_compared(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    stub.use(card(server, 20480, 21504))
    panel.set_plan(plan_for("RTX 4090"))
    panel.show()
    until(qtbot, lambda: panel.engines.isVisible())
    assert panel.engines.combo.currentText() == f"vLLM · pid {server.pid} · Llama-3.1-8B-Instruct"
    with qtbot.waitSignal(panel.plan_from_process, timeout=15_000) as caught:
        panel.engines.make_plan.click()
    launch = caught.args[0]
    assert isinstance(launch, EngineLaunch)
    assert launch.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert launch.options == {"max_model_len": 8192, "tensor_parallel_size": 1}
    assert launch.machine is not None
    assert launch.machine.devices[0].free_bytes == (24564 - 454 - 21504 + 20480) * MIB
    until(qtbot, lambda: bool(panel.model.overlays))
    (overlay,) = panel.model.overlays
    assert overlay.engine.value == 20 * GIB
    with qtbot.waitSignal(panel.run_measured, timeout=15_000) as caught:
        panel.engines.calibrate.click()
    assert caught.args[0].options == launch.options
    assert caught.args[1] == Attached(20 * GIB)
    assert overlay.unaccounted.value == 20 * GIB - overlay.planned_bytes
    assert [p.kind for p in panel.bars.rows()[0].parts] == ["driver", "other", "engine"]
    assert "unaccounted" in panel.bars.rows()[0].numbers
    assert panel.free.text.text() == "Other programs hold 1.00 GiB on GPU 0."


def test_a_chosen_process_chooses_its_engine(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    assert isinstance(server.args, list)
    script = Path(str(server.args[1])).with_name("sglang")
    script.write_text("import time\ntime.sleep(600)\n")
    with subprocess.Popen([sys.executable, str(script), "serve", "--model-path", "x/y"]) as second:
        text = card(server, 8000, 9000).replace(
            f"compute = {server.pid}:8000", f"compute = {server.pid}:800 {second.pid}:9"
        )
        stub.use(f"process.{second.pid} = {Path(sys.executable).name}\n" + text)
        panel.show()
        until(qtbot, lambda: panel.engines.combo.count() == 2)
        table = panel.processes
        for pid, title in ((second.pid, "SGLang"), (server.pid, "vLLM")):
            rows = [r for r in range(table.proxy.rowCount()) if table.proxy.index(r, 1).data() == str(pid)]
            table.view.selectRow(rows[0])
            assert panel.engines.combo.currentText().startswith(title)
            assert panel.engines.make_plan.isEnabled()
        second.kill()


def test_start_up_stages_are_marked_as_memory_grows(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    plan = plan_for("RTX 4090")
    ends = {s.label: s.end_bytes // MIB for s in plan.devices[0].stages}
    stub.use(card(server, 300, 400))
    panel.set_plan(plan)
    panel.show()
    until(qtbot, lambda: any(m.text == "vLLM seen" for m in panel.model.history.marks))
    stub.use(card(server, ends["load weights"] - 454, ends["load weights"] - 454 + 50))
    until(qtbot, lambda: any(m.text == "load weights" for m in panel.model.history.marks))
    assert not any("KV cache" in m.text for m in panel.model.history.marks)
    stub.use(card(server, ends["allocate the KV cache"] - 454, ends["allocate the KV cache"] - 454 + 50))
    until(qtbot, lambda: any(m.text == "allocate the KV cache" for m in panel.model.history.marks))
    server.kill()
    server.wait(LONG_S)
    stub.use(card(server, 0, 100).replace(f"compute = {server.pid}:0", "compute ="))
    until(qtbot, lambda: any(m.text == "engine ended" for m in panel.model.history.marks))


def test_only_the_given_address_is_asked_and_the_fill_is_shown(
    stub: Stub, panel: GpuPanel, qtbot: QtBot, server: subprocess.Popen[str]
) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(VLLM_NEW.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        stub.use(card(server, 20480, 21504))
        panel.set_plan(plan_for("RTX 4090"))
        panel.show()
        until(qtbot, lambda: panel.engines.isVisible())
        assert panel.engines.address.text() == "http://127.0.0.1:8000"
        qtbot.wait(300)
        assert asked == []
        panel.engines.address.setText(f"127.0.0.1:{http.server_port}")
        with qtbot.waitSignal(panel.fill_changed, timeout=10_000) as caught:
            panel.engines.read_button.click()
        assert caught.args == [0.25]
        assert asked == ["/metrics"]
        assert "≈ 53,000 of 212,000 tokens · 7 requests running" in panel.engines.result.text()
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
    panel.engines.read_button.click()
    until(qtbot, lambda: "no answer" in panel.engines.result.text())
