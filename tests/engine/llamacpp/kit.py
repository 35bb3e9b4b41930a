"""Plans for tests: the oracle's models on GPUs by name."""

from __future__ import annotations

from kvplanner.catalog import gpus
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.model.model import Model
from tests.oracle.llamacpp.cases import model_of

LLAMA = "llama31-8b-q4km"
QWEN = "qwen3-32b-q4km"
GEMMA = "gemma3-27b-q4km"
OSS = "gptoss-20b-mxfp4"


def plan(
    model: str | Model, gpu: str = "RTX 4090", *, engine_name: str = "llamacpp", version: str | None = None,
    load: Load | None = None, **options: OptionValue,
) -> Plan:  # fmt: skip
    """The plan of an oracle's model (or another) on the GPUs that `gpu` names."""
    held = model_of(model)[0] if isinstance(model, str) else model
    request = PlanRequest(held, gpus.machine(gpu), engine_name, version, options, load)
    return engine(engine_name).plan(request)


def size(device: DevicePlan, kind: str) -> int:
    """Bytes of a kind of segment, 0 without one."""
    return sum(segment.bytes for segment in device.segments if segment.kind == kind)
