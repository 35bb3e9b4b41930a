"""The KV cache's settings: dtype, blocks, prefixes, states (config/cache.py, config/vllm.py of vLLM 0.33)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.dtypes import KNOWN, SINCE
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Cache, Era, MambaCacheMode, Version
from kvplanner.engine.vllm.settle.scheduler import is_causal
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, Mla, ModelSpec, State

# Methods whose heads read the model's hidden states (config/speculative.py: use_eagle).
_READS_STATES: Final = ("eagle", "eagle3", "mtp")


def settle_cache(spec: ModelSpec, book: Book, gpu: Gpu, era: Era, version: Version, drafts: str | None) -> Cache:
    """drafts: the speculative method. Raises BadInput for values that the engine does not know."""
    dtype, skipped = _dtype(spec, book, gpu, version), _skip_layers(book)
    prefixes = _prefix_caching(spec, book, era, version)
    hybrid = _hybrid_manager(spec, book, version, drafts)
    aligned = spec.has_states and prefixes
    why = "prefix caching keeps states at block borders" if aligned else "no states are kept for reuse"
    mode: MambaCacheMode = book.settle("mamba_cache_mode", "align" if aligned else "none", why)
    conv = str(book.settle("mamba_cache_dtype", "auto", "the model's dtype"))
    state = str(book.settle("mamba_ssm_cache_dtype", "auto", "the model's wish"))
    between = book.settle("mamba_block_size", None, "the attention block")
    share = rules.UTILIZATION.at(version)
    utilization = float(book.settle("gpu_memory_utilization", share, f"{share:g} in this version"))
    if not 0 < utilization <= 1:
        raise BadInput(f"{utilization} is not a share", "--gpu-memory-utilization", "Give more than 0 and at most 1")
    size = book.settle("kv_cache_memory_bytes", None, "what the budget leaves")
    blocks = book.settle("num_gpu_blocks_override", None, "what fits")
    block = book.settle("block_size", None)
    if block is not None and int(block) < 1:
        raise BadInput(f"{block} is not a block size", "--block-size", "Give 16 or a multiple of it")
    return Cache(
        utilization=utilization,
        dtype=dtype,
        skip_layers=skipped,
        block_size=None if block is None else int(block),
        memory_bytes=None if size is None else int(size),
        num_gpu_blocks_override=None if blocks is None else int(blocks),
        prefix_caching=prefixes,
        hybrid_manager=hybrid,
        mamba_mode=mode,
        mamba_dtype=conv,
        mamba_ssm_dtype=state,
        mamba_block_size=None if between is None else int(between),
    )


def _dtype(spec: ModelSpec, book: Book, gpu: Gpu, version: Version) -> str:
    mixers = [m for layer in spec.layers for m in layer.mixers]
    indexed = any(isinstance(m, Mla) and m.indexer is not None for m in mixers)
    default, reason = "auto", "the model's dtype"
    if spec.kv_cache_dtype is not None:
        default, reason = spec.kv_cache_dtype, "the checkpoint asks for it"
    elif indexed and quirks(spec.architecture).fp8_on_blackwell and (gpu.arch or (0, 0))[0] == 10:
        default, reason = "fp8", "sparse attention of this family on this GPU"
    wanted = str(book.settle("kv_cache_dtype", default, reason))
    if wanted not in KNOWN:
        raise BadInput(f"{wanted!r} is not a KV cache dtype", "--kv-cache-dtype", "Known: " + ", ".join(KNOWN))
    since = SINCE.get(wanted)
    if since is not None and version < since:
        raise BadInput(
            f"invalid choice: {wanted!r}. vLLM {spelled(version)} does not have it, {spelled(since)} does",
            "--kv-cache-dtype", f"Plan --engine-version {spelled(since)} or later, or another dtype, for example fp8",
        )  # fmt: skip
    if wanted == "auto" and default != "auto":
        book.override("kv_cache_dtype", default, reason)
        return default
    if wanted == "bfloat16" and indexed:
        book.override("kv_cache_dtype", "auto", "bfloat16 is what auto means for sparse attention")
        return "auto"
    return wanted


def _skip_layers(book: Book) -> tuple[str, ...]:
    text = book.settle("kv_cache_dtype_skip_layers", None, "none")
    return () if text is None else tuple(p.strip() for p in str(text).split(",") if p.strip())


def _has_attention(spec: ModelSpec) -> bool:
    return any(not isinstance(m, State) for layer in spec.layers for m in layer.mixers)


def _prefix_caching(spec: ModelSpec, book: Book, era: Era, version: Version) -> bool:
    causal = is_causal(spec)
    on = causal and era.runner != "V0"
    reason = "on for generative models" if on else "off for encoders" if not causal else "off on V0"
    if on and spec.has_states and not _has_attention(spec):
        on, reason = False, "off for models without attention"
    elif on and spec.has_states and not rules.HYBRID_PREFIXES.at(version):
        on, reason = False, "off for models with recurrent state in this version"
    return bool(book.settle("enable_prefix_caching", on, reason))


def _hybrid_manager(spec: ModelSpec, book: Book, version: Version, drafts: str | None) -> bool:
    """Whether bounded layers keep only what they see.

    With chunked layers the engine turns it off beside heads that read the model's states, and where an environment
    variable says so: its default was 0 from 0.10.1 (pull request 21761) and has been 1 since 29627, that is 0.13: its
    documentation has False for 0.12.0 and True for 0.16.0, and a report of 0.19.0 has four groups of Llama 4's layers.
    """
    grouped = rules.CHUNKED_GROUPS.at(version)
    words = f"{'on' if grouped else 'off'} in this version"
    allowed = bool(book.settle("chunked_attention_in_hybrid_cache", grouped, words))
    chunked = any(isinstance(m, Attention) and m.chunk for layer in spec.layers for m in layer.mixers)
    beside = chunked and drafts in _READS_STATES
    disabled = not rules.HYBRID_MANAGER.at(version)
    reason = "no hybrid manager in this version" if disabled else "off"
    if beside or (chunked and not allowed):
        where = "by its variable" if book.given("chunked_attention_in_hybrid_cache") else "in this version"
        disabled, reason = True, f"on for chunked attention {f'beside {drafts}' if beside else where}"
    asked = bool(book.settle("disable_hybrid_kv_cache_manager", disabled, reason))
    if beside and not asked:  # whatever was asked for
        book.override("disable_hybrid_kv_cache_manager", True, reason)
        return False
    return not asked
