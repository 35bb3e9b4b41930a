"""Names of options for people. An option without an entry is called by its flag's words."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_NAMES: Final = {
    "max_model_len": "Context length",
    "ctx_size": "Context length",
    "max_num_seqs": "Max sequences",
    "max_num_batched_tokens": "Tokens per step",
    "kv_cache_dtype": "KV cache type",
    "gpu_memory_utilization": "Utilisation",
    "enforce_eager": "Eager (no graphs)",
    "tensor_parallel_size": "Tensor parallel",
    "pipeline_parallel_size": "Pipeline parallel",
    "data_parallel_size": "Data parallel",
    "enable_expert_parallel": "Expert parallel",
    "decode_context_parallel_size": "Decode context parallel",
    "prefill_context_parallel_size": "Prefill context parallel",
    "enable_eplb": "Expert load balancing",
    "num_redundant_experts": "Redundant experts",
    "all2all_backend": "All-to-all back end",
    "disable_custom_all_reduce": "No custom all-reduce",
    "enable_dbo": "Dual batch overlap",
    "kv_cache_memory_bytes": "KV cache size",
    "num_gpu_blocks_override": "Blocks instead of measured",
    "kv_cache_dtype_skip_layers": "Layers with unquantised KV",
    "disable_hybrid_kv_cache_manager": "No hybrid KV manager",
    "chunked_attention_in_hybrid_cache": "Hybrid KV for chunks",
    "kv_offloading_size": "KV offloaded to host (GiB)",
    "max_num_active_seqs": "Max active sequences",
    "attention_backend": "Attention back end",
    "max_cudagraph_capture_size": "Largest captured batch",
    "cudagraph_capture_sizes": "Captured batches",
    "mamba_ssm_cache_dtype": "Mamba SSM cache type",
    "dtype": "Compute type",
    "cpu_offload_gb": "Weights on the host (GiB)",
    "moe_backend": "MoE back end",
    "limit_mm_per_prompt": "Media per prompt",
    "skip_mm_profiling": "Skip media profiling",
    "mm_encoder_tp_mode": "Encoder parallel mode",
    "mm_ipc_gpu_memory_gb": "Media pool on GPU (GiB)",
    "speculative_method": "Speculative method",
    "speculative_model": "Draft model",
    "num_speculative_tokens": "Speculative tokens",
    "draft_tensor_parallel_size": "Draft tensor parallel",
    "use_heterogeneous_vocab": "Draft of other vocabulary",
    "max_loras": "Max LoRAs",
    "max_lora_rank": "Max LoRA rank",
    "estimate_cuda_graphs": "Reserve for CUDA graphs",
    "v2_model_runner": "Second model runner",
    "pp_layer_partition": "Layers per stage",
}
_WORDS: Final = {
    "kv": "KV", "gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "cudagraph": "CUDA graph", "lora": "LoRA",
    "loras": "LoRAs", "mm": "multimodal", "num": "number of", "max": "max", "enable": "", "len": "length",
    "dtype": "type", "quantization": "quantisation", "utilization": "utilisation", "optimization": "optimisation",
    "mamba": "Mamba", "dbo": "DBO",
    "eplb": "EPLB", "cpu": "CPU", "backend": "back end", "tp": "TP", "pp": "PP", "seqs": "sequences", "gb": "(GiB)",
}  # fmt: skip
CONTEXT_OPTIONS: Final = frozenset({"max_model_len", "ctx_size"})


def option_label(name: str) -> str:
    """What an option is called in the form."""
    known = _NAMES.get(name)
    if known is not None:
        return known
    words = [_WORDS.get(word, word) for word in name.split("_")]
    text = " ".join(word for word in words if word)
    return text[:1].upper() + text[1:]


def in_sentence(label: str) -> str:
    """A label as it stands within a sentence: abbreviations keep their capitals."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


@lru_cache(maxsize=512)
def short_name(name: str) -> str:
    """A GPU's name without what goes without saying."""
    for word in ("NVIDIA ", "GeForce "):
        name = name.replace(word, "")
    return name
