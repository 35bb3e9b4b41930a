"""The cache of a model under given settings, before its memory is known: groups and bytes per block of each stage."""

from __future__ import annotations

from kvplanner.engine.plan import CacheGroup
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.kv import groups as kv_groups
from kvplanner.engine.vllm.kv import notes as kv_notes
from kvplanner.engine.vllm.kv.block import at_model_dtype
from kvplanner.engine.vllm.kv.groups import Group
from kvplanner.engine.vllm.kv.layers import Caches, cache_specs
from kvplanner.engine.vllm.kv.spec import GROWING
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import ModelSpec
from kvplanner.record import NamedTuple, late, later


@late("notes")
class CacheLayout(NamedTuple):
    """What the engine allocates per block and per request.

    tables: the groups as the engine deals with them; groups: the same for people. bytes_per_block: of each pipeline
    stage. block_size: tokens of the smallest block. bytes_per_token: on the widest stage, None where it is no
    constant. notes: what padding, windows, states and copies cost, with this plan's numbers.
    not_modelled: what is missing for an exact answer.
    """

    settings: Settings
    context_limit: int
    tables: tuple[Group, ...]
    groups: tuple[CacheGroup, ...]
    bytes_per_block: tuple[int, ...]
    block_size: int
    bytes_per_token: float | None
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether every part of the cache is modelled."""
        return not self.not_modelled

    def blocks_at(self, length: int) -> int:
        """Blocks that one request of `length` tokens holds in all groups."""
        blocks = each = 0
        spec = None
        for table in self.tables:
            if table.spec is not spec:  # groups of one kind stand side by side and hold the same
                spec, each = table.spec, kv_groups.blocks_of(table, self.settings, length)
            blocks += each
        return blocks


@by_identity(64, lambda _, *others: others)
def plan_cache(
    spec: ModelSpec, settings: Settings, gpu: Gpu, partition: tuple[tuple[int, int], ...],
    draft: ModelSpec | None = None,
) -> CacheLayout:  # fmt: skip
    """The cache layout. partition: [first, end) layers of each pipeline stage; draft: a draft model's layers.

    Raises BadInput where the engine refuses the configuration.
    """
    caches = cache_specs(spec, settings, gpu, partition, draft)
    layout = _laid_out(spec, settings, caches, len(partition))
    usual = at_model_dtype(settings)._replace(attention_backend=None)
    # Refused now, where it is, and not when the notes are read.
    beside = cache_specs(spec, usual, gpu, partition, draft) if settings.cache.dtype != "auto" else None

    def notes() -> tuple[str, ...]:
        plain = None if beside is None else _laid_out(spec, usual, beside, len(partition))
        return kv_notes.notes(spec, layout, plain)

    return layout._replace(notes=later(notes))


def _laid_out(spec: ModelSpec, settings: Settings, caches: Caches, stages: int) -> CacheLayout:
    tables = kv_groups.grouped(caches.counted, settings)
    per_block = tuple(max((t.page_bytes[s] for t in tables), default=0) for s in range(stages))
    sizes = [t.spec.block_size for t in tables if t.spec.kind != "state"] or [t.spec.block_size for t in tables]
    block = min(sizes, default=caches.block_size)
    length = settings.model.max_model_len
    groups = tuple(
        CacheGroup(
            kind=t.spec.kind,
            layers=t.total_layers,
            unit_tokens=t.spec.block_size,
            page_bytes=max(t.page_bytes) if t.mixed else t.spec.page_bytes,
            units_per_request=kv_groups.blocks_of(t, settings, length),
            padding_layers=t.slots - t.total_layers,
        )
        for t in tables
    )
    per_token = None
    if len(tables) == 1 and tables[0].spec.kind in GROWING:
        per_token = max(per_block) / (block * settings.parallel.dcp)
    return CacheLayout(
        settings, spec.context_length or length, tables, groups, per_block, block, per_token, (), caches.not_modelled
    )
