"""What may be changed about a plan of SGLang beside the roles of its options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.lever import Aim, Lever, Step
from kvplanner.engine.shared.levers import Seen, by_role
from kvplanner.model.spec import State

_LATE: Final = ("graph_capture", "runtime")
_PIECES: Final = (8192, 4096, 2048, 1024, 512)


def levers(seen: Seen) -> tuple[Lever, ...]:
    """All levers of a plan: those of the roles, then SGLang's own."""
    return (*by_role(seen), *_cache_type(seen), *_graphs(seen), *_states(seen), *_whole_prompts(seen))


def _aim(seen: Seen) -> Aim:
    return "fit" if seen.short else "more"


def _cache_type(seen: Seen) -> Iterator[Lever]:
    """Half the bytes of a token: for a plan that works, since a pool too small for one context is no failure."""
    if str(seen.now("kv_dtype") or "auto").startswith(("auto", "bf")) and seen.short is None:
        cost = "keys and values in 8 bits: answers change a little"
        source = "SGLang documentation, quantized KV cache"
        yield Lever("kv_dtype", ({"kv_cache_dtype": "fp8_e4m3"},), cost, "quality", ("more",), source)


def _graphs(seen: Seen) -> Iterator[Lever]:
    """Fewer captures where the slack does not hold them; the automatic fraction rises with them."""
    if seen.short is not None and seen.short.stage in _LATE and not seen.now("eager"):
        steps: tuple[Step, ...] = tuple({"cuda_graph_max_bs_decode": size} for size in (128, 32, 8))
        cost = "steps of more than {value} requests run without a graph: slower under load"
        source = "SGLang's own advice where capturing fails"
        yield Lever("capture_sizes", steps, cost, "speed", ("fit",), source, monotone=True)


def _states(seen: Seen) -> Iterator[Lever]:
    """A request holds one slot of recurrent state without the prefix cache, and up to five with it."""
    states = any(isinstance(mixer, State) for layer in seen.request.model.spec.layers for mixer in layer.mixers)
    early = seen.rule is not None and seen.rule.early
    if states and not seen.request.options.get("disable_radix_cache") and not early:
        cost = "prompts that begin alike are read anew each time"
        yield Lever("no_prefix_caching", ({"disable_radix_cache": True},), cost, "speed", (_aim(seen),))


def _whole_prompts(seen: Seen) -> Iterator[Lever]:
    """Where prompts are not cut, the largest step is that of --max-prefill-tokens: fewer tokens of it, or pieces."""
    chunk, most = (seen.plan.options.get(name) for name in ("chunked_prefill_size", "max_prefill_tokens"))
    if seen.short is None or seen.short.stage not in _LATE or chunk is None or most is None:
        return
    if not isinstance(chunk.value, int) or chunk.value > 0 or not isinstance(most.value, int):
        return
    source = "https://github.com/sgl-project/sglang/issues/1030"
    pieces: tuple[Step, ...] = tuple({"chunked_prefill_size": size} for size in _PIECES)
    yield Lever("chunked_prefill", pieces, "long prompts are read in pieces of {value} tokens", "nothing", ("fit",),
                source, monotone=True)  # fmt: skip
    floor = seen.request.load.longest_prompt if seen.request.load else 0
    fewer: tuple[Step, ...] = tuple(
        {"max_prefill_tokens": size} for size in _PIECES if max(floor, 1) <= size < most.value
    )
    cost = "no more than {value} tokens of waiting prompts are read in a step: first tokens come later"
    yield Lever("step_tokens", fewer, cost, "speed", ("fit",), source, monotone=True)
