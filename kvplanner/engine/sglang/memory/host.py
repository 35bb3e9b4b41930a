"""Host pools of the hierarchical cache: pinned memory beside the pools of every rank (mem_cache/pool_host, 0.5.23).

A rank's host pool has the device pool's tokens times --hicache-ratio, or what --hicache-size bytes hold; the engine
caps it at 0.8 of the RAM that is available after 10 GiB are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import DevicePlan, StageMemory
from kvplanner.engine.segment import Segment
from kvplanner.engine.sglang.kv.pools import Pools
from kvplanner.engine.sglang.settings import HostCache
from kvplanner.engine.shared.device import at_stage
from kvplanner.engine.stage import StageRule
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.units import GB, GIB, counted

_MEANING: Final = "pinned copies of cached prefixes, beside every rank's pools"
_KEPT: Final = 10 * GIB
_SHARE_TENTHS: Final = 8
_ALLOCATION: Final = "kv_cache_allocation"


def ram(machine: Machine) -> int | None:
    """RAM of the machine, None where nothing is known of it."""
    host = next((device for device in machine.devices if device.kind == "host"), None)
    return host.gpu.total.value if host is not None and host.gpu.total is not None else None


def pool(cache: HostCache, ranks: Sequence[Pools]) -> Estimate:
    """Bytes of the host pools of all ranks that share the machine. ranks: the pools of each."""
    inputs: tuple[Input, ...]
    if cache.size_bytes:
        value = cache.size_bytes * len(ranks)
        formula = "{host pool of a rank} × {ranks}"
        inputs = (Input("host pool of a rank", cache.size_bytes, "B", "--hicache-size"),)
    else:
        held = sum(pools.bytes for pools in ranks)
        value = round(held * cache.ratio)
        formula = "{pools of all ranks} × {ratio}"
        inputs = (Input("pools of all ranks", held, "B", "on the GPUs"),
                  Input("ratio", cache.ratio, "", "--hicache-ratio"))  # fmt: skip
    inputs = (*inputs, Input("ranks", len(ranks), "", "on this machine"))
    # Down to whole pages, and a page more for padding.
    page = max((pools.bytes // max(pools.tokens, 1) for pools in ranks), default=0) * 256 * len(ranks)
    return banded(value, value - page, value + page, "analytic", formula, *inputs)


def host_plan(cache: HostCache, ranks: Sequence[Pools], machine: Machine, rule: StageRule | None) -> DevicePlan | None:
    """Host memory as a device of the plan, None without a hierarchical cache or before there are pools."""
    if not cache.on or not ranks:
        return None
    size, memory = pool(cache, ranks), ram(machine)
    whole = memory if memory is not None else size.value
    segments = [Segment("kv_cache", size, meaning=_MEANING)]
    if rule is None and size.value < whole:
        left = whole - size.value
        segments.append(Segment("headroom", exact(left, "{memory} − {host pools}", Input("memory", whole, "B", "RAM"),
                                                  Input("host pools", size.value, "B", "as above"))))  # fmt: skip
    total = exact(whole, "{memory}", Input("memory", whole, "B", "RAM" if memory else "as much as is needed"))
    failing = rule is not None and rule.stage == _ALLOCATION
    return DevicePlan(
        device=Device(0, GpuSpec("host", "Host memory", "custom", total, total), kind="host"),
        role=f"host pools of {counted(len(ranks), 'rank', 'ranks')}",
        total_bytes=whole,
        cuda_total_bytes=whole,
        budget=None,
        segments=at_stage(segments, rule),
        overflow_bytes=max(size.value - whole, 0),
        stages=(StageMemory(_ALLOCATION, "pools", size.value, size.value, failing=failing),),
    )


def cap_warning(cache: HostCache, ranks: Sequence[Pools], machine: Machine) -> str:
    """What to say where the machine's RAM is less than the host pools want, "" where it is not known to be."""
    memory = ram(machine)
    if not cache.on or memory is None or not ranks:
        return ""
    most = max(memory - _KEPT, 0) * _SHARE_TENTHS // 10
    wanted = pool(cache, ranks).value
    if wanted <= most:
        return ""
    return (f"The host pools want {wanted / GB:,.1f} GB and are cut to {most / GB:,.1f} GB: SGLang takes "
            "no more than 0.8 of what is available after 10 GiB")  # fmt: skip
