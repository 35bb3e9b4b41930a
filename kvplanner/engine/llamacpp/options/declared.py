"""llama-server's options that move memory, each declared once.

Names, flags, variables and defaults: common/arg.cpp of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from functools import cache

from kvplanner.engine.llamacpp.cache import CACHE_TYPES
from kvplanner.engine.llamacpp.options.builder import (
    CACHE,
    COMPUTE,
    CONTEXT,
    EXTRA,
    FIT,
    HOST,
    MEDIA,
    PLACE,
    SPECULATIVE,
    option,
)
from kvplanner.engine.option import Option

_TYPES = tuple(CACHE_TYPES)


@cache
def declared() -> tuple[Option, ...]:
    """Every option, in the order of the form."""
    return (*_everyday(), *_placement(), *_cache(), *_compute(), *_host(), *_fitting(), *_beside())


def _everyday() -> tuple[Option, ...]:
    return (
        option(
            "ctx_size", "tokens", CONTEXT, "Tokens of context over all slots; 0: the model's own, not to be shortened",
            "the model's own, shortened where it does not fit", short=("-c",), env="LLAMA_ARG_CTX_SIZE",
            moves=("kv_cache", "compute"), everyday=True, low=0, role="context", label="Context length",
        ),
        option(
            "parallel", "int", CONTEXT, "Slots: requests that are answered at once; -1: 4 that share one cache",
            "4, sharing one cache", short=("-np",), env="LLAMA_ARG_N_PARALLEL", moves=("kv_cache", "output", "compute"),
            everyday=True, low=-1, high=256, role="max_requests", label="Slots",
        ),
        option(
            "n_gpu_layers", "text", PLACE, "Layers on the GPUs, the last ones first; auto or all: as many as there are",
            "auto", short=("-ngl", "--gpu-layers"), env="LLAMA_ARG_N_GPU_LAYERS",
            moves=("weights", "kv_cache", "compute"), everyday=True, role="layer_count", label="GPU layers",
        ),
        option(
            "tensor_split", "text", PLACE, "Share of the layers for each GPU: 3,1", "by free memory", short=("-ts",),
            env="LLAMA_ARG_TENSOR_SPLIT", moves=("weights", "kv_cache"),
            everyday=True, role="device_shares", label="Split",
        ),
        option(
            "cache_type_k", "choice", CACHE, "How keys are stored", "f16", short=("-ctk",),
            env="LLAMA_ARG_CACHE_TYPE_K", choices=_TYPES, moves=("kv_cache", "compute"), everyday=True,
            role="kv_dtype", label="Key cache type",
        ),
        option(
            "cache_type_v", "choice", CACHE, "How values are stored; a quantised type needs flash attention", "f16",
            short=("-ctv",), env="LLAMA_ARG_CACHE_TYPE_V", choices=_TYPES, moves=("kv_cache", "compute"),
            everyday=True, label="Value cache type",
        ),
        option(
            "ubatch_size", "tokens", COMPUTE, "Tokens of a micro-batch: sizes the compute buffers", "512",
            short=("-ub",), env="LLAMA_ARG_UBATCH", moves=("compute", "kv_cache"), everyday=True, low=1,
            role="step_tokens", label="Micro-batch",
        ),
        option(
            "n_cpu_moe", "int", PLACE, "The experts of the first N layers stay on the host", "0",
            short=("-ncmoe",), env="LLAMA_ARG_N_CPU_MOE", moves=("weights", "compute"), everyday=True, low=0,
            role="layer_count", label="Experts on host", clears=("cpu_moe",),
        ),
    )  # fmt: skip


def _placement() -> tuple[Option, ...]:
    return (
        option(
            "cpu_moe", "bool", PLACE, "The experts of all layers stay on the host", "off", short=("-cmoe",),
            env="LLAMA_ARG_CPU_MOE", moves=("weights", "compute"), label="All experts on the host",
        ),
        option(
            "split_mode", "choice", PLACE,
            "layer: whole layers; none: one GPU; row: matrices by rows (until June 2026); tensor: within layers",
            "layer", short=("-sm",), env="LLAMA_ARG_SPLIT_MODE", choices=("layer", "none", "row", "tensor"),
            moves=("weights", "kv_cache", "compute"), label="Split mode",
        ),
        option(
            "main_gpu", "int", PLACE, "The GPU to use with --split-mode none", "0", short=("-mg",),
            env="LLAMA_ARG_MAIN_GPU", moves=("weights", "kv_cache", "compute"), low=0, high=15, label="Main GPU",
        ),
        option(
            "device", "text", PLACE, "The GPUs to use, by name: CUDA0,CUDA2; none: the host alone", "all",
            short=("-dev",), env="LLAMA_ARG_DEVICE", moves=("weights", "kv_cache", "compute"), label="Devices",
        ),
        option(
            "override_tensor", "text", PLACE, "Tensors by name on a buffer of choice: PATTERN=CPU,...", "none",
            short=("-ot",), env="LLAMA_ARG_OVERRIDE_TENSOR", moves=("weights", "compute"), label="Tensor overrides",
        ),
    )  # fmt: skip


def _cache() -> tuple[Option, ...]:
    return (
        option(
            "kv_unified", "bool", CACHE, "One pool of cells that all slots share", "on where slots are automatic",
            short=("-kvu",), negation="--no-kv-unified", negation_also=("-no-kvu",),
            env="LLAMA_ARG_KV_UNIFIED", moves=("kv_cache", "compute"),
            label="Shared cache",
        ),
        option(
            "swa_full", "bool", CACHE, "Keep sliding-window layers at full length", "off", env="LLAMA_ARG_SWA_FULL",
            moves=("kv_cache", "compute"), label="Full windows",
        ),
        option(
            "kv_offload", "bool", CACHE, "Keep the cache on the GPUs", "on", short=("-kvo",),
            negation="--no-kv-offload", negation_also=("-nkvo",),
            env="LLAMA_ARG_KV_OFFLOAD", moves=("kv_cache", "compute"),
            label="Cache on the GPUs",
        ),
        option(
            "cache_ram", "int", HOST, "Host memory for prompts seen before, in MiB; -1: no limit, 0: none", "8192",
            short=("-cram",), env="LLAMA_ARG_CACHE_RAM", low=-1, label="Prompt cache (MiB)", modelled=False,
        ),
        option(
            "ctx_checkpoints", "int", HOST, "Checkpoints of windows and states for each slot, in host memory", "32",
            short=("-ctxcp", "--swa-checkpoints"), env="LLAMA_ARG_CTX_CHECKPOINTS", low=0, label="Checkpoints",
            modelled=False,
        ),
    )  # fmt: skip


def _compute() -> tuple[Option, ...]:
    return (
        option(
            "batch_size", "tokens", COMPUTE, "Tokens of a batch: no micro-batch is larger", "2048", short=("-b",),
            env="LLAMA_ARG_BATCH", moves=("compute",), low=1, label="Batch",
        ),
        option(
            "flash_attn", "choice", COMPUTE, "Flash attention", "auto", short=("-fa",), env="LLAMA_ARG_FLASH_ATTN",
            choices=("auto", "on", "off"), synonyms=(("1", "on"), ("0", "off"), ("true", "on"), ("false", "off")),
            moves=("compute", "kv_cache"), label="Flash attention",
        ),
        option(
            "op_offload", "bool", COMPUTE, "Large batches on the host's weights run on the first GPU", "on",
            negation="--no-op-offload", moves=("compute",), label="Operation offload",
        ),
        option(
            "all_outputs", "bool", COMPUTE, "Reserve logits for every token of a micro-batch, as llama-bench does",
            "off", moves=("compute",), role="caller", label="Logits of all tokens",
        ),
        option(
            "embeddings", "bool", COMPUTE, "Serve embeddings only", "off",
            short=("--embedding", "--rerank", "--reranking"),
            env="LLAMA_ARG_EMBEDDINGS", moves=("compute",), label="Embeddings only",
        ),
    )  # fmt: skip


def _host() -> tuple[Option, ...]:
    return (
        option(
            "load_mode", "choice", HOST, "How weights are read: mapped (page cache) or copied", "auto",
            short=("-lm",), env="LLAMA_ARG_LOAD_MODE", choices=("auto", "mmap", "none", "dio", "mlock"),
            moves=("weights",), label="Load mode",
        ),
        option(
            "mmap", "bool", HOST, "Map the file instead of copying what stays on the host", "on",
            negation="--no-mmap", env="LLAMA_ARG_MMAP", moves=("weights",), label="Map the file",
        ),
        option("mlock", "bool", HOST, "Keep mapped weights in RAM", "off", env="LLAMA_ARG_MLOCK", label="Lock in RAM"),
        option(
            "repack", "bool", HOST, "Rearrange the host's weights where no GPU is used", "on", negation="--no-repack",
            negation_also=("-nr",),
            env="LLAMA_ARG_REPACK", moves=("weights",), label="Repack",
        ),
        option(
            "wddm", "bool", HOST, "The GPUs run under Windows, which keeps a part of each and moves excess to RAM",
            "off: Linux", role="caller", label="Windows driver (WDDM)",
        ),
        option(
            "sysmem_fallback", "bool", HOST,
            "Under Windows: what a GPU cannot hold goes to RAM, slowly; off: it fails (CUDA - Sysmem Fallback Policy)",
            "on, as the driver's", negation="--no-sysmem-fallback", role="caller", label="Spill to RAM (WDDM)",
        ),
        option(
            "host_memory", "bytes", HOST, "RAM of the machine: what stays on the host is held against it",
            "this machine's, where it is planned for", moves=("weights",), role="caller", label="Host memory",
        ),
    )  # fmt: skip


def _fitting() -> tuple[Option, ...]:
    return (
        option(
            "fit", "choice", FIT, "Shorten the context and move layers until everything fits", "on",
            short=("-fit",), env="LLAMA_ARG_FIT", choices=("on", "off"),
            synonyms=(("1", "on"), ("0", "off"), ("true", "on"), ("false", "off")),
            moves=("weights", "kv_cache", "compute"), label="Fit",
        ),
        option(
            "fit_target", "text", FIT, "MiB that stay free on each GPU, one number or one for each", "1024",
            short=("-fitt",), env="LLAMA_ARG_FIT_TARGET", moves=("weights", "kv_cache"), label="Fit margin (MiB)",
        ),
        option(
            "fit_ctx", "tokens", FIT, "The shortest context that fitting may choose", "4096", short=("-fitc",),
            env="LLAMA_ARG_FIT_CTX", moves=("kv_cache",), low=1, label="Shortest fitted context",
        ),
    )  # fmt: skip


def _beside() -> tuple[Option, ...]:
    return (
        option(
            "mmproj_size", "bytes", MEDIA, "Size of the projector file that is loaded beside the model", "none",
            moves=("weights",), role="caller", label="Projector size",
        ),
        option(
            "mmproj_offload", "bool", MEDIA, "Keep the projector on the first GPU", "on",
            negation="--no-mmproj-offload", env="LLAMA_ARG_MMPROJ_OFFLOAD", moves=("weights",),
            label="Projector on the GPU",
        ),
        option(
            "spec_draft_model", "text", SPECULATIVE, "A second model that drafts tokens", "none",
            short=("-md", "--model-draft", "--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
            env="LLAMA_ARG_SPEC_DRAFT_MODEL",
            moves=("weights", "kv_cache", "compute"), role="draft", label="Draft model",
        ),
        option(
            "spec_type", "choice", SPECULATIVE, "What drafts tokens: draft-mtp for the model's own prediction layers",
            "none, or draft-simple with a draft model", env="LLAMA_ARG_SPEC_TYPE",
            choices=("none", "draft-simple", "draft-mtp"), moves=("weights", "kv_cache", "compute"),
            label="Drafted by",
        ),
        option(
            "spec_draft_type_k", "choice", SPECULATIVE, "How the draft's keys are stored", "f16",
            short=("-ctkd", "--cache-type-k-draft"), env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", choices=_TYPES,
            moves=("kv_cache",), label="Draft key type",
        ),
        option(
            "spec_draft_type_v", "choice", SPECULATIVE, "How the draft's values are stored", "f16",
            short=("-ctvd", "--cache-type-v-draft"), env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", choices=_TYPES,
            moves=("kv_cache",), label="Draft value type",
        ),
        option(
            "spec_draft_n_max", "int", SPECULATIVE, "Tokens that are drafted at once", "3",
            short=("--draft", "--draft-n", "--draft-max"), env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
            moves=("compute", "kv_cache"), low=0, high=256, label="Drafted tokens",
        ),
        option(
            "lora_size", "bytes", EXTRA, "Size of the LoRA adapters that are loaded beside the model", "none",
            moves=("weights",), role="caller", label="LoRA size",
        ),
        option(
            "control_vector", "text", EXTRA, "A control vector's file: one row is kept for each layer",
            "none", short=("--control-vector-scaled",), moves=("weights",), label="Control vector",
        ),
    )  # fmt: skip
