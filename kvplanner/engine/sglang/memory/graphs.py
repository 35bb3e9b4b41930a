"""CUDA graphs, captured out of the slack after the pools.

Figures: "mem usage" of capture lines in public logs. Decode: 0.06 GiB for 3 sizes of a 0.5B to 8B model, 0.11 for 4,
1.0 for 36; 0.45 for 2 sizes of a hybrid; 2.66 for 36 sizes of a 26B mixture; 1.66 for 8 sizes of sparse attention;
6.19 for Llama-4-Maverick; about 5 GB during the capture of a 27B hybrid in 4-bit floats on an RTX 5090, of which the
start died (0.5.17: sgl-project/sglang issue 35777). Prefill: 1.29, 3.31 and 3.85 GiB for chunks of 8192.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from kvplanner.engine.sglang.memory.activations import token_bytes
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.settle.backends import is_sparse_latent
from kvplanner.engine.shared.identity import by_identity
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, exact, least_sure
from kvplanner.model.spec import Compressed, ModelSpec, Moe, State
from kvplanner.units import GB, GIB, MIB

_BASE: Final = 25 * MIB
_EACH: Final = 26 * MIB
_EACH_OF_EXPERTS: Final = 60 * MIB
_EACH_SPARSE: Final = 200 * MIB
_STATES: Final = 300 * MIB
_CONSUMER_BLACKWELL: Final = (12, 0)
_CAPTURE_OF_HYBRID: Final = 5 * GB
_PREFILL_EACH: Final = 8 * MIB  # what the engine itself reserves for a size (memory_hook.py reserve_for_graph_mb)


def _read(spec: ModelSpec, settings: Settings) -> Hashable:
    """All that the graphs of a model depend on."""
    del spec
    return settings.graphs, settings.parallel, settings.speculation.algorithm, settings.arch, settings.quantization


@by_identity(64, _read)
def all_graphs(spec: ModelSpec, settings: Settings) -> Estimate:
    """Bytes of all CUDA graphs of a rank."""
    return joined(decode(spec, settings), prefill(spec, settings))


def decode(spec: ModelSpec, settings: Settings) -> Estimate:
    """Bytes of the decode graphs (those of verification, with speculative decoding)."""
    sizes = len(settings.graphs.decode)
    if not sizes:
        return exact(0, "{none}", Input("none", 0, "B", "decode graphs are off"))
    each, spread, what = _EACH, (0.45, 1.8), "a dense model"
    if is_sparse_latent(spec) or any(isinstance(m, Compressed) for layer in spec.layers for m in layer.mixers):
        each, spread, what = _EACH_SPARSE, (0.2, 1.5), "sparse latent attention"
    elif any(isinstance(m, Moe) for layer in spec.layers for m in layer.mlps):
        each, spread, what = _EACH_OF_EXPERTS, (0.3, 3.0), "experts"
    kept = _STATES if any(isinstance(m, State) for layer in spec.layers for m in layer.mixers) else 0
    value = _BASE + kept + sizes * each
    if settings.speculation.algorithm:
        value, spread = 2 * value, (spread[0] / 2, spread[1] * 2)
    inputs = (
        Input("sizes", sizes, "", f"up to a batch of {settings.graphs.decode_max}"),
        Input("each", each, "B", f"public capture lines of {what}"),
        Input("first", value - sizes * each, "B", "the first capture, states and drafts"),
    )
    low, high = round(value * spread[0]), round(value * spread[1])
    method = settings.quantization or spec.quantization or ""
    if kept and settings.arch == _CONSUMER_BLACKWELL and ("fp4" in method or method == "modelopt_mixed"):
        high = max(high, _CAPTURE_OF_HYBRID)
    return banded(value, low, high, "calibrated", "{first} + {sizes} × {each}", *inputs)


def prefill(spec: ModelSpec, settings: Settings) -> Estimate:
    """Bytes of the prefill graphs, with the memory that their chunks run in."""
    sizes = settings.graphs.prefill
    if not sizes or settings.graphs.prefill_backend == "disabled":
        return exact(0, "{none}", Input("none", 0, "B", "prefill graphs are off"))
    chunk = max(sizes) * token_bytes(spec, settings)
    value = round(1.5 * chunk) + len(sizes) * _PREFILL_EACH
    inputs = (
        Input("largest", max(sizes), "tokens", "the largest size that is captured"),
        Input("chunk", chunk, "B", "one chunk in the widest layer"),
        Input("sizes", len(sizes), "", ""),
        Input("each", _PREFILL_EACH, "B", "the engine's own reserve for a size"),
    )
    high = max(round(2.5 * value), round(min(4 * GIB, max(sizes) * 0.5 * MIB)))
    return banded(value, value // 3, high, "calibrated", "1.5 × {chunk} + {sizes} × {each}", *inputs)


def joined(decode: Estimate, prefill: Estimate) -> Estimate:
    """All CUDA graphs of a rank."""
    if not prefill.value or not decode.value:
        return decode if not prefill.value else prefill
    below, above = band_of_sum((decode, prefill))
    value = decode.value + prefill.value
    inputs = (
        Input("decode", decode.value, "B", decode.in_numbers()),
        Input("prefill", prefill.value, "B", prefill.in_numbers()),
    )
    basis = least_sure((decode, prefill))
    return banded(value, value - below, value + above, basis, "{decode} + {prefill}", *inputs)
