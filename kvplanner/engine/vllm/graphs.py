"""CUDA graphs: what vLLM estimates before it sizes the KV cache, and what capture then takes.

The estimate captures a few graphs and extrapolates (v1/worker/gpu_model_runner.py 0.17 to 0.33,
v1/worker/gpu/cudagraph_utils.py). Both follow the same law here: a part per captured size, a part per captured size
and layer; its constants are fitted on start-up reports.
"""

from __future__ import annotations

from kvplanner.engine.base import Model
from kvplanner.engine.vllm.constants import lookup
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import stage_layers
from kvplanner.estimate import Estimate, Input, banded, exact


def estimate(model: Model, settings: Settings, stage: int) -> Estimate:
    """Bytes that the engine subtracts for graphs; 0 where the era subtracts none (then they come from the slack)."""
    if not settings.era.graphs_in_budget:
        return exact(0, "0: these versions subtract no estimate")
    return _law("graph_estimate", model, settings, stage)


def actual(model: Model, settings: Settings, stage: int) -> Estimate:
    """Bytes that graph capture takes."""
    return _law("graph_actual", model, settings, stage)


def counts(settings: Settings) -> tuple[int, int]:
    """(piecewise graphs, full graphs) that will be captured."""
    sizes = settings.graph_sizes
    decode = settings.max_num_seqs * (1 + settings.spec_tokens)
    full = sum(1 for size in sizes if size <= decode)
    piecewise = 0 if settings.graph_mode in ("NONE", "FULL", "FULL_DECODE_ONLY") else len(sizes)
    return piecewise, full if settings.graph_mode not in ("NONE", "PIECEWISE") else 0


def _law(name: str, model: Model, settings: Settings, stage: int) -> Estimate:
    piecewise, full = counts(settings)
    number = max(piecewise, full)
    if not number:
        return exact(0, "0: no graphs (--enforce-eager or cudagraph_mode NONE)")
    first, end = stage_layers(model.spec, settings, stage)
    base, each, layer, band = (lookup(f"{name}_{part}", settings) for part in ("base", "each", "layer", "band"))
    value = round(base.value + number * (each.value + layer.value * (end - first)))
    return banded(
        value, round(value * band.low), round(value * band.high), band.basis,
        "{base} + {graphs} × ({each} + {layers} × {each layer})",
        Input("base", round(base.value), "B", base.source), Input("graphs", number, "sizes", "capture sizes"),
        Input("each", round(each.value), "B", each.source), Input("layers", end - first, "layers"),
        Input("each layer", round(layer.value), "B", layer.source),
    )  # fmt: skip
