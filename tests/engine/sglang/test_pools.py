"""Laws of the pools: what a step of the engine's own arithmetic gives, and what never happens."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.engine.sglang.kv.layout import layout
from kvplanner.engine.sglang.kv.pools import (
    Layout,
    Measured,
    Pools,
    Refusal,
    Sized,
    Sizing,
    Stop,
    rest_gib,
    sizing,
    solve,
)
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.sglang.settle.settle import settle
from kvplanner.engine.sglang.startup import replica
from kvplanner.units import GIB
from tests.engine.sglang.kit import GPT_OSS, H100, HYBRID, LLAMA_8B, QWEN_32B, request, settings

BEFORE = 84_786_806_784
MODELS = (LLAMA_8B, QWEN_32B, GPT_OSS, HYBRID, "deepseek-ai/DeepSeek-V3.1", "google/gemma-3-27b-it")


@cache
def made(name: str) -> tuple[Settings, Layout]:
    found = settle(request(name, "8xH100")).settings
    return found, layout(models.load(name).spec, found, 0)


def solved(name: str, fraction: float, weights: int, page: int | None = None) -> Pools | Refusal:
    found, pools = made(name)
    cached = found.cache._replace(page_size=page or found.cache.page_size)
    return solve(found._replace(fraction=fraction, cache=cached), pools, Measured(BEFORE, BEFORE - weights))


def tokens(found: Pools | Refusal) -> int:
    return found.tokens if isinstance(found, Pools) else 0


def slot_tokens(name: str) -> int:
    """What one more slot of recurrent state takes from the tokens: with less memory there may be a slot less."""
    _, pools = made(name)
    return -(-pools.state.stage_bytes // pools.cells.charged_full) + 1 if pools.state else 0


def test_the_worked_example() -> None:
    """Llama-3.1-8B on an H100 with 16.06 GB loaded: 131,072 bytes a token, 2,048 requests, a table of 1.07 GB."""
    found = settings(LLAMA_8B, *H100)
    pools = solve(found, layout(models.load(LLAMA_8B).spec, found, 0), Measured(84_786_806_784, 68_710_000_000))
    assert isinstance(pools, Pools)
    rest = 68_710_000_000 - 84_786_806_784 * (1 - found.fraction)
    assert pools.tokens == pytest.approx(rest / 131_072, abs=2)
    assert pools.requests == 2048
    assert pools.table_bytes == 2049 * (131_072 + 4) * 4
    assert pools.kv_bytes == (pools.tokens + 1) * 131_072 + 3 * 8 * 2 * 32  # pointer tables of every layer


@given(st.sampled_from(MODELS), st.floats(0.3, 0.95), st.integers(0, 60 * GIB))
def test_slack_and_budget_are_what_was_free(name: str, fraction: float, weights: int) -> None:
    found, _ = made(name)
    found = found._replace(fraction=fraction)
    rest = rest_gib(found, Measured(BEFORE, BEFORE - weights))
    slack = BEFORE / GIB * (1 - fraction) + found.media_mib / 1024
    assert weights / GIB + rest + slack == pytest.approx(BEFORE / GIB, abs=1e-4)  # a 32-bit minimum over the ranks


@given(st.sampled_from(MODELS), st.floats(0.3, 0.95), st.floats(0.3, 0.95), st.integers(0, 60 * GIB))
def test_tokens_never_rise_when_the_fraction_falls(name: str, one: float, other: float, weights: int) -> None:
    low, high = sorted((one, other))
    assert tokens(solved(name, low, weights)) <= tokens(solved(name, high, weights)) + slot_tokens(name)


@given(st.sampled_from(MODELS), st.floats(0.3, 0.95), st.integers(0, 60 * GIB), st.integers(0, 60 * GIB))
def test_tokens_never_rise_when_weights_rise(name: str, fraction: float, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert tokens(solved(name, fraction, high)) <= tokens(solved(name, fraction, low)) + slot_tokens(name)


@given(st.sampled_from(MODELS), st.floats(0.3, 0.95), st.integers(0, 60 * GIB), st.integers(0, 6))
def test_tokens_never_rise_when_pages_double(name: str, fraction: float, weights: int, double: int) -> None:
    small, large = solved(name, fraction, weights, 1 << double), solved(name, fraction, weights, 2 << double)
    assert tokens(large) <= tokens(small)


@given(st.sampled_from(MODELS), st.floats(0.3, 0.95), st.integers(0, 60 * GIB))
def test_tokens_are_whole_pages_and_pools_take_what_the_budget_leaves(name: str, fraction: float, weights: int) -> None:
    found, pools = made(name)
    sized = solved(name, fraction, weights)
    if not isinstance(sized, Pools):
        return
    page = found.cache.page_size
    assert sized.tokens % page == 0
    each = pools.cells.charged_full + pools.cells.charged_window
    state = pools.state.allocated_bytes if pools.state else 0
    assert sized.bytes <= sized.rest_bytes + (page + 2) * each + pools.cells.tables + state + 8 * (sized.tokens + 2)


def test_requests_follow_from_tokens_between_two_bounds() -> None:
    found, pools = made(LLAMA_8B)
    for fraction in (0.3, 0.6, 0.9):
        sized = solve(found._replace(fraction=fraction), pools, Measured(BEFORE, BEFORE - GIB))
        assert isinstance(sized, Pools)
        assert sized.requests == max(min(int(sized.tokens / found.context_length * 512), 4096), 2048)


def test_a_limit_of_tokens_only_lowers() -> None:
    found, pools = made(LLAMA_8B)
    free = Measured(BEFORE, BEFORE - GIB)
    usual = solve(found, pools, free)
    for limit, expected in ((10_000, 10_000), (1 << 40, tokens(usual))):
        cached = found.cache._replace(max_total_tokens=limit)
        assert tokens(solve(found._replace(cache=cached), pools, free)) == expected


def test_the_prefix_cache_costs_slots_per_request_and_no_tokens_of_plain_attention() -> None:
    for name in (LLAMA_8B, HYBRID):
        with_it = settle(request(name, "8xH100")).settings
        without = settle(request(name, "8xH100", {"disable_radix_cache": True})).settings
        free = Measured(BEFORE, BEFORE - 20 * GIB)
        spec = models.load(name).spec
        one, other = layout(spec, with_it, 0), layout(spec, without, 0)
        if name == LLAMA_8B:
            assert tokens(solve(with_it, one, free)) == tokens(solve(without, other, free))
        else:
            assert one.state is not None
            assert other.state is not None
            assert (one.state.per_request > 1, other.state.per_request) == (True, 1)


def test_a_stage_that_refuses_the_tokens_of_the_smallest_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages take the tokens of the one that holds fewest; with those another may have no room for its states."""
    found, _ = made(LLAMA_8B)
    first = layout(models.load(LLAMA_8B).spec, found, 0)
    second = first._replace()
    refusal = Refusal("states", "too few", 1.0)

    def sized(settings: Settings, of: Layout, free: Measured) -> Sizing:
        usual = sizing(settings, of, free)
        if of is second and settings.cache.max_total_tokens:
            raise Stop(refusal)
        return usual if of is second else usual._replace(sized=Sized(usual.sized.tokens // 2, None))

    monkeypatch.setattr(replica, "sizing", sized)
    monkeypatch.setattr(replica, "_measured", lambda ranks, end, fraction: (BEFORE, BEFORE - GIB))
    assert replica.pools_of(found, (first, second), (), "value") == ((), refusal)
