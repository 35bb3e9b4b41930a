"""SGLang's start-up log, 0.4.3 to 0.5.23 (data only; fields as in kvplanner.engine.log).

GB in these lines means GiB. Each rank prints its own, tagged " TP0" in the prefix unless there is one alone.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.log import Figure, LogFailure, LogGrammar, LogLine
from kvplanner.engine.shared import torch_log

_WEIGHTS: Final = Figure("weights", "GiB", "most", keep="first")  # a draft is loaded after the model
_BEFORE: Final = Figure("free_at_start", "GiB", "least", keep="first")
_AFTER: Final = Figure("free_after_load", "GiB", "least")
_TOKENS: Final = Figure("tokens", "count", "least", keep="first")
_GRAPHS: Final = Figure("cuda_graphs", "GiB", "most")
_SHARE: Final = Figure("budget_share", "number")
LINES: Final = (
    *torch_log.LINES,
    LogLine(r"server_args=ServerArgs\(model_path='(?P<model>[^']+)'", (Figure("model", "text"),), restart=True),
    # Weights.
    LogLine(r"Load weight begin\. avail mem=(?P<free_at_start>[\d.]+) GB", (_BEFORE,), "load"),
    LogLine(r"Load weight end\. (?:.*?type=(?P<architecture>\w+),)?.*?avail mem=(?P<free_after_load>[\d.]+) GB"
            r"(?:, mem usage=(?P<weights>-?[\d.]+) GB)?",
            (Figure("architecture", "text", keep="first"), _AFTER, _WEIGHTS), "loaded"),
    # The pools: the target's come first.
    LogLine(r"KV Cache is allocated\. (?:dtype: [\w.]+, )?#tokens: (?P<tokens>\d+), K size: (?P<keys>[\d.]+) GB, "
            r"V size: (?P<values>[\d.]+) GB",
            (_TOKENS, Figure("keys", "GiB", "most", keep="first"), Figure("values", "GiB", "most", keep="first"))),
    LogLine(r"KV Cache is allocated\. (?:dtype: [\w.]+, )?#tokens: (?P<tokens>\d+), KV size: (?P<kv_cache>[\d.]+) GB",
            (_TOKENS, Figure("kv_cache", "GiB", "least", keep="first"))),
    LogLine(r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<slots>\d+), conv_state size: (?P<conv>[\d.]+) ?GB, "
            r"ssm_state size: (?P<states>[\d.]+) ?GB",
            (Figure("slots", "count", "least"), Figure("conv", "GiB", "most"), Figure("states", "GiB", "most")),
            since="0.5.3"),
    LogLine(r"[Uu]se sliding window memory pool\. full_layer_tokens=(?P<tokens>\d+), "
            r"swa_layer_tokens=(?P<window_tokens>\d+)", (_TOKENS, Figure("window_tokens", "count", "least"))),
    LogLine(r"SWAKVPool mem usage: (?P<kv_cache>[\d.]+) GB", (Figure("kv_cache", "GiB", "least", keep="first"),)),
    LogLine(r"Memory pool end\. avail mem=[\d.]+ GB", reached="sized"),
    # Graphs.
    LogLine(r"Capture (?:cuda graph|\w+ \w+ CUDA graph) begin\.", reached="capture"),
    LogLine(r"Capture (?:cuda graph|\w+ (?:decode|verify|extend) CUDA graph) end\..*?mem usage=(?P<cuda_graphs>[\d.]+) "
            r"GB", (_GRAPHS,), "captured"),
    LogLine(r"Capture \w+ prefill CUDA graph end\..*?mem usage=(?P<prefill_graphs>[\d.]+) GB",
            (Figure("prefill_graphs", "GiB", "most"),), "captured", since="0.5.15"),
    # The end.
    LogLine(r"max_total_num_tokens=(?P<tokens>\d+), (?:chunked_prefill_size=(?P<chunk>-?\d+), )?.*?"
            r"max_running_requests=(?P<requests>\d+), context_len=(?P<context_length>\d+)",
            (Figure("tokens", "count", "least"), Figure("chunk", "count"), Figure("requests", "count", "least"),
             Figure("context_length", "count")), "served"),
    LogLine(r"The server is fired up and ready to roll", reached="started"),
)  # fmt: skip

FAILURES: Final = (
    LogFailure(r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes\.(?=.*Error)|"
               r"RuntimeError: The memory capacity is unbalanced", "memory_moved", "free_memory_check"),
    LogFailure(r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache", "no_cache",
               "kv_cache_sizing"),
    LogFailure(r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<budget_share>"
               r"-?[\d.]+)(?<!\.)(?:.*?minimum viable = 1 - available/pre = (?P<least_share>[\d.]+)\))?", "no_cache",
               "kv_cache_sizing", (_SHARE, Figure("least_share", "number"))),
    LogFailure(r"Not enough memory\. Please try to increase --mem-fraction-static", "no_cache", "kv_cache_sizing"),
    LogFailure(r"SWA pool \((?P<tokens>-?\d+) tokens\) cannot hold even one request", "one_request",
               "kv_cache_too_small"),
    LogFailure(r"SWA pool cap \(\d+ tokens.*?leaves no room for the full", "one_request", "kv_cache_too_small"),
    LogFailure(r"state cache is too small to serve any requests", "one_request", "kv_cache_too_small"),
    LogFailure(r"Capture cuda graph failed:|Fail when using backend: .* for prefill runner", "out_of_memory",
               "graph_capture"),
    LogFailure(r"Out of memory\. Try to lower your batch size|Out of memory even after retracting all other requests",
               "out_of_memory", "runtime"),
    LogFailure(r"alloc_req_slots runs out of memory|Out of request slots", "request_slots", "runtime"),
    *torch_log.FAILURES,
)  # fmt: skip

# Of the namespace that is printed, resolved: what is an option here.
_OPTIONS: Final = (
    "tp_size", "pp_size", "dp_size", "ep_size", "enable_dp_attention", "context_length", "max_running_requests",
    "chunked_prefill_size", "kv_cache_dtype", "mem_fraction_static", "max_total_tokens", "max_prefill_tokens",
    "page_size", "disable_radix_cache", "disable_cuda_graph", "disable_overlap_schedule", "max_mamba_cache_size",
    "mamba_full_memory_ratio", "quantization", "dtype", "cpu_offload_gb",
)  # fmt: skip

GRAMMAR: Final = LogGrammar(
    engine="sglang",
    title="SGLang",
    marks=("sglang", "SGLang", "ServerArgs(", "Load weight ", "Memory pool end", "max_total_num_tokens"),
    anchors=(
        "ServerArgs(", "Load weight ", "Cache is allocated", "window memory pool", "SWAKVPool", "Memory pool end",
        "Capture ", "max_total_num_tokens", "fired up", "unbalanced", "Not enough", "Loaded weights leave", "SWA pool",
        "state cache", "Out of memory", "Out of request", "minimum viable", *torch_log.ANCHORS, "Fail when using",
        "Traceback", ", in ",
    ),
    late_anchors=("ServerArgs(", "Out of memory", "Out of request", *torch_log.ANCHORS, "Traceback", ", in "),
    lines=LINES,
    failures=FAILURES,
    steps=(
        ("", "free_memory_check"), ("load", "weights"), ("loaded", "kv_cache_allocation"), ("sized", "graph_capture"),
        ("capture", "graph_capture"), ("captured", "graph_capture"), ("served", "runtime"), ("started", "runtime"),
    ),
    frames=(
        ("load_model", "weights"), ("alloc_memory_pool", "kv_cache_allocation"),
        ("init_memory_pool", "kv_cache_allocation"), ("init_device_graphs", "graph_capture"),
        ("init_cuda_graphs", "graph_capture"), ("capture_one_batch_size", "graph_capture"),
    ),
    wrappers=(
        "Scheduler hit an exception", "Rank 0 scheduler is dead", "Initialization failed", "scheduler died during",
        "Possible solutions", "Received sigquit from a child process",
    ),
    tags=r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ?(?P<tag>(?:(?:DP|PP|TP|EP)\d+ ?)*)\]",
    config=r"server_args=ServerArgs\((?P<config>.*)",
    config_options=tuple((name, name) for name in _OPTIONS),
    restarts=("server_args=ServerArgs(",),
    sums=(("kv_cache", ("keys", "values"), ("conv", "states")),),
)  # fmt: skip
