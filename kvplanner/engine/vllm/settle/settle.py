"""From a request to Settings: every value that vLLM would settle on, who chose it and why.

Order and rules follow engine/arg_utils.py, config/model.py, config/vllm.py and config/scheduler.py of vLLM 0.33;
where a release differs, `rules` says which applies. Raises BadInput in the engine's own words where the
engine refuses the configuration before any memory is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kvplanner.engine.option import Option, OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.backends import Chosen, select
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import block as kv_block
from kvplanner.engine.vllm.releases import release_of
from kvplanner.engine.vllm.settings import Cache, Lora, Settings, Version
from kvplanner.engine.vllm.settle import (
    check,
    dtype,
    graphs,
    media,
    model,
    parallel,
    runner,
    scheduler,
    speculation,
    support,
)
from kvplanner.engine.vllm.settle.cache import settle_cache
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, ModelSpec

# Options that are not modelled, and the values under which they are planned all the same.
_AS_PLANNED: dict[str, tuple[str, ...]] = {"moe_backend": ("auto", "cutlass")}


def resolve(request: PlanRequest) -> tuple[Settings, dict[str, Resolved], tuple[str, ...]]:
    """Settings, each option with its origin and reason, and warnings.

    Raises BadInput (where = the flag) for what the engine itself refuses, and for a machine without devices.
    """
    spec = request.model.spec
    book = Book(request.options)
    version, warnings = release_of(request.version)
    book.warnings.extend(warnings)
    if not request.machine.devices:
        raise BadInput("The machine has no GPU", "--gpu", "Name at least one GPU")
    gpu = gpu_of(request.machine.devices[0].gpu)
    usage = str(book.settle("usage", "server", "vllm serve"))
    ranks = parallel.settle_parallel(spec, book)
    served = model.settle_model(spec, book, gpu, version)
    drafts = speculation.settle_speculative(request, book, ranks.tp, version)
    era = runner.settle_era(spec, book, gpu, version, ranks, drafts.method)
    steps = scheduler.settle_scheduler(
        spec, book, scheduler.Here(gpu, usage, version, era.runner, ranks, served.max_model_len, drafts)
    )
    cache = settle_cache(spec, book, gpu, era, version, drafts.method)
    settings = Settings(
        version=version,
        era=era,
        model=served,
        parallel=ranks,
        scheduler=steps,
        cache=cache,
        graphs=graphs.settle_graphs(
            spec,
            book,
            gpu,
            version,
            ranks,
            steps,
            drafts,
            era.runner,
            pieces=_in_pieces(spec, version, cache),
        ),
        speculative=drafts,
        multimodal=media.settle_multimodal(spec, book),
        lora=_lora(book),
        attention_backend=_named_backend(book),
        expert_backend=_expert_backend(book),
        expandable_segments=_segments_grow(book),
    )
    book.warnings += support.check(spec, served.quantization, version, gpu.arch, bool(request.weight_format))
    book.warnings += _not_modelled(book.options)
    book.warnings += spec.remarks
    check.check_configuration(spec, settings, gpu)
    book.warnings += dtype.warnings(spec, settings)
    chosen = select(spec, settings, gpu)
    book.settle("attention_backend", chosen.primary, chosen.reason, "derived")
    _block_size(spec, settings, chosen, book)
    return settings._replace(attention_backend=chosen.primary), book.resolved, tuple(book.warnings)


def _not_modelled(given: Mapping[str, OptionValue]) -> list[str]:
    if not given:
        return []
    return [
        f"{o.flags[0]} is not modelled: planned without it"
        for o in _unmodelled()
        if given.get(o.name) not in (None, False, *_AS_PLANNED.get(o.name, ()))
    ]


@cache
def _unmodelled() -> tuple[Option, ...]:
    from kvplanner.engine.vllm.options.declared import declared

    return tuple(o for o in declared() if not o.modelled)


def _segments_grow(book: Book) -> bool:
    """Whether PyTorch's allocator is asked for segments that grow in place, beside whatever else it is asked for."""
    asked = str(book.settle("pytorch_alloc_conf", "", "PyTorch's own rules"))
    words = {word.strip().lower().replace(" ", "") for word in asked.split(",")}
    return "expandable_segments:true" in words


def _expert_backend(book: Book) -> str | None:
    given = book.options.get("moe_backend")
    return None if given in (None, "auto") else str(given)


def _named_backend(book: Book) -> str | None:
    given = book.options.get("attention_backend")
    return None if given is None else str(given)


def _block_size(spec: ModelSpec, settings: Settings, chosen: Chosen, book: Book) -> None:
    """Record the block size that the engine works with: the user's where it stays."""
    mixed, asked = bool(kv_block.unquantised_layers(spec, settings)), settings.cache.block_size
    block = kv_block.aligned_block(spec, settings, chosen, mixed)
    if asked is not None and block != asked:
        book.override("block_size", block, f"{asked} was asked for, and a page must hold a whole state")
    elif asked is None:
        aligned = block != kv_block.plain_block(settings, chosen)
        reason = "enlarged until a page holds a whole state" if aligned else f"the smallest that {chosen.primary} takes"
        book.override("block_size", block, reason)


def _in_pieces(spec: ModelSpec, version: Version, cache: Cache) -> bool:
    """Whether layers that attend in chunks keep whole-step graphs off: where they have a cache of their own."""
    chunked = any(isinstance(m, Attention) and m.chunk for layer in spec.layers for m in layer.mixers)
    return chunked and cache.hybrid_manager and rules.CHUNKED_IN_PIECES.at(version)


def _lora(book: Book) -> Lora:
    on = bool(book.settle("enable_lora", False, "off"))
    slots = int(book.settle("max_loras", 1, "one adapter"))
    rank = int(book.settle("max_lora_rank", 16, "adapters of rank 16"))
    return Lora(slots, rank) if on else Lora()
