"""Remedies for one plan, solvers, and what fits a machine over the whole catalogue."""

from __future__ import annotations

import sys

from tests.bench import Row, cpu_ms, process_cpu_ms

# As an installed program: with its byte code at hand.
INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
KVPLANNER = (sys.executable, "-m", "kvplanner")
CASES = (
    ("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090"),
    ("google/gemma-3-27b-it", "H100"),
    ("deepseek-ai/DeepSeek-V3", "8xH100"),
    ("Qwen/Qwen3.5-27B", "RTX PRO 6000"),
)


def run() -> list[Row]:
    """Each as it is asked for: remedies and solvers in a running program, what fits as a whole command."""
    return [*_remedies(), *_solvers(), *_fits()]


def _remedies() -> list[Row]:
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.registry import engine
    from kvplanner.engine.request import Load, PlanRequest
    from kvplanner.solve.others import others
    from kvplanner.solve.remedies import remedies

    rows = []
    for name, gpu in CASES:
        request = PlanRequest(models.load(name), gpus.machine(gpu), load=Load(32, 1500, 500))
        plan = engine("vllm").plan(request)
        used = cpu_ms(lambda request=request, plan=plan: remedies(request, plan, others), inner=3)  # type: ignore[misc]
        rows.append(Row(f"remedies, {name.rpartition('/')[2]} on {gpu}", used, None, 30.0))
    return rows


def _solvers() -> list[Row]:
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.request import Load, PlanRequest
    from kvplanner.solve.solver import ASKED, solve

    request = PlanRequest(models.load(CASES[0][0]), gpus.machine("2xRTX 4090"), load=Load(8, 1500, 500))
    return [
        Row(f"solve {asked}", cpu_ms(lambda asked=asked: solve(asked, request), inner=1))  # type: ignore[misc]
        for asked in ASKED
    ]


def _fits() -> list[Row]:
    words = ("fits", "--gpu", "RTX 4090", "--load", "8@1500+500", "--json")
    six = ("--formats", "fp8,fp8 block,int8,awq,gptq")
    return [
        Row(
            "kvplanner fits, whole catalogue as stored",
            process_cpu_ms([*KVPLANNER, *words], env=INSTALLED),
            None,
            800.0,
        ),
        Row("kvplanner fits, in six formats", process_cpu_ms([*KVPLANNER, *words, *six], env=INSTALLED), None, 3000.0),
    ]
