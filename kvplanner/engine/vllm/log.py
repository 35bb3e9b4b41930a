"""vLLM's start-up log, 0.6.6 to 0.33: format strings of 47 releases, as their sources have them.

GB in these lines means GiB (0.6.6 to 0.8.2). Until 0.11.0 each worker prints its own figures, later the first local
rank alone; the V2 runner of 0.29 and later prints the capture twice, first as an estimate before the cache is sized.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.log import Figure, LogFailure, LogGrammar, LogLine, WholePrompts
from kvplanner.engine.shared import torch_log

_SIZE: Final = r"(?P<{0}>\d+(?:\.\d+)?) ?(?P<{0}_unit>GiB|GB)"


def _size(name: str) -> str:
    return _SIZE.format(name)


_WEIGHTS: Final = (Figure("weights", "GiB", "most"),)
_AVAILABLE: Final = Figure("kv_cache", "GiB", "least")
_TOKENS: Final = Figure("tokens", "count", "least")
_LENGTH: Final = Figure("context_length", "count")
_CONCURRENCY: Final = Figure("max_concurrency", "number", "least")
_GRAPHS: Final = (Figure("cuda_graphs", "GiB", "most"),)
_TOTAL: Final = Figure("gpu_total", "GiB", "least")
LINES: Final = (
    *torch_log.LINES,
    # Version, model, arguments.
    LogLine(r"vLLM (?:API )?server version (?P<version>[\w.+!-]+)(?:, serving model (?P<model>[^\s\"]+))?",
            (Figure("version", "text"), Figure("model", "text")), restart=True),
    LogLine(r"[█▄▀].* version (?P<version>\d[\w.+!-]*)", (Figure("version", "text"),), restart=True, since="0.15.0"),
    LogLine(r"[█▄▀].* model   (?P<model>[^\s\"]+)", (Figure("model", "text"),), since="0.15.0"),
    LogLine(r"Initializing an? (?:V[01] )?LLM engine \(v(?P<version>\d[\w.+!-]*)\) with config",
            (Figure("version", "text"),)),
    LogLine(r"Resolved architecture: (?P<architecture>\w+)", (Figure("architecture", "text", keep="first"),),
            since="0.10.1"),
    LogLine(r"Using max model len (?P<context_length>\d+)", (Figure("context_length", "count", keep="first"),),
            since="0.9.2"),
    LogLine(r"Using (?P<runner>V2) Model Runner", (Figure("runner", "text"),), since="0.16.0"),
    LogLine(r"Using (?P<backend>[A-Z_0-9]+) attention backend", (Figure("backend", "text", keep="first"),),
            since="0.12.0"),
    LogLine(r"Setting attention block size to (?P<state_block>\d+) tokens to ensure that attention page size is >= mam",
            (Figure("state_block", "count"),), since="0.10.0"),
    # Weights.
    LogLine(r"Starting to load model (?P<model>\S+?)\.\.\.|Starting to load model |Loading model from scratch",
            (Figure("model", "text", keep="first"),), "load"),
    LogLine(rf"Loading model weights took {_size('weights')}", _WEIGHTS, "loaded", until="0.7.3"),
    LogLine(rf"Model loading took {_size('weights')}", _WEIGHTS, "loaded", since="0.8.0"),
    # The profile run; a first start compiles in it, a later one finds that in its cache.
    LogLine(r"Compiling a graph for [^\n]{1,80}? takes (?P<compiled>[\d.]+) s",
            (Figure("compiled", "number", "most"),)),
    LogLine(r"Directly load (?:the (?P<cached>compiled) graph|(?P<cached_whole>AOT) compilation)",
            (Figure("cached", "text"), Figure("cached_whole", "text"))),
    LogLine(r"total_gpu_memory \((?P<gpu_total>[\d.]+)GiB\) x gpu_memory_utilization \((?P<budget_share>[\d.]+)\) = "
            r"(?P<budget>[\d.]+)GiB",
            (_TOTAL, Figure("budget_share", "number"), Figure("budget", "GiB", "least")), "profiled", until="0.10.2"),
    LogLine(r"model weights take (?P<weights>[\d.]+)GiB; non_torch_memory takes (?P<runtime>-?[\d.]+)GiB; PyTorch "
            r"activation peak memory takes (?P<activations>[\d.]+)GiB; the rest of the memory reserved for KV Cache is "
            r"(?P<kv_cache>-?[\d.]+)GiB",
            (Figure("weights", "GiB", "most", keep="first"), Figure("runtime", "GiB", "most"),
             Figure("activations", "GiB", "most"), _AVAILABLE), "profiled", until="0.10.2"),
    LogLine(r"torch peak memory increase: (?P<activations>[\d.]+)GiB"
            r"(?:; non-torch forward increase memory: (?P<runtime>-?[\d.]+)GiB)?",
            (Figure("activations", "GiB", "most"), Figure("runtime", "GiB", "most")), since="0.9.1"),
    LogLine(r"requested GPU memory: (?P<budget>[\d.]+) GiB", (Figure("budget", "GiB", "least"),), since="0.9.1"),
    LogLine(r"Requested memory: (?P<budget_share>[\d.]+) \(util\), (?P<budget>[\d.]+) GiB",
            (Figure("budget_share", "number"), Figure("budget", "GiB", "least")), since="0.10.1"),
    LogLine(r"The current --gpu-memory-utilization=(?P<budget_share>[\d.]+) is equivalent",
            (Figure("budget_share", "number"),), since="0.20.0"),
    LogLine(r"Estimated CUDA graph memory: (?P<cuda_graphs_estimated>-?[\d.]+) GiB total",
            (Figure("cuda_graphs_estimated", "GiB", "most"),), since="0.18.0"),
    LogLine(r"Available KV cache memory: (?P<kv_cache>-?[\d.]+) GiB", (_AVAILABLE,), "profiled", since="0.9.1"),
    LogLine(r"reserved (?P<kv_cache>[\d.]+) ?GiB memory for KV Cache as specified by kv_cache_memory_bytes",
            (_AVAILABLE,), "profiled", since="0.10.2"),
    LogLine(r"KV cache memory reduced to (?P<kv_cache>-?[\d.]+) GiB", (_AVAILABLE,), since="0.25.1"),
    LogLine(r"Initial free memory:? (?P<free_at_start>[\d.]+) GiB", (Figure("free_at_start", "GiB", "least"),),
            since="0.9.1"),
    LogLine(r"worker init memory snapshot: .*?free_memory=(?P<free_at_start>[\d.]+)GiB, total_memory=(?P<gpu_total>"
            r"[\d.]+)GiB", (Figure("free_at_start", "GiB", "least"), _TOTAL), since="0.11.1"),
    LogLine(r"worker requested memory: (?P<budget>[\d.]+)GiB", (Figure("budget", "GiB", "least"),), since="0.11.1"),
    # The cache.
    LogLine(r"# (?!CPU)\w+ blocks: (?P<blocks>\d+)", (Figure("blocks", "count", "least"),), "sized", until="0.11.0"),
    LogLine(r"KV cache size: (?P<tokens>[\d,]+) tokens", (_TOKENS,), "sized", since="0.8.0"),
    LogLine(r"Maximum concurrency for (?P<context_length>[\d,]+) tokens per request: (?P<max_concurrency>[\d.]+)x",
            (_LENGTH, _CONCURRENCY), "sized"),
    LogLine(r"Auto-fit max_model_len: reduced from [\d,]+ to (?P<context_length>[\d,]+)", (_LENGTH,), since="0.14.0"),
    # Graphs and the end.
    LogLine(r"Capturing (?:cudagraphs for decoding|CUDA graph)", reached="capture", after="profiled",
            ahead_since="0.29.0"),
    LogLine(r"Graph capturing finished in \d+ secs?, took (?P<cuda_graphs>-?[\d.]+) GiB", _GRAPHS, "captured",
            after="profiled", ahead_since="0.29.0"),
    LogLine(r"Actual usage is (?P<weights_final>[\d.]+) GiB for weight, (?P<activations>[\d.]+) GiB for peak "
            r"activation, (?P<runtime>-?[\d.]+) GiB for non-torch memory",
            (Figure("activations", "GiB", "most"), Figure("runtime", "GiB", "most")), since="0.10.2"),
    LogLine(r"(?P<consumed>[\d.]+) GiB for consumed memory \(weights \+ non-torch\), (?P<activations>[\d.]+) GiB for "
            r"peak activation", (Figure("consumed", "GiB", "most"), Figure("activations", "GiB", "most")),
            since="0.27.1"),
    LogLine(r"Desired GPU memory utilization is \((?P<budget_share>[\d.]+), (?P<budget>[\d.]+) GiB\)",
            (Figure("budget_share", "number"), Figure("budget", "GiB", "least")), since="0.10.2"),
    LogLine(r"init engine \(profile, create kv cache, warmup model\) took|Starting vLLM (?:API )?server|"
            r"Application startup complete", reached="started"),
)  # fmt: skip

FAILURES: Final = (
    LogFailure(r"Free memory on device(?: cuda:\d+)? \((?P<free_at_start>[\d.]+)/(?P<gpu_total>[\d.]+) GiB\) on "
               r"startup is less than desired GPU memory utilization "
               r"\((?P<budget_share>[\d.]+), (?P<budget>[\d.]+) GiB\)",
               "free_memory", "free_memory_check",
               (Figure("free_at_start", "GiB", "least"), _TOTAL, Figure("budget_share", "number"),
                Figure("budget", "GiB", "least"))),
    LogFailure(r"is less than the engine's budget after excluding external process's weights|"
               r"Externally held weights on device", "free_memory", "free_memory_check"),
    LogFailure(r"Failed to load model - not enough GPU memory", "out_of_memory", "weights"),
    LogFailure(r"Error in memory profiling\.", "memory_moved", "profile"),
    LogFailure(r"No available memory for the cache blocks", "no_cache", "kv_cache_sizing"),
    LogFailure(r"Cannot auto-fit max_model_len", "no_cache", "kv_cache_sizing"),
    LogFailure(r"frontend multimodal GPU decoding reserves (?P<reserved>[\d.]+) GiB .*?only (?P<kv_cache>-?[\d.]+) GiB",
               "no_cache", "kv_cache_sizing", (_AVAILABLE,)),
    LogFailure(r"max seq len \((?P<context_length>\d+)\) is larger than the maximum number of tokens that can be "
               r"stored in KV cache \((?P<tokens>\d+)\)", "one_request", "kv_cache_too_small", (_LENGTH, _TOKENS)),
    LogFailure(r"To serve at least one request with the models?'s max seq len \((?P<context_length>\d+)\), "
               rf"\({_size('needed')} KV cache is needed, which is larger than the available KV cache memory "
               rf"\({_size('kv_cache')}\)(?:.*?estimated maximum model length is (?P<suggested_context_length>\d+))?",
               "one_request", "kv_cache_too_small",
               (_LENGTH, Figure("needed", "GiB", "most"), _AVAILABLE,
                Figure("suggested_context_length", "count", "least"))),
    LogFailure(r"max_num_seqs \((?P<sequences>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
               "state_blocks", "kv_cache_too_small",
               (Figure("sequences", "count"), Figure("blocks", "count", "least"))),
    LogFailure(r"CUDA out of memory occurred when warming up (?:sampler|pooler)", "out_of_memory", "graph_capture"),
    *torch_log.FAILURES,
)  # fmt: skip

GRAMMAR: Final = LogGrammar(
    engine="vllm",
    title="vLLM",
    marks=("vLLM", "vllm", "VllmWorker", "EngineCore", "APIServer", "Available KV cache memory", "Model loading took",
           "Loading model weights took", "GPU KV cache size", "Graph capturing finished", "gpu_worker.py",
           "model_runner.py", "# GPU blocks", "gpu_memory_utilization"),
    anchors=(
        "iB", " GB", " version ", "non-default args", "args: Namespace", "model   ", "LLM engine", "Resolved arch",
        "max model len", "Model Runner", "attention backend", "to load model", "from scratch", " blocks: ",
        "KV cache size", "Maximum concurrency", "max_model_len", "Capturing", "init engine", "Starting vLLM",
        "startup complete", *torch_log.ANCHORS, "max seq len", "cache blocks", "Mamba cache", "profiling.",
        "Traceback", ", in ", "Externally", "engine's budget", "Compiling a graph", "compiled graph", "AOT compilation",
        "mamba page size",
    ),
    late_anchors=(
        "server version", " version ", "LLM engine", "args: ", *torch_log.ANCHORS, "Traceback", ", in ",
    ),
    lines=LINES,
    failures=FAILURES,
    steps=(
        ("", "free_memory_check"), ("load", "weights"), ("loaded", "profile"), ("profiled", "kv_cache_allocation"),
        ("sized", "kv_cache_allocation"), ("capture", "graph_capture"), ("captured", "graph_capture"),
        ("started", "runtime"),
    ),
    frames=(
        ("load_model", "weights"), ("profile_run", "profile"), ("determine_available_memory", "profile"),
        ("determine_num_available_blocks", "profile"), ("initialize_kv_cache", "kv_cache_allocation"),
        ("initialize_kv_cache_tensors", "kv_cache_allocation"), ("_allocate_kv_cache_tensors", "kv_cache_allocation"),
        ("capture_model", "graph_capture"), ("compile_or_warm_up_model", "graph_capture"),
        ("_dummy_sampler_run", "graph_capture"),
    ),
    wrappers=(
        "WorkerProc failed to start", "WorkerProc hit an exception", "WorkerProc initialization failed",
        "Worker failed with error", "EngineCore failed to start", "EngineCore hit an exception",
        "Engine core initialization failed", "initialization failed. See root cause", "Engine process failed to start",
        "died unexpectedly",
    ),
    # Of a process that its tag names alone, the tag; else with its number: ranks of V0 and Ray's are all called alike.
    tags=r"(?:\(|^)(?P<tag>(?:APIServer|ApiServer_\d+|EngineCore(?:_\w{1,20})?|Worker_\w{1,60}|VllmWorker [^)]{1,40}?|"
         r"MainProcess|DP\w{1,20})(?= pid=\d+\))|[A-Za-z]\w{0,60}(?: [A-Z]\w{0,60}){0,4} pid=\d+(?:, ip=[^)]{0,80})?)"
         r"(?: pid=\d+)?\)",
    arguments=r"(?:non-default args: |args: )(?P<args>\{.*|Namespace\(.*)",
    config=r"LLM engine (?:\(v[^)]*\) )?with config: (?P<config>.*)",
    config_options=(
        ("max_seq_len", "max_model_len"), ("tensor_parallel_size", "tensor_parallel_size"),
        ("pipeline_parallel_size", "pipeline_parallel_size"), ("data_parallel_size", "data_parallel_size"),
        ("enforce_eager", "enforce_eager"), ("quantization", "quantization"), ("kv_cache_dtype", "kv_cache_dtype"),
    ),
    figure_options=(("context_length", "max_model_len"), ("budget_share", "gpu_memory_utilization")),
    block_tokens=16,
    block_option="block_size",
    argument_defaults=(
        ("tensor_parallel_size", 1), ("pipeline_parallel_size", 1), ("data_parallel_size", 1), ("block_size", 16),
        ("max_num_seqs", 256),
        ("gpu_memory_utilization", 0.9), ("max_loras", 1), ("max_lora_rank", 16), ("swap_space", 4),
        ("swap_space", 4.0), ("cpu_offload_gb", 0), ("max_seq_len_to_capture", 8192), ("seed", 0),
        ("scheduler_delay_factor", 0.0), ("task", "auto"), ("load_format", "auto"),
    ),
    not_options=("model", "model_tag", "subparser", "config", "served_model_name", "host", "port", "uvicorn_log_level",
                 "dispatch_function"),
    restarts=("server version", "█  version "),
    first_start=("compile_cache", "cold", "warm"),
    whole_prompts=WholePrompts("0.8", "enable_chunked_prefill", 32_768),  # V0
)  # fmt: skip
