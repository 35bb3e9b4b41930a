"""Measured beside planned: matching, the parts of a bar, and the signed difference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import Segment
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device
from kvplanner.observe.overlay import match, overlays, signed
from kvplanner.observe.snapshot import EngineSeen, GpuSample, ProcessSample, Reading, Snapshot
from kvplanner.units import GIB, MIB

TOTAL = 24564 * MIB
NOT_TOLD = Reading(None, "n/a (Windows display driver)")


def device(index: int, name: str = "rtx-4090", uuid: str = "", total: int = TOTAL) -> DevicePlan:
    spec = gpus.machine(name).devices[0].gpu
    sizes = {"driver_reserved": 454 * MIB, "other": GIB, "weights": 15 * GIB, "kv_cache": 5 * GIB, "headroom": GIB}
    segments = tuple(Segment(cast(Any, kind), exact(size)) for kind, size in sizes.items())
    return DevicePlan(Device(index, spec, uuid=uuid), f"tp{index}", total, total - 454 * MIB, None, segments)


def plan(*devices: DevicePlan) -> Plan:
    return cast(Plan, SimpleNamespace(devices=devices, request=SimpleNamespace(engine="vllm")))


def gpu(number: int, used: int = 0, *processes: ProcessSample, **more: Any) -> GpuSample:
    sample = GpuSample(
        number, f"GPU-{number}", f"0000:0{number}:00.0", "NVIDIA GeForce RTX 4090",
        total=Reading(TOTAL), reserved=Reading(454 * MIB), allocated=Reading(used),
        free=Reading(TOTAL - 454 * MIB - used), processes=processes,
    )  # fmt: skip
    return sample._replace(**more)


def shot(*samples: GpuSample, engines: tuple[EngineSeen, ...] = ()) -> Snapshot:
    return Snapshot(1, 0.0, 0.0, samples, engines=engines)


VLLM = EngineSeen(4127, 1.0, "vllm", "vLLM", ("vllm", "serve", "x"))


def process(pid: int, size: int | None, root: int | None = 4127) -> ProcessSample:
    return ProcessSample(pid, NOT_TOLD if size is None else Reading(size), ("compute",), root_pid=root)


def test_catalogue_devices_are_matched_by_name_and_total_in_order() -> None:
    found = match(plan(device(0), device(1)), shot(gpu(0), gpu(1), gpu(2)))
    assert {k: g.uuid for k, g in found.items()} == {0: "GPU-0", 1: "GPU-1"}


def test_a_uuid_decides_and_is_not_given_away() -> None:
    found = match(plan(device(0), device(1, uuid="GPU-0")), shot(gpu(0), gpu(1)))
    assert {k: g.uuid for k, g in found.items()} == {1: "GPU-0", 0: "GPU-1"}
    assert match(plan(device(0, uuid="GPU-9")), shot(gpu(0))) == {}


def test_the_user_can_match_otherwise() -> None:
    found = match(plan(device(0), device(1)), shot(gpu(0), gpu(1)), {0: "GPU-1"})
    assert {k: g.uuid for k, g in found.items()} == {0: "GPU-1", 1: "GPU-0"}


@pytest.mark.parametrize("odd", [{"name": "NVIDIA GeForce RTX 3090"}, {"total": Reading(49140 * MIB)}, {"mig": True}])
def test_another_card_is_not_matched(odd: dict[str, Any]) -> None:
    assert match(plan(device(0)), shot(gpu(0, **odd))) == {}


def test_measured_parts_add_up_and_the_difference_has_a_sign() -> None:
    mine = (process(11, 15 * GIB), process(12, 5 * GIB + 144 * MIB))
    sample = gpu(0, 21 * GIB, *mine, process(13, 400 * MIB, root=None))
    (found,) = overlays(plan(device(0)), shot(sample, engines=(VLLM,)))
    assert [(p.kind, p.bytes) for p in found.parts] == [
        ("driver", 454 * MIB), ("other", GIB - 144 * MIB), ("engine", 20 * GIB + 144 * MIB),
    ]  # fmt: skip
    assert sum(p.bytes for p in found.parts) + (sample.free.value or 0) == TOTAL
    assert (found.planned_bytes, found.unaccounted.value) == (20 * GIB, 144 * MIB)
    assert found.text() == "measured: vLLM (pid 4127) 20.14 GiB, planned 20.00 · unaccounted +0.14"


def test_less_than_planned_is_negative() -> None:
    (found,) = overlays(plan(device(0)), shot(gpu(0, 19 * GIB, process(1, 19 * GIB)), engines=(VLLM,)))
    assert found.unaccounted.value == -GIB
    assert "unaccounted −1.00" in found.text()
    assert signed(0, "GiB") == "+0.00"


def test_without_figures_per_process_nothing_is_made_up() -> None:
    (found,) = overlays(plan(device(0)), shot(gpu(0, 9 * GIB, process(1, None)), engines=(VLLM,)), pid=4127)
    assert [(p.kind, p.bytes, p.name) for p in found.parts][1:] == [("other", 9 * GIB, "in use")]
    assert found.unaccounted == NOT_TOLD
    assert "n/a (Windows display driver)" in found.text()


def test_no_engine_runs() -> None:
    (found,) = overlays(plan(device(0)), shot(gpu(0, GIB)))
    assert [(p.kind, p.bytes) for p in found.parts] == [("driver", 454 * MIB), ("other", GIB)]
    assert found.unaccounted.value is None
    assert found.text() == "measured: other programs 1.00 GiB · no engine runs here"


def test_the_engine_with_most_memory_is_compared_unless_another_is_chosen() -> None:
    second = VLLM._replace(pid=9)
    sample = gpu(0, 21 * GIB, process(1, GIB), process(2, 20 * GIB, root=9))
    seen = shot(sample, engines=(VLLM, second))
    assert overlays(plan(device(0)), seen)[0].seen == second
    assert overlays(plan(device(0)), seen, pid=4127)[0].seen == VLLM


def test_another_kind_of_engine_is_other_programs() -> None:
    llama = EngineSeen(4127, 1.0, "llamacpp", "llama-server")
    (found,) = overlays(plan(device(0)), shot(gpu(0, 5 * GIB, process(1, 5 * GIB)), engines=(llama,)))
    assert [p.kind for p in found.parts] == ["driver", "other"]
