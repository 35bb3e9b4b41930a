"""Options of serving: parallelism, context and load, the KV cache.

Names, flags and defaults: engine/arg_utils.py and config/*.py of vLLM 0.33.
"""

from __future__ import annotations

from kvplanner.engine.option import Option
from kvplanner.engine.vllm.dtypes import OFFERED
from kvplanner.engine.vllm.options.builder import CACHE, CONTEXT, GRAPHS, LARGEST_GIB, MEMORY, PARALLEL, option

# Of all releases from 0.11 on (config/parallel.py): when each came or went is not known for all of them.
ALL2ALL_BACKENDS = (
    "allgather_reducescatter", "naive", "pplx", "deepep_high_throughput", "deepep_low_latency", "deepep_v2", "mori",
    "mori_high_throughput", "mori_low_latency", "nixl_ep", "flashinfer_all2allv", "flashinfer_nvlink_two_sided",
    "flashinfer_nvlink_one_sided",
)  # fmt: skip


def everyday() -> tuple[Option, ...]:
    """The options that most plans touch."""
    return (
        option(
            "tensor_parallel_size",
            "int",
            PARALLEL,
            "GPUs that split each layer",
            "1",
            aliases=("-tp",),
            moves=("weights", "kv_cache", "runtime_outside", "activations"),
            everyday=True,
            low=1,
            high=64,
        ),
        option(
            "max_model_len",
            "tokens",
            CONTEXT,
            "Longest prompt plus answer of a request; -1: the largest that fits",
            "the model's own limit",
            moves=("kv_cache",),
            everyday=True,
            low=-1,
        ),
        option(
            "max_num_seqs",
            "int",
            CONTEXT,
            "Most requests in one step: sizes sampler buffers and graphs",
            "from the GPU: 1,024 or 256",
            moves=("workspace", "activations", "cuda_graphs"),
            everyday=True,
            low=1,
        ),
        option(
            "max_num_batched_tokens",
            "tokens",
            CONTEXT,
            "Most tokens in one step: sizes activations",
            "from the GPU: 16,384, 8,192 or 2,048",
            moves=("activations", "workspace"),
            everyday=True,
            low=1,
        ),
        option(
            "kv_cache_dtype",
            "choice",
            CACHE,
            "How keys and values are stored",
            "auto",
            choices=OFFERED,
            moves=("kv_cache",),
            everyday=True,
        ),
        option(
            "gpu_memory_utilization",
            "float",
            MEMORY,
            "Share of the GPU's CUDA total that vLLM allows itself",
            "0.92",
            aliases=("--device-memory-utilization",),
            moves=("kv_cache",),
            everyday=True,
            low=0.0,
            high=1.0,
            above_low=True,
        ),
        option(
            "enforce_eager",
            "bool",
            GRAPHS,
            "No CUDA graphs and no compilation: slower, less memory",
            "off",
            moves=("cuda_graphs",),
            everyday=True,
        ),
    )


def parallel() -> tuple[Option, ...]:
    """How the model is spread over GPUs."""
    return (
        option(
            "pipeline_parallel_size",
            "int",
            PARALLEL,
            "Groups of GPUs that hold successive layers",
            "1",
            aliases=("-pp",),
            moves=("weights", "kv_cache"),
            everyday=True,
            low=1,
            high=64,
        ),
        option(
            "data_parallel_size",
            "int",
            PARALLEL,
            "Whole replicas, each with its own KV cache",
            "1",
            aliases=("-dp",),
            moves=("weights",),
            everyday=True,
            low=1,
            high=64,
        ),
        option(
            "enable_expert_parallel",
            "bool",
            PARALLEL,
            "Spread whole experts over GPUs, not slices of each",
            "off",
            aliases=("-ep",),
            moves=("weights",),
            everyday=True,
        ),
        option(
            "decode_context_parallel_size",
            "int",
            PARALLEL,
            "GPUs that split a request's cache by tokens",
            "1",
            aliases=("-dcp",),
            moves=("kv_cache",),
            low=1,
            high=64,
        ),
        option(
            "prefill_context_parallel_size",
            "int",
            PARALLEL,
            "GPUs that split a prompt",
            "1",
            aliases=("-pcp",),
            moves=("weights", "kv_cache"),
            low=1,
            high=64,
        ),
        option("enable_eplb", "bool", PARALLEL, "Balance experts with redundant copies", "off", moves=("weights",)),
        option(
            "num_redundant_experts",
            "int",
            PARALLEL,
            "Extra expert copies under load balancing",
            "0",
            json="eplb_config.num_redundant_experts",
            moves=("weights",),
            low=0,
        ),
        option(
            "all2all_backend",
            "choice",
            PARALLEL,
            "How tokens reach their experts",
            "allgather_reducescatter",
            choices=ALL2ALL_BACKENDS,
            moves=("runtime", "workspace"),
        ),
        option(
            "disable_custom_all_reduce",
            "bool",
            PARALLEL,
            "NCCL for every all-reduce",
            "off",
            moves=("runtime_outside",),
        ),
        option(
            "enable_dbo",
            "bool",
            PARALLEL,
            "Overlap two half batches: doubles the expert workspace",
            "off",
            moves=("workspace",),
        ),
    )


def cache_options() -> tuple[Option, ...]:
    """The KV cache and the scheduler."""
    return (
        option(
            "kv_cache_memory_bytes",
            "bytes",
            CACHE,
            "Exactly this much KV cache per GPU; utilisation only guards the start",
            "none",
            aliases=("--kv-cache-memory",),
            moves=("kv_cache",),
            low=0,
            since="0.10.2",
        ),
        option(
            "num_gpu_blocks_override", "int", CACHE, "Exactly this many KV blocks", "none", moves=("kv_cache",), low=1
        ),
        option(
            "block_size",
            "int",
            CACHE,
            "Tokens in one KV block",
            "from the attention back end, usually 16",
            moves=("kv_cache",),
            low=1,
        ),
        option(
            "enable_prefix_caching",
            "bool",
            CACHE,
            "Keep finished prompts' blocks for reuse",
            "on for generation",
            moves=("kv_cache",),
        ),
        option(
            "kv_cache_dtype_skip_layers",
            "text",
            CACHE,
            "Layers that keep the model's dtype in a quantised cache",
            "none",
            moves=("kv_cache",),
            many=True,
        ),
        option(
            "disable_hybrid_kv_cache_manager",
            "bool",
            CACHE,
            "Treat window layers as full attention",
            "off; before 0.13 on for chunked attention",
            moves=("kv_cache",),
        ),
        option(
            "chunked_attention_in_hybrid_cache",
            "bool",
            CACHE,
            "Chunked layers keep their chunk only (VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE)",
            "on from 0.13",
            env="VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
            moves=("kv_cache",),
            since="0.10.1",
        ),
        option(
            "kv_offloading_size",
            "float",
            CACHE,
            "KV cache in host memory, GiB over all ranks",
            "none",
            low=0,
            high=LARGEST_GIB,
            moves=("kv_cache",),
        ),
        option(
            "enable_chunked_prefill",
            "bool",
            CONTEXT,
            "Split long prompts over steps",
            "on for generation",
            moves=("activations",),
        ),
        option(
            "async_scheduling",
            "bool",
            CONTEXT,
            "Schedule a step ahead: window layers keep one more step",
            "on",
            moves=("kv_cache",),
            since="0.10",
        ),
        option("max_num_active_seqs", "int", CONTEXT, "Admission limit at run time", "none", low=1, modelled=False),
        option(
            "performance_mode",
            "choice",
            CONTEXT,
            "throughput doubles tokens and sequences of a step",
            "balanced",
            choices=("balanced", "throughput", "interactivity"),
            moves=("activations", "workspace"),
        ),
        option(
            "attention_backend",
            "text",
            CACHE,
            "Attention kernels",
            "from the GPU and the model",
            moves=("kv_cache",),
            env_also="VLLM_ATTENTION_BACKEND",
            json_also=("attention_config.backend",),
        ),
    )
