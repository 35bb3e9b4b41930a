"""Names of options for people. An option without an entry is called by its flag's words."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_NAMES: Final = {
    "max_model_len": "Context",
    "ctx_size": "Context",
    "max_num_seqs": "Max sequences",
    "max_num_batched_tokens": "Tokens per step",
    "kv_cache_dtype": "KV cache type",
    "gpu_memory_utilization": "Utilisation",
    "enforce_eager": "Eager (no graphs)",
    "tensor_parallel_size": "Tensor parallel",
    "pipeline_parallel_size": "Pipeline parallel",
    "data_parallel_size": "Data parallel",
    "enable_expert_parallel": "Expert parallel",
}
_WORDS: Final = {
    "kv": "KV", "gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "cudagraph": "CUDA graph", "lora": "LoRA",
    "loras": "LoRAs", "mm": "multimodal", "num": "number of", "max": "most", "enable": "", "len": "length",
    "dtype": "type", "quantization": "quantisation", "utilization": "utilisation", "mamba": "Mamba", "dbo": "DBO",
    "eplb": "EPLB", "tp": "TP", "pp": "PP", "seqs": "sequences", "gb": "(GiB)",
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


@lru_cache(maxsize=512)
def short_name(name: str) -> str:
    """A GPU's name without what goes without saying."""
    for word in ("NVIDIA ", "GeForce "):
        name = name.replace(word, "")
    return name
