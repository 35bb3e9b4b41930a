"""Options of the model: graphs, states, weights, multimodal, drafts, LoRA.

Names, flags and defaults: engine/arg_utils.py and config/*.py of vLLM 0.33.
"""

from __future__ import annotations

from kvplanner.engine.option import Option
from kvplanner.engine.vllm.options.builder import (
    CACHE,
    GRAPHS,
    LARGEST_GIB,
    LORA,
    MEMORY,
    MULTIMODAL,
    PARALLEL,
    SPECULATIVE,
    STATE,
    WEIGHTS,
    option,
)

GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# "deepseek_mtp" and the like: what "mtp" was called before it was one method.
MTP_FAMILIES = (
    "deepseek", "mimo", "mimo_v2", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5", "ernie", "longcat_flash",
    "exaone_moe", "nemotron_h", "pangu_ultra_moe", "step3p5",
)  # fmt: skip
ONLINE_QUANTIZATION = (
    "fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "int8_per_channel_weight_only",
)  # fmt: skip


def graph_options() -> tuple[Option, ...]:
    """CUDA graphs and compilation."""
    return (
        option(
            "cudagraph_mode",
            "choice",
            GRAPHS,
            "Which steps are captured",
            "FULL_AND_PIECEWISE",
            choices=GRAPH_MODES,
            moves=("cuda_graphs",),
            json="compilation_config.cudagraph_mode",
        ),
        option(
            "compilation_mode",
            "choice",
            GRAPHS,
            "How steps are compiled: 0 none, 3 in pieces; graphs of pieces need 3",
            "3",
            choices=("0", "1", "2", "3"),
            moves=("cuda_graphs",),
            json="compilation_config.mode",
            synonyms=(("none", "0"), ("stock_torch_compile", "1"), ("dynamo_trace_once", "2"), ("vllm_compile", "3")),
            json_also=("compilation_config.level",),
        ),
        option(
            "max_cudagraph_capture_size",
            "int",
            GRAPHS,
            "Largest batch that is captured",
            "from max sequences, at most 512",
            moves=("cuda_graphs",),
            json_also=("compilation_config.max_cudagraph_capture_size", "compilation_config.max_capture_size"),
            low=0,
            high=65536,
        ),
        option(
            "cudagraph_capture_sizes",
            "text",
            GRAPHS,
            "Batch sizes that are captured, comma-separated",
            "1, 2, 4, 8 … up to the largest",
            moves=("cuda_graphs",),
            json_also=("compilation_config.cudagraph_capture_sizes",),
            many=True,
        ),
        option(
            "optimization_level",
            "choice",
            GRAPHS,
            "-O: 0 none, 1 piecewise graphs, 2 and 3 all",
            "2",
            choices=("0", "1", "2", "3"),
            aliases=("-O",),
            moves=("cuda_graphs",),
        ),
    )


def state_options() -> tuple[Option, ...]:
    """Recurrent and convolution states."""
    return (
        option(
            "mamba_cache_dtype",
            "choice",
            STATE,
            "Dtype of convolution states",
            "auto: the model's",
            choices=("auto", "float32", "float16", "bfloat16"),
            moves=("kv_cache",),
        ),
        option(
            "mamba_ssm_cache_dtype",
            "choice",
            STATE,
            "Dtype of recurrent states",
            "auto: the model's wish",
            choices=("auto", "float32", "float16", "bfloat16"),
            moves=("kv_cache",),
        ),
        option(
            "mamba_block_size",
            "int",
            STATE,
            "Tokens between kept states",
            "the attention block",
            moves=("kv_cache",),
            low=1,
        ),
        option(
            "mamba_cache_mode",
            "choice",
            STATE,
            "Whether states are kept for prefix caching",
            "align with prefix caching",
            choices=("none", "align"),
            moves=("kv_cache",),
        ),
    )


def weight_options() -> tuple[Option, ...]:
    """How weights are loaded."""
    return (
        option(
            "dtype",
            "choice",
            WEIGHTS,
            "Dtype that unquantised weights are loaded in",
            "auto: the config's",
            choices=("auto", "bfloat16", "float16", "float32", "half", "float"),
            moves=("weights", "kv_cache", "activations"),
        ),
        option(
            "quantization",
            "text",
            WEIGHTS,
            "Quantise while loading, or name the checkpoint's method",
            "from the config",
            aliases=("-q",),
            moves=("weights",),
        ),
        option(
            "hf_overrides",
            "text",
            WEIGHTS,
            "Changes of the model's config as JSON; planned where they change its length alone",
            "none",
            moves=("kv_cache",),
        ),
        option(
            "rope_scaling",
            "text",
            WEIGHTS,
            'Rope settings as JSON: {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}',
            "none",
            moves=("kv_cache",),
        ),
        option(
            "cpu_offload_gb",
            "float",
            WEIGHTS,
            "GiB of weights kept in host memory per GPU",
            "0",
            moves=("weights",),
            low=0,
            high=LARGEST_GIB,
        ),
        option("load_format", "text", WEIGHTS, "How weights are read", "auto", modelled=False),
        option("moe_backend", "text", WEIGHTS, "Expert kernels", "auto", modelled=False),
    )


def feature_options() -> tuple[Option, ...]:
    """Multimodal, speculative decoding, LoRA and the rest."""
    return (
        option(
            "language_model_only",
            "bool",
            MULTIMODAL,
            "Leave the vision and audio towers out",
            "off",
            moves=("weights", "activations"),
        ),
        option(
            "limit_mm_per_prompt",
            "text",
            MULTIMODAL,
            "Most items per prompt, as JSON",
            "the model's",
            moves=("activations",),
        ),
        option("mm_processor_kwargs", "text", MULTIMODAL, "Settings of the processor, as JSON", "none", modelled=False),
        option("skip_mm_profiling", "bool", MULTIMODAL, "Do not profile the encoder", "off", moves=("activations",)),
        option(
            "mm_encoder_tp_mode",
            "choice",
            MULTIMODAL,
            "Split the tower (weights) or copy it to each GPU (data)",
            "weights",
            choices=("weights", "data"),
            moves=("weights",),
        ),
        option(
            "mm_ipc_gpu_memory_gb",
            "float",
            MULTIMODAL,
            "GiB kept for decoding media on the GPU",
            "0",
            moves=("kv_cache",),
            low=0,
            high=LARGEST_GIB,
        ),
        option(
            "speculative_method",
            "choice",
            SPECULATIVE,
            "What drafts tokens: the model's own layers (mtp), a head (eagle), a smaller model, or the prompt (ngram)",
            "none",
            aliases=("--spec-method",),
            json="speculative_config.method",
            synonyms=tuple((f"{family}_mtp", "mtp") for family in MTP_FAMILIES),
            choices=("mtp", "eagle", "eagle3", "draft_model", "ngram"),
            moves=("weights", "kv_cache", "cuda_graphs"),
        ),
        option(
            "speculative_model",
            "text",
            SPECULATIVE,
            "The smaller model or head that drafts tokens: its name, folder or file, or hub:org/name",
            "none",
            aliases=("--spec-model",),
            json="speculative_config.model",
            moves=("weights", "kv_cache"),
        ),
        option(
            "num_speculative_tokens",
            "int",
            SPECULATIVE,
            "Tokens drafted per step",
            "0",
            aliases=("--spec-tokens",),
            json="speculative_config.num_speculative_tokens",
            moves=("kv_cache", "cuda_graphs"),
            low=0,
        ),
        option(
            "draft_tensor_parallel_size",
            "int",
            SPECULATIVE,
            "GPUs that the draft model is split over: as many as the model",
            "as the model",
            json="speculative_config.draft_tensor_parallel_size",
            aliases=("--speculative-draft-tensor-parallel-size",),
            low=1,
            high=1024,
        ),
        option(
            "use_heterogeneous_vocab",
            "bool",
            SPECULATIVE,
            "The draft model may have another vocabulary than the model",
            "off",
            json="speculative_config.use_heterogeneous_vocab",
        ),
        option("enable_lora", "bool", LORA, "Reserve slots for adapters", "off", moves=("weights",)),
        option("max_loras", "int", LORA, "Adapters in one batch", "1", moves=("weights",), low=1, high=100_000),
        option("max_lora_rank", "int", LORA, "Largest adapter rank", "16", moves=("weights",), low=1, high=100_000),
        option(
            "enable_sleep_mode",
            "bool",
            MEMORY,
            "Allow the engine to give memory back while idle",
            "off",
        ),
        option(
            "host_memory",
            "bytes",
            MEMORY,
            "RAM of the machine: what is kept on the host is held against it",
            "not known",
            moves=("weights", "kv_cache"),
        ),
        option(
            "usage",
            "choice",
            MEMORY,
            "API server or offline LLM class: other batch defaults",
            "server",
            choices=("server", "llm"),
            moves=("activations",),
        ),
        option(
            "v2_model_runner",
            "bool",
            MEMORY,
            "The newer model runner (VLLM_USE_V2_MODEL_RUNNER)",
            "by model and version",
            env="VLLM_USE_V2_MODEL_RUNNER",
            moves=("workspace", "cuda_graphs"),
            since="0.22",
        ),
        option(
            "estimate_cuda_graphs",
            "bool",
            MEMORY,
            "Take the graph estimate off the budget",
            "on from 0.20",
            env="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
            moves=("kv_cache",),
            since="0.18",
        ),
        option(
            "pytorch_alloc_conf",
            "text",
            MEMORY,
            "PyTorch's allocator: expandable_segments:True leaves no gaps (PYTORCH_CUDA_ALLOC_CONF)",
            "PyTorch's own rules",
            env="PYTORCH_CUDA_ALLOC_CONF",
            env_also="PYTORCH_ALLOC_CONF",
            moves=("fragmentation",),
        ),
        option(
            "compile_cache",
            "choice",
            GRAPHS,
            "Whether kernels were compiled by an earlier start; a first start has less KV cache (no flag of vLLM's)",
            "cold",
            choices=("cold", "warm"),
            moves=("activations",),
            since="0.8",
        ),
        option(
            "pp_layer_partition",
            "text",
            PARALLEL,
            "Layers of each pipeline stage, comma-separated",
            "even",
            env="VLLM_PP_LAYER_PARTITION",
            moves=("weights", "kv_cache"),
        ),
        option(
            "swap_space",
            "float",
            CACHE,
            "GiB of host memory for swapped blocks, of each rank; V1 uses none",
            "4",
            low=0,
            high=LARGEST_GIB,
            until="0.10.2",
            moves=("kv_cache",),
        ),
    )
