"""What a plan says in words: its verdict in one sentence, and its warnings, the weightiest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.plan import Limits, Stage
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.memory import activations
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup.checks import ORDER, Failure
from kvplanner.engine.vllm.startup.rank import Rank
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB, counted, format_count, round_to_band

COLD_COMPILE = SizedText(
    "A warm compile cache is assumed: the first start on a machine compiles, books it as activations, and leaves "
    f"about {size_mark(GIB, 0)} less for the KV cache"
)


def failure(replica: Replica) -> str:
    """What does not fit, where, and by how much."""
    found, sizing = replica.failure, replica.sizing
    assert found is not None
    rank = replica.ranks[found.rank]
    gpu = f"GPU {rank.device.index}"
    missing = size_mark(found.missing_bytes)
    if rank.free_at_start_bytes < 0:
        said = _no_context(rank, gpu)
    elif found.stage == "free_memory_check":
        free, wanted = size_mark(rank.free_at_start_bytes), size_mark(rank.budget.value)
        alike = SizedText(free) == SizedText(wanted)  # as they are rounded
        less = f", {missing} less than the {wanted} that is wanted" if alike else f" and {wanted} is wanted"
        said = f"{gpu} has {free} free at start{less} (utilisation {rank.settings.cache.utilization:g})"
    elif found.stage == "weights":
        needed, copies = (
            size_mark(rank.weights.value + rank.staging.low),
            " while they load" if rank.staging.low else "",
        )
        said = f"the weights need {needed} on {gpu}{copies} and {size_mark(rank.free_at_start_bytes)} is free"
    elif found.stage == "profile":
        said = f"the profile run lacks {missing} on {gpu} beside the weights"
    elif found.stage.startswith("kv_cache"):
        said = _no_cache(found, rank, sizing)
    elif found.stage == "graph_capture":
        said = f"capturing CUDA graphs lacks {missing} on {gpu}"
    else:
        said = f"serving a full batch lacks {missing} on {gpu}, after start-up"
    if replica.hopeful:
        return SizedText(f"Probably does not fit: {said}; at the best end of its range it would fit")
    return SizedText(f"Does not fit: {said}")


def _no_context(rank: Rank, gpu: str) -> str:
    """What is free does not even hold what the engine makes before it looks."""
    free, needed, first = max(rank.cuda_total.value - rank.other.value, 0), rank.outside.value, "the CUDA context"
    if not rank.context_fits:
        needed = rank.context_bytes
    elif rank.settings.parallel.tp * rank.settings.parallel.pp * rank.settings.parallel.dp > 1:
        first += " and communicators"
    need = "need" if " and " in first or rank.device.gpu.unified_memory else "needs"
    host = "the host and " if rank.device.gpu.unified_memory else ""
    return f"{gpu} has {size_mark(free)} free before the engine starts and {host}{first} {need} {size_mark(needed)}"


def _no_cache(found: Failure, rank: Rank, sizing: KvSizing) -> str:
    """Why there is no KV cache, or too little; of one whose size is given, why that size does not do."""
    gpu, missing, given = f"GPU {rank.device.index}", size_mark(found.missing_bytes), rank.given_kv
    if found.stage == "kv_cache_sizing":
        if given is not None:
            return f"the given KV cache of {size_mark(given.value)} holds no block to use"
        return f"nothing is left for the KV cache on {gpu}: the budget is {missing} short"
    if sizing.capture_error is not None:
        sequences, blocks = format_count(rank.settings.scheduler.max_num_seqs), format_count(sizing.num_blocks)
        return f"{sequences} sequences need a state block each and the KV cache has {blocks}"
    if found.stage == "kv_cache_too_small":
        length, need, usable = (
            format_count(sizing.max_model_len),
            size_mark(sizing.needed_bytes),
            size_mark(sizing.usable_bytes),
        )
        have = f"{usable} is left" if given is None else f"the given one has {usable} to use"
        return f"one request of {length} tokens needs {need} of KV cache and {have}"
    if given is not None:
        return f"the given KV cache of {size_mark(given.value)} lacks {missing} on {gpu} beside what is in use there"
    return f"allocating the KV cache lacks {missing} on {gpu}: less lies outside the budget than is in use there"


def summary(request: PlanRequest, settings: Settings, replicas: Sequence[Replica], worst: int, limits: Limits) -> str:
    """One sentence with the number that matters, of a plan without a failure."""
    replica = replicas[worst]
    if not replica.layout.exact:
        left = size_mark(min(replica.kv_bytes))
        return SizedText(f"Cannot tell the tokens: {left} per GPU is left, but this model's KV cache is not confirmed")
    doubt = next((text for text in map(_doubt, replicas) if text), "")
    if not replica.layout.tables:
        room = "this model keeps no KV cache"
        return SizedText(f"{doubt}; if it starts, {room}") if doubt else f"Fits: {room}"
    alike = len({other.sizing.num_blocks for other in replicas}) == 1
    room = _room(replica)
    if settings.parallel.dp > 1:
        room += f" in {'each' if alike else 'the smallest'} of {settings.parallel.dp} replicas"
    unsure = _unsure(replica, settings)
    if request.load is None or limits.serves_users is None:
        room += f", {_at_once(replica, settings)}{unsure}"
        if doubt:
            return SizedText(f"{doubt}; if it starts, {room}")
        return f"{'May not fit' if replica.cache_doubt else 'Fits'}: {room}"
    served, users = limits.serves_users, request.load.users
    of = f"{format_count(served)} of {counted(users, 'user', 'users')}"
    room += unsure
    why = room if served >= users else _why(request, settings, replica, limits, room)
    if doubt or replica.cache_doubt:
        return SizedText(f"{doubt or 'May not fit'}; if it starts, it serves {of}: {why}")
    return f"Fits, {_serves(served, users, of)}: {why}"


def with_own_build(why: str, summary_: str) -> str:
    """The summary where the released engine does not run on the GPU: what is left is a build that does."""
    told = summary_.marked if isinstance(summary_, SizedText) else summary_
    if told.startswith("Cannot tell"):
        return SizedText(f"Cannot tell: {why}")
    verdict = "Does not fit" if "oes not fit: " in told else "Cannot tell"
    return SizedText(f"{verdict}: {why}; a build of your own that has them {told[0].lower()}{told[1:]}")


def _unsure(replica: Replica, settings: Settings) -> str:
    """What the cache lacks at the lower end of its range, "" where it holds what the engine asks for."""
    if not replica.cache_doubt:
        return ""
    lacks = "too little"
    if not replica.low.error:
        lacks = f"too few blocks for the states of {counted(settings.scheduler.max_num_seqs, 'sequence', 'sequences')}"
    return f", {lacks} at the lower end of its range"


def _doubt(replica: Replica) -> str:
    """The check before the cache that a plan may fail at, "" when it passes within its ranges."""
    doubt = replica.doubt
    if doubt is None:
        return ""
    rank = replica.ranks[doubt.rank]
    gpu, most, more = f"GPU {rank.device.index}", size_mark(doubt.most), doubt.most - doubt.missing
    if doubt.stage == "free_memory_check":
        least = size_mark(max(rank.free_at_start_bytes - more, 0))
        said = f"{gpu} may have no more than {least} free at start and {size_mark(rank.budget.value)} is wanted"
    elif doubt.stage == "weights":
        said = f"loading the weights may lack {most} on {gpu}"
    else:
        said = f"the profile run may lack {most} on {gpu}"
    return f"May not fit: {said}"


def _serves(served: int, users: int, of: str) -> str:
    if served >= users:
        return f"and serves {of}"
    return f"but serves only {of}" if served else f"but serves none of {counted(users, 'user', 'users')}"


def _room(replica: Replica) -> str:
    sizing, low, high = replica.sizing, replica.low.tokens, replica.high.tokens
    low, high = min(low, sizing.tokens), max(high, sizing.tokens)
    about = "" if low == high else "≈ "
    return f"KV cache for {about}{format_count(round_to_band(sizing.tokens, low, high))} tokens"


def _at_once(replica: Replica, settings: Settings) -> str:
    length = format_count(replica.sizing.max_model_len)
    most = settings.scheduler.max_num_seqs
    if replica.sizing.max_concurrency > most:
        return f"{counted(most, 'request', 'requests')} of {length} tokens at once (max sequences)"
    return f"{replica.sizing.max_concurrency:,.1f} requests of {length} tokens at once"


def _why(request: PlanRequest, settings: Settings, replica: Replica, limits: Limits, room: str) -> str:
    assert request.load is not None
    if limits.limited_by == "context":
        tokens, length = format_count(request.load.tokens_per_user), format_count(replica.sizing.max_model_len)
        return f"one needs {tokens} tokens and the context length is {length}"
    if limits.limited_by == "max_num_seqs":
        seqs = format_count(settings.scheduler.max_num_seqs * settings.parallel.dp)
        return f"max sequences allows {seqs}, the KV cache would hold {format_count(limits.users_by_memory or 0)}"
    return room


# What lacks memory at a stage, inside a sentence.
_LACKING: Final[dict[Stage, str]] = {
    "free_memory_check": "the free-memory check", "weights": "loading the weights", "profile": "the profile run",
    "kv_cache_allocation": "allocating the KV cache", "graph_capture": "capturing CUDA graphs", "runtime": "serving",
}  # fmt: skip


def risks(replicas: Sequence[Replica]) -> tuple[str, ...]:
    """Warnings of a plan that fits at its values and may not at the ends of its ranges."""
    out = [SizedText(text) for text in dict.fromkeys(_may_not_fit(replica) for replica in replicas) if text]
    late = [check for replica in replicas if (check := replica.late_doubt) is not None]
    if out or not late:
        return tuple(out)
    worst = max(late, key=lambda check: check.most)
    lacks = f"{_LACKING[worst.stage]} may lack {size_mark(worst.most)} on GPU {worst.device}"
    return (SizedText(f"A narrow fit: at the upper end of its range {lacks}; a lower utilisation leaves room"),)


def earlier(replica: Replica) -> tuple[str, ...]:
    """A warning of a plan that fails at its values and may do so at an earlier stage at the ends of its ranges."""
    found, doubt = replica.failure, replica.doubt
    if found is None or doubt is None or ORDER.index(doubt.stage) >= ORDER.index(found.stage):
        return ()
    lacks = f"{_LACKING[doubt.stage]} lacks {size_mark(doubt.most)} on GPU {doubt.device}"
    return (SizedText(f"May already fail earlier: at the upper end of its range {lacks}"),)


def _may_not_fit(replica: Replica) -> str:
    doubt = replica.doubt
    if doubt is not None:
        remedy = "; a lower utilisation leaves room" if doubt.stage == "free_memory_check" else ""
        lacks = f"{_LACKING[doubt.stage]} lacks {size_mark(doubt.most)} on GPU {doubt.device}"
        return f"May not fit: at the upper end of its range {lacks}{remedy}"
    if replica.cache_doubt:
        return f"May not fit: at the lower end of its range the engine would say: {replica.cache_doubt}"
    return ""


def warnings(
    request: PlanRequest, settings: Settings, replica: Replica, first: tuple[str, ...], said: tuple[str, ...]
) -> tuple[str, ...]:
    """What the reader should know beside the numbers: what may break the plan, then what it rests on."""
    out = list(first)
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
    if any(rank.gpu.arch is None for rank in replica.ranks):
        out.append("Only the GPU's memory is given: kernels and batch limits are assumed as on a Hopper server GPU")
    out.extend(f"{kind} is given, not estimated" for kind in sorted(request.measured))
    stage = replica.failure.stage if replica.failure else "kv_cache_sizing"
    given = any(rank.given_kv is not None for rank in replica.ranks)
    if stage.startswith("kv_cache") and activations.compiles(settings) and not given:
        out.append(COLD_COMPILE)
    return tuple(dict.fromkeys(out))
