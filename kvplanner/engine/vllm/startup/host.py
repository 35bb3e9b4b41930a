"""Host memory as a device of the plan: weights kept there, blocks swapped or offloaded there, and what sleep leaves.

What lies there (0.33): --cpu-offload-gb keeps so much of each rank's weights, --kv-offloading-size is a buffer over all
ranks (config/cache.py), --swap-space was one for each rank of V0 alone (worker/cache_engine.py; V1 took the flag and
used none). Sleep level 1 copies every rank's weights to the host and frees them with the cache, level 2 frees them
(device_allocator/cumem.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import DevicePlan, StageMemory
from kvplanner.engine.segment import Segment
from kvplanner.engine.shared.device import at_stage
from kvplanner.engine.stage import StageRule
from kvplanner.engine.vllm.startup.rank import Rank
from kvplanner.estimate import Estimate, Input, exact
from kvplanner.gpu.spec import Device, GpuSpec
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB, counted

_OFFLOADED: Final = "kept on the host"
_SWAP: Final = 4.0  # GiB for each rank of V0
# Where none of these is set nobody asks after the host: V0's own 4 GiB are not worth a bar.
_ASKED: Final = ("cpu_offload_gb", "kv_offloading_size", "swap_space", "host_memory")


def host_plan(
    options: Mapping[str, OptionValue], ranks: Sequence[Rank], rule: StageRule | None, *, caches: bool = True
) -> DevicePlan | None:
    """Host memory that the server takes for all of `ranks`, None where that is nothing. caches: it keeps a KV cache."""
    if not any(options.get(name) for name in _ASKED):
        return None
    cache = _cache(options, ranks) if caches else None
    segments = [segment for segment in (_weights(ranks), cache) if segment is not None]
    if not segments:
        return None
    wanted, known = sum(segment.bytes for segment in segments), memory(options)
    whole = known or wanted
    if rule is None and wanted < whole:
        segments.append(Segment("headroom", exact(whole - wanted, "{memory} − {taken}",
                                                  Input("memory", whole, "B", "RAM"),
                                                  Input("taken", wanted, "B", "as above"))))  # fmt: skip
    total = exact(whole, "{memory}", Input("memory", whole, "B", "given" if known else "as much as is needed"))
    return DevicePlan(
        device=Device(0, GpuSpec("host", "Host memory", "custom", total, total), kind="host"),
        role=f"of {counted(len(ranks), 'rank', 'ranks')}",
        total_bytes=whole,
        cuda_total_bytes=whole,
        budget=None,
        segments=at_stage(segments, rule),
        overflow_bytes=max(wanted - whole, 0),
        stages=(StageMemory("load", "load", wanted, wanted),),
    )


def memory(options: Mapping[str, OptionValue]) -> int:
    """RAM of the machine, 0 where it is not said."""
    return int(options.get("host_memory") or 0)


def warnings(options: Mapping[str, OptionValue], ranks: Sequence[Rank], *, caches: bool = True) -> tuple[str, ...]:
    """Where the host has too little, and what sleep takes and leaves."""
    found = []
    host, known = host_plan(options, ranks, None, caches=caches), memory(options)
    if host is not None and host.overflow_bytes:
        found.append(SizedText(
            f"The host has {size_mark(known)}, and {size_mark(known + host.overflow_bytes)} are wanted there: the "
            "start fails or swaps"
        ))  # fmt: skip
    if options.get("enable_sleep_mode"):
        weights = sum(rank.weights.value for rank in ranks)
        left = max(asleep(rank) for rank in ranks)
        found.append(SizedText(
            f"Asleep, {size_mark(left)} of a GPU stay taken; at level 1 the host keeps {size_mark(weights)} of "
            "weights, at level 2 nothing"
        ))  # fmt: skip
        if known and known < weights + (host.used_bytes if host is not None else 0):
            found.append(SizedText(f"The host's {size_mark(known)} do not hold the weights of level 1: use level 2"))
    return tuple(found)


def asleep(rank: Rank) -> int:
    """Bytes that a rank keeps of its GPU while it sleeps: all but weights and cache."""
    return rank.outside.value + rank.runtime.value + rank.workspace.value + rank.graphs.value


def _weights(ranks: Sequence[Rank]) -> Segment | None:
    each = [next((int(i.value) for i in rank.weights.inputs if i.name == _OFFLOADED), 0) for rank in ranks]
    if not any(each):
        return None
    inputs = Input("of each rank", max(each), "B", "--cpu-offload-gb"), Input("ranks", len(ranks), "", "on the host")
    found = exact(sum(each), "{of each rank} × {ranks}", *inputs)
    return Segment("weights", found, meaning="kept on the host and copied to the GPU when they are used")


def _cache(options: Mapping[str, OptionValue], ranks: Sequence[Rank]) -> Segment | None:
    offloaded = round(float(options.get("kv_offloading_size") or 0) * GIB)
    parts = [Input("offloaded", offloaded, "B", "--kv-offloading-size, over all ranks")] if offloaded else []
    if ranks[0].settings.era.runner == "V0":
        given = options.get("swap_space")
        swapped = round(float(_SWAP if given is None else given) * GIB) * len(ranks)
        why = "--swap-space, of each rank" if given is not None else f"{_SWAP:g} GiB of each rank, the default"
        parts += [Input("swapped", swapped, "B", why)] if swapped else []
    if not parts:
        return None
    value = sum(int(part.value) for part in parts)
    found: Estimate = exact(value, " + ".join(f"{{{part.name}}}" for part in parts), *parts)
    return Segment("kv_cache", found, meaning="blocks that the GPUs have no room for")
