"""The SGLang oracle's cases as requests: reading, machines and flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model.model import Model
from kvplanner.units import MIB
from tests.oracle import originals

HERE = Path(__file__).parent / "sglang"
CAPABILITY = {
    "NVIDIA A100-SXM4-40GB": (8, 0), "NVIDIA A100-SXM4-80GB": (8, 0), "NVIDIA GeForce RTX 3060": (8, 6),
    "Tesla T4": (7, 5), "NVIDIA A10G": (8, 6), "NVIDIA GeForce RTX 4090": (8, 9), "NVIDIA GeForce RTX 5090": (12, 0),
    "NVIDIA L40S": (8, 9), "NVIDIA H100 80GB HBM3": (9, 0), "NVIDIA H20": (9, 0), "NVIDIA H200": (9, 0),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (12, 0), "NVIDIA B200": (10, 0), "NVIDIA B300 SXM6 AC": (10, 3),
}  # fmt: skip
SWITCHES = {"enable_dp_attention", "disable_radix_cache", "disable_overlap_schedule", "disable_hybrid_swa_memory"}


def read(name: str) -> list[dict[str, Any]]:
    """The rows of a file, without the head that names their origin."""
    lines = (HERE / name).read_text("utf-8").splitlines()
    assert "provenance" in json.loads(lines[0])
    return [json.loads(line) for line in lines[1:]]


@cache
def model(name: str) -> Model:
    """A model of the catalogue."""
    return originals.load(name)


@cache
def gpu(name: str, mib: int) -> GpuSpec:
    """A GPU of the oracle."""
    return GpuSpec(name, name, "nvidia", exact(mib * MIB), exact(mib * MIB), CAPABILITY[name])


def options(case: Mapping[str, Any]) -> Mapping[str, OptionValue]:
    """Option values of a case's flags and parallel sizes."""
    values: dict[str, OptionValue] = {}
    words = list(case.get("flags", ()))
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        values[name] = True if name in SWITCHES else _value(words.pop(0))
    sizes = {"tp_size": case["tp"], "pp_size": case.get("pp", 1)}
    return {**values, **{name: size for name, size in sizes.items() if size > 1}}


def _value(text: str) -> OptionValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def request(case: Mapping[str, Any]) -> PlanRequest:
    """The plan request of a case.

    The oracle read a longer context length for a model whose record the catalogue corrects: the case's own is put back.
    """
    found = model(case["model"])
    length = case["defaults"].get("context") if "defaults" in case else None
    if length and (found.spec.context_length or 0) < length:
        found = found._replace(spec=found.spec._replace(context_length=length))
    device = gpu(case["gpu"], case["mib"])
    machine = Machine(tuple(Device(i, device) for i in range(case["tp"] * case.get("pp", 1))))
    return PlanRequest(found, machine, engine="sglang", options=options(case))
