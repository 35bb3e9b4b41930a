"""Remedies for one plan, solvers, and what fits a machine over the whole catalogue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from time import process_time_ns

from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import Load
from tests.bench import Row, cpu_ms, process_cpu_ms, repeats

# As an installed program: with its byte code at hand.
INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
REMEDIES_MS = 30.0
_PROCESSES = 5
KVPLANNER = (sys.executable, "-m", "kvplanner")
CASES = (
    ("meta-llama/Llama-3.1-8B-Instruct", "RTX 4090"),
    ("google/gemma-3-27b-it", "H100"),
    ("deepseek-ai/DeepSeek-V3", "8xH100"),
    ("Qwen/Qwen3.5-27B", "RTX PRO 6000"),
)
# Plans that fail at each stage, work, or barely do, of small and of the largest models, per engine: model, GPUs,
# options, release (None: the newest) and load. What each takes is told for the worst of them.
_FEW, _MANY, _LONG = Load(1, 1500, 500), Load(128, 500, 500), Load(8, 16_000, 1000)
SPREAD: dict[str, tuple[tuple[str, str, dict[str, OptionValue], str | None, Load | None], ...]] = {
    "vllm": (
        ("Qwen/Qwen3-8B", "RTX 4090", {}, None, _MANY),
        ("Qwen/Qwen2.5-0.5B-Instruct", "4xRTX 3090", {"enforce_eager": True, "kv_cache_dtype": "fp8"}, None, _MANY),
        (
            "Qwen/Qwen2.5-14B-Instruct-1M",
            "RTX 5090",
            {"max_num_seqs": 1024, "max_num_batched_tokens": 16384},
            None,
            _MANY,
        ),
        ("Qwen/Qwen3-Coder-Next-Base", "L4", {}, "0.30", _FEW),
        ("Qwen/Qwen3-VL-8B-Thinking-FP8", "RTX 4090", {"gpu_memory_utilization": 0.97}, None, _MANY),
        ("nvidia/DeepSeek-V3.2-NVFP4", "8xH100", {"gpu_memory_utilization": 0.7}, None, _MANY),
        ("moonshotai/Kimi-K2.6", "8xH100", {}, "0.22", _LONG),
        ("openai/gpt-oss-120b", "2xRTX 4090", {"max_model_len": 32768}, None, _LONG),
        ("google/gemma-3-27b-it", "L4", {}, "0.11.0", None),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "RTX 5090", {"gpu_memory_utilization": 0.7}, None, _MANY),
        ("zai-org/GLM-5-FP8", "8xH200", {}, None, _LONG),
        ("meta-llama/Llama-3.1-70B-Instruct", "2xH100", {"tensor_parallel_size": 2}, "0.8.5", _MANY),
    ),
    "sglang": (
        ("Qwen/Qwen3-8B", "RTX 4090", {}, None, _MANY),
        ("meta-llama/Llama-3.2-1B", "T4", {"mem_fraction_static": 0.95}, None, _LONG),
        ("google/gemma-2-27b-it", "8xH100", {"mem_fraction_static": 0.95}, None, _LONG),
        ("deepseek-ai/DeepSeek-V4-Flash", "RTX 4090", {}, "0.5.23", _MANY),
        ("mistralai/Mistral-Small-4-119B-2603", "RTX 5090", {"mem_fraction_static": 0.95}, None, _FEW),
        ("nvidia/DeepSeek-R1-NVFP4-v2", "RTX 4090", {"mem_fraction_static": 0.95}, None, None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "2xL40S", {"tp_size": 2}, "0.5.14", _LONG),
        ("Qwen/Qwen3-VL-8B-Thinking-FP8", "RTX 4090", {"mem_fraction_static": 0.95}, None, None),
    ),
    "llamacpp": (
        ("Qwen/Qwen3-8B", "RTX 4090", {"n_gpu_layers": "99"}, None, _MANY),
        ("zai-org/GLM-5.3", "H100", {"n_gpu_layers": "99", "ctx_size": 32768}, None, _LONG),
        (
            "deepseek-ai/DeepSeek-V3.2-Speciale",
            "4xRTX 3090",
            {"n_gpu_layers": "99", "parallel": 8, "ctx_size": 65536},
            None,
            None,
        ),
        ("moonshotai/Kimi-K2.5", "RTX 4090", {"n_gpu_layers": "99", "ctx_size": 32768}, None, _MANY),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "RTX 4090", {"n_gpu_layers": "99"}, None, _FEW),
        (
            "Qwen/Qwen2.5-72B-Instruct",
            "RTX 4090",
            {"n_gpu_layers": "99", "parallel": 8, "ctx_size": 65536},
            None,
            _LONG,
        ),
        ("google/gemma-3-27b-it", "T4", {"n_gpu_layers": "40", "ctx_size": 131072}, "b7400", None),
        ("openai/gpt-oss-120b", "2xRTX 4090", {"n_cpu_moe": 10, "n_gpu_layers": "99"}, None, _LONG),
    ),
    "ollama": (
        ("Qwen/Qwen3-8B", "RTX 4090", {"num_gpu": 99}, None, _MANY),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "RTX 4060 Ti 16GB", {"num_ctx": 32768}, None, None),
        ("deepseek-ai/DeepSeek-V2-Chat", "T4", {}, None, _FEW),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "4xRTX 4090", {"num_ctx": 32768}, None, None),
        ("mistralai/Mixtral-8x7B-v0.1", "RTX 4060 Ti 16GB", {"num_gpu": 99, "num_ctx": 32768}, None, _MANY),
    ),
}
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
    return [*_remedies(), *_worst(), *_solvers(), *_sweeps(), *_fits()]


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
        used = cpu_ms(lambda request=request, plan=plan: remedies(request, plan, others), inner=3)  # type: ignore[misc]  # keeps its loop's value
        rows.append(Row(f"remedies, {name.rpartition('/')[2]} on {gpu}", used, None, REMEDIES_MS))
    return rows


def _worst() -> list[Row]:
    """Of a spread of plans per engine the one whose remedies take longest: asked for again, and for the first time.

    Each is the least that several processes took.
    """
    rows = []
    for name in SPREAD:
        runs = [_in_a_process(name) for _ in range(min(_PROCESSES, repeats()))]
        for words, place in (("", 1), (", for the first time", 0)):
            found = [(min(run[at][place] for run in runs), at) for at in range(len(SPREAD[name]))]
            most, at = max(found)
            model, gpu, *_ = SPREAD[name][at]
            over = sum(used > REMEDIES_MS for used, _ in found)
            note = f"{model.rpartition('/')[2]} on {gpu}; {over} of {len(found)} over"
            rows.append(Row(f"remedies, worst plan of {name}{words}", most, None, REMEDIES_MS, note=note))
    return rows


def _in_a_process(name: str) -> list[list[float]]:
    """What `each_of` tells in a process of its own."""
    told = f"from tests.bench.bench_solve import each_of; import json; print(json.dumps(each_of({name!r})))"
    run = subprocess.run([sys.executable, "-c", told], stdout=subprocess.PIPE, check=True, env=os.environ | INSTALLED)
    return [[float(used) for used in both] for both in json.loads(run.stdout)]


def each_of(name: str) -> list[tuple[float, float]]:
    """Milliseconds of CPU that the remedies of each plan of an engine's spread take for the first time, and again.

    The first time nothing of the model, and of other models and machines beside it, has been planned in this process
    but the plan itself, with all that is shown of it. As in the window no garbage is looked for where threads work: its
    main thread does, in pauses.
    """
    import gc

    from kvplanner.catalog import gpus, models
    from kvplanner.engine.registry import engine
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.others import others
    from kvplanner.solve.remedies import remedies

    warm = PlanRequest(models.load("Qwen/Qwen3-4B"), gpus.machine("RTX 4090"), name, load=_FEW)
    remedies(warm, engine(name).plan(warm), others)  # for the modules
    found = []
    gc.disable()
    for model, gpu, options, release, load in SPREAD[name]:
        request = PlanRequest(models.load(model), gpus.machine(gpu), name, release, options, load)
        plan = engine(name).plan(request)
        assert plan.devices
        gc.collect()
        start = process_time_ns()
        remedies(request, plan, others)
        first = (process_time_ns() - start) / 1e6
        again = cpu_ms(lambda request=request, plan=plan: remedies(request, plan, others), repeat=3)  # type: ignore[misc]  # keeps its loop's value
        found.append((first, again))
    return found


def _solvers() -> list[Row]:
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.request import Load, PlanRequest
    from kvplanner.solve.solver import ASKED, solve

    request = PlanRequest(models.load(CASES[0][0]), gpus.machine("2xRTX 4090"), load=Load(8, 1500, 500))
    return [
        Row(f"solve {asked}", cpu_ms(lambda asked=asked: solve(asked, request), inner=1))  # type: ignore[misc]  # keeps its loop's value
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
        used = cpu_ms(lambda request=request, axes=axes: list(sweep(request, axes)), inner=1)  # type: ignore[misc]  # keeps its loop's value
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
