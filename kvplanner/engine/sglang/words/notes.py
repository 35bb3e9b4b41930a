"""What the reader of a plan should know beside its numbers, weightiest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.startup.replica import Replica
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import format_count

_UNBALANCED: Final = 0.9


def warnings(request: PlanRequest, settings: Settings, made: Replica, first: Sequence[str]) -> tuple[str, ...]:
    """What may break the plan, then `first`: what settling the options found, then what the plan rests on."""
    out: list[str] = []
    if made.pools and made.failure is None:
        out += _served(request, settings, made)
    out += request.model.problems
    out += first
    out += _unbalanced(made)
    if settings.era.sure:
        out.append(f"Planned by the rules of {settings.era.name}: {settings.era.sure}")
    if any(rank.cuda_total.basis == "assumed" for rank in made.ranks):
        name = made.ranks[0].device.gpu.name
        out.append(f"What CUDA sees of {name} is assumed: attach the GPU or give its size")
    if any(rank.device.gpu.compute_capability is None for rank in made.ranks):
        out.append("Only the GPU's memory is given: back ends and page sizes are assumed as on a Hopper server GPU")
    out.extend(f"{kind} is given, not estimated" for kind in sorted(request.measured))
    return tuple(dict.fromkeys(out))


def _served(request: PlanRequest, settings: Settings, made: Replica) -> list[str]:
    """A pool that is smaller than one context is no error: the server starts, and refuses what is longer."""
    out: list[str] = []
    tokens, length = made.first.tokens, settings.context_length
    if tokens < length:
        out.append(f"Starts, but refuses requests longer than {format_count(tokens)} tokens: the pool is smaller than "
                   f"the context length {format_count(length)}")  # fmt: skip
    load = request.load
    if load is not None and load.tokens_per_user > length:
        out.append(f"A request of {format_count(load.tokens_per_user)} tokens is longer than the context length "
                   f"{format_count(length)}: no user of this load is served")  # fmt: skip
    running = settings.max_running
    if running is not None and made.first.requests < running // settings.parallel.attention_dp:
        out.append(f"Runs {format_count(made.first.requests)} requests at once, fewer than --max-running-requests asks")
    if made.first.slots is not None and made.layouts[0].state is not None:
        state = made.layouts[0].state
        out.append(SizedText(
            f"Each running request takes {state.per_request} of {format_count(made.first.slots)} state slots, "
            f"{size_mark(state.per_request * state.stage_bytes)} on each rank"
        ))  # fmt: skip
    return out


def _unbalanced(made: Replica) -> list[str]:
    free = [rank.before.value for rank in made.ranks]
    if min(free) >= _UNBALANCED * max(free):
        return []
    return ["The memory capacity is unbalanced: all ranks take what the fullest GPU has free"]
