"""What Ollama says of the models that it has loaded (GET /api/ps, as `ollama ps` prints it); it has no metrics page.

Its llama-server children have one, on ports that only it knows. Source: api/types.go ProcessModelResponse of Ollama.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.llamacpp.ollama import rules
from kvplanner.engine.serving import Held, MetricNames

_SHOWN: Final = 8
_MOST: Final = 1 << 50


def of_models(page: object, command: Sequence[str]) -> Held | None:
    """Each loaded model with its size, its share on the GPUs and its context."""
    del command
    models = page.get("models") if isinstance(page, Mapping) else None
    if not isinstance(models, list) or not all(isinstance(model, Mapping) for model in models):
        return None
    names = tuple(str(model.get("name", ""))[:200] for model in models)
    lines = [f"{name}: {_line(model)}" for name, model in zip(names, models, strict=True)]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return Held(models=names, said=("; ".join(lines[:_SHOWN]) + more) or "no model is loaded")


def _line(model: Mapping[str, object]) -> str:
    size, on_gpus, context = (_count(model, name) for name in ("size", "size_vram", "context_length"))
    shown = f"{rules.human(size)}, {rules.processor(size, on_gpus)}"
    return f"{shown}, context {context}" if context else shown


def _count(model: Mapping[str, object], name: str) -> int:
    value = model.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0


METRICS: Final = MetricNames(
    engine="ollama", title="Ollama", prefix="ollama:", share=(), used=(), running=(), waiting=(),
    state=("/api/ps", of_models),
)  # fmt: skip
