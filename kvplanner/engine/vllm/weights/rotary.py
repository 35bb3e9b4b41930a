"""Rotary tables: cosines and sines for every position, held on every rank whatever the parallelism.

One table of positions × rotary size × 2 bytes for each distinct kind of layer (layers/rotary_embedding, 0.33).
How many positions and which share of a head a class turns was seen in what the engine allocates for it.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import Attention, Compressed, Mla, ModelSpec

# Classes without rotary tables: no positions at all, or computed as they are needed.
_NONE: Final = ("NemotronH", "GraniteMoeHybrid", "Jamba", "Bert", "XLMRoberta", "Olmo2", "Starcoder2", "Bamba")
# The share of a head that turns, where it is not the whole.
_SHARE: Final = {
    "Qwen3Next": 0.25, "Qwen3_5": 0.25, "Glm4": 0.5, "ChatGLM": 0.5, "GlmFor": 0.5, "PhiFor": 0.4, "StableLm": 0.25,
    "Phi4": 0.75, "MiniMaxText": 0.5, "MiniMaxM": 0.5,
}  # fmt: skip
# Tables for positions in three axes are made four times as long (mrope.py).
_MULTI_AXIS: Final = ("Qwen2VL", "Qwen2_5_VL", "Qwen2_5Omni", "Qwen3Omni", "Glm4v")
_MULTI_AXIS_LENGTH: Final = 4
# Tables kept in fp32.
_FP32: Final = ("GptOss",)
# A linear factor lengthens the table of full layers.
_LINEAR: Final = {"Gemma3ForConditionalGeneration": 8}


def tables(spec: ModelSpec, settings: Settings) -> tuple[tuple[int, int], ...]:
    """(positions, elements per position) of each distinct table."""
    name = spec.architecture
    context = max(spec.context_length or 0, settings.max_model_len)
    if name.startswith(_NONE) or not context:
        return ()
    share = next((s for prefix, s in _SHARE.items() if name.startswith(prefix)), 1.0)
    length = _MULTI_AXIS_LENGTH if name.startswith(_MULTI_AXIS) else 1
    found: set[tuple[int, int]] = set()
    plain = False
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and mixer.causal and not mixer.cross:
                windowed = mixer.window is not None
                factor = 1 if windowed else _LINEAR.get(name, 1)
                found.add((context * length * factor, int(mixer.head_size * share)))
                # Gemma turns windowed and full layers by different bases: two tables even of one size.
                plain = plain or (windowed and name.startswith("Gemma3"))
            elif isinstance(mixer, Mla):
                found.add((context, mixer.qk_rope))
            elif isinstance(mixer, Compressed):
                found.add((context, 64))
    result = sorted(found)
    if plain and len(result) == 1:
        result *= 2
    return tuple(result)


def element_bytes(spec: ModelSpec) -> int:
    """Bytes of one element of a table."""
    return 4 if spec.architecture.startswith(_FP32) else 2


def table_bytes(spec: ModelSpec, settings: Settings) -> int:
    """Bytes of all tables on a rank."""
    return sum(element_bytes(spec) * positions * size for positions, size in tables(spec, settings))
