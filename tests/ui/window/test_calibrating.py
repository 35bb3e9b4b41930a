"""A running server calibrates the window's plans, where the plan is of its start."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from kvplanner.app.messages import Message
from kvplanner.diagnose.attached import Attached
from kvplanner.engine.option import OptionValue
from kvplanner.observe.engines import EngineLaunch
from kvplanner.observe.snapshot import EngineSeen
from kvplanner.ui.window.commands.calibrating import OF_ANOTHER
from kvplanner.ui.window.window import MainWindow

MODEL = "Qwen/Qwen3-8B"
SEEN = EngineSeen(4711, 0.0, "vllm", "vLLM", ("vllm", "serve", MODEL, "--max-model-len", "8192"))

STARTED: dict[str, OptionValue] = {"max_model_len": 8192, "tensor_parallel_size": 1}


def said(window: MainWindow, qtbot: QtBot, seen: Attached, **options: int) -> Message:
    launch = EngineLaunch(SEEN, MODEL, {**STARTED, **options}, window.document.state.machine, "0.11.0")
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.logs.calibrating.of_server(launch, seen)
    assert posted.args is not None
    message = posted.args[0]
    assert isinstance(message, Message)
    return message


def test_a_running_server_calibrates_the_plan_of_its_start(window: MainWindow, qtbot: QtBot) -> None:
    launch = EngineLaunch(SEEN, MODEL, dict(STARTED), window.document.state.machine, "0.11.0")
    window.opening.plan_launch(launch)
    qtbot.waitUntil(lambda: window.document.state.ask.version == "0.11.0", timeout=10_000)
    window.document.flush()
    before = window.document.plan
    assert before is not None
    assert before.kv_cache is not None
    assert said(window, qtbot, Attached(None, 900), max_num_seqs=8).text == OF_ANOTHER
    assert window.services.runs.kept() == ()
    units = before.kv_cache.units - 60
    message = said(window, qtbot, Attached(None, units))
    assert "Calibrated, for plans of the same engine rules, GPU" in message.text
    assert message.action is not None
    assert message.action[0] == "Calibrations…"
    (run,) = window.services.runs.kept()
    assert run.origin == "server"
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert plan.kv_cache is not None
    assert abs(plan.kv_cache.units - units) <= 1
    assert "calibrates nothing" in said(window, qtbot, Attached(None, 10 * units)).text
