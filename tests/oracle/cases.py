"""The oracle's cases as requests: reading, machines and flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.weights.rank import partition
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model.model import Model
from kvplanner.units import MIB
from tests.oracle import originals

HERE = Path(__file__).parent
# What CUDA sees of each, in MiB, and its compute capability: the sizes only pick the engine's batch defaults.
GPUS = {
    "NVIDIA H100 80GB HBM3": (81081, (9, 0)),
    "NVIDIA A100-SXM4-80GB": (81038, (8, 0)),
    "NVIDIA GeForce RTX 4090": (24081, (8, 9)),
    "NVIDIA B200": (182630, (10, 0)),
    "NVIDIA L40S": (45458, (8, 9)),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (97251, (12, 0)),
}
SHORT = {"H100": "NVIDIA H100 80GB HBM3", "A100": "NVIDIA A100-SXM4-80GB", "B200": "NVIDIA B200"}
ALIASES = {"pp": "pipeline_parallel_size"}


def read(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head line and the rows of a file."""
    lines = (HERE / name).read_text("utf-8").splitlines()
    return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]


def machine(name: str, count: int = 1) -> Machine:
    """`count` GPUs of the oracle."""
    total, capability = GPUS[SHORT.get(name, name)]
    name = SHORT.get(name, name)
    gpu = GpuSpec(name, name, "nvidia", exact(total * MIB), exact(total * MIB), capability)
    return Machine(tuple(Device(i, gpu) for i in range(count)))


@cache
def model(name: str) -> Model:
    """A model of the catalogue."""
    return originals.load(name)


def options(flags: list[str], tp: int) -> Mapping[str, OptionValue]:
    """Option values of the oracle's flags; `--engine-arg k=v` sets an option by its name."""
    values: dict[str, OptionValue] = {"tensor_parallel_size": tp} if tp > 1 else {}
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        name, text = value.split("=") if flag == "--engine-arg" else (flag[2:].replace("-", "_"), value)
        values[ALIASES.get(name, name)] = (
            text == "true" if text in ("true", "false") else int(text) if text.lstrip("-").isdigit() else text
        )
    return values


def request(case: Mapping[str, Any]) -> PlanRequest:
    """The plan request of a case."""
    name = case["model"].replace("--", "/", 1)
    return PlanRequest(model(name), machine(case["gpu"]), options=options(case["flags"], case["tp"]))


def stages(case_model: Model, pp: int) -> tuple[tuple[int, int], ...]:
    """The layers of each pipeline stage."""
    return partition(case_model.spec.num_layers, pp, ())
