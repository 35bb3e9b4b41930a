"""Why a cache costs what it costs, in sentences with this plan's numbers: what padding wastes, what tokens in flight
keep, what cannot shrink, and what the printed token figure means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplanner.engine.vllm.kv import groups as kv_groups
from kvplanner.engine.vllm.kv.groups import Group
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import Attention, Mla, ModelSpec
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import ceil_div, counted, format_count

if TYPE_CHECKING:
    from kvplanner.engine.vllm.kv.layout import CacheLayout
    from kvplanner.engine.vllm.kv.sizing import KvSizing


def notes(spec: ModelSpec, layout: CacheLayout, plain: CacheLayout | None) -> tuple[str, ...]:
    """The remarks that apply. plain: the same cache at the model's own dtype, where it is quantised."""
    settings, tables = layout.settings, layout.tables
    found = [
        _latent(spec, settings, tables),
        _copied_heads(spec, settings),
        *_state_padding(tables),
        *_empty_slots(layout),
        *_bounded(settings, tables, max(layout.bytes_per_block, default=0)),
        _quantised(layout, plain),
        _stages(layout),
        _printed(layout),
    ]
    return tuple(SizedText(n) for n in found if n)


def _size(value: int) -> str:
    return size_mark(value, 2)


def _many(count: int, word: str) -> str:
    return counted(count, word, f"{word}s")


def pool(layout: CacheLayout, sizing: KvSizing) -> str:
    """How the printed token figure differs from what the pool holds, "" where both are the same."""
    if len(layout.tables) < 2 or not sizing.num_blocks:
        return ""
    usable = sizing.num_blocks - 1
    return (
        f"The engine prints {format_count(sizing.tokens)} tokens; the pool is {format_count(usable)} usable blocks, "
        f"shared by {len(layout.tables)} groups. A request of {format_count(sizing.max_model_len)} tokens holds "
        f"{format_count(sizing.blocks_per_request)} of them; a short one of {format_count(layout.block_size)} holds "
        f"{format_count(layout.blocks_at(layout.block_size))}"
    )


def _latent(spec: ModelSpec, settings: Settings, tables: tuple[Group, ...]) -> str:
    mixer = next((m for layer in spec.layers for m in layer.mixers if isinstance(m, Mla)), None)
    table = next((t for t in tables if t.spec.kind == "mla"), None)
    if mixer is None or table is None or settings.parallel.tp == 1:
        return ""
    return (
        f"Tensor parallelism does not shrink this cache: all {mixer.heads} heads read one latent of "
        f"{mixer.kv_lora_rank + mixer.qk_rope} elements, so each of the {settings.parallel.tp} ranks keeps all of it, "
        f"{table.spec.row_bytes:,} bytes per token and layer. Pipeline or decode context parallelism would"
    )


def _copied_heads(spec: ModelSpec, settings: Settings) -> str:
    heads = [m.kv_heads for layer in spec.layers for m in layer.mixers if isinstance(m, Attention) and m.owns_cache]
    if not heads or settings.parallel.tp <= min(heads):
        return ""
    fewest = min(heads)
    return (
        f"{counted(fewest, 'KV head is', 'KV heads are')} copied over {settings.parallel.tp} tensor ranks, "
        f"{settings.parallel.tp // fewest} times each: beyond {fewest} ranks the cache per GPU stops shrinking"
    )


def _state_padding(tables: tuple[Group, ...]) -> list[str]:
    table = next((t for t in tables if t.spec.kind == "state"), None)
    if table is None:
        return []
    spec = table.spec
    groups = [t for t in tables if t.spec.kind == "state"]
    layers = sum(t.total_layers for t in groups)
    of_a_request = sum(t.total_layers for t in groups) * spec.state_blocks * spec.page_bytes
    waste = spec.page_bytes - spec.real_bytes
    notes = [
        f"Recurrent state costs {_size(of_a_request)} per request whatever its length: {layers} layers × "
        f"{_many(spec.state_blocks, 'block')} × {_size(spec.page_bytes)}"
    ]
    grown = next((t.spec.block_size for t in tables if t.spec.kind in ("full", "mla")), None)
    if waste > 0 and grown is not None:
        notes.append(
            f"A state of {spec.real_bytes:,} bytes is padded to the attention page of {spec.page_bytes:,}: "
            f"{100 * waste / spec.real_bytes:.2f} % ({_size(waste * layers * spec.state_blocks)} per "
            f"request); attention blocks grew to {format_count(grown)} tokens so that a page holds a state"
        )
    return notes


def _empty_slots(layout: CacheLayout) -> list[str]:
    """Groups that leave slots of a block empty, one sentence for each kind."""
    notes: dict[str, str] = {}
    for kind in dict.fromkeys(t.spec.kind for t in layout.tables):
        groups = [t for t in layout.tables if t.spec.kind == kind]
        layers, slots = sum(t.total_layers for t in groups), sum(t.slots for t in groups)
        if slots == layers:
            continue
        page = groups[0].spec.page_bytes
        blocks = kv_groups.blocks_of(groups[0], layout.settings, layout.settings.model.max_model_len)
        notes[kind] = (
            f"{layers} {kind} layers in {len(groups)} groups of {groups[0].slots} leave "
            f"{_many(slots - layers, 'slot')} empty: padding wastes at most {100 * (slots - layers) / layers:.2f} %, "
            f"{_size((slots - layers) * page * blocks)} per full-length request"
        )
    return list(notes.values())


def _bounded(settings: Settings, tables: tuple[Group, ...], per_block: int) -> list[str]:
    notes = []
    for spec in dict.fromkeys(t.spec for t in tables if t.spec.kind in ("sliding", "sliding_mla", "chunked")):
        groups = sum(t.spec == spec for t in tables)
        kept = kv_groups.kept_tokens(spec, settings, settings.model.max_model_len)
        if kept <= spec.window:
            continue
        extra = (ceil_div(kept, spec.block_size) - ceil_div(min(spec.window, kept), spec.block_size)) * groups
        name = "chunk" if spec.kind == "chunked" else "window"
        notes.append(
            f"A {name} of {format_count(spec.window)} tokens keeps blocks for {format_count(kept)}: tokens in flight "
            f"(up to {format_count(kept - spec.window + 1)}) stay until their step is done, "
            f"{_size(extra * per_block)} per request. Fewer batched tokens shrink it"
        )
    return notes


def _quantised(layout: CacheLayout, plain: CacheLayout | None) -> str:
    if plain is None or not layout.tables or not plain.tables:
        return ""
    length = layout.settings.model.max_model_len
    now = layout.blocks_at(length) * max(layout.bytes_per_block)
    before = plain.blocks_at(length) * max(plain.bytes_per_block)
    wide = next((t.spec.row_bytes for t in plain.tables if t.spec.row_bytes), 0)
    narrow = next((t.spec.row_bytes for t in layout.tables if t.spec.row_bytes), 0)
    kinds = {t.spec.kind for t in layout.tables}
    why = []
    if "state" in kinds:
        why.append("recurrent state keeps its own dtype and its padding")
    if narrow and wide and narrow * 2 > wide:
        why.append(f"a row takes {narrow:,} bytes of {wide:,}, scales and unquantised parts included")
    if any(t.mixed for t in layout.tables):
        why.append("the indexer's cache is 8-bit already")
    because = f": {'; '.join(why)}" if why and before < 2 * now else ""
    return (
        f"{layout.settings.cache.dtype} makes a full-length request {before / now:.2f}× smaller "
        f"({_size(now)} instead of {_size(before)}){because}"
    )


def _stages(layout: CacheLayout) -> str:
    per_block = layout.bytes_per_block
    if len(per_block) == 1 or max(per_block) == min(per_block):
        return ""
    return (
        f"Pipeline stages keep {' / '.join(f'{b:,}' for b in per_block)} bytes per block; all get as many blocks as "
        "the tightest can hold"
    )


def _printed(layout: CacheLayout) -> str:
    if len(layout.tables) < 2:
        return ""
    length = layout.settings.model.max_model_len
    blocks = layout.blocks_at(length)
    if layout.settings.era.printed_tokens == "concurrency":
        return (
            f"The printed token figure is concurrency × context length, not the pool: a request of "
            f"{format_count(length)} tokens holds {format_count(blocks)} blocks, so a block counts as "
            f"{length / blocks:.1f} tokens of {layout.block_size}; it moves with context length, batched tokens and "
            "async scheduling"
        )
    return (
        f"The printed token figure is blocks ÷ {len(layout.tables)} groups × {layout.block_size} tokens: it leaves out "
        f"that a request of {format_count(length)} tokens holds {format_count(blocks)} blocks"
    )
