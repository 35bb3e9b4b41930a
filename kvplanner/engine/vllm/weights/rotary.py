"""Rotary tables: cosines and sines for every position, held on every rank whatever the parallelism.

One table of positions × rotary size × 2 bytes for each distinct kind of layer (layers/rotary_embedding, 0.33).
How many positions and which share of a head a class turns was seen in what the engine allocates for it.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import Attention, Compressed, Mla, ModelSpec

# Tables for positions in three axes are made four times as long (mrope.py).
_MULTI_AXIS_LENGTH: Final = 4


def tables(spec: ModelSpec, settings: Settings) -> tuple[tuple[int, int], ...]:
    """(positions, elements per position) of each distinct table."""
    architecture = quirks(spec.architecture)
    context = max(spec.context_length or 0, settings.model.max_model_len)
    if not architecture.rotary_share or not context:
        return ()
    longer = architecture.rotary_axes and (not architecture.axes_shortened or rules.LONG_AXES.at(settings.version))
    length = _MULTI_AXIS_LENGTH if longer else 1
    found: set[tuple[int, int]] = set()
    plain = False
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and mixer.causal and not mixer.cross:
                windowed = mixer.window is not None
                factor = 1 if windowed else architecture.rotary_factor
                found.add((context * length * factor, int(mixer.head_size * architecture.rotary_share)))
                # Gemma turns windowed and full layers by different bases: two tables even of one size.
                plain = plain or (windowed and architecture.two_bases)
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
    return 4 if quirks(spec.architecture).rotary_fp32 else 2


def table_bytes(spec: ModelSpec, settings: Settings) -> int:
    """Bytes of all tables on a rank."""
    return sum(element_bytes(spec) * positions * size for positions, size in tables(spec, settings))
