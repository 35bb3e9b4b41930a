"""What may be changed about a plan of llama.cpp beside the roles of its options.

What is missing counts the compute buffer, which takes long to find: the steps that rest on it are found when tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvplanner.engine.lever import Aim, Lever, Loss, Step
from kvplanner.engine.llamacpp.builds import PLAIN_TYPES
from kvplanner.engine.llamacpp.cache import CACHE_TYPES
from kvplanner.engine.plan import KvCache
from kvplanner.engine.segment import SegmentKind
from kvplanner.engine.shared.levers import Seen, by_role
from kvplanner.model.spec import Moe
from kvplanner.record import later
from kvplanner.units import round_up

_CELLS: Final = 256  # contexts are rounded up to so many cells
_STEP_CELLS: Final = 1024
# Types of a smaller cache, and what they cost.
QUANTISED: Final = ("q8_0", "q4_0")
QUANTISED_COST: Final = "keys and values in {value}: answers change a little"
_LEAST_CONTEXT: Final = 2048
_SMALL_STEPS: Final = (256, 128)  # of a micro-batch, where the compute buffer does not fit
_SLOTS_LIMIT: Final = ("max_requests", "kv_cache")
_SHARED: Final = "the slots share one cache: what one request takes the others lack"
_ROOM: Final = "the GPUs' free memory is taken"
_SHORTER: Final = "requests may hardly be longer than those of the load"


def levers(seen: Seen) -> tuple[Lever, ...]:
    """All levers of a plan: those of the roles, then llama.cpp's own."""
    stands = _as_placed(seen, "n_gpu_layers")
    if stands:
        return tuple(_in_place(seen, stands))
    found = (
        _flash_attention(seen), _own_split(seen), _cache_types(seen), _experts_on_host(seen), _layers_on_host(seen),
        whole_on_gpus(seen, _quantised(seen)),
    )  # fmt: skip
    return (*by_role(seen), *(lever for levers in (*found, slots(seen, each_own=False)) for lever in levers))


def _as_placed(seen: Seen, option: str) -> Step:
    """Of a plan that spills, what makes the engine place the model as it does now once an option is set: --fit fills
    the GPUs anew, with what they seem to have free, which Windows lends; {} where nothing spills or nothing was moved.
    """
    if seen.plan.verdict.spilled is None or seen.short is None:
        return {}
    handle = next((handle for handle in seen.plan.handles if handle.option == option), None)
    if handle is None or not handle.beside:
        return {}
    return {option: str(handle.parts[0]) if option == "n_gpu_layers" else handle.parts[0], **dict(handle.beside)}


def _context_as_it_is(seen: Seen) -> Step:
    """Of a plan that spills, the context that --fit shortened: it leaves alone one beside layers that are set."""
    context = seen.by_role["context"].name
    resolved = seen.plan.options.get(context)
    fitted = resolved is not None and resolved.origin == "derived" and seen.plan.verdict.spilled is not None
    return {context: resolved.value} if fitted and resolved is not None else {}


def _but(step: Step, name: str) -> Step:
    return {option: value for option, value in step.items() if option != name}


def _in_place(seen: Seen, stands: Step) -> Iterator[Lever]:
    """What keeps Windows from moving buffers to RAM: each with the layers where --fit put them."""
    for lever in by_role(seen):
        if lever.name not in ("context", "step_tokens"):
            yield lever
    context, now = seen.by_role["context"].name, seen.count("context")
    sure = seen.plan.limits.sure_max_context_length or 0
    load = seen.request.load
    floor = load.tokens_per_user * seen.parts if load is not None else _LEAST_CONTEXT // 2
    if floor <= sure < now:
        yield Lever("context", ({context: sure, **_but(stands, context)},), seen.shorter, "length")
    tokens = [size for size in _SMALL_STEPS if size < seen.count("step_tokens")]
    steps = tuple({**seen.step("step_tokens", size), **stands} for size in tokens)
    yield Lever("step_tokens", steps, "prompts are read {value} tokens at a time: slower", "speed", monotone=True)
    steps = tuple({**step, **stands} for step in _quantised(seen))
    yield Lever("kv_dtype", steps, QUANTISED_COST, "quality")
    yield from _experts_on_host(seen)
    yield from _layers_on_host(seen)


def slots(seen: Seen, *, each_own: bool) -> Iterator[Lever]:
    """As many slots as the GPUs surely have room for, where they serve more users of the load than are served now.

    each_own: a context that is set is of each slot, not of all together. Slots that share the cells at hand first, then
    those that keep the context they have, then those of just the load's longest request.
    """
    limits, load, cache = seen.plan.limits, seen.request.load, seen.plan.kv_cache
    if seen.short is not None or load is None or cache is None or limits.limited_by not in _SLOTS_LIMIT:
        return
    served, context = limits.sure_serves_users or 0, seen.by_role["context"].name
    sharing = min(limits.users_by_memory or 0, seen.users)
    if "kv_unified" in seen.options and sharing > served:
        yield Lever(
            "slots", ({**seen.step("max_requests", sharing), "kv_unified": True},), _SHARED, "nothing", ("more",)
        )
    request = round_up(load.tokens_per_user, _CELLS)
    room = _cells_with_room(seen, cache)
    whole = cache.context_length if each_own else 0
    kinds: tuple[tuple[int, str, Loss], ...] = ((whole, _ROOM, "nothing"), (request, _SHORTER, "length"))
    for length, cost, loss in kinds:
        most = min(room // length, seen.users) if length else 0
        steps = []
        for count in sorted({most, most - 1, most * 7 // 8}, reverse=True):
            tokens = length if each_own else length * count
            sized = context in seen.request.options if not each_own else length < whole
            step = {**seen.step("max_requests", count), **({context: tokens} if sized else {})}
            steps += [step] if count > served else []
        yield Lever("slots", tuple(steps), cost, loss, ("more",))


def _cells_with_room(seen: Seen, cache: KvCache) -> int:
    """Cells of the cache if it took all that surely is left on each GPU that has a part of it."""
    shares = [
        (kept.bytes + max(int(left.estimate.low), 0)) / kept.bytes
        for device in seen.plan.gpus
        if (kept := device.segment("kv_cache")) is not None and kept.bytes
        and (left := device.segment("headroom")) is not None
    ]  # fmt: skip
    return int(cache.tokens * min(shares, default=0))


def whole_on_gpus(seen: Seen, cache_types: Sequence[Step]) -> Iterator[Lever]:
    """Where weights are in RAM for want of room: a shorter context, and a quantised cache, that make room for them.

    The cache may take what the GPUs hold of it and of headroom now, less the weights that come to them.
    """
    cache, moved = seen.plan.kv_cache, seen.plan.moved_bytes
    if not moved or seen.short is not None or cache is None or not cache.tokens:
        return
    now, in_cache = seen.count("context"), seen.plan.bytes_of("kv_cache")
    room = _on_gpus(seen, "kv_cache", "headroom") - moved
    tokens = int(now * min(max(room, 0) / max(in_cache, 1), 1))
    found = (tokens * part // 16 // _STEP_CELLS * _STEP_CELLS for part in range(16, 0, -1))
    steps = tuple(seen.step("context", n) for n in dict.fromkeys(found) if _LEAST_CONTEXT <= n < now)
    yield Lever("whole_on_gpus", steps, seen.shorter, "length", ("faster",), monotone=True)
    small = tuple(step for step in cache_types if in_cache * _share_of_16_bit(step) <= room)
    yield Lever("kv_dtype_on_gpus", small, QUANTISED_COST, "quality", ("faster",))


def _share_of_16_bit(step: Step) -> float:
    """What a cache of the type that a step sets takes of one in 16 bits."""
    elements, bytes_ = CACHE_TYPES[str(next(iter(step.values())))]
    return bytes_ / (2 * elements)


def _own_split(seen: Seen) -> Iterator[Lever]:
    """Without shares that were set, as by hand, --fit or the memory that is free decides."""
    if seen.short is not None and len(seen.plan.gpus) > 1 and seen.request.options.get("tensor_split"):
        yield Lever("split", ({"tensor_split": None},), "each GPU takes layers by its free memory", "nothing")


def _flash_attention(seen: Seen) -> Iterator[Lever]:
    """Without it the compute buffer holds a score for each token of a step, each of the context and each head."""
    if seen.request.options.get("flash_attn") == "off":
        source = "src/llama-graph.cpp build_attn_mha: kq is materialised where flash attention is off"
        aim: Aim = "fit" if seen.short else "more"
        yield Lever("flash_attention", ({"flash_attn": "auto"},), "nothing", "nothing", (aim,), source)


def _cache_types(seen: Seen) -> Iterator[Lever]:
    """Keys and values alike: a quantised cache of values needs flash attention, which the engine turns on itself."""
    steps = _quantised(seen)
    if steps:
        aim: Aim = "fit" if seen.short else "more"
        yield Lever("kv_dtype", steps, QUANTISED_COST, "quality", (aim,))


def _quantised(seen: Seen) -> tuple[Step, ...]:
    if str(seen.now("kv_dtype") or "f16") not in PLAIN_TYPES or seen.plan.kv_cache is None:
        return ()
    return tuple({"cache_type_k": kind, "cache_type_v": kind} for kind in QUANTISED)


def _experts_on_host(seen: Seen) -> Iterator[Lever]:
    """The experts of more layers, from about as many as what is missing takes."""
    spec = seen.request.model.spec
    experts = any(isinstance(mlp, Moe) for layer in spec.layers for mlp in layer.mlps)
    if not experts or seen.short is None or seen.request.options.get("cpu_moe"):
        return
    layers, now = spec.num_layers, _standing(seen, "n_cpu_moe")
    cost = "the experts of {value} layers run on the host: slower, and the host must hold them"

    def steps() -> tuple[Step, ...]:
        counts = _near(now, layers, _lacking(seen), _on_gpus(seen, "weights") // max(layers - now, 1))
        stands = _as_placed(seen, "n_cpu_moe") or _context_as_it_is(seen)
        return tuple({"n_cpu_moe": n, **_but(stands, "n_cpu_moe")} for n in counts)

    yield Lever("experts_on_host", later(steps), cost, "slow")


def _layers_on_host(seen: Seen) -> Iterator[Lever]:
    """Fewer layers on the GPUs, where the user fixed how many or they spill: from about as many as what is missing
    takes. Layers in RAM are slower than on a GPU, and faster than what Windows moves there.
    """
    spills = seen.plan.verdict.spilled is not None
    if seen.short is None or not (spills or "n_gpu_layers" in seen.request.options):
        return
    whole = seen.request.model.spec.num_layers + 1
    there = _standing(seen, "n_gpu_layers")

    def steps() -> tuple[Step, ...]:
        away = _near(whole - there, whole - 1, _lacking(seen), _on_gpus(seen, "weights", "kv_cache") // max(there, 1))
        stands = _as_placed(seen, "n_gpu_layers") or _context_as_it_is(seen)
        return tuple({"n_gpu_layers": str(whole - n), **_but(stands, "n_gpu_layers")} for n in away)

    if spills:
        cost = "only {value} layers run on the GPUs, the others on the host: faster than what Windows moves to RAM"
        yield Lever("layers_on_host", later(steps), cost, "speed")
    else:
        yield Lever("layers_on_host", later(steps), "only {value} layers run on the GPUs: slower", "slow")


# Layers differ and ranges are wide: so many more than the sizes say. Each one that nearly fits costs a graph to pack.
_MORE: Final = (0, 2)


def _near(now: int, most: int, missing: int, each: int) -> tuple[int, ...]:
    """Numbers above the one at hand, the smallest first: about the one that frees what is missing, and all of them."""
    wanted = now + -(-missing // max(each, 1))
    found = {*(wanted + more for more in _MORE), (wanted + most) // 2, most}
    return tuple(sorted(count for count in found if now < count <= most))


def _standing(seen: Seen, name: str) -> int:
    """Where the plan's own handle of an option stands, 0 without one."""
    return next((handle.parts[0] for handle in seen.plan.handles if handle.option == name), 0)


def _lacking(seen: Seen) -> int:
    """Bytes that do not fit, over all GPUs and at the upper end of what is short."""
    doubt = max(seen.short.most_bytes - seen.short.missing_bytes, 0) if seen.short is not None else 0
    spilled = seen.plan.verdict.spilled
    if spilled is not None:
        return int(spilled.figures["moved"]) + doubt
    return sum(device.overflow_bytes for device in seen.plan.gpus) + doubt


def _on_gpus(seen: Seen, *kinds: SegmentKind) -> int:
    """Bytes of these kinds on all GPUs."""
    return sum(part.bytes for device in seen.plan.gpus for part in device.segments if part.kind in kinds)
