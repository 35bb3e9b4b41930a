"""Names on SGLang's metrics page: observability/metrics_collector.py, 0.5.23 (--enable-metrics).

token_usage leaves out cached prefixes, which may be evicted; with windows or states it is that of the fullest pool.
Tokens are those of one attention group: groups are added up.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.serving import MetricNames

METRICS: Final = MetricNames(
    engine="sglang",
    title="SGLang",
    prefix="sglang:",
    share=("sglang:token_usage",),
    tokens=("sglang:max_total_num_tokens",),
    used=("sglang:kv_used_tokens", "sglang:num_used_tokens"),
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    preempted=("sglang:num_retracted_reqs",),
    group_label="dp_rank",
    model_label="model_name",
    only={"tp_rank": "0", "pp_rank": "0"},
)
