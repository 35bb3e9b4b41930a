"""Questions that a plan raises where they arise, answered with its own numbers; no Qt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kvplanner.engine.option import Role
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.model.spec import Attention, Mla
from kvplanner.record import NamedTuple
from kvplanner.report import words
from kvplanner.report.devices import percent
from kvplanner.report.options import role_value, with_role
from kvplanner.report.words import Unit
from kvplanner.units import counted

_NEAR: Final = 64 << 20  # a share is rounded, and whole blocks are taken
_BESIDE: Final = ("workspace", "activations", "cuda_graphs")
_SOLD_AS: Final = re.compile(r"\b(\d+)\s?GB\b")


class Answer(NamedTuple):
    """A question and what this plan answers."""

    question: str
    text: str


class _Case(NamedTuple):
    plan: Plan
    device: DevicePlan
    unit: Unit

    def size(self, value: float) -> str:
        return words.size(value, self.unit)

    def bytes_of(self, kind: SegmentKind) -> int:
        segment = self.device.segment(kind)
        return segment.bytes if segment else 0

    def option(self, role: Role) -> float | None:
        return role_value(self.plan, role)

    @property
    def ranks(self) -> int:
        return int(self.option("tensor_parallel") or 1)


def answers(plan: Plan, position: int, kind: SegmentKind | None, unit: Unit) -> tuple[Answer, ...]:
    """The questions that this segment of this plan raises."""
    case = _Case(plan, plan.devices[position], unit)
    return tuple(answer for ask in _ASKED.get(kind, ()) if (answer := ask(case)) is not None)


def _capacity(case: _Case) -> Answer | None:
    """Why is this not 80 GB?"""
    device = case.device
    if device.device.kind == "host":
        return None
    custom = device.device.gpu.vendor == "custom"
    sold = None if custom else _SOLD_AS.search(device.device.gpu.name)
    question = f"Why is this not {sold[1]} GB?" if sold else "Why is this not the whole card?"
    both = f"{words.size(device.total_bytes, 'GiB')}, that is {words.size(device.total_bytes, 'GB')}"
    who = "The GPU was given" if custom else "NVML reports"
    text = [f"{who} a total of {both}: a GiB is 7 % more than a GB, and engines print GiB."]
    reserved = device.total_bytes - device.cuda_total_bytes
    if reserved > 0:
        text.append(
            f"The driver keeps {case.size(reserved)} that no program can use, so CUDA sees "
            f"{case.size(device.cuda_total_bytes)}."
        )
    if device.budget is not None:
        share = device.budget_share
        of_it = share is not None and abs(device.budget.value - share * device.cuda_total_bytes) < _NEAR
        of = f" ({share:g} of it)" if share and of_it else f" ({share:g} of what it finds free)" if share else ""
        beside = any(not s.in_budget and s.kind in _BESIDE and s.bytes for s in device.segments)
        rest = "graphs, activations and headroom share the rest" if beside and not of_it else "the rest is headroom"
        text.append(f"The engine allows itself {case.size(device.budget.value)}{of}; {rest}.")
    return Answer(question, " ".join(text))


def _full_card(case: _Case) -> Answer | None:
    """Why does a small model fill the card?"""
    weights, cache = case.bytes_of("weights"), case.bytes_of("kv_cache")
    total = case.device.total_bytes
    if not cache or weights * 2 > total or cache < weights or case.plan.cache_given:
        return None
    text = (
        f"The weights take {percent(weights, total)} of the card, yet the engine takes its whole budget: "
        f"whatever weights, buffers and activations leave of it becomes KV cache, {case.size(cache)} here, whether "
        f"it is used or not."
    )
    load, limits, kv = case.plan.request.load, case.plan.limits, case.plan.kv_cache
    if load and kv and limits.bytes_per_user:
        users = -(-load.users // max(case.plan.replicas, 1))
        need = users * limits.bytes_per_user
        if need < cache:
            text += f" This load of {counted(load.users, 'user', 'users')} needs {case.size(need)} of it."
    share = with_role(case.plan.request.engine, case.plan.request.version, "budget_share")
    text += f" A lower {share.flags[0]} leaves more to others." if share else ""
    return Answer("Why does a small model fill the card?", text)


def _tp_cache(case: _Case) -> Answer | None:
    """Why does TP not halve the cache?"""
    ranks, kv = case.ranks, case.plan.kv_cache
    if ranks < 2 or kv is None:
        return None
    mixers = [m for layer in case.plan.request.model.spec.layers for m in layer.mixers]
    heads = {m.kv_heads for m in mixers if isinstance(m, Attention)}
    question = (
        "Why does TP not halve the cache?" if ranks == 2 else f"Why does TP {ranks} not divide the cache by {ranks}?"
    )
    told: list[str] = []
    if any(isinstance(m, Mla) for m in mixers):
        told.append(
            f"The latent that this model caches is shared by all heads, so each of the {ranks} ranks keeps all of it: "
            f"a token takes as many bytes on every GPU as it would on one."
        )
    if heads:
        told.append(_heads_text(ranks, min(heads)))
    if kv.bytes_per_token:
        told.append(f"One token takes {kv.bytes_per_token:,.0f} bytes on each GPU.")
    cache = case.bytes_of("kv_cache")
    if cache:
        told.append(
            f"The segment itself does not shrink: every GPU fills its own budget, {case.size(cache)} here. What grows "
            f"is the number of tokens; context, libraries and activations are paid on every GPU again."
        )
    return Answer(question, " ".join(told)) if told else None


def _heads_text(ranks: int, heads: int) -> str:
    if ranks <= heads:
        return (
            f"Per token it does: the {heads} KV heads are dealt out, {heads // ranks} to each of {ranks} ranks, so a "
            f"token takes 1/{ranks} of its bytes on each GPU."
        )
    copies = ranks // heads
    return (
        f"There are {heads} KV heads and {ranks} ranks: no rank can hold less than one head, so each head is kept "
        f"{copies} times and the ranks together store {copies} copies of every token."
    )


def _naive(case: _Case) -> Answer | None:
    """Why not simply (memory − weights) ÷ bytes per token?"""
    kv = case.plan.kv_cache
    weights = case.bytes_of("weights")
    if kv is None or not kv.bytes_per_token or kv.tokens <= 0 or not weights or case.plan.cache_given:
        return None
    left = case.device.total_bytes - weights
    if left <= 0:
        return None
    each = case.device.bytes_per_unit if kv.shared_out else kv.bytes_per_token
    if not each:
        return None
    guess = int(left / each)
    over = guess / kv.tokens - 1
    if over < 0.02:
        return None
    gap = left - case.bytes_of("kv_cache")
    text = (
        f"({case.size(case.device.total_bytes)} − {case.size(weights)}) ÷ {each:,.0f} bytes = "
        f"{guess:,} tokens, which overstates it by {100 * over:.0f} %. It forgets {case.size(gap)}: what lies outside "
        f"the budget, and inside it the runtime, buffers, activations and graphs."
    )
    return Answer("Why not simply (memory − weights) ÷ bytes per token?", text)


def _tp_weights(case: _Case) -> Answer | None:
    """Why is a rank's share more than 1/n?"""
    ranks, stored = case.ranks, case.plan.request.model.stored
    weights = case.bytes_of("weights")
    if ranks < 2 or stored is None or not weights or case.plan.request.weight_format:
        return None
    if (case.option("pipeline_parallel") or 1) > 1:
        return None
    extra = weights * ranks / stored.value - 1
    if extra < 0.0005:
        return None
    text = (
        f"{ranks} × {case.size(weights)} is {100 * extra:.1f} % more than the {case.size(stored.value)} that are "
        f"stored: norms and small tensors are kept whole on every rank, the vocabulary is padded so that it divides, "
        f"and KV heads are copied where there are fewer of them than ranks."
    )
    return Answer(f"Why is a rank's share more than 1/{ranks}?", text)


def _bracket(case: _Case) -> Answer | None:
    """Why does the budget not begin at zero?"""
    if case.device.budget is None:
        return None
    start = case.device.budget_start
    if not start:
        return None
    text = (
        f"The engine looks at the free memory only once its context and communication exist, and measures what it "
        f"adds from there. So {case.size(start)} lie before the bracket, and the budget of "
        f"{case.size(case.device.budget.value)} is counted from there on."
    )
    return Answer("Why does the budget not begin at zero?", text)


_Ask = Callable[[_Case], Answer | None]
_ASKED: Final[dict[SegmentKind | None, tuple[_Ask, ...]]] = {
    None: (_capacity, _bracket),
    "driver_reserved": (_capacity,),
    "headroom": (_capacity,),
    "other": (_bracket,),
    "runtime_outside": (_bracket,),
    "weights": (_tp_weights,),
    "kv_cache": (_full_card, _tp_cache, _naive),
}
