"""From the rest of the budget to pools: tokens, window tokens, state slots and requests, in the engine's arithmetic.

mem_cache/kv_cache_configurator.py and model_executor/pool_configurator.py (0.5.23). Floats are GiB as in the engine:
other units round other last tokens.
"""

from __future__ import annotations

import math
import struct
from typing import Final, Literal

from kvplanner.engine.sglang.kv.cells import Cells
from kvplanner.engine.sglang.kv.deepseek_v4 import Compression
from kvplanner.engine.sglang.kv.state import StateLayout
from kvplanner.engine.sglang.settings import Settings
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, round_up

RefusalKind = Literal["states", "weights", "tokens", "window", "window_cap", "requests"]
_MOST_REQUESTS, _LEAST_REQUESTS = 4096, 2048
_EVICTION: Final = 128  # SGLANG_SWA_EVICTION_INTERVAL


class Measured(NamedTuple):
    """What the engine measures: free bytes before and after loading, the least of all ranks."""

    before_bytes: int
    after_bytes: int


class Layout(NamedTuple):
    """What the pools of a stage are made of. window: as the engine counts it; compression: DeepSeek V4 only.

    kind: of the full pool ("full", "mla", "compressed"). full_layers, window_layers, state_layers: of each kind.
    """

    cells: Cells
    state: StateLayout | None
    compression: Compression | None
    window: int | None
    all_windows: bool
    kind: str = "full"
    full_layers: int = 0
    window_layers: int = 0
    state_layers: int = 0


class Refusal(NamedTuple):
    """Why there are no pools. needed_fraction: the least that leaves anything for them (1 − after ÷ before)."""

    kind: RefusalKind
    message: str
    needed_fraction: float = 0.0


class Pools(NamedTuple):
    """The pools of a rank. tokens: max_total_num_tokens; window_tokens, slots: None where there are none.

    rest_bytes: the budget left after weights, states included. kv_bytes, state_bytes: allocated; draft_bytes: the
    draft's own pool, which has the target's tokens. table_bytes: the
    request table; list_bytes: free lists and request numbers: both outside the budget.
    """

    rest_bytes: int
    tokens: int
    window_tokens: int | None
    slots: int | None
    requests: int
    kv_bytes: int
    state_bytes: int
    draft_bytes: int
    table_bytes: int
    list_bytes: int

    @property
    def bytes(self) -> int:
        """The pools' bytes, states included."""
        return self.kv_bytes + self.state_bytes

    @property
    def allocated(self) -> int:
        """What the pools take of a rank's free memory, the draft's included."""
        return self.bytes + self.draft_bytes


class Sized(NamedTuple):
    """Tokens of the full and the window pool."""

    tokens: int
    window_tokens: int | None


class Stop(Exception):
    """There are no pools."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def through_float32(gib: float) -> float:
    """A size after the exchange between ranks, which carries 32-bit floats (utils/common.py)."""
    return float(struct.unpack("f", struct.pack("f", gib))[0])


def rest_gib(settings: Settings, measured: Measured) -> float:
    """What the budget leaves after loading, in GiB: may be negative."""
    before, after = measured.before_bytes / GIB, measured.after_bytes / GIB
    if settings.parallel.world > 1:
        after = through_float32(after)
    return after - before * (1 - settings.fraction) - settings.media_mib / 1024


class Sizing(NamedTuple):
    """What the rest of the budget is cut into, before it is known how many requests there are. rest: in GiB."""

    rest: float
    slots: int | None
    sized: Sized


def solve(settings: Settings, layout: Layout, measured: Measured) -> Pools | Refusal:
    """The pools that the engine makes, or why it makes none, in its order of checks."""
    try:
        return furnished(settings, layout, sizing(settings, layout, measured))
    except Stop as stop:
        return stop.refusal


def any_length(layout: Layout) -> bool:
    """Whether `sizing` is the same for every context length."""
    cells = layout.cells
    return layout.compression is None and ((layout.window is not None and cells.window > 0) or cells.charged_full > 0)


def sizing(settings: Settings, layout: Layout, measured: Measured) -> Sizing:
    """Tokens and slots. Raises Stop where there are none."""
    if measured.before_bytes <= 0:
        raise Stop(Refusal("weights", "", 1.0))
    rest = rest_gib(settings, measured)
    left, slots = rest, None
    if layout.state is not None:
        left, slots = _states(settings, layout.state, rest)
    if left <= 0:
        raise Stop(_no_rest(settings, measured))
    sized = size(settings, layout, int(left * GIB))
    if sized.tokens <= 0:
        raise Stop(Refusal("tokens", "Not enough memory. Please try to increase --mem-fraction-static. "
                           f"Current value: mem_fraction_static={settings.fraction!r}"))  # fmt: skip
    limit = settings.cache.max_total_tokens
    if limit is not None and limit < sized.tokens:
        sized = _capped(settings, layout, sized, limit)
    return Sizing(rest, slots, sized)


def furnished(settings: Settings, layout: Layout, found: Sizing) -> Pools:
    """The pools of a size, with the requests that they serve. Raises Stop where they serve none."""
    requests = request_limit(settings, found.sized.tokens, layout.state, found.slots)
    return _allocated(settings, layout, found.sized, slots=found.slots, requests=requests, rest=found.rest)


def _no_rest(settings: Settings, measured: Measured) -> Refusal:
    before, after = measured.before_bytes / GIB, measured.after_bytes / GIB
    if settings.parallel.world > 1:
        after = through_float32(after)
    least = 1 - after / before
    message = (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={settings.fraction!r}. "
        f"Raise --mem-fraction-static above {math.ceil(least * 1000) / 1000:.3f} "
        f"(minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted."
    )
    return Refusal("weights", message, least)


def _states(settings: Settings, state: StateLayout, rest: float) -> tuple[float, int]:
    """The rest less the state pool, in GiB, and its slots."""
    each, groups = state.stage_bytes, settings.parallel.attention_dp
    speculation, running = settings.speculation, settings.max_running
    drafted = speculation.draft_tokens if speculation.algorithm else 0
    per_group = max(1, running // groups) if running is not None else 0
    if settings.states.max_slots is not None:
        slots = settings.states.max_slots // groups
        if drafted:
            rest -= each * (min(per_group, slots // state.per_request) + 1) * drafted / GIB
    elif not settings.cache.radix and running is not None:
        slots = per_group
        if drafted:
            rest -= each * (slots + 1) * drafted / GIB
    else:
        ratio = settings.states.memory_ratio
        budget = rest * ratio / (1 + ratio) * GIB
        if drafted:
            slots = int((budget - each * (1 + drafted)) // (each * (1 + drafted / state.per_request)))
            rest -= each * (min(per_group, slots // state.per_request) + 1) * drafted / GIB
        else:
            slots = int((budget - each) // each)
    if slots <= 0:
        raise Stop(Refusal("states", (
            "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
            f"Computed max_mamba_cache_size={slots} (total_rest_memory={rest:.2f} GB, "
            f"mamba_cache_per_req={each / (1 << 20):.2f} MB)."
        )))  # fmt: skip
    return rest - (slots + 1) * each / GIB, slots


def size(settings: Settings, layout: Layout, available: int) -> Sized:
    """Tokens that `available` bytes hold, in whole pages."""
    page = settings.cache.page_size
    if layout.compression is not None:
        return _compressed(settings, layout.compression, available)
    if layout.window is None or not layout.cells.window:
        each = layout.cells.charged_full
        tokens = available // each if each else settings.cache.max_total_tokens or settings.context_length
        return Sized(tokens // page * page, None)
    return _windows(settings, layout, available)


def _windows(settings: Settings, layout: Layout, available: int) -> Sized:
    cells, page = layout.cells, settings.cache.page_size
    if layout.all_windows:
        tokens = int(available // (cells.charged_window + cells.draft_full)) // page * page
        return Sized(tokens, tokens)
    assert layout.window is not None
    if cap_applies(settings):
        window = round_up(window_cap(settings, layout.window), page)
        fixed = window * cells.charged_window
        tokens = int((available - fixed) // cells.charged_full) // page * page
        if tokens <= 0:
            raise Stop(Refusal("window_cap", (
                f"SWA pool cap ({window} tokens, {fixed / GIB:.2f} GiB) leaves no room for the full KV pool within "
                f"the available {available / GIB:.2f} GiB."
            )))  # fmt: skip
        return Sized(tokens, window)
    each = cells.charged_full + settings.cache.window_ratio * cells.charged_window
    return _by_ratio(settings, layout.window, int(available // each))


def _by_ratio(settings: Settings, window: int, tokens: int) -> Sized:
    page = settings.cache.page_size
    tokens = tokens // page * page
    kept = int(tokens * settings.cache.window_ratio) // page * page
    if window + page >= kept:
        raise Stop(Refusal("window", (
            f"SWA pool ({kept} tokens) cannot hold even one request: the prefill admission floor is "
            f"sliding_window_size ({window}) + page_size ({page}). "
            "Increase --swa-full-tokens-ratio or the total KV budget."
        )))  # fmt: skip
    return Sized(tokens, kept)


def cap_applies(settings: Settings) -> bool:
    """Whether the window pool is sized from requests: no radix cache, a limit of requests, chunked prefill."""
    asked = not settings.cache.radix and settings.max_running is not None
    return settings.era.caps_windows and asked and settings.chunk > 0


def window_cap(settings: Settings, window: int) -> int:
    """Window slots that the scheduler may hold at once with all its requests running."""
    page, speculation = settings.cache.page_size, settings.speculation
    per_request = window + _EVICTION * (speculation.draft_tokens or 1) + page
    per_request += 2 * decode_reserve(settings) if speculation.algorithm else page
    requests = max(1, (settings.max_running or 0) // settings.parallel.attention_dp)
    return per_request * requests + (2 if settings.overlap else 1) * settings.chunk + page


def decode_reserve(settings: Settings) -> int:
    """Tokens that a request may take in one decoding step (mem_cache/allocation_sizing.py)."""
    speculation, page = settings.speculation, settings.cache.page_size
    if not speculation.algorithm:
        return 1
    topk, steps = speculation.topk or 1, speculation.steps or 1
    if page == 1 or topk == 1 or not speculation.charged:
        return max(steps * topk, speculation.draft_tokens)
    pages = (page - 1 + steps + page - 1) // page
    return max(pages * page * topk, speculation.draft_tokens)


def _compressed(settings: Settings, kind: Compression, available: int) -> Sized:
    """By the ratio: 0.5.23 takes the class's own default of 0.1 for the user's, so that no cap by requests applies."""
    page = settings.cache.page_size
    each = kind.full_token + settings.cache.window_ratio * kind.window_token
    fixed = kind.rings(_requests_before(settings, int(available / each)))
    tokens = int(max(available - fixed, 0) / each) // page * page
    return _by_ratio(settings, kind.window, tokens)


def _requests_before(settings: Settings, tokens: int) -> int:
    if settings.max_running is not None:
        return max(1, settings.max_running // settings.parallel.attention_dp)
    return min(_clamped(settings, tokens), tokens // 2)


def _clamped(settings: Settings, tokens: int) -> int:
    return max(min(int(tokens / settings.context_length * 512), _MOST_REQUESTS), _LEAST_REQUESTS)


def _capped(settings: Settings, layout: Layout, sized: Sized, limit: int) -> Sized:
    """The pools under --max-total-tokens."""
    page = settings.cache.page_size
    tokens = limit // page * page
    if sized.window_tokens is None:
        return Sized(tokens, None)
    if layout.all_windows:
        return Sized(tokens, tokens)
    window = layout.compression.window if layout.compression else layout.window
    assert window is not None
    if cap_applies(settings) and layout.compression is None:
        return Sized(tokens, min(sized.window_tokens, limit))
    return _by_ratio(settings, window, limit)


def request_limit(settings: Settings, tokens: int, state: StateLayout | None, slots: int | None) -> int:
    """Requests that may run at once, on each attention group."""
    limit = min(_requests_before(settings, tokens), tokens // 2)
    if state is None or slots is None:
        return limit
    limit = min(limit, slots // state.per_request)
    if limit <= 0:
        raise Stop(Refusal("requests", (
            "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
            f"max_mamba_cache_size={slots}, mamba_ratio={state.per_request}, resulting max_num_reqs={limit}."
        )))  # fmt: skip
    return limit


def _allocated(
    settings: Settings, layout: Layout, sized: Sized, *, slots: int | None, requests: int, rest: float
) -> Pools:
    page, cells = settings.cache.page_size, layout.cells
    if layout.compression is not None:
        kv = layout.compression.pool_bytes(sized.tokens, sized.window_tokens or 0, requests)
    elif sized.window_tokens is not None:
        kept = 0 if layout.all_windows else sized.tokens
        kv = cells.full * (kept + page) + cells.window * (sized.window_tokens + page) + cells.tables
        kv += 8 * (kept + page + 1)
    else:
        kv = cells.full * (sized.tokens + page) + cells.tables
    states = 0
    if layout.state is not None and slots is not None:
        states = (slots + 1) * layout.state.allocated_bytes + (requests + 1) * layout.state.draft_bytes
    lists = 8 * sized.tokens // (page if page > 1 else 1) + 8 * (requests + 1)
    return Pools(
        rest_bytes=int(rest * GIB),
        tokens=sized.tokens,
        window_tokens=sized.window_tokens,
        slots=slots,
        requests=requests,
        kv_bytes=kv,
        state_bytes=states,
        draft_bytes=_draft_bytes(cells, sized, page),
        table_bytes=table_bytes(settings, requests),
        list_bytes=lists,
    )


def _draft_bytes(cells: Cells, sized: Sized, page: int) -> int:
    full = cells.draft_full * (sized.tokens + page) if cells.draft_full else 0
    return full + (cells.draft_window * ((sized.window_tokens or 0) + page) if cells.draft_window else 0)


def table_bytes(settings: Settings, requests: int) -> int:
    """The request table: a row of 32-bit slots for every request and one more (mem_cache/memory_pool.py)."""
    extra = 4 + (settings.speculation.draft_tokens if settings.speculation.algorithm else 0)
    if settings.speculation.algorithm and settings.cache.page_size > 1:
        extra = max(extra, 2 * decode_reserve(settings) + settings.cache.page_size - 1)
    return (requests + 1) * (settings.context_length + extra) * 4
