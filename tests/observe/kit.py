"""The stand-in for NVML, and metrics pages as servers print them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvplanner.observe.snapshot import GpuSample, Reading, Snapshot
from kvplanner.units import GIB, MIB
from tests.nvml_stub.build import SCENARIOS, rewrite
from tests.patience import LONG_S

VLLM_NEW = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 7.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.25
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.92",\
kv_cache_max_concurrency="6.5",kv_cache_size_tokens="212000",num_gpu_blocks="13250"} 1.0
"""


class Stub:
    """A scenario file that may be rewritten at any time, and the log of calls."""

    def __init__(self, folder: Path) -> None:
        self.scenario = folder / "scenario.ini"
        self.log = folder / "calls.log"

    def use(self, text: str) -> None:
        """Takes a scenario's text, or the name of one of the files."""
        named = SCENARIOS / f"{text}.ini"
        rewrite(self.scenario, named.read_text(encoding="utf-8") if "\n" not in text else text)

    def calls(self) -> list[str]:
        """The functions that were called so far."""
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def forget_calls(self) -> None:
        self.log.unlink(missing_ok=True)


@contextmanager
def imitated_vllm(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that looks like `vllm serve` with these words, started in `folder`."""
    script = folder / "bin" / "vllm"
    script.parent.mkdir()
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, str(script), "serve", *words]
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
        process.wait(LONG_S)


def scenario_text(name: str) -> str:
    """The text of a scenario file."""
    return (SCENARIOS / f"{name}.ini").read_text(encoding="utf-8")


def shot(time: float, *used_mib: int) -> Snapshot:
    gpus = tuple(
        GpuSample(i, f"GPU-{i}", total=Reading(80 * GIB), free=Reading(80 * GIB - used * MIB))
        for i, used in enumerate(used_mib)
    )
    return Snapshot(int(time * 10), time, time, gpus)
