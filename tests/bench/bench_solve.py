"""Remedies for one plan, solvers, and what fits a machine over the whole catalogue."""

from __future__ import annotations

import os
import subprocess
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
SWEPT = (
    (CASES[0][0], "RTX 4090", "vllm", ["context=4k..128k"]),
    (CASES[0][0], "RTX 4090", "vllm", ["batched-tokens=1k..64k"]),
    (CASES[1][0], "H100", "vllm", ["context=4k..128k"]),
    (CASES[2][0], "8xH200", "vllm", ["context=4k..128k"]),
    (CASES[3][0], "H100", "vllm", ["context=4k..128k"]),
    ("Qwen/Qwen3-8B", "2xH100", "sglang", ["context=4k..32k"]),
    ("Qwen/Qwen3-8B", "RTX 4090", "llamacpp", ["context=4k..32k"]),
    ("Qwen/Qwen3-8B", "RTX 4090", "ollama", ["context=4k..32k"]),
    (CASES[0][0], "RTX 4090", "vllm", ["users=1..256", "context=4k..128k"]),
    (CASES[0][0], "RTX 4090", "vllm", ["utilisation=0.5..0.98", "context=4k..128k"]),
    (CASES[0][0], "RTX 4090", "vllm", ["context=4k..128k", "batched-tokens=1k..64k"]),
)


def run() -> list[Row]:
    """Each as it is asked for: remedies and solvers in a running program, what fits as a whole command."""
    return [*_remedies(), *_solvers(), *_sweeps(), *_fits()]


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


def _sweeps() -> list[Row]:
    """64 points of one setting for each engine and kind of cache, and maps of 32 × 32."""
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.request import Load, PlanRequest
    from kvplanner.solve.axis import axis
    from kvplanner.solve.sweep import sweep

    rows = []
    for name, gpu, engine, overs in SWEPT:
        request = PlanRequest(models.load(name), gpus.machine(gpu), engine, load=Load(32, 1500, 500))
        points, budget = (64, 60.0) if len(overs) == 1 else (32, 1000.0)
        axes = [axis(request, over, points) for over in overs]
        used = cpu_ms(lambda request=request, axes=axes: list(sweep(request, axes)), inner=1)  # type: ignore[misc]
        words = " × ".join(over.partition("=")[0] for over in overs)
        rows.append(Row(f"sweep {words}, {name.rpartition('/')[2]}, {engine} on {gpu}", used, None, budget))
    return rows


def _fits() -> list[Row]:
    words = ("fits", "--gpu", "RTX 4090", "--load", "8@1500+500", "--json")
    six = ("--formats", "fp8,fp8 block,int8,awq,gptq")
    return [
        Row("kvplanner fits, until the first row", _first_row_ms(words[:-1]), None, 100.0),
        Row(
            "kvplanner fits, whole catalogue as stored",
            process_cpu_ms([*KVPLANNER, *words], env=INSTALLED),
            None,
            800.0,
        ),
        Row("kvplanner fits, in six formats", process_cpu_ms([*KVPLANNER, *words, *six], env=INSTALLED), None, 3000.0),
    ]


def _first_row_ms(words: tuple[str, ...]) -> float:
    """What the command has used when its first row of the table is there, the best of five."""
    used = []
    for _ in range(5):
        with subprocess.Popen([*KVPLANNER, *words], stdout=subprocess.PIPE, env=os.environ | INSTALLED) as running:
            assert running.stdout is not None
            running.stdout.readline()
            running.stdout.readline()  # below the heads
            running.kill()
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = status
            used.append(1000 * (usage.ru_utime + usage.ru_stime))
    return min(used)
