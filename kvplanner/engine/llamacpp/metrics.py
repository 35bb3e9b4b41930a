"""Names on llama-server's metrics page: tools/server of llama.cpp, 2023 to 2026 (--metrics)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.serving import MetricNames

METRICS: Final = MetricNames(
    engine="llamacpp",
    title="llama-server",
    prefix="llamacpp:",
    share=("llamacpp:kv_cache_usage_ratio",),
    used=("llamacpp:kv_cache_tokens",),
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
)
