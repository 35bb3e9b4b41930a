"""Names on vLLM's metrics page: v1/metrics/loggers.py, 0.6 to 0.33."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.serving import MetricNames

METRICS: Final = MetricNames(
    engine="vllm",
    title="vLLM",
    prefix="vllm:",
    share=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    preempted=("vllm:num_preemptions_total",),
    group_label="engine",
    model_label="model_name",
    info="vllm:cache_config_info",
    info_labels={
        "tokens": "kv_cache_size_tokens",
        "units": "num_gpu_blocks",
        "unit_tokens": "block_size",
        "max_concurrency": "kv_cache_max_concurrency",
        "budget_share": "gpu_memory_utilization",
        "dtype": "cache_dtype",
    },
)
