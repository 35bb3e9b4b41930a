"""Options of the model: weights, graphs, back ends, drafts, media, adapters (arg_groups/fields, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import Option
from kvplanner.engine.sglang.options.builder import (
    ATTENTION,
    GRAPHS,
    LORA,
    MULTIMODAL,
    SPECULATIVE,
    WEIGHTS,
    option,
)

BACKENDS: Final = (
    "flashinfer", "fa3", "fa4", "triton", "trtllm_mha", "trtllm_mla", "flashmla", "cutedsl_mla", "cutlass_mla", "dsa",
    "dsv4", "torch_native", "flex_attention",
)  # fmt: skip
_DSA: Final = ("flashmla_sparse", "flashmla_kv", "flashmla_auto", "fa3", "tilelang", "trtllm", "flashinfer_sparse_mla")
_GRAPH: Final = ("full", "breakable", "tc_piecewise", "disabled")
ALGORITHMS: Final = ("EAGLE", "EAGLE3", "NEXTN", "MTP", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "LOOKAHEAD")
# The engine lists every size up to these: far more than any GPU captures.
_MOST_CAPTURED: Final = 1 << 20
_POOLS: Final = ("kv_cache", "headroom")


def graphs() -> tuple[Option, ...]:
    """CUDA graphs: the names of 0.5.15 and later, with the older ones."""
    return (
        option("cuda_graph_max_bs_decode", "int", GRAPHS, "Largest decode graph", "Largest captured batch",
               "from the GPU: 8 to 512", aliases=("--cuda-graph-max-bs",), moves=("cuda_graphs", *_POOLS), low=1,
               high=_MOST_CAPTURED),
        option("cuda_graph_bs_decode", "text", GRAPHS, "Captured batches", "Batch sizes that are captured",
               "by a fixed series", aliases=("--cuda-graph-bs",), many=True, moves=("cuda_graphs",)),
        option("cuda_graph_max_bs_prefill", "int", GRAPHS, "Largest prefill graph", "Largest captured chunk, in tokens",
               "a chunk", aliases=("--piecewise-cuda-graph-max-tokens",), moves=("cuda_graphs", *_POOLS), low=1,
               high=_MOST_CAPTURED),
        option("cuda_graph_bs_prefill", "text", GRAPHS, "Captured chunks", "Chunk sizes that are captured",
               "by a fixed series", aliases=("--piecewise-cuda-graph-tokens",), many=True, moves=("cuda_graphs",)),
        option("cuda_graph_backend_decode", "choice", GRAPHS, "Decode graphs", "How decode graphs are captured", "full",
               choices=_GRAPH, moves=("cuda_graphs", *_POOLS)),
        option("cuda_graph_backend_prefill", "choice", GRAPHS, "Prefill graphs", "How prefill graphs are captured",
               "breakable, or off", choices=_GRAPH, moves=("cuda_graphs", *_POOLS)),
        option("disable_decode_cuda_graph", "bool", GRAPHS, "No decode graphs", "Leave decode graphs out", "off",
               moves=("cuda_graphs", *_POOLS)),
        option("disable_prefill_cuda_graph", "bool", GRAPHS, "No prefill graphs", "Leave prefill graphs out", "off",
               aliases=("--disable-piecewise-cuda-graph",), moves=("cuda_graphs", *_POOLS)),
    )  # fmt: skip


def weights() -> tuple[Option, ...]:
    """What is loaded, and how it is stored."""
    return (
        option("dtype", "choice", WEIGHTS, "Compute type", "Type of unquantised weights", "from the config",
               choices=("auto", "half", "float16", "bfloat16", "float", "float32"), moves=("weights", "kv_cache")),
        option("quantization", "text", WEIGHTS, "Quantisation", "The checkpoint's method", "from the config",
               moves=("weights",)),
        option("moe_runner_backend", "text", WEIGHTS, "MoE kernels", "Kernels of the experts: some pad their width",
               "from model and GPU", moves=("weights",)),
        option("disable_shared_experts_fusion", "bool", WEIGHTS, "Separate shared experts",
               "Shared experts beside the routed ones", "off", moves=("weights",), modelled=False),
        option("cpu_offload_gb", "int", WEIGHTS, "Weights on the host (GiB)", "Weights kept in host memory", "0",
               moves=("weights",), low=0, high=1 << 20),
    )  # fmt: skip


def attention() -> tuple[Option, ...]:
    """Attention back ends, which force page sizes and need workspaces."""
    moves = ("kv_cache", "workspace")
    text = "by model and compute capability"
    return (
        option("attention_backend", "choice", ATTENTION, "Attention back end", "Kernels of attention", text,
               choices=BACKENDS, moves=moves),
        option("prefill_attention_backend", "choice", ATTENTION, "Prefill back end", "Kernels of prefill", text,
               choices=BACKENDS, moves=moves),
        option("decode_attention_backend", "choice", ATTENTION, "Decode back end", "Kernels of decoding", text,
               choices=BACKENDS, moves=moves),
        option("dsa_prefill_backend", "choice", ATTENTION, "Sparse prefill back end", "Kernels of sparse attention",
               text, aliases=("--nsa-prefill-backend",), choices=_DSA, moves=moves),
        option("dsa_decode_backend", "choice", ATTENTION, "Sparse decode back end", "Kernels of sparse attention",
               text, aliases=("--nsa-decode-backend",), choices=_DSA, moves=moves),
    )  # fmt: skip


def features() -> tuple[Option, ...]:
    """Drafts, media, adapters."""
    return (
        option("speculative_algorithm", "choice", SPECULATIVE, "Algorithm", "How tokens are drafted", "none",
               aliases=("--speculative-algo",), choices=ALGORITHMS, moves=("weights", "kv_cache", "cuda_graphs")),
        option("speculative_draft_model_path", "text", SPECULATIVE, "Draft model", "The model that drafts",
               "the checkpoint's own blocks", aliases=("--speculative-draft-model",), moves=("weights", "kv_cache")),
        option("speculative_num_steps", "int", SPECULATIVE, "Draft steps", "Steps of the draft", "3 or 5",
               moves=("workspace", "kv_cache"), low=1, high=64),
        option("speculative_eagle_topk", "int", SPECULATIVE, "Candidates", "Candidates at each step", "1 or 4",
               moves=("workspace", "kv_cache"), low=1, high=64),
        option("speculative_num_draft_tokens", "int", SPECULATIVE, "Draft tokens", "Tokens that are verified at once",
               "4 or 8", moves=("workspace", "kv_cache"), low=1, high=1024),
        option("enable_multimodal", "bool", MULTIMODAL, "Media", "Take images, audio and video where it is optional",
               "by model", moves=("weights", *_POOLS)),
        option("language_model_only", "bool", MULTIMODAL, "Text only", "Leave media out", "off", moves=_POOLS),
        option("mm_feature_transport", "choice", MULTIMODAL, "Media transport", "How image features reach the server",
               "by model and GPU", choices=("cpu", "cuda_ipc", "cuda_vmm"), moves=_POOLS),
        option("enable_lora", "bool", LORA, "LoRA", "Serve adapters", "off", moves=("weights",)),
        option("max_loras_per_batch", "int", LORA, "Adapters at once", "Adapter slots", "8", moves=("weights",), low=1,
               high=1024),
        option("max_lora_rank", "int", LORA, "Adapter rank", "Largest rank", "of the adapters given",
               moves=("weights",), low=1, high=4096),
    )  # fmt: skip
