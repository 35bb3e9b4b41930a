"""What the reader of a plan should know beside its numbers, weightiest first."""

from __future__ import annotations

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.startup.rank import others_charged
from kvplanner.engine.vllm.startup.replica import Replica
from kvplanner.engine.vllm.words.pitfalls import pitfalls
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import format_count


def warnings(request: PlanRequest, settings: Settings, replica: Replica, first: tuple[str, ...]) -> tuple[str, ...]:
    """What may break the plan, then `first`: what settling the options found, then what the plan rests on."""
    out: list[str] = []
    load, length = request.load, replica.sizing.max_model_len
    caches = bool(replica.layout.tables)
    tokens = 0 if load is None else load.tokens_per_user if caches else load.longest_prompt
    if tokens > length:
        out.append(
            f"A request of {format_count(tokens)} tokens is longer than the context length "
            f"{format_count(length)}: no user of this load is served"
        )
    out += pitfalls(settings, replica)
    out += request.model.problems
    out += first
    out += replica.layout.not_modelled
    for rank in replica.ranks:
        if rank.cuda_total.basis == "assumed":
            out.append(f"What CUDA sees of {rank.device.gpu.name} is assumed: attach the GPU or give its size")
            break
    if others_charged(settings) and any(rank.other.value and rank.given_kv is None for rank in replica.ranks):
        out.append(
            "This release counts what other programs hold on a GPU as its own and takes it off its budget: 0.9.1 and "
            "later do not"
        )
    if any(rank.gpu.arch is None for rank in replica.ranks):
        out.append("Only the GPU's memory is given: kernels and batch limits are assumed as on a Hopper server GPU")
    out.extend(f"{kind} is given, not estimated" for kind in sorted(request.measured))
    told = _compile_cache(request, settings, replica) if caches else ""
    out += [told] if told else []
    return tuple(dict.fromkeys(out))


def _compile_cache(request: PlanRequest, settings: Settings, replica: Replica) -> str:
    """What another state of the compile cache would change, "" where nothing: both are worth knowing at a limit."""
    stage = replica.failure.stage if replica.failure else "kv_cache_sizing"
    first = next(rank for rank in replica.ranks if rank.stage == 0)
    if first.given_kv is not None or not stage.startswith("kv_cache") or "activations" in request.measured:
        return ""
    extra = first.cold_extra_bytes
    if not extra:
        return ""
    if settings.graphs.cold is False:
        return SizedText(f"A first start compiles and has {size_mark(extra)} less for the KV cache than planned here")
    return SizedText(
        f"A first start is planned, which compiles: with a warm compile cache {size_mark(extra)} more are left for the "
        "KV cache (--compile-cache warm)"
    )
