"""From a request to Settings: every value that vLLM would settle on, who chose it and why.

Order and rules follow engine/arg_utils.py, config/model.py, config/vllm.py and config/scheduler.py of vLLM 0.33;
where an older release differs, the era or the version decides. Raises BadInput in the engine's own words where the
engine refuses the configuration before any memory is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.backends import Chosen, select
from kvplanner.engine.vllm.eras import EraMatch, era_of
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import block as kv_block
from kvplanner.engine.vllm.settings import Era, Lora, Settings
from kvplanner.engine.vllm.settle import check, dtype, graphs, media, model, parallel, scheduler, speculation, support
from kvplanner.engine.vllm.settle.cache import settle_cache
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec


def resolve(request: PlanRequest) -> tuple[Settings, dict[str, Resolved], tuple[str, ...]]:
    """Settings, each option with its origin and reason, and warnings.

    Raises BadInput (where = the flag) for what the engine itself refuses, and for a machine without devices.
    """
    spec = request.model.spec
    book = Book(request.options)
    match = era_of(request.version)
    version = match.version
    book.warnings.extend(match.warnings)
    if not request.machine.devices:
        raise BadInput("The machine has no GPU", "--gpu", "Name at least one GPU")
    gpu = gpu_of(request.machine.devices[0].gpu)
    usage = str(book.settle("usage", "server", "vllm serve"))
    era = _settled_era(match, book)
    ranks = parallel.settle_parallel(spec, book)
    served = model.settle_model(spec, book, gpu, version)
    drafts = speculation.settle_speculative(request, book, ranks.tp, version)
    steps = scheduler.settle_scheduler(
        spec, book, scheduler.Here(gpu, usage, version, ranks, served.max_model_len, drafts)
    )
    cache = settle_cache(spec, book, gpu, era, version, drafts.method)
    settings = Settings(
        version=version,
        era=era,
        model=served,
        parallel=ranks,
        scheduler=steps,
        cache=cache,
        graphs=graphs.settle_graphs(spec, book, gpu, version, ranks, steps, drafts),
        speculative=drafts,
        multimodal=media.settle_multimodal(spec, book),
        lora=_lora(book),
        attention_backend=_named_backend(book),
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
    from kvplanner.engine.vllm.options.declared import declared

    return [
        f"{o.flags[0]} is not modelled: planned without it"
        for o in declared()
        if not o.modelled and given.get(o.name) not in (None, False)
    ]


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


def _settled_era(match: EraMatch, book: Book) -> Era:
    era = match.era
    v2 = bool(book.settle("v2_model_runner", era.runner == "V2", f"the runner of {era.name}"))
    if era.runner == "V2" and not v2:
        era = era._replace(runner="V1", name=era.name.replace("V2", "V1"), graphs_in_budget=True)
    elif era.runner == "V1" and v2 and match.version >= (21, 0):
        era = era._replace(runner="V2", name=era.name.replace("V1", "V2"))
    in_budget = bool(book.settle("estimate_cuda_graphs", era.graphs_in_budget, f"as in {era.name}"))
    return era if in_budget == era.graphs_in_budget else era._replace(graphs_in_budget=in_budget)


def _lora(book: Book) -> Lora:
    on = bool(book.settle("enable_lora", False, "off"))
    slots = int(book.settle("max_loras", 1, "one adapter"))
    rank = int(book.settle("max_lora_rank", 16, "adapters of rank 16"))
    return Lora(slots, rank) if on else Lora()
