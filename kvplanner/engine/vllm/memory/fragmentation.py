"""What PyTorch's allocator has reserved and cannot hand out: gaps between weights, and between a step's tensors.

Gaps between weights follow from their sizes (engine/shared/allocator.py), and from repacking: until loading limited
how pieces are cut (0.20.1), an expert layer's smaller matrix settled in the segment that its larger one had left, and
what remained was too small for the next (pull request 41268: 530 and 270 MiB of gpt-oss-120b on two H100). From 0.27
on the engine measures reserved memory, so that these gaps are in its budget already. Of the tensors of a step a few
per cent are taken: no report tells them apart yet.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import format as weights_format
from kvplanner.engine.vllm.weights import loaded as weights_loaded
from kvplanner.engine.vllm.weights.rank import moving, rank_tensors
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model.model import Model
from kvplanner.units import MIB

# Shares of what a step allocates and frees: value, low, high (PyTorch without expandable segments).
_OF_A_STEP: Final = (0.05, 0.02, 0.15)
# Segments that grow in place leave less than a step of 2 MiB each.
_GROWING: Final = 2 * MIB
_GROWING_SEGMENTS: Final = 4


def gaps(model: Model, settings: Settings, gpu: Gpu, stage: int, step: Estimate) -> Estimate:
    """Bytes on one rank of a stage outside the budget. step: what a step allocates and frees, the activations."""
    if settings.expandable_segments:
        size = _GROWING * _GROWING_SEGMENTS
        return banded(
            0, 0, size, "assumed", "{none}",
            Input("none", 0, "B", "segments grow in place (expandable_segments:True)"),
        )  # fmt: skip
    between = 0 if settings.era.consumed_rule else _between_weights(model, settings, gpu, stage)
    ends = step.value, step.low, step.high
    value, low, high = (round(share * size) for share, size in zip(_OF_A_STEP, ends, strict=True))
    why = "reserved less allocated, by the sizes of the tensors"
    if settings.era.consumed_rule:
        why = "in the budget since 0.27"
    return banded(
        between + value, between // 2 + low, between + high, "assumed", "{between weights} + {of a step}",
        Input("between weights", between, "B", why),
        Input("of a step", value, "B", f"{100 * _OF_A_STEP[0]:g} % of the activations"),
    )  # fmt: skip


@by_identity(64, moving)
def _between_weights(model: Model, settings: Settings, gpu: Gpu, stage: int) -> int:
    """Bytes of the weights' segments that no tensor has, after loading and repacking."""
    if settings.model.cpu_offload_bytes:
        return 0
    found, _ = weights_loaded.allocation(model, settings, gpu, stage)
    left = found.reserved - found.allocated
    repacked = rules.LOAD_SPLIT.at(settings.version) is None and rules.REPACKING_GAPS.at(settings.version)
    return left + (_left_by_repacking(model, settings, gpu, stage) if repacked else 0)


def _left_by_repacking(model: Model, settings: Settings, gpu: Gpu, stage: int) -> int:
    """What remains of the larger expert matrix's segment once the smaller one stands in it, in every layer."""
    layout = weights_format.mxfp4_layout(settings, gpu)
    if model.spec.quantization != "mxfp4" or not layout.swizzled:
        return 0
    values: dict[str, int] = {}
    layers = 0
    for part in rank_tensors(model, settings, gpu, stage):
        if part.group.kind == "experts" and len(part.group.shape) > 1:
            values[part.group.shard] = values.get(part.group.shard, 0) + part.values
            layers = max(layers, part.layers)
    if len(values) < 2:
        return 0
    larger, smaller = max(values.values()), min(values.values())
    left = larger - smaller
    return layers * left if left < smaller else 0
