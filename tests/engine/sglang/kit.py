"""SGLang plans and settings made in one line."""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.settle.settle import settle
from tests.oracle import sglang_cases

SGLANG = engine("sglang")
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
QWEN_32B = "Qwen/Qwen3-32B"
GPT_OSS = "openai/gpt-oss-20b"
HYBRID = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def request(
    model: str,
    gpu: str,
    options: Mapping[str, OptionValue] | None = None,
    version: str | None = None,
    load: Load | None = None,
) -> PlanRequest:
    return PlanRequest(
        models.load(model), gpus.machine(gpu), engine="sglang", version=version, options=options or {}, load=load
    )


def plan(
    model: str,
    gpu: str,
    options: Mapping[str, OptionValue] | None = None,
    version: str | None = None,
    load: Load | None = None,
) -> Plan:
    return SGLANG.plan(request(model, gpu, options, version, load))


def settings(
    model: str, gpu: str, mib: int, options: Mapping[str, OptionValue] | None = None, version: str | None = None
) -> Settings:
    """Settings on one of the oracle's GPUs, of a size in MiB."""
    machine = gpus.machine("H100")
    device = machine.devices[0]._replace(gpu=sglang_cases.gpu(gpu, mib))
    made = PlanRequest(
        models.load(model), machine._replace(devices=(device,)), engine="sglang", version=version, options=options or {}
    )
    return settle(made).settings


H100 = ("NVIDIA H100 80GB HBM3", 81559)
A10G = ("NVIDIA A10G", 23028)
B200 = ("NVIDIA B200", 183359)
T4 = ("Tesla T4", 15360)
