"""What may be changed about a plan of llama.cpp beside the roles of its options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvplanner.engine.lever import Aim, Lever, Step
from kvplanner.engine.shared.levers import Seen, by_role
from kvplanner.model.spec import Moe

_PLAIN: Final = ("f16", "bf16", "f32")


def levers(seen: Seen) -> tuple[Lever, ...]:
    """All levers of a plan: those of the roles, then llama.cpp's own."""
    found = (_flash_attention(seen), _cache_types(seen), _experts_on_host(seen), _layers_on_host(seen))
    return (*by_role(seen), *(lever for levers in found for lever in levers))


def _flash_attention(seen: Seen) -> Iterator[Lever]:
    """Without it the compute buffer holds a score for each token of a step, each of the context and each head."""
    if seen.request.options.get("flash_attn") == "off":
        source = "src/llama-graph.cpp build_attn_mha: kq is materialised where flash attention is off"
        aim: Aim = "fit" if seen.short else "more"
        yield Lever("flash_attention", ({"flash_attn": "auto"},), "nothing", "nothing", (aim,), source)


def _cache_types(seen: Seen) -> Iterator[Lever]:
    """Keys and values alike: a quantised cache of values needs flash attention, which the engine turns on itself."""
    if str(seen.now("kv_dtype") or "f16") in _PLAIN and seen.plan.kv_cache is not None:
        steps: tuple[Step, ...] = tuple({"cache_type_k": kind, "cache_type_v": kind} for kind in ("q8_0", "q4_0"))
        aim: Aim = "fit" if seen.short else "more"
        yield Lever("kv_dtype", steps, "keys and values in {value}: answers change a little", "quality", (aim,))


def _experts_on_host(seen: Seen) -> Iterator[Lever]:
    spec = seen.request.model.spec
    experts = any(isinstance(mlp, Moe) for layer in spec.layers for mlp in layer.mlps)
    if not experts or seen.short is None or seen.request.options.get("cpu_moe"):
        return
    layers = spec.num_layers
    steps: tuple[Step, ...] = tuple({"n_cpu_moe": layers * part // 8} for part in (1, 2, 3, 4, 6, 8))
    cost = "the experts of {value} layers run on the host: slower, and the host must hold them"
    yield Lever("experts_on_host", steps, cost, "slow", monotone=True)


def _layers_on_host(seen: Seen) -> Iterator[Lever]:
    """Fewer layers on the GPUs, where the user fixed how many."""
    if seen.short is None or "n_gpu_layers" not in seen.request.options:
        return
    layers = seen.request.model.spec.num_layers
    steps: tuple[Step, ...] = tuple({"n_gpu_layers": str(layers * part // 8)} for part in (7, 6, 5, 4, 3, 2, 1))
    yield Lever("layers_on_host", steps, "only {value} layers run on the GPUs: slower", "slow", monotone=True)
