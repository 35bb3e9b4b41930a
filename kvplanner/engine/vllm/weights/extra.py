"""Weights beside the checkpoint's: latent-attention copies, LoRA slots, draft models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import format as weights_format
from kvplanner.engine.vllm.weights.shard import cut
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.model import Model
from kvplanner.model.spec import Mla, ModelSpec
from kvplanner.model.tensors import TensorGroup
from kvplanner.units import ceil_div

Bodies = Iterable[tuple[tuple[TensorGroup, ...], int]]
Addition = tuple[str, Estimate]

# --speculative-config methods that load the checkpoint's own multi-token-prediction blocks.
MTP_METHODS: Final = frozenset({"mtp", "deepseek_mtp", "mimo_mtp", "glm4_moe_mtp", "qwen3_next_mtp", "ernie_mtp"})
# Methods whose draft is a small decoder: layers, hidden-size inputs that its first matrix joins, and own vocabulary
# (the published EAGLE heads: one layer; EAGLE-3 reads three hidden states and predicts 32,000 words).
_DRAFTS: Final = {"eagle": (1, 2, 0), "eagle3": (1, 3, 32_000), "dflash": (5, 3, 0)}
_WEIGHTLESS: Final = ("ngram", "suffix")


def extras(model: Model, settings: Settings, stage: int, bodies: Bodies) -> tuple[Addition, ...]:
    """(name, bytes) of each addition to the checkpoint's tensors on a rank of a stage; bodies: the stage's layers."""
    bodies = tuple(bodies)
    found: list[Addition] = []
    copies = _latent_copies(model.spec, settings, bodies)
    if copies.value:
        found.append(("latent attention's unpacked copies", copies))
    if settings.lora.slots:
        found.append(("LoRA slots", _lora(settings, bodies)))
    if settings.speculative.method and stage == settings.parallel.pp - 1:
        draft = _draft(model.spec, settings)
        if draft is not None:
            found.append(("draft model", draft))
    return tuple(found)


def notes(settings: Settings) -> tuple[str, ...]:
    """What the additions leave out."""
    method = settings.speculative.method or ""
    if not method or method in MTP_METHODS or method in _WEIGHTLESS:
        return ()
    if _draft_shape(method) is None:
        return ("the draft model's weights are not counted: give the measured weights of both to see them",)
    return ("the draft head's size is a rule of thumb: give its measured weights for a closer plan",)


def _draft_shape(method: str) -> tuple[int, int, int] | None:
    return _DRAFTS.get(method) or _DRAFTS.get(method.rstrip("0123456789"))


def _latent_copies(spec: ModelSpec, settings: Settings, bodies: Bodies) -> Estimate:
    """W_UK and W_UV that stay beside a quantised kv_b_proj: heads × rank × (nope + value) in 16 bits per layer.

    Of an unquantised kv_b_proj they are views (layers/attention/mla_attention.py process_weights_after_loading).
    """
    mixer = next((m for layer in spec.layers for m in layer.mixers if isinstance(m, Mla)), None)
    if mixer is None:
        return exact(0)
    heads, rank, sizes = (
        ceil_div(mixer.heads, settings.parallel.tp),
        mixer.kv_lora_rank,
        mixer.qk_nope + mixer.head_size_v,
    )
    element = DTYPE_BYTES[settings.model.dtype]
    layers = 0
    for body, count in bodies:
        for group in body:
            quantised = weights_format.effective(group, spec, settings).layout != "dense"
            if "kv_b_proj" in group.path and quantised and len(group.shape) == 2:
                layers += count
                break
    formula = "{layers} × {heads} × {rank} × {sizes} × {bytes}"
    values = {"layers": layers, "heads": heads, "rank": rank, "sizes": sizes, "bytes": element}
    inputs = (Input(name, value) for name, value in values.items())
    return exact(layers * heads * rank * sizes * element, formula, *inputs)


def _lora(settings: Settings, bodies: Bodies) -> Estimate:
    """Slots for adapters: per linear layer, slots × rank × (inputs + outputs) in 16 bits (lora/layers, 0.33)."""
    ends = 0
    for body, count in bodies:
        for group in body:
            local = cut(group, settings)
            if group.kind in ("attention", "mlp", "state") and local.columns:
                ends += count * local.copies * (local.rows + local.columns)
    value = settings.lora.slots * settings.lora.rank * ends * 2
    return banded(
        value, value, value, "analytic", "{slots} × {rank} × {inputs and outputs} × 2",
        Input("slots", settings.lora.slots, "", "--max-loras"),
        Input("rank", settings.lora.rank, "", "--max-lora-rank"),
        Input("inputs and outputs", ends, "", "of every linear layer"),
    )  # fmt: skip


def _draft(spec: ModelSpec, settings: Settings) -> Estimate | None:
    """A published draft head of this method at the model's sizes; None where the method adds no weights."""
    shape = _draft_shape(settings.speculative.method or "")
    if shape is None:
        return None
    layers, inputs, words = shape
    hidden = spec.hidden_size
    wide = max((m.width for layer in spec.layers for m in layer.mlps), default=4 * hidden)
    layer, joined, head = 4 * hidden * hidden + 3 * hidden * wide, inputs * hidden * hidden, 2 * words * hidden
    element = DTYPE_BYTES[settings.model.dtype]
    value = (layers * layer + joined + head) * element // settings.parallel.tp
    return banded(
        value, value // 2, 2 * value, "assumed",
        "({layers} × {layer} + {joined inputs} + {own words}) × {bytes} ÷ {ranks}",
        Input("layers", layers, "", settings.speculative.method or ""), Input("layer", layer, "", "one decoder layer"),
        Input("joined inputs", joined), Input("own words", head), Input("bytes", element),
        Input("ranks", settings.parallel.tp),
    )  # fmt: skip
