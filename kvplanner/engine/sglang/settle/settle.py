"""From a request to settings: defaults, what the engine puts in their place, and why.

The order is that of arg_groups/pipeline.py (0.5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.eras import Era, Version, era_of
from kvplanner.engine.sglang.quirks import Quirk, quirk
from kvplanner.engine.sglang.settings import (
    Cache,
    GraphBackend,
    Graphs,
    HostCache,
    Lora,
    Parallel,
    RadixStrategy,
    Settings,
    Speculation,
    States,
)
from kvplanner.engine.sglang.settle import backends as settle_backends
from kvplanner.engine.sglang.settle import fraction as settle_fraction
from kvplanner.engine.sglang.settle import graphs as settle_graphs
from kvplanner.engine.sglang.settle.check import check_arguments
from kvplanner.engine.sglang.settle.moe import moe_runner
from kvplanner.engine.sglang.settle.speculation import RUNNING, speculation
from kvplanner.engine.shared.ledger import Book
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import GpuSpec
from kvplanner.model.spec import Mla, ModelSpec, State
from kvplanner.record import NamedTuple
from kvplanner.units import GB, GIB, MIB

# A card without a known compute capability plans as one of the most common kind.
ASSUMED_ARCH: Final = (9, 0)
_MAX_PREFILL: Final = 16384
_MEMORY_RATIO: Final = 0.9
_NO_LENGTH: Final = 2048  # utils/hf_transformers/common.py get_context_length
_NO_TOTAL: Final = (4096, 160)
_LARGE_HOPPER_MIB: Final = 60 * 1024
_HOPPER_VISION: Final = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")
_SHARED_IMAGES_MIB: Final = 1024
_MANY_IMAGES_MIB: Final = 3072
_MANY_REQUESTS: Final = 400
_MOST_EXPANDED: Final = 512


class Settled(NamedTuple):
    """Settings with the record of each option and what to say about them."""

    settings: Settings
    resolved: Mapping[str, Resolved]
    warnings: tuple[str, ...]


class _Card(NamedTuple):
    """What the launcher knows of the GPUs: total in MiB as nvidia-smi prints it, None where unknown."""

    total_mib: int | None
    arch: tuple[int, int]


class _Asked(NamedTuple):
    """What settling reads again and again."""

    spec: ModelSpec
    row: Quirk
    era: Era
    version: Version
    card: _Card
    media: bool
    book: Book
    model_id: str
    latent: bool


def settle(request: PlanRequest) -> Settled:
    """The settings of a request. Raises BadInput for arguments that the engine refuses before it builds the model."""
    match = era_of(request.version)
    spec, book = request.model.spec, Book(request.options)
    asked = _Asked(spec, quirk(spec.architecture), match.era, match.version, _card(request),
                   _takes_media(spec, book), book, request.model.id,
                   any(isinstance(m, Mla) for layer in spec.layers for m in layer.mixers))  # fmt: skip
    parallel = _parallel(book)
    drafting = speculation(
        spec, request.draft.spec if request.draft else None,
        algorithm=str(book.settle("speculative_algorithm", "", "no draft") or ""),
        steps=_int(book, "speculative_num_steps"), topk=_int(book, "speculative_eagle_topk"),
        draft_tokens=_int(book, "speculative_num_draft_tokens"),
    )  # fmt: skip
    if asked.row.draft_unread and request.draft is None:
        drafting = drafting._replace(layers=0)
    settings = _settings(asked, parallel, drafting)
    check_arguments(spec, settings, book.options)
    return Settled(settings, book.resolved, (*match.warnings, *book.warnings))


def _settings(asked: _Asked, parallel: Parallel, drafting: Speculation) -> Settings:
    book, spec, row = asked.book, asked.spec, asked.row
    a2a = str(book.settle("moe_a2a_backend", "none", "no all-to-all back end"))
    chunk, graphs, running = _capacity(asked, parallel, drafting, a2a)
    prefill_tokens = int(book.settle("max_prefill_tokens", _MAX_PREFILL, "fixed"))
    fraction = _fraction(asked, parallel, graphs, chunk=chunk, prefill=prefill_tokens, a2a=a2a, drafting=drafting)
    chosen = _chosen(book)
    if _large_hopper_vision(asked) and not chosen.attention and not chosen.decode:
        chosen = chosen._replace(decode="flashinfer")
    picked = settle_backends.choose(
        spec, row, chosen, arch=asked.card.arch, latent=asked.latent, dtype=_dtype(asked), speculation=drafting
    )
    if picked.forced_page:
        book.override("page_size", picked.page_size, picked.forced_page)
    else:
        book.settle("page_size", picked.page_size, "no back end asks for more")
    graphs = _late_prefill(asked, graphs, picked.prefill)
    if parallel.attention_dp > 1:
        chunk, graphs = _divided(asked, chunk, graphs, parallel)
    overlap, strategy = _states_strategy(asked, parallel)
    running = _running(asked, running, drafting)
    return Settings(
        version=asked.version,
        era=asked.era,
        dtype=_dtype(asked),
        quantization=_text(book, "quantization") or spec.quantization,
        arch=asked.card.arch,
        fraction=fraction,
        chunk=chunk,
        max_prefill_tokens=prefill_tokens,
        max_running=running,
        context_length=_context(asked),
        overlap=overlap,
        prefill_attention=picked.prefill,
        decode_attention=picked.decode,
        moe_runner=moe_runner(spec, asked.card.arch, _text(book, "moe_runner_backend"), a2a),
        media_mib=_media(asked),
        parallel=parallel,
        graphs=graphs,
        cache=_cache(asked, picked),
        states=States(
            float(book.settle("mamba_full_memory_ratio", _MEMORY_RATIO, "fixed")),
            _int(book, "max_mamba_cache_size"), _text(book, "mamba_ssm_dtype") or None, strategy,
        ),
        speculation=drafting,
        lora=_lora(book),
        cpu_offload_bytes=(_int(book, "cpu_offload_gb") or 0) * GIB,
        host_cache=_host_cache(book),
    )  # fmt: skip


def _host_cache(book: Book) -> HostCache:
    if not _on(book, "enable_hierarchical_cache"):
        return HostCache()
    ratio = float(book.settle("hicache_ratio", HostCache().ratio, "fixed"))
    return HostCache(True, ratio, (_int(book, "hicache_size") or 0) * GB)


def _lora(book: Book) -> Lora:
    if not _on(book, "enable_lora"):
        return Lora()
    return Lora(int(book.settle("max_loras_per_batch", 8, "fixed")), int(book.settle("max_lora_rank", 64, "assumed")))


def _int(book: Book, name: str) -> int | None:
    value = book.options.get(name)
    if value is None:
        return None
    book.settle(name, None)
    return int(value)


def _text(book: Book, name: str) -> str:
    value = book.options.get(name)
    if value is None:
        return ""
    book.settle(name, None)
    return str(value)


def _on(book: Book, name: str) -> bool:
    return bool(book.settle(name, False, "off")) if book.given(name) else False


def _card(request: PlanRequest) -> _Card:
    """The launcher takes the least total of all GPUs (utils/common.py get_device_memory_capacity)."""
    gpus: list[GpuSpec] = [device.gpu for device in request.machine.gpus]
    totals = [g.total.value // MIB for g in gpus if g.total is not None]
    arch = next((g.compute_capability for g in gpus if g.compute_capability is not None), ASSUMED_ARCH)
    return _Card(min(totals) if totals and len(totals) == len(gpus) else None, arch)


def _takes_media(spec: ModelSpec, book: Book) -> bool:
    row = quirk(spec.architecture)
    return row.media and (not row.media_on_request or _on(book, "enable_multimodal"))


def _parallel(book: Book) -> Parallel:
    tp = int(book.settle("tp_size", 1, "one GPU"))
    pp = int(book.settle("pp_size", 1, "no pipeline"))
    dp = int(book.settle("dp_size", 1, "one copy"))
    ep = int(book.settle("ep_size", 1, "experts are cut, not spread"))
    if tp % ep:  # the ranks of an expert are tp_size // ep_size: none are left (vast-ai/base-image, pull request 283)
        raise BadInput(f"{tp} tensor ranks do not divide by {ep} expert ranks", "--ep-size",
                       f"Choose a number that divides {tp}")  # fmt: skip
    attention = _on(book, "enable_dp_attention") and dp > 1
    own = _int(book, "attn_dp_size")
    groups = own if own is not None else dp if attention else 1
    if groups > 1 and tp % groups:
        raise BadInput(f"{groups} attention groups do not divide {tp} tensor ranks", "--dp-size",
                       f"Choose a number that divides {tp}")  # fmt: skip
    return Parallel(tp, pp, 1 if attention else dp, groups, ep)


def _capacity(asked: _Asked, parallel: Parallel, drafting: Speculation, a2a: str) -> tuple[int, Graphs, int | None]:
    """Chunk, graphs and the limit of requests, by the card's total (arg_groups/memory_hook.py)."""
    book, total = asked.book, asked.card.total_mib
    row = None if total is None else next(c for c in asked.era.capacities if total < c.below_mib)
    why = "the card's memory is not known" if total is None else f"{total:,} MiB of memory"
    chunk = int(book.settle("chunked_prefill_size", _NO_TOTAL[0] if row is None else row.chunk, why))
    running = _int(book, "max_running_requests")
    largest = _NO_TOTAL[1] if row is None else row.graphs if parallel.tp < 4 else row.graphs_wide
    if running is not None and not book.given("cuda_graph_max_bs_decode"):
        if largest > running:
            largest, why = running, "--max-running-requests is lower"
        elif _large_hopper_vision(asked) and running <= _MOST_EXPANDED:
            largest, why = running, "Qwen3-VL on large Hopper cards captures all its requests"
    largest = int(book.settle("cuda_graph_max_bs_decode", largest, why))
    sizes = settle_graphs.decode_sizes(largest, speculative=bool(drafting.algorithm))
    given = _sizes(book, "cuda_graph_bs_decode")
    if given:
        sizes, largest = given, max(given)
    return chunk, _graphs(asked, parallel, chunk, largest, sizes, a2a), running


def _sizes(book: Book, name: str) -> tuple[int, ...]:
    text = _text(book, name)
    parts = [part for part in text.replace(",", " ").split() if part]
    if not all(part.isdecimal() and len(part) <= 9 for part in parts):
        raise BadInput(f"{text[:40]!r} is not a list of batch sizes", "--" + name.replace("_", "-"),
                       "Write for example 1 2 4 8")  # fmt: skip
    return tuple(int(part) for part in parts)


def _graphs(asked: _Asked, parallel: Parallel, chunk: int, largest: int, sizes: tuple[int, ...], a2a: str) -> Graphs:
    book = asked.book
    off = _on(book, "disable_cuda_graph")
    no_decode = off or _on(book, "disable_decode_cuda_graph")
    decode = _backend(book, "decode", "disabled" if no_decode else "full")
    why = settle_graphs.why_no_prefill(
        asked.spec,
        media_eager=asked.media and not asked.row.media_graphs,
        pp=parallel.pp,
        a2a=a2a,
        two_batches=_on(book, "enable_two_batch_overlap"),
        dcp=_int(book, "dcp_size") or 1,
    )
    if not asked.era.prefill_graphs:
        why = "opt-in in this release"
    forced = off or _on(book, "disable_prefill_cuda_graph")
    prefill = _backend(book, "prefill", "disabled" if forced or why else "breakable", "" if forced else why)
    most = settle_graphs.prefill_most(
        chunk, latent=asked.latent, model_id=asked.model_id,
        max_total_tokens=_int(book, "max_total_tokens"),
    )  # fmt: skip
    if parallel.pp > 1 and prefill == "breakable":
        most = settle_graphs.pipeline_most(most)
    most = _int(book, "cuda_graph_max_bs_prefill") or most
    prefilled = _sizes(book, "cuda_graph_bs_prefill") or settle_graphs.prefill_sizes(most)
    captured = prefill != "disabled"
    return Graphs(decode, largest, sizes if decode != "disabled" else (), prefill, prefilled, captured)


def _backend(book: Book, phase: str, default: GraphBackend, why: str = "") -> GraphBackend:
    value: Any = book.settle(f"cuda_graph_backend_{phase}", default, why or "captured by default")
    backend: GraphBackend = value
    return backend


def _late_prefill(asked: _Asked, graphs: Graphs, prefill: str) -> Graphs:
    """DeepSeek V3 on TRT-LLM MLA loses its prefill graphs after the fraction was derived."""
    given = asked.book.given("cuda_graph_backend_prefill")
    if given or asked.spec.architecture != "DeepseekV3ForCausalLM" or prefill != "trtllm_mla":
        return graphs if graphs.prefill_backend != "disabled" else graphs._replace(prefill=())
    why = "captured prefill graphs would slow down TRT-LLM MLA"
    asked.book.override("cuda_graph_backend_prefill", "disabled", why)
    return graphs._replace(prefill_backend="disabled", prefill=())


def _divided(asked: _Asked, chunk: int, graphs: Graphs, parallel: Parallel) -> tuple[int, Graphs]:
    """Attention groups share a chunk (arg_groups/parallel_hook.py)."""
    part = chunk // parallel.attention_dp
    asked.book.override("chunked_prefill_size", part, f"{chunk:,} divided by {parallel.attention_dp} attention groups")
    if graphs.prefill and max(graphs.prefill) > part and not asked.book.given("cuda_graph_max_bs_prefill"):
        graphs = graphs._replace(prefill=settle_graphs.prefill_sizes(part))
    return part, graphs


def _fraction(
    asked: _Asked, parallel: Parallel, graphs: Graphs, *, chunk: int, prefill: int, a2a: str, drafting: Speculation
) -> float:
    book, total = asked.book, asked.card.total_mib
    if book.given("mem_fraction_static"):
        return float(book.settle("mem_fraction_static", 0.0))
    kept = settle_fraction.reserve(
        asked.era, graphs, parallel, total_mib=total or 0, chunk=chunk, max_prefill=prefill, latent=asked.latent,
        a2a=a2a, algorithm=drafting.algorithm,
    )  # fmt: skip
    value = settle_fraction.automatic(asked.era, kept, parallel, total, speculative=bool(drafting.algorithm))
    reason = f"keeps back {kept.total:,.0f} MiB for activations and graphs"
    if asked.era.fraction != "reserve" or total is None:
        reason = f"the rule of {asked.era.name}"
    if asked.media and not _on(book, "language_model_only"):
        factor = settle_fraction.vision_factor(asked.spec, asked.era)
        value, reason = value * factor, reason + (f", times {factor:.4f} for the vision tower" if factor != 1 else "")
    return float(book.settle("mem_fraction_static", value, reason))


def _chosen(book: Book) -> settle_backends.Chosen:
    return settle_backends.Chosen(
        attention=_text(book, "attention_backend"),
        prefill=_text(book, "prefill_attention_backend"),
        decode=_text(book, "decode_attention_backend"),
        dsa_prefill=_text(book, "dsa_prefill_backend"),
        dsa_decode=_text(book, "dsa_decode_backend"),
        page_size=None if book.options.get("page_size") is None else int(book.options["page_size"]),
        kv_dtype=str(book.settle("kv_cache_dtype", "auto", "as the model and the back end ask")),
        strategy=_text(book, "mamba_radix_cache_strategy") or "auto",
        radix=not _on(book, "disable_radix_cache"),
    )


def _cache(asked: _Asked, picked: settle_backends.Backends) -> Cache:
    book, row = asked.book, asked.row
    given = book.given("swa_full_tokens_ratio")
    ratio = float(book.settle("swa_full_tokens_ratio", row.window_ratio, "the engine's default for this model"))
    windows = row.windows and not _on(book, "disable_hybrid_swa_memory")
    return Cache(
        dtype=picked.kv_dtype,
        page_size=picked.page_size,
        raw_latent=picked.raw_latent,
        windows=windows or asked.spec.architecture == "DeepseekV4ForCausalLM",
        window_ratio=ratio,
        ratio_given=given,
        radix=not book.options.get("disable_radix_cache"),
        max_total_tokens=_int(book, "max_total_tokens"),
        prefix_tails=_int(book, "swa_prefix_tails"),
    )


def _states_strategy(asked: _Asked, parallel: Parallel) -> tuple[bool, RadixStrategy]:
    """Whether the scheduler overlaps, and how the radix cache keeps states (overrides.py _mamba_radix_cache...)."""
    book, row = asked.book, asked.row
    overlap = not _on(book, "disable_overlap_schedule")
    wanted: Any = _text(book, "mamba_radix_cache_strategy") or "auto"
    keeps = any(isinstance(m, State) for layer in asked.spec.layers for m in layer.mixers)
    strategy: RadixStrategy = "none"
    if keeps and not book.options.get("disable_radix_cache"):
        if wanted != "auto":
            strategy = wanted
        elif not row.states:
            strategy = "no_buffer"  # a class that the strategies do not know: nothing is tracked
        elif row.extra_buffer and (overlap or (book.options.get("page_size") or 1) != 1):
            strategy = "extra_buffer"
            book.settle("mamba_radix_cache_strategy", strategy, "the model tracks states beside running ones")
        else:
            strategy = "no_buffer"
            book.settle("mamba_radix_cache_strategy", strategy, "the model keeps states only where they are")
            overlap = False
    if parallel.pp > 1 and overlap:
        overlap = False
        book.override("disable_overlap_schedule", True, "pipeline parallelism")
    return overlap, strategy


def _running(asked: _Asked, given: int | None, drafting: Speculation) -> int | None:
    if given is not None:
        return given
    value, why = asked.row.max_running, f"the engine's default for {asked.spec.architecture}"
    if value is None and drafting.algorithm:
        value, why = RUNNING, "speculative decoding"
    asked.book.settle("max_running_requests", value, why if value else "from the tokens, 2,048 to 4,096")
    return value


def _dtype(asked: _Asked) -> str:
    wanted = str(asked.book.settle("dtype", asked.spec.dtype, "from the config"))
    dtype = {"half": "float16", "float": "float32", "auto": asked.spec.dtype}.get(wanted, wanted)
    if dtype == "bfloat16" and asked.card.arch < (8, 0):
        return "float16"
    return "float16" if dtype == "float32" and asked.spec.dtype == "float32" else dtype


def _context(asked: _Asked) -> int:
    longest, why = asked.spec.context_length, "from the config"
    if longest is None:
        longest, why = _NO_LENGTH, "the config states none"
    return int(asked.book.settle("context_length", longest, why))


def _large_hopper_vision(asked: _Asked) -> bool:
    large = asked.card.total_mib is not None and asked.card.total_mib >= _LARGE_HOPPER_MIB
    return large and asked.card.arch[0] == 9 and asked.spec.architecture in _HOPPER_VISION


def _media(asked: _Asked) -> int:
    """Kept back for media: embeddings, and images that processes share (kv_cache_configurator.py)."""
    if not asked.media:
        return 0
    running: OptionValue | None = asked.book.options.get("max_running_requests")
    transport = _text(asked.book, "mm_feature_transport")
    if asked.era.media_mib and _large_hopper_vision(asked) and transport in ("", "cuda_ipc"):
        return _MANY_IMAGES_MIB if running is not None and int(running) >= _MANY_REQUESTS else _SHARED_IMAGES_MIB
    return asked.era.media_mib + (_SHARED_IMAGES_MIB if transport in ("cuda_ipc", "cuda_vmm") else 0)
