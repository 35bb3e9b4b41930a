"""Why a stage of vLLM's start-up fails or may fail, as clauses with this plan's figures."""

from __future__ import annotations

from kvplanner.engine.verdict import NO_KERNELS, Bytes, Figures, Reason
from kvplanner.engine.vllm.kv.sizing import KvSizing
from kvplanner.engine.vllm.startup.checks import Check, Failure
from kvplanner.engine.vllm.startup.rank import Rank
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.sized_text import show_size


def failure(replica: Replica, found: Failure) -> Reason:
    """What does not fit, where, and by how much."""
    rank, sizing = replica.ranks[found.rank], replica.sizing
    gpu, missing = _gpu(rank), Bytes(found.missing_bytes)
    if rank.free_at_start_bytes < 0:
        return _no_context(rank)
    if found.stage == "free_memory_check":
        return _free_memory(rank, found.missing_bytes)
    if found.stage == "weights":
        copies = " while they load" if rank.staging.low else ""
        needed, free = Bytes(rank.weights.value + rank.staging.low), Bytes(rank.free_at_start_bytes)
        text = f"the weights need {{needed}} on {{gpu}}{copies} and {{free}} is free"
        return Reason("weights", text, {"needed": needed, "free": free, "gpu": gpu})
    if found.stage.startswith("kv_cache"):
        return _no_cache(found, rank, sizing)
    text = {
        "profile": "the profile run lacks {missing} on {gpu} beside the weights",
        "graph_capture": "capturing CUDA graphs lacks {missing} on {gpu}",
        "runtime": "serving a full batch lacks {missing} on {gpu}, after start-up",
    }[found.stage]
    return Reason(found.stage, text, {"missing": missing, "gpu": gpu})


def _gpu(rank: Rank) -> str:
    return f"GPU {rank.device.index}"


def _free_memory(rank: Rank, missing: int) -> Reason:
    free, wanted = Bytes(rank.free_at_start_bytes), Bytes(rank.budget.value)
    figures: Figures = {"gpu": _gpu(rank), "free": free, "wanted": wanted, "missing": Bytes(missing),
               "share": rank.settings.cache.utilization}  # fmt: skip
    if show_size(free) == show_size(wanted):  # as they are rounded
        between = ", {missing} less than the {wanted} that is wanted"
    else:
        between = " and {wanted} is wanted"
    return Reason("free_memory_check", f"{{gpu}} has {{free}} free at start{between} (utilisation {{share}})", figures)


def _no_context(rank: Rank) -> Reason:
    """What is free does not even hold what the engine makes before it looks."""
    needed, first = rank.outside.value, "the CUDA context"
    if not rank.context_fits:
        needed = rank.context_bytes
    elif rank.settings.parallel.tp * rank.settings.parallel.pp * rank.settings.parallel.dp > 1:
        first += " and communicators"
    need = "need" if " and " in first or rank.device.gpu.unified_memory else "needs"
    host = "the host and " if rank.device.gpu.unified_memory else ""
    free = Bytes(max(rank.cuda_total.value - rank.other.value, 0))
    text = f"{{gpu}} has {{free}} free before the engine starts and {host}{first} {need} {{needed}}"
    return Reason("no_context", text, {"gpu": _gpu(rank), "free": free, "needed": Bytes(needed)})


def _no_cache(found: Failure, rank: Rank, sizing: KvSizing) -> Reason:
    """Why there is no KV cache, or too little; of one whose size is given, why that size does not do."""
    given = rank.given_kv
    figures: Figures = {"gpu": _gpu(rank), "missing": Bytes(found.missing_bytes)}
    if given is not None:
        figures = {**figures, "given": Bytes(given.value)}
    if found.stage == "kv_cache_sizing":
        if given is not None:
            return Reason("no_block", "the given KV cache of {given} holds no block to use", figures)
        return Reason("no_cache", "nothing is left for the KV cache on {gpu}: the budget is {missing} short", figures)
    if sizing.capture_error is not None:
        figures = {**figures, "sequences": rank.settings.scheduler.max_num_seqs, "blocks": sizing.num_blocks}
        text = "{sequences} sequences need a state block each and the KV cache has {blocks}"
        return Reason("state_blocks", text, figures)
    if found.stage == "kv_cache_too_small":
        figures = {**figures, "length": sizing.max_model_len, "needed": Bytes(sizing.needed_bytes),
                   "usable": Bytes(sizing.usable_bytes)}  # fmt: skip
        have = "{usable} is left" if given is None else "the given one has {usable} to use"
        return Reason(
            "one_request", f"one request of {{length}} tokens needs {{needed}} of KV cache and {have}", figures
        )
    if given is not None:
        text = "the given KV cache of {given} lacks {missing} on {gpu} beside what is in use there"
        return Reason("given_cache", text, figures)
    text = "allocating the KV cache lacks {missing} on {gpu}: less lies outside the budget than is in use there"
    return Reason("kv_cache_allocation", text, figures)


def doubt(rank: Rank, check: Check) -> Reason:
    """What a stage may lack at the end of its band."""
    most = Bytes(check.most)
    if check.stage == "free_memory_check":
        least = Bytes(max(rank.free_at_start_bytes - (check.most - check.missing), 0))
        text = "{gpu} may have no more than {least} free at start and {wanted} is wanted"
        return Reason(check.stage, text, {"gpu": _gpu(rank), "least": least, "wanted": Bytes(rank.budget.value)})
    text = {
        "weights": "loading the weights may lack {most} on {gpu}",
        "profile": "the profile run may lack {most} on {gpu}",
        "kv_cache_allocation": "allocating the KV cache may lack {most} on {gpu}",
        "graph_capture": "capturing CUDA graphs may lack {most} on {gpu}",
        "runtime": "serving may lack {most} on {gpu}",
    }[check.stage]
    return Reason(check.stage, text, {"gpu": _gpu(rank), "most": most})


def cache_at_low_end(replica: Replica) -> Reason:
    """What the cache lacks at the lower end of its band."""
    if replica.low.error:
        return Reason("one_request", "too little at the lower end of its range")
    sequences = replica.ranks[0].settings.scheduler.max_num_seqs
    unit = "sequence" if sequences == 1 else "sequences"
    text = f"too few blocks for the states of {{sequences}} {unit} at the lower end of its range"
    return Reason("state_blocks", text, {"sequences": sequences})


def not_confirmed(replica: Replica) -> Reason:
    """Why the tokens of a cache cannot be told."""
    text = "{left} per GPU is left, but this model's KV cache is not confirmed"
    return Reason("cache_not_confirmed", text, {"left": Bytes(min(replica.kv_bytes))})


def no_kernels(why: str) -> Reason:
    """The released engine does not run on a GPU."""
    return Reason(NO_KERNELS, "{why}", {"why": why})
