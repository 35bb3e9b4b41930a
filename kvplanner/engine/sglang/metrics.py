"""What SGLang says of its pools on its metrics page (observability/metrics_collector.py, 0.5.23; --enable-metrics).

Data only. Of several names the first that the page has counts. token_usage leaves out cached prefixes, which may be
evicted; with windows or states it is that of the fullest pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "sglang:"
# The page has a sample for each scheduler; ranks of one group say the same.
GROUP_LABEL: Final = "dp_rank"
FIRST_RANK: Final[Mapping[str, str]] = {"tp_rank": "0", "pp_rank": "0"}
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "share": ("sglang:token_usage",),
    "tokens": ("sglang:max_total_num_tokens",),
    "used": ("sglang:kv_used_tokens", "sglang:num_used_tokens"),
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "retracted": ("sglang:num_retracted_reqs",),
    "page_size": ("sglang:page_size",),
    "pages": ("sglang:num_pages",),
    "context": ("sglang:context_len",),
}
