"""What a server keeps in host memory, held against the machine's, and what sleep takes and leaves."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.solve.together import taken_by, together
from kvplanner.units import GIB

LLAMA, EMBED = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-Embedding-0.6B"


def asked(options: dict[str, OptionValue], gpu: str = "2xH100", version: str | None = None) -> Plan:
    return engine("vllm").plan(PlanRequest(models.load(LLAMA), gpus.machine(gpu), version=version, options=options))


def planned(gpu: str = "2xH100", version: str | None = None, **options: OptionValue) -> Plan:
    return asked(options, gpu, version)


def host(plan: Plan) -> DevicePlan | None:
    return next((device for device in plan.devices if device.device.kind == "host"), None)


def sizes(plan: Plan) -> dict[str, int]:
    found = host(plan)
    assert found is not None
    return {segment.kind: segment.bytes for segment in found.segments if segment.kind != "headroom"}


@pytest.mark.parametrize(
    ("version", "options", "expected"),
    [
        (None, {"cpu_offload_gb": 4.0}, {"weights": 8 * GIB}),  # of each rank
        (None, {"kv_offloading_size": 20.0}, {"kv_cache": 20 * GIB}),  # over all ranks
        (None, {"cpu_offload_gb": 2.0, "kv_offloading_size": 1.5}, {"weights": 4 * GIB, "kv_cache": 3 * GIB // 2}),
        ("0.7.3", {"swap_space": 16.0}, {"kv_cache": 32 * GIB}),  # V0: of each rank
        ("0.7.3", {"host_memory": 64 * GIB}, {"kv_cache": 8 * GIB}),  # its default
    ],
)
def test_what_lies_on_the_host(version: str | None, options: dict[str, OptionValue], expected: dict[str, int]) -> None:
    plan = asked(options, version=version)
    assert sizes(plan) == expected
    gpu = plan.devices[0]
    assert gpu.device.kind == "gpu"
    assert plan.tightest in (0, 1)


def test_v1_swaps_nothing_and_nobody_asks_in_vain() -> None:
    assert host(planned(version="0.9.2", swap_space=16.0)) is None
    assert host(planned()) is None
    assert host(planned(version="0.7.3")) is None


def test_the_hosts_memory_is_its_limit() -> None:
    enough = planned(cpu_offload_gb=4.0, host_memory=32 * GIB)
    found = host(enough)
    assert found is not None
    assert found.total_bytes == 32 * GIB == sum(segment.bytes for segment in found.segments)
    assert not any("The host has" in warning for warning in enough.warnings)
    short = planned(cpu_offload_gb=4.0, host_memory=6 * GIB)
    found = host(short)
    assert found is not None
    assert found.overflow_bytes == 2 * GIB
    assert any("The host has 6.00 GiB, and 8.00 GiB are wanted there" in warning for warning in short.warnings)


def test_sleep_gives_back_weights_and_cache() -> None:
    plan = planned("H100", enable_sleep_mode=True, host_memory=8 * GIB)
    (said,) = (warning for warning in plan.warnings if warning.startswith("Asleep"))
    assert "the host keeps 14.96 GiB of weights" in said
    assert any("use level 2" in warning for warning in plan.warnings)
    awake, asleep = taken_by(plan)[0], taken_by(plan, asleep=True)[0]
    assert asleep < 3 * GIB < 60 * GIB < awake


def test_a_sleeping_server_makes_room_for_the_next() -> None:
    machine = gpus.machine("H100")
    servers = [
        (name, PlanRequest(models.load(name), machine, options={
            "gpu_memory_utilization": 0.85, "max_model_len": 8192, "enable_sleep_mode": True}))
        for name in (LLAMA, EMBED)
    ]  # fmt: skip
    assert [one.stage for one in together(servers, machine)] == [None, "free_memory_check"]
    assert [one.stage for one in together(servers, machine, asleep=True)] == [None, None]
