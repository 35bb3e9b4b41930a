"""Options of serving: the budget, parallelism, context and load, pools (arg_groups/fields, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import Option
from kvplanner.engine.sglang.options.builder import CACHE, CONTEXT, GRAPHS, MEMORY, PARALLEL, STATE, option

KV_DTYPES: Final = ("auto", "bfloat16", "bf16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "fp4_mx_block16")
_POOLS: Final = ("kv_cache", "headroom")
_A2A: Final = ("none", "deepep", "deepep_v2", "megamoe", "flashinfer", "flashinfer_megamoe", "mooncake", "mori", "nixl",
               "pplx", "ascend_fuseep")  # fmt: skip


def everyday() -> tuple[Option, ...]:
    """The options that most plans touch."""
    return (
        option("tp_size", "int", PARALLEL, "Tensor parallel", "GPUs that split each layer", "1",
               aliases=("--tensor-parallel-size", "--tp"), moves=("weights", *_POOLS), everyday=True, low=1, high=64),
        option("context_length", "tokens", CONTEXT, "Context length",
               "Longest request: makes the request table wider, and refuses what is longer", "the model's own limit",
               moves=("workspace",), everyday=True, low=1),
        option("max_running_requests", "int", CONTEXT, "Max running requests",
               "Most requests at once: rows of the request table, states, graphs", "from the tokens: 2,048 to 4,096",
               moves=("workspace", "kv_cache", "cuda_graphs"), everyday=True, low=1),
        option("chunked_prefill_size", "int", CONTEXT, "Chunked prefill size",
               "Tokens of one prefill step; -1: whole prompts. Sizes activations and prefill graphs",
               "from the GPU: 2,048 to 16,384", moves=("activations", "cuda_graphs", *_POOLS), everyday=True, low=-1,
               high=1 << 24),
        option("kv_cache_dtype", "choice", CACHE, "KV cache type", "How keys and values are stored", "auto",
               choices=KV_DTYPES, moves=("kv_cache",), everyday=True),
        option("mem_fraction_static", "float", MEMORY, "Static fraction",
               "Share of the memory free before loading that weights and pools may take; the rest is slack for "
               "graphs, activations and the request table", "from GPU, chunk and graphs", moves=_POOLS, everyday=True,
               low=0.0, high=1.0, above_low=True),
        option("disable_cuda_graph", "bool", GRAPHS, "Eager (no graphs)", "No CUDA graphs: slower, less memory", "off",
               moves=("cuda_graphs", *_POOLS), everyday=True),
    )  # fmt: skip


def parallel() -> tuple[Option, ...]:
    """How the model is spread over GPUs."""
    return (
        option("pp_size", "int", PARALLEL, "Pipeline parallel", "Stages of layers, each on GPUs of its own", "1",
               aliases=("--pipeline-parallel-size", "--pp"), moves=("weights", *_POOLS), low=1, high=64),
        option("dp_size", "int", PARALLEL, "Data parallel",
               "Copies of the server; with --enable-dp-attention groups that share experts", "1",
               aliases=("--data-parallel-size", "--dp"), moves=("weights", *_POOLS), low=1, high=64),
        option("enable_dp_attention", "bool", PARALLEL, "Attention data parallel",
               "Attention of each group on requests of its own, experts over all ranks", "off",
               moves=("weights", "kv_cache", "cuda_graphs")),
        option("attn_dp_size", "int", PARALLEL, "Attention groups", "The same, by number (0.5.23)", "1",
               aliases=("--attention-data-parallel-size",), since="0.5.22", moves=("weights", "kv_cache"), low=1),
        option("ep_size", "int", PARALLEL, "Expert parallel", "Ranks that hold whole experts", "1",
               aliases=("--expert-parallel-size", "--ep"), moves=("weights",), low=1, high=64),
        option("moe_a2a_backend", "choice", PARALLEL, "All-to-all back end", "How tokens reach their experts", "none",
               choices=_A2A, moves=("runtime", *_POOLS)),
        option("enable_two_batch_overlap", "bool", PARALLEL, "Two-batch overlap",
               "Two half batches at once; leaves out prefill graphs", "off", moves=("cuda_graphs",)),
    )  # fmt: skip


def pools() -> tuple[Option, ...]:
    """The KV cache and the states."""
    return (
        option("max_total_tokens", "tokens", CACHE, "Max total tokens", "A limit on the pool's tokens: lowers only",
               "what the budget holds", moves=("kv_cache",), low=1),
        option("page_size", "int", CACHE, "Page size", "Tokens of one page", "1, or what the back end takes",
               moves=("kv_cache",), low=1),
        option("max_prefill_tokens", "tokens", CONTEXT, "Max prefill tokens", "Tokens of all prompts of one step",
               "16,384", moves=("activations",), low=1),
        option("disable_radix_cache", "bool", CACHE, "No prefix cache",
               "Frees nothing for plain attention; states and windows are then sized from requests", "off",
               moves=("kv_cache",)),
        option("swa_full_tokens_ratio", "float", CACHE, "Window tokens ratio",
               "Tokens of the sliding-window pool for each token of the full one", "0.8", moves=("kv_cache",), low=0.0,
               high=1.0, above_low=True),
        option("swa_prefix_tails", "int", CACHE, "Window prefix tails", "Cached prefixes whose window is kept", "",
               moves=(), low=0, modelled=False),
        option("disable_hybrid_swa_memory", "bool", CACHE, "No window pool", "Every layer at full length", "off",
               moves=("kv_cache",)),
        option("mamba_full_memory_ratio", "float", STATE, "States to KV ratio",
               "Memory of recurrent states for each byte of KV", "0.9", moves=("kv_cache",), low=0.0, above_low=True),
        option("max_mamba_cache_size", "int", STATE, "State slots", "Slots of recurrent states", "from the ratio",
               moves=("kv_cache",), low=1),
        option("mamba_ssm_dtype", "choice", STATE, "State type", "How recurrent states are stored",
               "float32, or the model's", choices=("float32", "bfloat16", "float16"), moves=("kv_cache",)),
        option("mamba_radix_cache_strategy", "choice", STATE, "State tracking",
               "How the prefix cache keeps states", "auto",
               choices=("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"), moves=("kv_cache",)),
        option("disable_overlap_schedule", "bool", CONTEXT, "No overlap schedule",
               "The scheduler waits for each batch", "off", moves=("kv_cache",)),
        option("enable_hierarchical_cache", "bool", CACHE, "Hierarchical cache", "A second cache in host memory", "off",
               aliases=("--enable-hicache",), moves=()),
        option("hicache_ratio", "float", CACHE, "Host cache ratio", "Host pool for each byte of the device pool", "2.0",
               moves=(), low=0.0),
        option("hicache_size", "int", CACHE, "Host cache (GB)", "Host pool of each rank", "by the ratio", moves=(),
               low=0, high=1 << 20),
    )  # fmt: skip
