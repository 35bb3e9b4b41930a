"""From bytes to blocks, tokens and concurrency, with the engine's fit check and its words when it fails.

Rules: v1/core/kv_cache_planning.py and kv_cache_utils.py of vLLM 0.33; older printed figures by era.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.kv.spec import GROWING
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate, Input, exact
from kvplanner.record import NamedTuple
from kvplanner.units import GIB

NO_BLOCKS: Final = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
)
NO_AUTO_FIT: Final = (
    "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. "
    "Try increasing `gpu_memory_utilization`."
)


class KvSizing(NamedTuple):
    """The cache of one replica for given memory.

    num_blocks: of every rank, the null block included. tokens, max_concurrency: as the engine prints them.
    max_model_len: after auto-fit. error: the engine's words, None when one request fits; needed_bytes and
    usable_bytes: what the fit check compared on `stage`, the pipeline stage that decides. capture_error: the
    engine's words when the cache fits but graph setup refuses it, for models with recurrent state.
    """

    num_blocks: int
    tokens: int
    max_concurrency: float
    bytes_per_block: tuple[int, ...]
    max_model_len: int
    blocks_per_request: int
    error: str | None = None
    estimated_max_model_len: int | None = None
    needed_bytes: int = 0
    usable_bytes: int = 0
    stage: int = 0
    capture_error: str | None = None


def size(layout: CacheLayout, available_bytes: tuple[int, ...]) -> KvSizing:
    """The cache for `available_bytes` of each pipeline stage (the least of its ranks)."""
    settings, per_block = layout.settings, layout.bytes_per_block
    length = settings.model.max_model_len
    if not layout.tables:
        return KvSizing(1, 0, 0.0, per_block, length, 0)
    memory = _effective(layout, available_bytes)
    usable = [m - _null_bytes(settings, b) for m, b in zip(memory, per_block, strict=True)]
    if settings.model.auto_fit:
        needs = zip(usable, _charged(layout), per_block, strict=True)
        length = min(length, *(longest(layout, u // c, length) for u, c, b in needs if b))
    blocks = max(min(m // b for m, b in zip(memory, per_block, strict=True) if b), 0)
    if length < 1:
        return KvSizing(blocks, 0, 0.0, per_block, settings.model.max_model_len, 0, NO_AUTO_FIT, None, 0, max(usable))
    need = layout.blocks_at(length)
    tokens, concurrency = printed(layout, blocks, length)
    error, estimate, stage = _verdict(layout, usable, length, need)
    capture = None if error else _too_many_sequences(layout, blocks)
    return KvSizing(blocks, tokens, concurrency, per_block, length, need, error, estimate,
                    need * _charged(layout)[stage], usable[stage], stage, capture)  # fmt: skip


def _too_many_sequences(layout: CacheLayout, blocks: int) -> str | None:
    """Capturing whole steps wants a state block for every sequence, the null block too (config/compilation.py)."""
    settings = layout.settings
    sequences = settings.scheduler.max_num_seqs
    if not rules.STATE_CHECK.at(settings.version) or "FULL" not in settings.graphs.mode or sequences <= blocks:
        return None
    if not any(t.spec.kind == "state" for t in layout.tables):
        return None
    return (
        f"max_num_seqs ({sequences}) exceeds available Mamba cache blocks ({blocks}). Each decode sequence requires "
        "one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{blocks} or increase gpu_memory_utilization."
    )


def given_cache(settings: Settings, per_block: int) -> Estimate | None:
    """The cache that flags ask for instead of what was measured, None without one; per_block: bytes of a block."""
    blocks, value, media = (
        settings.cache.num_gpu_blocks_override,
        settings.cache.memory_bytes,
        settings.multimodal.ipc_bytes,
    )
    if blocks is not None:
        inputs = (Input("blocks", blocks, "", "--num-gpu-blocks-override"), Input("bytes per block", per_block, "B"))
        return exact(blocks * per_block, "{blocks} × {bytes per block}", *inputs)
    if value is None:
        return None
    given = Input("given", value, "B", "--kv-cache-memory-bytes")
    if not media:
        return exact(value, "{given}", given)
    return exact(value - media, "{given} − {media decoding}", given, Input("media decoding", media, "B"))


def _effective(layout: CacheLayout, available: tuple[int, ...]) -> tuple[int, ...]:
    """Memory that counts on each stage: what flags ask for, else what was measured."""
    given = (given_cache(layout.settings, per_block) for per_block in layout.bytes_per_block)
    return tuple(g.value if g else a for g, a in zip(given, available, strict=True))


def _charged(layout: CacheLayout) -> tuple[int, ...]:
    """Bytes of a block that the fit check charges to each stage: 0.14 to 0.16 charged all of them the whole model's."""
    per_block = layout.bytes_per_block
    if not rules.WHOLE_MODEL_NEED.at(layout.settings.version):
        return per_block
    return (sum(per_block),) * len(per_block)


def _null_bytes(settings: Settings, per_block: int) -> int:
    return per_block if rules.NULL_BLOCK.at(settings.version) else 0


def printed(layout: CacheLayout, blocks: int, length: int) -> tuple[int, float]:
    """Tokens and concurrency as the engine's log shows them for `blocks` blocks."""
    settings = layout.settings
    concurrency = blocks / layout.blocks_at(length)
    if settings.era.printed_tokens == "concurrency":
        return int(concurrency * length), concurrency
    tokens = blocks // len(layout.tables) * layout.block_size * settings.parallel.dcp
    return tokens, concurrency if rules.BLOCKS_PER_REQUEST.at(settings.version) else tokens / length


def _verdict(layout: CacheLayout, usable: list[int], length: int, need: int) -> tuple[str | None, int | None, int]:
    """The engine's error, the length that it suggests, and the stage that decides."""
    tightest = 0
    for stage, (memory, per_block) in enumerate(zip(usable, _charged(layout), strict=True)):
        if not layout.bytes_per_block[stage]:
            continue
        if memory <= 0:
            return NO_BLOCKS, None, stage
        if need * per_block > memory:
            estimate = longest(layout, memory // per_block, length)
            return too_small(layout.settings, length, need * per_block, memory, estimate), estimate or None, stage
        if memory * layout.bytes_per_block[tightest] < usable[tightest] * layout.bytes_per_block[stage]:
            tightest = stage
    return None, None, tightest


def longest(layout: CacheLayout, blocks: int, limit: int) -> int:
    """The longest request, at most `limit` tokens, that `blocks` blocks hold; 0 when not even one token."""
    if layout.blocks_at(limit) <= blocks:
        return limit
    if len(layout.tables) == 1 and layout.tables[0].spec.kind in GROWING:  # as many tokens as the blocks have
        return max(blocks, 0) * layout.tables[0].spec.block_size * layout.settings.parallel.dcp
    low, high = 0, limit - 1
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_at(middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


def max_context(layout: CacheLayout, sizing: KvSizing) -> int:
    """The longest single request that the sized cache serves, at most the model's own limit."""
    if not layout.tables:
        return layout.context_limit
    reserved = 0 if layout.settings.era.runner == "V0" else 1
    return longest(layout, sizing.num_blocks - reserved, max(layout.context_limit, layout.settings.model.max_model_len))


def _gib(value: int) -> str:
    return str(round(value / GIB, 2))


def too_small(settings: Settings, length: int, needed: int, usable: int, estimate: int) -> str:
    """The engine's error when one request of the context length does not fit."""
    if settings.era.runner == "V0":
        return (
            f"The model's max seq len ({length}) is larger than the maximum number of tokens that can be stored in KV "
            f"cache ({estimate}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine."
        )
    hint = f" Based on the available memory, the estimated maximum model length is {estimate}." if estimate > 0 else ""
    cpu = " (which also controls CPU memory on the CPU backend)" if rules.CPU_REMARK.at(settings.version) else ""
    page = " See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    return (
        f"To serve at least one request with the {rules.POSSESSIVE.at(settings.version)} max seq len ({length}), "
        f"({_gib(needed)} GiB KV cache is needed, which is larger than the available KV cache memory ({_gib(usable)} "
        f"GiB).{hint} Try increasing `gpu_memory_utilization`{cpu} or decreasing `max_model_len` when initializing the "
        f"engine.{page if rules.SEE_PAGE.at(settings.version) else ''}"
    )
