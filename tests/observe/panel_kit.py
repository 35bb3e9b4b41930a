"""What the panel's tests share: a panel on the stand-in, a plan, and waiting for what it shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine import registry
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.ui.gpu_panel.panel import GpuPanel


@cache
def plan_for(gpu: str, max_model_len: int = 8192, tensor_parallel_size: int = 1) -> Plan:
    """A plan of Llama-3.1-8B-Instruct."""
    model = models.load(models.find("Llama-3.1-8B-Instruct").id)
    options: dict[str, OptionValue] = {"max_model_len": max_model_len, "tensor_parallel_size": tensor_parallel_size}
    return registry.engine("vllm").plan(PlanRequest(model, gpus.machine(gpu), options=options))


def until(qtbot: QtBot, check: Callable[[], object]) -> None:
    """Waits until something holds."""

    def holds() -> None:
        assert check()

    qtbot.waitUntil(holds)


def shown(panel: GpuPanel, qtbot: QtBot, gpus_seen: int = 1) -> None:
    """Waits until the panel shows so many devices."""
    until(qtbot, lambda: len(panel.bars.rows()) == gpus_seen)
