"""The plan command from process start, and planning alone."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import Row, cpu_ms, process_cpu_ms

KVPLANNER = (sys.executable, "-m", "kvplanner")
PACKAGED = Path(__file__).resolve().parents[2] / "dist" / "kvplanner" / "kvplanner"
MODEL, LARGE = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"


def run() -> list[Row]:
    """`kvplanner plan` against a bare interpreter; an 80-layer model planned with everything loaded."""
    return [*_processes(), *_planning()]


def _processes() -> list[Row]:
    floor = process_cpu_ms([sys.executable, "-c", "pass"])
    commands = (
        ("kvplanner plan, 8B on one H100", ("plan", MODEL, "--gpu", "H100"), 350.0),
        ("kvplanner plan --json, 70B on eight H100", ("plan", LARGE, "--gpu", "8xH100", "--json"), 350.0),
        ("kvplanner models llama", ("models", "llama"), None),
        ("kvplanner gpus", ("gpus",), None),
        ("kvplanner --version", ("--version",), None),
    )
    rows = [Row(name, process_cpu_ms([*KVPLANNER, *words]), floor, budget) for name, words, budget in commands]
    if not PACKAGED.exists():  # python3 packaging/dev.py build makes it
        return rows
    words = ("plan", MODEL, "--gpu", "H100")
    source, packaged = process_cpu_ms([*KVPLANNER, *words]), process_cpu_ms([str(PACKAGED), *words])
    return [*rows, Row("the packaged application's plan, against that from source", packaged, source, budget_ratio=1.3)]


def _planning() -> list[Row]:
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.registry import engine
    from kvplanner.engine.request import Load, PlanRequest
    from kvplanner.report import schema
    from kvplanner.report import text as report
    from kvplanner.solve.axis import axis
    from kvplanner.solve.sweep import sweep

    vllm = engine("vllm")
    model = models.load(LARGE)
    request = PlanRequest(model, gpus.machine("8xH100"), load=Load(64, 1500, 500))
    plan = vllm.plan(request)
    lengths = iter(range(4096, 1 << 30))

    def another() -> object:
        return vllm.plan(request._replace(options={"max_model_len": next(lengths)}))

    four = PlanRequest(models.load(LARGE), gpus.machine("4xRTX 4090"), "llamacpp", load=Load(8, 1500, 500))

    def elsewhere() -> object:
        return engine("llamacpp").plan(four._replace(options={"ctx_size": 256 * (next(lengths) % 256 + 16)}))

    one = PlanRequest(models.load(MODEL), gpus.machine("H100"), load=Load(1, 1500, 500))
    context, users = (axis(one, text, points) for text, points in (("context=4k..128k", 64), ("users=1..256", 32)))
    wide = axis(one, "context=4k..128k", 32)

    return [
        Row("sweep of one setting, 64 points", cpu_ms(lambda: list(sweep(one, [context]))), None, 60.0),
        Row("map of users by context, 32 each", cpu_ms(lambda: list(sweep(one, [users, wide]))), None, 1000.0),
        Row("plan of 80 layers on 8 GPUs, the same request", cpu_ms(lambda: vllm.plan(request), inner=50), None, 1.0),
        Row("plan of 80 layers on 8 GPUs, another context each", cpu_ms(another, inner=50), None, 1.0),
        Row("llama.cpp: 80 layers on 4 GPUs, another context each", cpu_ms(elsewhere, inner=50), None, 3.0),
        Row("plan as text", cpu_ms(lambda: report.text(plan), inner=20)),
        Row("plan explained", cpu_ms(lambda: report.explain(plan), inner=20)),
        Row("plan as JSON values", cpu_ms(lambda: schema.to_json(plan), inner=50)),
    ]
