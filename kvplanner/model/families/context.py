"""The context length that vLLM derives from a config (config/model.py and its converters, 0.33).

The smallest of the known length fields (`model_max_length` alone when it is there), times the rope factor for
the rope types whose length does not include it yet. Long-rope files start at their original length; the longer
one is what a user may ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kvplanner.model.families.fields import Fields

_LENGTHS: Final = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# Rope types whose stated length already holds the factor.
_INCLUDED: Final = frozenset(
    {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", "mrope", "proportional"}
)


class Context(NamedTuple):
    """limit: the most that may be asked for, None when not stated; start: the default where it is less than that."""

    limit: int | None
    start: int | None = None


def context_of(text: Fields, top: Fields, class_default: int | None) -> Context:
    """Both lengths of a config. Raises BadInput for a length that is no whole number."""
    given = [n for n in (text.maybe(name, high=1 << 40) for name in _LENGTHS) if n is not None]
    model_max = text.maybe("model_max_length", high=1 << 62)
    if model_max is not None:
        given = [model_max]
    if not given and class_default is not None:
        text.took_default("max_position_embeddings")
        given = [class_default]
    if not given:
        return Context(None)
    length = min(given)
    ropes = list(_ropes(text)) or list(_ropes(top))
    if "gemma3" not in str(text.values.get("model_type", "")):
        for kind, factor in ropes:
            if kind not in _INCLUDED and factor is not None and factor > 0:
                length = min(int(length * factor), 1 << 40)
    original = text.maybe("original_max_position_embeddings", high=1 << 40)
    if original is not None and any(kind == "longrope" for kind, _ in ropes):
        return Context(length, original if original < length else None)
    return Context(length)


def _ropes(fields: Fields) -> Iterator[tuple[str, float | None]]:
    """(type, factor) of each rope setting; newer files keep one per kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        _, value = fields.raw(name)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise fields.bad(name, "an object")
        nested = [v for v in value.values() if isinstance(v, Mapping)]
        for item in nested or [value]:
            kind = item.get("rope_type", item.get("type", "default"))
            factor = item.get("factor")
            if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
                raise fields.bad(name, "an object whose factor is a number")
            yield str(kind), factor
