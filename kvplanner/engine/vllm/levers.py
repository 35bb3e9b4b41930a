"""What may be changed about a plan of vLLM beside what every engine has: each lever a row with its cost and source.

Whether a release or a GPU takes a value is not repeated here: settling the changed request refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from kvplanner.engine.lever import Aim, Lever, Loss, Step
from kvplanner.engine.option import OptionValue
from kvplanner.engine.shared.levers import Seen, by_role
from kvplanner.engine.vllm.dtypes import is_quantised
from kvplanner.model.spec import Attention, Mla
from kvplanner.record import NamedTuple
from kvplanner.units import GIB

_BOTH: Final[tuple[Aim, ...]] = ("fit", "more")


class _Row(NamedTuple):
    """A lever of one option. applies: whether it can do anything for the plan at hand."""

    name: str
    option: str
    values: tuple[OptionValue, ...]
    cost: str
    loss: Loss
    applies: Callable[[Seen], bool]
    aims: tuple[Aim, ...] = _BOTH
    source: str = ""
    monotone: bool = False


def levers(seen: Seen) -> tuple[Lever, ...]:
    """All levers of a plan: those of the roles, then vLLM's own."""
    rows = (_of_row(row, seen) for row in _ROWS if row.option in seen.options and row.applies(seen))
    own = (*rows, *_layer_partition(seen), *_offload(seen), *_context_parallel(seen))
    return (*by_role(seen), *own)


def _of_row(row: _Row, seen: Seen) -> Lever:
    steps: tuple[Step, ...] = tuple({row.option: value} for value in row.values)
    aims = tuple(aim for aim in row.aims if (aim == "fit") == (seen.short is not None))
    return Lever(row.name, steps, row.cost, row.loss, aims, row.source, row.monotone)


def _against(seen: Seen) -> str:
    return seen.rule.against if seen.rule else ""


def _early(seen: Seen) -> bool:
    """Whether the weights or the profile run are what fails."""
    return bool(seen.rule and seen.rule.early)


def _value(seen: Seen, option: str) -> OptionValue | None:
    resolved = seen.plan.options.get(option)
    return resolved.value if resolved else None


def _plain_cache(seen: Seen) -> bool:
    wish = seen.request.model.spec.kv_cache_dtype
    now = str(_value(seen, "kv_cache_dtype") or "auto")
    card = _against(seen) in ("free", "card")
    return not is_quantised(now) and wish is None and not card and seen.plan.kv_cache is not None


def _captured(seen: Seen) -> bool:
    return not _value(seen, "enforce_eager") and _against(seen) != "free" and not _weights_fail(seen)


def _weights_fail(seen: Seen) -> bool:
    return seen.short is not None and seen.short.stage == "weights"


def _has_towers(seen: Seen) -> bool:
    return bool(seen.request.model.spec.towers) and not _value(seen, "language_model_only") and _against(seen) != "free"


def _in_16_bits(seen: Seen) -> bool:
    asked = seen.request.options.get("quantization") or seen.request.weight_format
    return seen.request.model.spec.quantization is None and not asked and _against(seen) != "free"


def _keeps_states(seen: Seen) -> bool:
    states = seen.request.model.spec.has_states
    return states and bool(_value(seen, "enable_prefix_caching")) and not _early(seen) and _against(seen) != "free"


def _whole_prefill(seen: Seen) -> bool:
    return _value(seen, "enable_chunked_prefill") is False and _against(seen) != "free" and not _weights_fail(seen)


def _adapters(seen: Seen) -> bool:
    return bool(seen.request.options.get("enable_lora")) and _against(seen) != "free"


_ROWS: Final[tuple[_Row, ...]] = (
    _Row("kv_dtype", "kv_cache_dtype", ("fp8",), "keys and values in 8 bits: answers change a little", "quality",
         _plain_cache, source="vLLM documentation, quantized KV cache: little loss of accuracy, half the memory"),
    _Row("chunked_prefill", "enable_chunked_prefill", (True,), "long prompts are read in pieces", "nothing",
         _whole_prefill, source="vLLM documentation, optimization: chunked prefill bounds the tokens of a step"),
    _Row("capture_sizes", "max_cudagraph_capture_size", (128, 32, 8),
         "steps of more than {value} sequences run without a graph: slower under load", "speed", _captured, ("fit",),
         "vLLM documentation, conserving memory: fewer and smaller captures", True),
    _Row("text_only", "language_model_only", (True,), "images and audio are refused", "features", _has_towers),
    _Row("online_quantization", "quantization", ("fp8",), "weights in 8 bits, made while loading: answers change a "
         "little", "quality", _in_16_bits, source="vLLM documentation, FP8: online dynamic quantization"),
    _Row("no_prefix_caching", "enable_prefix_caching", (False,), "prompts that begin alike are read anew each time",
         "speed", _keeps_states, source="vllm/v1/core/kv_cache_utils.py, 0.33: aligned states are kept per block"),
    _Row("no_adapters", "enable_lora", (False,), "no LoRA adapter is served", "features", _adapters),
)  # fmt: skip


def _offload(seen: Seen) -> Iterator[Lever]:
    """A part of the weights in host memory, read again over the bus in every step (--cpu-offload-gb)."""
    budget = _against(seen) in ("budget", "request")
    if "cpu_offload_gb" not in seen.options or not (_early(seen) or budget):
        return
    weights = seen.plan.devices[seen.plan.tightest].segment("weights")
    if weights is None:
        return
    least = math.ceil(seen.lacks / GIB) + float(seen.request.options.get("cpu_offload_gb") or 0)
    most = math.floor(0.9 * (weights.bytes / GIB + float(seen.request.options.get("cpu_offload_gb") or 0)))
    sizes = [float(size) for size in (least, least + 1, least + 2, least + 4, least + 8) if size <= most]
    steps: tuple[Step, ...] = tuple({"cpu_offload_gb": size} for size in sizes)
    cost = "{value} GiB of weights per GPU cross the bus in every step: many times slower, and the host must hold them"
    yield Lever("cpu_offload", steps, cost, "slow", ("fit",), monotone=True)


def _layer_partition(seen: Seen) -> Iterator[Lever]:
    """Layers of the pipeline stages by the memory of their GPUs, where those differ (VLLM_PP_LAYER_PARTITION)."""
    tp, pp, option = seen.count("tensor_parallel"), seen.count("pipeline_parallel"), "pp_layer_partition"
    if pp < 2 or option not in seen.options or seen.short is None:
        return
    devices = seen.plan.devices[: tp * pp]
    if len(devices) < tp * pp:
        return
    rooms = [min(d.cuda_total_bytes for d in devices[stage * tp : (stage + 1) * tp]) for stage in range(pp)]
    layers = seen.request.model.spec.num_layers
    if len(set(rooms)) < 2 or _against(seen) == "free":
        return
    parts = [max(layers * room // sum(rooms), 1) for room in rooms]
    largest = rooms.index(max(rooms))
    parts[largest] += layers - sum(parts)
    smallest = rooms.index(min(rooms))
    steps: list[Step] = []
    for fewer in range(min(4, parts[smallest])):
        moved = [*parts]
        moved[smallest] -= fewer
        moved[largest] += fewer
        steps.append({option: ",".join(map(str, moved))})
    yield Lever("layer_partition", tuple(steps), "the larger GPUs hold more layers and work longer", "speed", ("fit",),
                "vllm/distributed/utils.py get_pp_indices, 0.33")  # fmt: skip


def _context_parallel(seen: Seen) -> Iterator[Lever]:
    """A request's cache split by tokens, where ranks would hold copies of the same heads."""
    tp = seen.count("tensor_parallel")
    option = "decode_context_parallel_size"
    if option not in seen.options or tp < 2 or _value(seen, option) not in (None, 1) or _early(seen):
        return
    mixers = [m for layer in seen.request.model.spec.layers for m in layer.mixers]
    latent = any(isinstance(m, Mla) for m in mixers)
    heads = max((m.kv_heads for m in mixers if isinstance(m, Attention)), default=0)
    size = tp if latent else tp // heads if heads else 1
    if size > 1 and _against(seen) in ("", "request"):
        yield Lever(
            "context_parallel", ({option: size},), "each decoded token takes more traffic between the GPUs", "speed",
            ("fit",) if seen.short else ("more",), "vLLM documentation, context parallel deployment",
        )  # fmt: skip
