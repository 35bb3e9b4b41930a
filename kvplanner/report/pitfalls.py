"""What people take for its opposite, said where a log shows it: the sentences stand beside the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.diagnose.reading import Ended, numbers
from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.registry import engine
from kvplanner.errors import PlannerError
from kvplanner.sized_text import show_size

# Below what engines take by themselves, and so high that little is left beside the budget.
_LOW: Final = 0.85
_HIGH: Final = 0.97
_SAME_TOKENS: Final = 0.02
_CACHE_STAGES: Final = ("kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation")


def hints(found: Diagnosis) -> Iterator[str]:
    """One sentence for each that the log is an instance of."""
    ended = found.reading.ended
    if ended is not None:
        yield from _of_failure(found, ended)
    yield from _of_cache(found)


def _of_failure(found: Diagnosis, ended: Ended) -> Iterator[str]:
    share = _share(found)
    if ended.stage in _CACHE_STAGES and share is not None and share < _LOW:
        yield (f"utilisation {share:g} is what the engine may use in all, weights and cache together: a "
               "lower one leaves no room for the cache, and does not make the weights smaller")  # fmt: skip
    if ended.stage == "graph_capture":
        high = f"{share:g} leaves next to nothing for them: " if share is not None and share >= _HIGH else ""
        yield (f"graphs are captured out of what the budget leaves: {high}a lower utilisation, or fewer captured "
               "sizes, helps")  # fmt: skip
    if ended.stage == "runtime" and share is not None and share >= _HIGH:
        yield (f"utilisation {share:g} gives nearly the whole GPU to weights and cache: what requests take beside them "
               "comes out of the rest")  # fmt: skip
    if ended.cause == "state_blocks":
        yield "each sequence of a model with recurrent state holds a block of its own: lower the most sequences"
    if ended.cause == "free_memory" and share is not None and share >= _HIGH:
        yield (f"not even an empty GPU has {share:g} of its memory free: the engine's own CUDA context lies on it by "
               "then")  # fmt: skip
    if ended.cause == "free_memory":
        yield ("utilisation is a share of the whole GPU, not of what is free: two servers on one GPU must share it, "
               "each with its part. Where no other is meant to run, a killed one may have left its workers: nvidia-smi "
               "lists them")  # fmt: skip
    if ended.cause == "memory_moved":
        yield "start servers of one GPU one after another: each measures how much the other leaves"
    unused, tried = ended.figures.get("reserved_unused"), ended.figures.get("tried")
    if isinstance(unused, int) and isinstance(tried, int) and unused > tried:
        yield (f"{show_size(unused)} reserved and unallocated is fragmentation: no smaller model is needed. "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True gives most of it back")  # fmt: skip
    beyond = _whole_prompts(found)
    if ended.stage in ("profile", "kv_cache_sizing", "kv_cache_too_small") and beyond:
        yield (f"without chunked prefill a step holds a whole prompt: beyond {beyond:,} tokens this release "
               "turns it on by itself, so that a longer context may start where this one fails. "
               "--enable-chunked-prefill does so here")  # fmt: skip


def _of_cache(found: Diagnosis) -> Iterator[str]:
    tokens, most, length = (found.reading.best(name) for name in ("tokens", "max_concurrency", "context_length"))
    if tokens is not None and most is not None and length is not None and not found.reading.grammar.by_device:
        product = float(most.value) * int(length.value)
        if product and abs(int(tokens.value) / product - 1) > _SAME_TOKENS:
            yield (f"the printed {int(tokens.value):,} tokens are not what requests of full length hold: "
                   f"{float(most.value):g} × {int(length.value):,} is {round(product):,}, since layers with a window "
                   "or a state keep less, or more, than one token for each token")  # fmt: skip
    block, dtype = found.reading.best("state_block"), str(_option(found, "kv_dtype") or "")
    if block is not None and dtype.startswith("fp8"):
        yield (f"recurrent state keeps its dtype, and blocks are made as large as it ({int(block.value):,} tokens): "
               "an fp8 KV cache holds more tokens a block, and hardly more requests")  # fmt: skip


def _share(found: Diagnosis) -> float | None:
    """The share of the GPU that the engine may use, as its lines state it or its command sets it."""
    stated = found.reading.best("budget_share")
    value = stated.value if stated is not None else _option(found, "budget_share")
    return float(value) if isinstance(value, int | float) else None


def _option(found: Diagnosis, role: Role) -> OptionValue | None:
    """What the command set of the option with a role."""
    chosen = engine(found.engine)
    try:
        option = role_option(chosen, found.version, role)
    except PlannerError:  # a release without rules
        option = role_option(chosen, None, role)
    return found.options.get(option.name) if option is not None else None


def _whole_prompts(found: Diagnosis) -> int:
    """Beyond which context this release would cut prompts by itself, where it does not here; else 0."""
    known = found.reading.grammar.whole_prompts
    if known is None or not found.version or numbers(found.version) >= numbers(known.until):
        return 0
    length = found.reading.best("context_length")
    asked = _option(found, "context") or (length.value if length is not None else None)
    on = found.options.get(known.option)
    return known.beyond if not on and isinstance(asked, int) and 2048 < asked <= known.beyond else 0
