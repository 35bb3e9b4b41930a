"""The views over plans of the real engine and catalogues."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.gpu.match import custom_gpu
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.observe.overlay import overlays
from kvplanner.observe.snapshot import EngineSeen, GpuSample, ProcessSample, Reading, Snapshot
from kvplanner.report.explain import as_text, explanation
from kvplanner.report.verdict import verdict
from kvplanner.ui.bars.layout import arrange
from kvplanner.ui.bars.shapes import View
from kvplanner.ui.bars.widget import MemoryBars
from kvplanner.ui.breakdown.lines import lines
from kvplanner.ui.breakdown.view import BreakdownView
from kvplanner.ui.explain.view import ExplainView
from kvplanner.ui.startup.view import StartupView
from kvplanner.ui.verdict.view import VerdictView
from kvplanner.units import GB, GIB
from tests.ui.kit import measure

LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def _plan(
    model: str,
    gpu: GpuSpec,
    count: int = 1,
    *,
    load: Load | None = None,
    measured: dict[str, int] | None = None,
    **options: OptionValue,
) -> Plan:
    machine = Machine(tuple(Device(i, gpu) for i in range(count)))
    if count > 1:
        options["tensor_parallel_size"] = count
    loaded = models.load(models.find(model).id)
    return engine("vllm").plan(PlanRequest(loaded, machine, options=options, load=load, measured=measured or {}))


def _lesson() -> Plan:
    """A GPU of exactly 80 GB and given overheads."""
    given = {"activations": 3 * GB, "runtime_outside": 0, "runtime": 0, "workspace": 0, "cuda_graphs": 0}
    return _plan(LLAMA_8B, custom_gpu(80 * GB), measured=given, gpu_memory_utilization=0.9)


def test_explain_teaches_the_reference_lesson() -> None:
    told = explanation(_lesson(), 0, "kv_cache", "GB")
    assert told is not None
    assert told.value.startswith("52.94 GB = 49.30 GiB")
    assert told.formulas[0].lines() == ("= blocks × bytes per block", "= 25,243 × 2.10 MB")
    assert told.formulas[1].in_numbers == "72.00 GB − 0 GB − 16.06 GB − 0 GB − 3.00 GB − 0 GB"
    answers = {a.question: a.text for a in told.answers}
    naive = answers["Why not simply (memory − weights) ÷ bytes per token?"]
    assert "(80.00 GB − 16.06 GB) ÷ 131,072 bytes" in naive
    assert "overstates it by 21 %" in naive
    assert any("131,072 bytes of KV cache per token" in note for note in told.notes)


def test_weights_stand_in_both_units() -> None:
    told = explanation(_lesson(), 0, "weights", "GiB")
    assert told is not None
    assert told.value == "14.96 GiB = 16.06 GB = 16,060,522,496 bytes"


def test_one_step_s_tensors_can_be_read() -> None:
    plan = _plan(LLAMA_8B, gpus.gpu("h100-sxm5-80gb"), max_num_batched_tokens=8192)
    told = explanation(plan, 0, "activations", "GB")
    assert told is not None
    assert "0.47 GB" in as_text(told) or "469.76 MB" in as_text(told)


CASES = {
    "fits": lambda: _plan(LLAMA_8B, gpus.gpu("h100-sxm5-80gb"), load=Load(32, 1500, 500)),
    "weights": lambda: _plan(LLAMA_70B, gpus.gpu("h100-sxm5-80gb")),
    "too small": lambda: _plan(LLAMA_70B, gpus.gpu("h100-sxm5-80gb"), 2),
    "eight": lambda: _plan(LLAMA_70B, gpus.gpu("h100-sxm5-80gb"), 8, load=Load(200, 3000, 1000)),
    "latent": lambda: _plan("deepseek-ai/DeepSeek-V3", gpus.gpu("h100-sxm5-80gb"), 8),
}


@pytest.mark.parametrize("name", CASES)
def test_every_view_takes_real_plans(qtbot: QtBot, name: str) -> None:
    plan = CASES[name]()
    window = QWidget()
    qtbot.addWidget(window)
    column = QVBoxLayout(window)
    views = (VerdictView(), MemoryBars(), BreakdownView(), ExplainView(), StartupView())
    for view in views:
        column.addWidget(view)
        view.set_plan(plan)
    window.resize(900, 1200)
    window.show()
    for kind in SEGMENT_KINDS:
        for view in views:
            view.set_selected(len(plan.devices) - 1, kind)
            view.set_unit("GB" if kind == "weights" else "GiB")
    assert not window.grab().isNull()
    layout = arrange(plan, 900, 300, measure, View())
    assert len(layout.rows) == 1  # equal ranks fold
    total = sum(c.bytes for c in layout.rows[0].cells)
    assert total == sum(s.bytes for s in plan.devices[0].in_use)
    assert sum(row.kind is not None for row in lines(plan, 0, "GiB")) == len(plan.devices[0].segments)
    told = verdict(plan, "GiB")
    assert told.state == {True: "fits", False: "fails"}[bool(plan.fits)]
    assert bool(told.engine_message) == (plan.fits is False)
    if plan.fits is False:
        assert layout.rows[0].lack is not None


def test_what_the_card_shows_lies_under_the_plan(qtbot: QtBot) -> None:
    plan = CASES["fits"]()
    total = plan.devices[0].total_bytes
    process = ProcessSample(4127, Reading(60 * GIB), ("compute",), name="vllm", engine="vllm", root_pid=4127)
    gpu = GpuSample(
        0,
        "GPU-1",
        name=plan.devices[0].device.gpu.name,
        total=Reading(total),
        reserved=Reading(GIB // 2),
        allocated=Reading(61 * GIB),
        free=Reading(total - 61 * GIB - GIB // 2),
        processes=(process,),
    )
    snapshot = Snapshot(1, 0.0, 0.0, gpus=(gpu,), engines=(EngineSeen(4127, 0.0, "vllm", "vLLM"),))
    seen = overlays(plan, snapshot)
    bars = MemoryBars()
    qtbot.addWidget(bars)
    bars.resize(900, 240)
    bars.show()
    bars.set_plan(plan)
    bars.set_overlays(seen)
    layout = bars.canvas.arranged()
    assert layout is not None
    strip = layout.rows[0].strip
    assert strip is not None
    assert [part.kind for part, _ in strip.parts] == ["driver", "other", "engine"]
    assert "vLLM (pid 4127) 60.00 GiB" in strip.text.text
    bars.set_unit("GB")
    layout = bars.canvas.arranged()
    assert layout is not None
    assert layout.rows[0].strip is not None
    assert "64.42 GB" in layout.rows[0].strip.text.text
    bars.set_overlays(())
    layout = bars.canvas.arranged()
    assert layout is not None
    assert layout.rows[0].strip is None
