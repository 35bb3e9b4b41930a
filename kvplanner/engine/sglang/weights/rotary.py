"""Rotary tables: cosines and sines in fp32 for every position, whole on every rank (layers/rotary_embedding, 0.5.23).

How many positions and which share of a head a class turns was seen in what the engine allocates for it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kvplanner.model.spec import Attention, Compressed, Mla, ModelSpec
from kvplanner.record import NamedTuple

_BYTES: Final = 4
_COMPRESSED_ROPE: Final = 64
_PAIRS: Final = 2  # DeepSeek V4 keeps complex numbers, and a table for each of its two bases


class Rotation(NamedTuple):
    """How a class turns positions: share of a head (0: not at all), factor of the positions, and whether windowed and
    full layers have tables of their own even where they are alike."""

    share: float = 1.0
    positions: int = 1
    two_bases: bool = False


_NONE: Final = Rotation(0)
_HALF: Final = Rotation(0.5)
_QUARTER: Final = Rotation(0.25)
_ROWS: Final[dict[str, Rotation]] = {
    "Bamba*": _NONE, "Bert*": _NONE, "GraniteMoeHybrid*": _NONE, "Jamba*": _NONE, "NemotronH*": _NONE,
    "KimiLinear*": _NONE, "Glm4*": _HALF, "Glm4MoeLite*": Rotation(), "GlmFor*": _HALF, "GlmMoeDsa*": Rotation(),
    "ChatGLM*": _HALF, "MiniMax*": _HALF, "Qwen3Next*": _QUARTER, "Qwen3_5*": _QUARTER,
    "Gemma4*": Rotation(two_bases=True),
}  # fmt: skip


@cache
def rotation(architecture: str) -> Rotation:
    """The row of an architecture; without one, whole heads are turned at every position of the context."""
    fitting = [key for key in _ROWS if key == architecture or (key[-1] == "*" and architecture.startswith(key[:-1]))]
    return _ROWS[max(fitting, key=len)] if fitting else Rotation()


def tables(spec: ModelSpec) -> tuple[tuple[int, int], ...]:
    """(positions, elements per position) of each distinct table."""
    rule, context = rotation(spec.architecture), spec.context_length or 0
    if spec.default_context_length:
        context += spec.default_context_length  # LongRoPE: one table for short texts, one for long ones
    if not rule.share or not context:
        return ()
    found: dict[tuple[int, int, str], None] = {}
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and mixer.causal and not mixer.cross:
                kind = "window" if rule.two_bases and mixer.window is not None else "full"
                found[context * rule.positions, int(mixer.head_size * rule.share), kind] = None
            elif isinstance(mixer, Mla):
                found[context, mixer.qk_rope, "latent"] = None
            elif isinstance(mixer, Compressed):
                found[context, _COMPRESSED_ROPE, "coarse" if mixer.ratio else "window"] = None
    return tuple((positions, size) for positions, size, _ in found)


def table_bytes(spec: ModelSpec) -> int:
    """Bytes of all tables on a rank."""
    pairs = _PAIRS if any(isinstance(m, Compressed) for layer in spec.layers for m in layer.mixers) else 1
    return sum(positions * size * _BYTES * pairs for positions, size in tables(spec))
