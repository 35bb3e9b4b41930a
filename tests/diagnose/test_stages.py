"""A log's figures over the plan of its start: parts in the plan's order, and how full the device was at each stage."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from kvplanner.catalog import gpus, models
from kvplanner.diagnose.diagnosis import diagnose, request_of
from kvplanner.diagnose.stages import Logged, over
from kvplanner.engine.registry import engine
from kvplanner.units import GIB
from tests.diagnose import writer
from tests.diagnose.writer import Facts

LOGS = Path(__file__).parent / "logs"
LLAMA = models.load("meta-llama/Llama-3.1-8B-Instruct")


def laid(data: bytes, gpu: str) -> tuple[Logged, ...]:
    found = diagnose(BytesIO(data).read)
    return over(found, engine(found.engine).plan(request_of(found, LLAMA, gpus.machine(gpu))))


def gib(size: int | None) -> float | None:
    return None if size is None else round(size / GIB, 2)


def test_a_log_with_its_profile_gives_ends_and_peaks_of_stages() -> None:
    (one,) = laid((LOGS / "vllm" / "066-v0-ok.log").read_bytes(), "RTX 4090 24696MiB")
    measured = {part.kind: gib(part.bytes) for part in one.parts if part.measured}
    assert measured == {"runtime": 0.08, "weights": 14.99, "activations": 1.21, "kv_cache": 5.48, "cuda_graphs": 0.21}
    assert [part.kind for part in one.parts][:3] == ["driver_reserved", "other", "runtime_outside"]
    before = sum(part.bytes for part in one.parts[:3])
    stages = {s.stage: (gib(s.end_bytes - before), gib(s.peak_bytes - before if s.peak_bytes else None))
              for s in one.stages}  # fmt: skip
    assert stages == {
        "load": (14.99, None), "profile": (15.07, 16.28), "allocate": (20.55, None), "graphs": (20.76, None),
    }  # fmt: skip


def test_sglang_s_free_memory_gives_the_stages_themselves() -> None:
    facts = Facts(version="0.5.20", total=79.18, free=78.5, weights=(14.99,))
    (one,) = laid("\n".join(writer.sglang(facts)).encode(), "H100")
    total = engine("sglang").plan(request_of(diagnose(BytesIO("\n".join(writer.sglang(facts)).encode()).read), LLAMA,
                                             gpus.machine("H100"))).devices[0].total_bytes  # fmt: skip
    start = next(s for s in one.stages if s.stage == "start")
    assert gib(total - start.end_bytes) == 78.5


def test_devices_of_llamacpp_have_their_own_figures() -> None:
    facts = Facts(model="/m/a.gguf", weights=(4.25, 3.5), kv=(1.0, 0.75))
    made = laid("\n".join(writer.llamacpp(facts, devices=2)).encode(), "2xRTX 4090")
    assert [{p.kind: gib(p.bytes) for p in one.parts if p.measured and p.kind != "compute"} for one in made] == [
        {"weights": 4.25, "kv_cache": 1.0}, {"weights": 3.5, "kv_cache": 0.75}]  # fmt: skip
