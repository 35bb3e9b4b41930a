"""Ollama has no metrics page of its own; its llama-server children have, on ports that only it knows."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.serving import MetricNames

METRICS: Final = MetricNames(
    engine="ollama", title="Ollama", prefix="ollama:", share=(), used=(), running=(), waiting=(),
)  # fmt: skip
