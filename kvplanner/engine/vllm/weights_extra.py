"""Weights beside the checkpoint's: latent-attention copies, LoRA slots, draft models, rotary tables."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.base import Model
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model.spec import Attention, Mla, ModelSpec

# --speculative-config methods that load the checkpoint's own multi-token-prediction blocks.
MTP_METHODS: Final = frozenset({"mtp", "deepseek_mtp", "mimo_mtp", "glm4_moe_mtp", "qwen3_next_mtp", "ernie_mtp"})
# Small tensors of a decoder layer that the allocator rounds up to 512 bytes, half lost on average.
_ROUNDING_PER_LAYER: Final = 3072


def extras(model: Model, settings: Settings, stage: int) -> tuple[tuple[str, Estimate], ...]:
    """(name, bytes) of each addition to the checkpoint's tensors on a rank of a stage."""
    del model, settings, stage
    return ()


def tables(model: Model, settings: Settings, stage: int) -> Estimate:
    """Rotary tables and the allocator's rounding: held on every rank whatever the parallelism.

    One table of context × rotary size × 2 bytes for each distinct head size
    (layers/rotary_embedding/base.py caches them by their parameters).
    """
    del stage
    sizes = rotary_sizes(model.spec)
    context = max(model.spec.context_length or 0, settings.max_model_len) if sizes else 0
    table = sum(context * size * 2 for size in sizes)
    rounding = model.spec.num_layers * _ROUNDING_PER_LAYER // settings.pp
    return banded(
        table + rounding, table // 2, 4 * table + 2 * rounding, "analytic",
        "{context} × {rotary} × 2 + {rounding}",
        Input("context", context, "tokens", "config.json"), Input("rotary", sum(sizes), "elements", "config.json"),
        Input("rounding", rounding, "B", "512-byte blocks"),
    )  # fmt: skip


def rotary_sizes(spec: ModelSpec) -> tuple[int, ...]:
    """Elements per position of each distinct rotary table."""
    sizes: set[tuple[int, bool]] = set()
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and mixer.causal:
                sizes.add((mixer.head_size, mixer.window is not None))
            elif isinstance(mixer, Mla):
                sizes.add((mixer.qk_rope, False))
    return tuple(sorted(size for size, _ in sizes))


def notes(model: Model, settings: Settings) -> tuple[str, ...]:
    """What the additions leave out."""
    del model, settings
    return ()
