"""From a request to Settings: every value that vLLM would settle on, who chose it and why.

Order and rules follow engine/arg_utils.py, config/model.py, config/vllm.py and config/scheduler.py of vLLM 0.33;
where an older release differs, the era or the version decides. Raises BadInput in the engine's own words where the
engine refuses the configuration before any memory is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.backends import Chosen, image_prefix, select
from kvplanner.engine.vllm.dtypes import KNOWN
from kvplanner.engine.vllm.eras import EraMatch, era_of
from kvplanner.engine.vllm.kv import block as kv_block
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Era, MambaCacheMode, Settings
from kvplanner.engine.vllm.settle import (
    batch as defaults_batch,
)
from kvplanner.engine.vllm.settle import (
    check as defaults_check,
)
from kvplanner.engine.vllm.settle import (
    dtype as defaults_dtype,
)
from kvplanner.engine.vllm.settle import (
    graphs as defaults_graphs,
)
from kvplanner.engine.vllm.settle import (
    media as defaults_media,
)
from kvplanner.engine.vllm.settle import (
    speculation,
    support,
)
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import GpuSpec
from kvplanner.model.spec import Attention, Mla, ModelSpec, State
from kvplanner.units import GIB

# The engine's names for the methods that a config calls differently (0.33). Logs of 0.20 have the older names still,
# one of 0.26.0 has these; the release between is not known.
_QUANTIZATION_NAMES: Final[Mapping[str, str]] = {"mxfp4": "gpt_oss_mxfp4", "awq": "auto_awq", "gptq": "auto_gptq"}
_RENAMED_SINCE: Final = (21, 0)
_AUTO_LENGTH: Final = -1
_NO_LIMIT_FOUND: Final = 2048
# Hybrids keep prefixes by default from here on: the "align" mode.
_HYBRID_PREFIX_SINCE: Final = (27, 0)
# Images of some models must not be split over steps.
_WHOLE_ITEMS_SINCE: Final = (33, 0)
_ASYNC_SINCE: Final = (14, 0)
_CHUNKED_GROUPS_SINCE: Final = (13, 0)
# Methods whose heads read the model's hidden states (config/speculative.py: use_eagle).
_READS_STATES: Final = ("eagle", "eagle3", "mtp")
# Why a parallel size is 1.
_NOT_SPLIT: Final = {"tp": "each layer is whole", "pp": "all layers are on every GPU of a replica", "dp": "one replica",
                     "dcp": "a request's cache is not split by tokens", "pcp": "a prompt is not split"}  # fmt: skip


def resolve(request: PlanRequest) -> tuple[Settings, dict[str, Resolved], tuple[str, ...]]:
    """Settings, each option with its origin and reason, and warnings.

    Raises BadInput (where = the flag) for what the engine itself refuses, and for a machine without devices.
    """
    spec = request.model.spec
    book = Book(request.options)
    match = era_of(request.version)
    book.warnings.extend(match.warnings)
    if not request.machine.devices:
        raise BadInput("The machine has no GPU", "--gpu", "Name at least one GPU")
    gpu = request.machine.devices[0].gpu
    values: dict[str, Any] = {"version": match.version, "gpu_arch": gpu.compute_capability, "gpu_name": gpu.name}
    values["gpu_total_bytes"] = _total_bytes(gpu)
    values["usage"] = book.settle("usage", "server", "vllm serve")
    values["era"] = _settled_era(match, book)
    values |= _parallel(spec, book)
    values |= _dtypes(request, book, gpu, match.version)
    values |= _length(spec, book)
    values |= _speculation(request, book, values)
    values |= _scheduling(spec, book, values)
    values |= _batch(spec, book, values)
    values |= defaults_graphs.graphs(spec, book, values, is_causal(spec))
    values |= _states(spec, book, values)
    values |= _memory(book, values)
    values |= _rest(spec, book)
    book.warnings += support.check(
        spec, values["quantization"], values["version"], gpu.compute_capability, bool(request.weight_format)
    )
    book.warnings += _not_modelled(book.options)
    settings = Settings(**values)
    defaults_check.check_configuration(spec, settings)
    book.warnings += defaults_dtype.warnings(spec, settings)
    dropped = defaults_check.dropped(spec, settings.version)
    if dropped:
        book.warnings.append(dropped)
    chosen = select(spec, settings)
    book.settle("attention_backend", chosen.primary, chosen.reason, "derived")
    _block_size(spec, settings, chosen, book)
    return settings._replace(attention_backend=chosen.primary), book.resolved, tuple(book.warnings)


def _not_modelled(given: Mapping[str, OptionValue]) -> list[str]:
    if not given:
        return []
    from kvplanner.engine.vllm.options.declared import declared

    return [
        f"{o.flags[0]} is not modelled: planned without it"
        for o in declared()
        if not o.modelled and given.get(o.name) not in (None, False)
    ]


def _block_size(spec: ModelSpec, settings: Settings, chosen: Chosen, book: Book) -> None:
    """Record the block size that the engine works with: the user's where it stays."""
    mixed = bool(kv_block.unquantised_layers(spec, settings))
    block = kv_block.aligned_block(spec, settings, chosen, mixed)
    if settings.block_size is not None and block != settings.block_size:
        book.override("block_size", block, f"{settings.block_size} was asked for, and a page must hold a whole state")
    elif settings.block_size is None:
        aligned = block != kv_block.plain_block(settings, chosen)
        reason = "enlarged until a page holds a whole state" if aligned else f"the smallest that {chosen.primary} takes"
        book.override("block_size", block, reason)


def _total_bytes(gpu: GpuSpec) -> int:
    total = gpu.cuda_total or gpu.total
    return total.value if total is not None else 0


def _settled_era(match: EraMatch, book: Book) -> Era:
    era = match.era
    v2 = bool(book.settle("v2_model_runner", era.runner == "V2", f"the runner of {era.name}"))
    if era.runner == "V2" and not v2:
        era = era._replace(runner="V1", name=era.name.replace("V2", "V1"), graphs_in_budget=True)
    elif era.runner == "V1" and v2 and match.version >= (21, 0):
        era = era._replace(runner="V2", name=era.name.replace("V1", "V2"))
    in_budget = bool(book.settle("estimate_cuda_graphs", era.graphs_in_budget, f"as in {era.name}"))
    return era if in_budget == era.graphs_in_budget else era._replace(graphs_in_budget=in_budget)


def _parallel(spec: ModelSpec, book: Book) -> dict[str, Any]:
    names = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
             "dcp": "decode_context_parallel_size", "pcp": "prefill_context_parallel_size"}  # fmt: skip
    sizes: dict[str, Any] = {short: int(book.settle(name, 1, _NOT_SPLIT[short])) for short, name in names.items()}
    for short, name in names.items():
        if sizes[short] < 1:
            raise BadInput(f"{sizes[short]} is not a number of ranks", "--" + name.replace("_", "-"), "Give 1 or more")
    sizes["expert_parallel"] = bool(book.settle("enable_expert_parallel", False, "off"))
    eplb = bool(book.settle("enable_eplb", False, "off"))
    redundant = int(book.settle("num_redundant_experts", 0, "none"))
    sizes["redundant_experts"] = redundant if eplb else 0
    book.settle("all2all_backend", "allgather_reducescatter", "the one that needs no further library")
    sizes["pp_partition"] = _partition(book, sizes["pp"], spec.num_layers)
    return sizes


def _partition(book: Book, stages: int, layers: int) -> tuple[int, ...]:
    text = book.settle("pp_layer_partition", None, "even")
    if text is None:
        return ()
    try:
        parts = tuple(int(p) for p in str(text).split(","))
    except ValueError:
        raise BadInput(
            f"{text!r} is not a list of layer counts", "VLLM_PP_LAYER_PARTITION", "Write for example 20,20"
        ) from None
    if len(parts) != stages or sum(parts) != layers or min(parts) < 0:
        raise BadInput(
            f"{text} does not split {layers} layers over {stages} stages", "VLLM_PP_LAYER_PARTITION",
            "Give one count per stage; the counts add up to the model's layers",
        )  # fmt: skip
    return parts


def _dtypes(request: PlanRequest, book: Book, gpu: GpuSpec, version: tuple[int, int]) -> dict[str, Any]:
    spec = request.model.spec
    dtype, reason = defaults_dtype.auto_dtype(spec, gpu.compute_capability, version)
    wanted = str(book.settle("dtype", dtype, reason))
    wanted = {"half": "float16", "float": "float32"}.get(wanted, wanted)
    if wanted == "auto":
        wanted = dtype
        book.override("dtype", dtype, reason)
    if wanted not in ("float16", "bfloat16", "float32"):
        raise BadInput(f"{wanted!r} is not a dtype", "--dtype", "Use auto, float16, bfloat16 or float32")
    names = _QUANTIZATION_NAMES if version >= _RENAMED_SINCE else {}
    quantization = names.get(spec.quantization or "", spec.quantization)
    quantization = book.settle("quantization", quantization, "from the config" if quantization else "unquantised")
    return {"dtype": wanted, "quantization": quantization, "kv_cache_dtype": _kv_dtype(spec, book, gpu),
            "kv_skip_layers": _skip_layers(book)}  # fmt: skip


def _kv_dtype(spec: ModelSpec, book: Book, gpu: GpuSpec) -> str:
    mixers = [m for layer in spec.layers for m in layer.mixers]
    indexed = any(isinstance(m, Mla) and m.indexer is not None for m in mixers)
    default, reason = "auto", "the model's dtype"
    if spec.kv_cache_dtype is not None:
        default, reason = spec.kv_cache_dtype, "the checkpoint asks for it"
    elif indexed and quirks(spec.architecture).fp8_on_blackwell and (gpu.compute_capability or (0, 0))[0] == 10:
        default, reason = "fp8", "sparse attention of this family on this GPU"
    wanted = str(book.settle("kv_cache_dtype", default, reason))
    if wanted not in KNOWN:
        raise BadInput(f"{wanted!r} is not a KV cache dtype", "--kv-cache-dtype", "Known: " + ", ".join(KNOWN))
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


def _length(spec: ModelSpec, book: Book) -> dict[str, Any]:
    limit = spec.context_length or _NO_LIMIT_FOUND
    start = spec.default_context_length or limit
    reason = "the model's own limit" if spec.context_length else "no limit in the config"
    if start != limit:
        reason = "the length before LongRoPE takes over"
    wanted = book.settle("max_model_len", start, reason)
    auto = wanted == "auto" or int(wanted) == _AUTO_LENGTH
    length = limit if auto else int(wanted)
    if length < 1:
        raise BadInput(
            f"max_model_len {length} is not a length",
            "--max-model-len",
            "Give 1 or more, or -1 for the largest that fits",
        )
    if length > limit and spec.context_length is not None:
        raise BadInput(
            f"User-specified max_model_len ({length}) is greater than the derived max_model_len "
            f"(max_position_embeddings={limit} in model's config.json)", "--max-model-len",
            f"Lower it to {limit:,}, or give a config.json with other rope settings as the model",
            brief=f"context {length:,} exceeds the model's {limit:,}",
        )  # fmt: skip
    return {"max_model_len": length, "auto_fit": auto}


def _has_state(spec: ModelSpec) -> bool:
    return any(isinstance(m, State) for layer in spec.layers for m in layer.mixers)


def _has_attention(spec: ModelSpec) -> bool:
    return any(not isinstance(m, State) for layer in spec.layers for m in layer.mixers)


def is_causal(spec: ModelSpec) -> bool:
    """Whether every attention layer looks back only: encoders are not generative and keep no cache."""
    return all(m.causal for layer in spec.layers for m in layer.mixers if isinstance(m, Attention))


def _scheduling(spec: ModelSpec, book: Book, values: dict[str, Any]) -> dict[str, Any]:
    version, causal = values["version"], is_causal(spec)
    chunked_default = causal and version >= (8, 0)
    reason = "on for generative models" if chunked_default else "off for encoders" if not causal else "off before 0.8"
    chunked = bool(book.settle("enable_chunked_prefill", chunked_default, reason))
    caching, reason = chunked_default, reason
    if caching and _has_state(spec) and not _has_attention(spec):
        caching, reason = False, "off for models without attention"
    elif caching and _has_state(spec) and version < _HYBRID_PREFIX_SINCE:
        caching, reason = False, "off for models with recurrent state in this version"
    caching = bool(book.settle("enable_prefix_caching", caching, reason))
    on = causal and version >= _ASYNC_SINCE
    why = "on" if on else "off in this version" if causal else "off for encoders"
    asynchronous = bool(book.settle("async_scheduling", on, why))
    return {"chunked_prefill": chunked, "prefix_caching": caching, "async_scheduling": asynchronous,
            "hybrid_manager": _hybrid_manager(spec, book, version, values["spec_method"])}  # fmt: skip


def _hybrid_manager(spec: ModelSpec, book: Book, version: tuple[int, int], drafts: str | None) -> bool:
    """Whether bounded layers keep only what they see.

    With chunked layers the engine turns it off beside heads that read the model's states, and where an environment
    variable says so: its default was 0 from 0.10.1 (pull request 21761) and has been 1 since 29627, that is 0.13: its
    documentation has False for 0.12.0 and True for 0.16.0, and a report of 0.19.0 has four groups of Llama 4's layers.
    """
    allowed = bool(book.settle("chunked_attention_in_hybrid_cache", version >= _CHUNKED_GROUPS_SINCE,
                               f"{'on' if version >= _CHUNKED_GROUPS_SINCE else 'off'} in this version"))  # fmt: skip
    chunked = any(isinstance(m, Attention) and m.chunk for layer in spec.layers for m in layer.mixers)
    beside = chunked and drafts in _READS_STATES
    disabled, reason = version < (9, 2), "no hybrid manager in this version" if version < (9, 2) else "off"
    if beside or (chunked and not allowed):
        where = "by its variable" if book.given("chunked_attention_in_hybrid_cache") else "in this version"
        disabled, reason = True, f"on for chunked attention {f'beside {drafts}' if beside else where}"
    asked = bool(book.settle("disable_hybrid_kv_cache_manager", disabled, reason))
    if beside and not asked:  # whatever was asked for
        book.override("disable_hybrid_kv_cache_manager", True, reason)
        return False
    return not asked


def _batch(spec: ModelSpec, book: Book, values: dict[str, Any]) -> dict[str, Any]:
    length, version = values["max_model_len"], values["version"]
    row = defaults_batch.gpu_class(values["gpu_total_bytes"], values["gpu_name"], values["gpu_arch"], version)
    tokens = row.tokens_server if values["usage"] == "server" else row.tokens_llm
    sequences, reason, why_tokens = row.sequences, row.reason, row.reason
    if book.settle("performance_mode", "balanced", "steps and graphs stay as they are") == "throughput":
        tokens, sequences = tokens * 2, sequences * 2
        reason = why_tokens = f"{row.reason}, doubled by --performance-mode throughput"
    tokens, why_tokens = _step_tokens(spec, book, values, tokens, why_tokens)
    limit = (int(book.options["max_num_seqs"]) if book.given("max_num_seqs") else sequences) * length
    if tokens > limit:
        tokens, why_tokens = limit, "no more than sequences × context length"
    tokens = int(book.settle("max_num_batched_tokens", tokens, f"{why_tokens}: {tokens:,}"))
    if sequences > tokens:
        sequences, reason = tokens, "no more than tokens in a step"
    sequences = int(book.settle("max_num_seqs", sequences, f"{reason}: {sequences:,}"))
    return {"max_num_batched_tokens": tokens, "max_num_seqs": sequences}


def _step_tokens(spec: ModelSpec, book: Book, values: dict[str, Any], tokens: int, reason: str) -> tuple[int, str]:
    """What else decides the default of tokens in a step."""
    batched = book.options.get("all2all_backend") in ("deepep_low_latency", "nixl_ep")
    if batched and values["dp"] > 1 and values["expert_parallel"]:
        tokens, reason = 256, "batched experts take 256 tokens of a rank"
    if not values["chunked_prefill"] and values["max_model_len"] > tokens:
        tokens, reason = values["max_model_len"], "without chunked prefill a step must hold a whole prompt"
    item = quirks(spec.architecture).largest_item_tokens if values["version"] >= _WHOLE_ITEMS_SINCE else 0
    if item > tokens and image_prefix(spec) and not book.options.get("language_model_only"):
        tokens, reason = item, "a step must hold the largest video"
    return tokens, reason


def _speculation(request: PlanRequest, book: Book, values: dict[str, Any]) -> dict[str, Any]:
    draft = request.draft.spec if request.draft else None
    found = speculation.speculation(book.options, request.model.spec, draft)
    book.settle(
        "speculative_method", found.method, found.inferred or "none", "derived" if found.inferred else "default"
    )
    book.settle("speculative_model", None, "none")
    book.settle("num_speculative_tokens", found.tokens, "one token" if found.method else "none")
    book.settle("draft_tensor_parallel_size", values["tp"] if found.method else None, "as the model is split")
    book.settle("use_heterogeneous_vocab", False, "both have the same vocabulary")
    tp, version = values["tp"], values["version"]
    book.warnings += speculation.check_draft(book.options, request.model.spec, draft, found, tp, version)
    return {"spec_method": found.method, "spec_tokens": found.tokens}


def _states(spec: ModelSpec, book: Book, values: dict[str, Any]) -> dict[str, Any]:
    aligned = _has_state(spec) and values["prefix_caching"]
    mode: MambaCacheMode = book.settle(
        "mamba_cache_mode", "align" if aligned else "none",
        "prefix caching keeps states at block borders" if aligned else "no states are kept for reuse")  # fmt: skip
    block = book.settle("mamba_block_size", None, "the attention block")
    return {
        "mamba_cache_mode": mode,
        "mamba_cache_dtype": str(book.settle("mamba_cache_dtype", "auto", "the model's dtype")),
        "mamba_ssm_cache_dtype": str(book.settle("mamba_ssm_cache_dtype", "auto", "the model's wish")),
        "mamba_block_size": None if block is None else int(block),
    }


def _memory(book: Book, values: dict[str, Any]) -> dict[str, Any]:
    utilization = float(
        book.settle("gpu_memory_utilization", values["era"].default_utilization, f"as in {values['era'].name}")
    )
    if not 0 < utilization <= 1:
        raise BadInput(f"{utilization} is not a share", "--gpu-memory-utilization", "Give more than 0 and at most 1")
    fixed = book.settle("kv_cache_memory_bytes", None, "what the budget leaves")
    blocks = book.settle("num_gpu_blocks_override", None, "what fits")
    size = book.settle("block_size", None)
    if size is not None and int(size) < 1:
        raise BadInput(f"{size} is not a block size", "--block-size", "Give 16 or a multiple of it")
    return {
        "utilization": utilization,
        "kv_cache_memory_bytes": None if fixed is None else int(fixed),
        "num_gpu_blocks_override": None if blocks is None else int(blocks),
        "block_size": None if size is None else int(size),
    }


def _skips_profile(spec: ModelSpec, book: Book) -> bool:
    limits = defaults_media.limits(book.settle("limit_mm_per_prompt", None, "the model's own"))
    none = defaults_media.takes_none(spec, limits)
    return bool(book.settle("skip_mm_profiling", none, "no items are taken" if none else "off")) or none


def _rest(spec: ModelSpec, book: Book) -> dict[str, Any]:
    lora = bool(book.settle("enable_lora", False, "off"))
    slots, rank = (
        int(book.settle("max_loras", 1, "one adapter")),
        int(book.settle("max_lora_rank", 16, "adapters of rank 16")),
    )
    return {
        "attention_backend": book.options.get("attention_backend"),
        "lora_slots": slots if lora else 0,
        "lora_rank": rank if lora else 0,
        "cpu_offload_bytes": round(float(book.settle("cpu_offload_gb", 0.0, "none")) * GIB),
        "language_model_only": bool(book.settle("language_model_only", False, "off")),
        "skip_mm_profiling": _skips_profile(spec, book),
        "tower_data_parallel": book.settle("mm_encoder_tp_mode", "weights", "split") == "data",
        "mm_ipc_bytes": round(float(book.settle("mm_ipc_gpu_memory_gb", 0.0, "none")) * GIB),
        "dbo": bool(book.settle("enable_dbo", False, "off")),
        "custom_all_reduce": not book.settle("disable_custom_all_reduce", False, "off"),
    }
