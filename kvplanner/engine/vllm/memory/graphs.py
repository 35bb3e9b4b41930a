"""CUDA graphs: what vLLM estimates before it sizes the KV cache, and what capture then takes.

The estimate captures a few graphs and extrapolates (v1/worker/gpu_model_runner.py 0.17 to 0.33,
v1/worker/gpu/cudagraph_utils.py). Both follow the same law here: a part per captured size, a part per captured size
and layer, and a factor for experts and for recurrent layers; its constants are fitted on start-up reports.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm.constants import lookup
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights.rank import stage_layers
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe, State

# Bits of a weight below which kernels are those of packed formats.
_PACKED_BITS: Final = 6


def estimate(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes that the engine subtracts for graphs; 0 where the era subtracts none (then they come from the slack)."""
    if not settings.era.graphs_in_budget:
        return exact(0, "0: these versions subtract no estimate")
    return _law(model, "graph_estimate", settings, gpu, stage)


def actual(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes that graph capture takes."""
    return _law(model, "graph_actual", settings, gpu, stage)


def counts(settings: Settings) -> tuple[int, int]:
    """(piecewise graphs, full graphs) that will be captured."""
    sizes = settings.graphs.sizes
    decode = settings.scheduler.max_num_seqs * (1 + settings.speculative.tokens)
    full = sum(1 for size in sizes if size <= decode)
    piecewise = 0 if settings.graphs.mode in ("NONE", "FULL", "FULL_DECODE_ONLY") else len(sizes)
    return piecewise, full if settings.graphs.mode not in ("NONE", "PIECEWISE") else 0


def _moving(_: Model, name: str, settings: Settings, gpu: Gpu, stage: int) -> tuple[object, ...]:
    """Everything of the settings that graphs depend on."""
    sequences, drafts = settings.scheduler.max_num_seqs, settings.speculative.tokens
    return name, settings.version, settings.era, settings.parallel, settings.graphs, sequences, drafts, gpu, stage


@by_identity(64, _moving)
def _law(model: Model, name: str, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    piecewise, full = counts(settings)
    number = max(piecewise, full)
    if not number:
        return exact(0, "0: no graphs (--enforce-eager or cudagraph_mode NONE)")
    first, end = stage_layers(model.spec, settings, stage)
    each, layer = (lookup(f"{name}_{part}", settings, gpu) for part in ("each", "layer"))
    base = lookup(f"{name}_{'packed' if packed(model) else 'base'}", settings, gpu)
    kind = _kind(model.spec)
    factor = lookup(f"{name}_{kind}", settings, gpu)
    # Whole bytes, so that the formula gives the value.
    fixed, per_size, per_layer = (round(part.value) for part in (base, each, layer))
    plain = fixed + number * (per_size + per_layer * (end - first))
    value, low, high = (
        round(start + part * (plain - fixed)) for start, part in zip(base.band, factor.band, strict=True)
    )
    return banded(
        value, low, high, factor.basis,
        "{base} + {graphs} × ({each} + {layers} × {each layer}) × {factor}",
        Input("base", fixed, "B", base.source), Input("graphs", number, "sizes", "capture sizes"),
        Input("each", per_size, "B", each.source), Input("layers", end - first, "layers", "of this stage"),
        Input("each layer", per_layer, "B", layer.source), Input("factor", factor.value, "", factor.source),
    )  # fmt: skip


@by_identity(64, lambda _: ())
def packed(model: Model) -> bool:
    """Whether the model's matrices are of 4 bits and less: their kernels' scratch comes into the first graph's pool."""
    inventory = model.inventory
    blocks = inventory.blocks if inventory is not None else ()
    return any(len(g.shape) >= 2 and g.format.bits < _PACKED_BITS for block in blocks for g in block)


@by_identity(64, lambda _: ())
def _kind(spec: ModelSpec) -> str:
    """What a model's layers capture beside attention and a dense MLP: "states", "experts" or "plain"."""
    if any(isinstance(m, State) for layer in spec.layers for m in layer.mixers):
        return "states"
    return "experts" if any(isinstance(m, Moe) for layer in spec.layers for m in layer.mlps) else "plain"
