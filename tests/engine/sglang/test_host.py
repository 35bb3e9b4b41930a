"""Host pools of the hierarchical cache: a device of the plan, beside GPUs that hold what they held."""

from __future__ import annotations

import pytest

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, GpuSpec
from kvplanner.report import schema
from kvplanner.report import text as report
from tests.engine.sglang.kit import HYBRID, LLAMA_8B, LLAMA_70B, SGLANG, plan, request
from tests.report.contract import check_plan

ON = {"enable_hierarchical_cache": True}


def host(found: Plan) -> DevicePlan:
    (only,) = [device for device in found.devices if device.device.kind == "host"]
    return only


@pytest.mark.parametrize(("model", "gpu"), [(LLAMA_8B, "H100"), (LLAMA_70B, "4xH100"), (HYBRID, "4xH100")])
def test_the_host_holds_twice_the_pools_of_all_ranks(model: str, gpu: str) -> None:
    without, found = plan(model, gpu), plan(model, gpu, ON)
    assert all(device.device.kind == "gpu" for device in without.devices)
    assert found.kv_cache == without.kv_cache
    gpus = [device for device in found.devices if device.device.kind == "gpu"]
    assert gpus == list(without.devices)
    pools = [device.segment("kv_cache") for device in gpus]
    (held,) = host(found).segments
    assert held.bytes == pytest.approx(2 * sum(pool.bytes for pool in pools if pool), rel=0.001)
    check_plan(schema.to_json(found))
    assert "Host" in report.text(found)


def test_a_size_is_of_every_rank_and_a_ratio_of_the_pools() -> None:
    assert host(plan(LLAMA_70B, "4xH100", {**ON, "hicache_size": 30})).segments[0].bytes == 4 * 30 * 10**9
    half, twice = (host(plan(LLAMA_8B, "H100", {**ON, "hicache_ratio": ratio})).segments[0].bytes for ratio in (1, 2))
    assert twice == pytest.approx(2 * half, rel=1e-6)


def test_ram_that_is_known_leaves_the_rest_free_or_cuts_the_pools() -> None:
    def with_ram(gib: int) -> Plan:
        memory = exact(gib << 30)
        ram = Device(0, GpuSpec("host", "Host memory", "custom", memory, memory), kind="host")
        asked = request(LLAMA_8B, "H100", ON)
        return SGLANG.plan(asked._replace(machine=asked.machine._replace(devices=(*asked.machine.devices, ram))))

    roomy = host(with_ram(512))
    assert sum(segment.bytes for segment in roomy.segments) == 512 << 30
    assert roomy.overflow_bytes == 0
    cut = with_ram(64)
    assert host(cut).overflow_bytes > 0
    assert any("cut to" in warning for warning in cut.warnings)
    assert cut.fits
