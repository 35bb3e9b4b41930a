"""What a plan says in words: its verdict in one sentence, and its warnings, the weightiest first."""

from __future__ import annotations

from collections.abc import Sequence

from kvplanner.engine.base import Limits, PlanRequest
from kvplanner.engine.vllm import activations
from kvplanner.engine.vllm.kv_sizing import KvSizing
from kvplanner.engine.vllm.ranks import Rank
from kvplanner.engine.vllm.replica import Replica
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.verdict import Failure
from kvplanner.estimate import band_of_sum
from kvplanner.sentence import Sentence, mark
from kvplanner.units import GIB, format_count, round_to_band

COLD_COMPILE = Sentence(
    "A warm compile cache is assumed: the first start on a machine compiles, books it as activations, and leaves "
    f"about {mark(GIB, 0)} less for the KV cache"
)


def failure(replica: Replica) -> str:
    """What does not fit, where, and by how much."""
    found, sizing = replica.failure, replica.sizing
    assert found is not None
    rank = replica.ranks[found.rank]
    gpu = f"GPU {rank.device.index}"
    missing = mark(found.missing_bytes)
    if found.stage == "free_memory_check":
        free, wanted = mark(max(rank.free_at_start_bytes, 0)), mark(rank.budget.value)
        alike = Sentence(free) == Sentence(wanted)  # as they are rounded
        less = f", {missing} less than the {wanted} that is wanted" if alike else f" and {wanted} is wanted"
        said = f"{gpu} has {free} free at start{less} (utilisation {rank.settings.utilization:g})"
    elif found.stage == "weights":
        said = f"the weights need {mark(rank.weights.value)} on {gpu} and {mark(rank.free_at_start_bytes)} is free"
    elif found.stage == "profile":
        said = f"the profile run lacks {missing} on {gpu} beside the weights"
    elif found.stage.startswith("kv_cache"):
        said = _no_cache(found, rank, sizing)
    elif found.stage == "graph_capture":
        said = f"capturing CUDA graphs lacks {missing} on {gpu}"
    else:
        said = f"serving a full batch lacks {missing} on {gpu}, after start-up"
    return Sentence(f"Does not fit: {said}")


def _no_cache(found: Failure, rank: Rank, sizing: KvSizing) -> str:
    """Why there is no KV cache, or too little; of one whose size is given, why that size does not do."""
    gpu, missing, given = f"GPU {rank.device.index}", mark(found.missing_bytes), rank.given_kv
    if found.stage == "kv_cache_sizing":
        if given is not None:
            return f"the given KV cache of {mark(given.value)} holds no block to use"
        return f"nothing is left for the KV cache on {gpu}: the budget is {missing} short"
    if sizing.capture_error is not None:
        sequences, blocks = format_count(rank.settings.max_num_seqs), format_count(sizing.num_blocks)
        return f"{sequences} sequences need a state block each and the KV cache has {blocks}"
    if found.stage == "kv_cache_too_small":
        length, need, usable = format_count(sizing.max_model_len), mark(sizing.needed_bytes), mark(sizing.usable_bytes)
        have = f"{usable} is left" if given is None else f"the given one has {usable} to use"
        return f"one request of {length} tokens needs {need} of KV cache and {have}"
    if given is not None:
        return f"the given KV cache of {mark(given.value)} lacks {missing} on {gpu} beside what is in use there"
    return f"allocating the KV cache lacks {missing} on {gpu}: less lies outside the budget than is in use there"


def summary(request: PlanRequest, settings: Settings, replicas: Sequence[Replica], worst: int, limits: Limits) -> str:
    """One sentence with the number that matters, of a plan without a failure."""
    replica = replicas[worst]
    if not replica.layout.exact:
        left = mark(min(replica.kv_bytes))
        return Sentence(f"Cannot tell the tokens: {left} per GPU is left, but this model's KV cache is not confirmed")
    if not replica.layout.tables:
        return "Fits: this model keeps no KV cache"
    doubtful = replica.low.error is not None
    fits = "May not fit" if doubtful else "Fits"
    room = _room(replica) + (f" in each of {settings.dp} replicas" if settings.dp > 1 else "")
    if doubtful:
        room += ", too little at the lower end of its range"
    if request.load is None or limits.serves_users is None:
        return f"{fits}: {room}, {_at_once(replica, settings)}"
    served, users = limits.serves_users, request.load.users
    if served >= users:
        return f"{fits}, and serves {format_count(served)} of {format_count(users)} users: {room}"
    return f"{fits}, but serves only {format_count(served)} of {format_count(users)} users: " + _why(
        request, settings, replica, limits, room
    )


def _room(replica: Replica) -> str:
    sizing, low, high = replica.sizing, replica.low.tokens, replica.high.tokens
    low, high = min(low, sizing.tokens), max(high, sizing.tokens)
    about = "" if low == high else "≈ "
    return f"KV cache for {about}{format_count(round_to_band(sizing.tokens, low, high))} tokens"


def _at_once(replica: Replica, settings: Settings) -> str:
    length = format_count(replica.sizing.max_model_len)
    if replica.sizing.max_concurrency > settings.max_num_seqs:
        return f"{format_count(settings.max_num_seqs)} requests of {length} tokens at once (max sequences)"
    return f"{replica.sizing.max_concurrency:,.1f} requests of {length} tokens at once"


def _why(request: PlanRequest, settings: Settings, replica: Replica, limits: Limits, room: str) -> str:
    assert request.load is not None
    if limits.limited_by == "context":
        tokens, length = format_count(request.load.tokens_per_user), format_count(replica.sizing.max_model_len)
        return f"one needs {tokens} tokens and the context length is {length}"
    if limits.limited_by == "max_num_seqs":
        seqs = format_count(settings.max_num_seqs * settings.dp)
        return f"max sequences allows {seqs}, the KV cache would hold {format_count(limits.users_by_memory or 0)}"
    return room


def risk(replica: Replica) -> str:
    """A warning when a plan that fits at its values may not at the ends of its ranges, "" otherwise."""
    if replica.low.error is not None and replica.layout.exact:
        return f"May not fit: at the lower end of its range the engine would say: {replica.low.error}"
    worst, words = 0, ""
    for rank, kv in zip(replica.ranks, replica.kv_bytes, strict=True):
        for lacking, said in (_check_lack(rank), _serving_lack(rank, kv)):
            if lacking > worst:
                worst, words = lacking, f"{said} {mark(lacking)} on GPU {rank.device.index}"
    remedy = "a lower utilisation leaves room"
    return Sentence(f"A narrow fit: at the upper end of its range {words}; {remedy}") if words else ""


def _check_lack(rank: Rank) -> tuple[int, str]:
    doubt = rank.outside.high - rank.outside.value
    lacking = rank.budget.value - rank.free_at_start_bytes + doubt
    return lacking if rank.settings.era.free_memory_check else 0, "the free memory check may miss"


def _serving_lack(rank: Rank, kv: int) -> tuple[int, str]:
    used = rank.resident_bytes + kv + rank.graphs.value + rank.after.value + rank.activations.value
    _, above = band_of_sum((rank.outside, rank.graphs, rank.after))
    return used + above - rank.cuda_total.value, "serving may lack"


def warnings(
    request: PlanRequest, settings: Settings, replica: Replica, risk_: str, said: tuple[str, ...]
) -> tuple[str, ...]:
    """What the reader should know beside the numbers: what may break the plan, then what it rests on."""
    out = [risk_] if risk_ else []
    load, length = request.load, replica.sizing.max_model_len
    if load is not None and load.tokens_per_user > length:
        out.append(
            f"A request of {format_count(load.tokens_per_user)} tokens is longer than the context length "
            f"{format_count(length)}: no user of this load is served"
        )
    out += request.model.problems
    out += said
    out += replica.layout.not_modelled
    for rank in replica.ranks:
        if rank.cuda_total.basis == "assumed":
            out.append(f"What CUDA sees of {rank.device.gpu.name} is assumed: attach the GPU or give its size")
            break
    if any(rank.settings.gpu_arch is None for rank in replica.ranks):
        out.append("Only the GPU's memory is given: kernels and batch limits are assumed as on a Hopper server GPU")
    out.extend(f"{kind} is given, not estimated" for kind in sorted(request.measured))
    stage = replica.failure.stage if replica.failure else "kv_cache_sizing"
    given = any(rank.given_kv is not None for rank in replica.ranks)
    if stage.startswith("kv_cache") and activations.compiles(settings) and not given:
        out.append(COLD_COMPILE)
    return tuple(dict.fromkeys(out))
