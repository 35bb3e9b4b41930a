"""Where a server starts as its fraction moves, what surely works, and laws that hold whatever the model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import Load
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.kv import keeps_nothing
from tests.engine.sglang.kit import GPT_OSS, HYBRID, LLAMA_8B, QWEN_32B, plan

DEEPSEEK = "deepseek-ai/DeepSeek-V3.1"
CASES = [(LLAMA_8B, "RTX 4090"), (LLAMA_8B, "H100"), (QWEN_32B, "H100"), (GPT_OSS, "RTX 4090"), (HYBRID, "4xH100"),
         (DEEPSEEK, "8xB200"), ("google/gemma-3-27b-it", "2xL40S")]  # fmt: skip


def at(model: str, gpu: str, fraction: float, **more: object) -> Plan:
    return plan(model, gpu, {"mem_fraction_static": round(fraction, 3), **more})  # type: ignore[dict-item]  # as a flag's value comes


@pytest.mark.parametrize(("model", "gpu"), CASES)
def test_a_fraction_works_within_the_range_and_nowhere_else(model: str, gpu: str) -> None:
    (found,) = plan(model, gpu).ranges
    assert found.option == "mem_fraction_static"
    assert found.low is not None
    assert found.high is not None
    step = 0.001
    assert at(model, gpu, found.low).fits
    assert at(model, gpu, found.high).fits
    assert at(model, gpu, found.low - step).stage in ("kv_cache_sizing", "kv_cache_too_small")
    if found.high < 0.999:
        assert at(model, gpu, found.high + step).stage in ("kv_cache_allocation", "graph_capture", "runtime")
    if not found.sure:
        return
    assert found.sure_low is not None
    assert found.sure_high is not None
    assert found.low <= found.sure_low <= found.sure_high <= found.high
    assert at(model, gpu, found.sure_low).sure
    assert at(model, gpu, found.sure_high).sure
    assert not at(model, gpu, found.sure_low - step).sure
    assert found.sure_high == 0.999 or not at(model, gpu, found.sure_high + step).sure


def test_the_range_is_the_same_wherever_the_fraction_stands() -> None:
    assert len({at(LLAMA_8B, "H100", fraction).ranges for fraction in (0.1, 0.3, 0.83, 0.97)}) == 1


def test_a_given_cache_leaves_the_fraction_nothing_to_decide() -> None:
    from tests.engine.sglang.kit import SGLANG, request

    given_cache = request(LLAMA_8B, "H100")._replace(measured={"kv_cache": 10 << 30})
    assert SGLANG.plan(given_cache).ranges == ()


@pytest.mark.parametrize(("model", "gpu"), CASES)
def test_the_longest_context_starts_and_is_served(model: str, gpu: str) -> None:
    limits = plan(model, gpu).limits
    for length, surely in ((limits.max_context_length, False), (limits.sure_max_context_length, True)):
        if length is None:
            continue
        there = plan(model, gpu, {"context_length": length})
        assert there.sure if surely else there.fits
        assert there.kv_cache is not None
        assert (there.kv_cache.tokens_low if surely else there.kv_cache.tokens) >= length
        # The longest does not depend on the one that is set.
        assert (there.limits.sure_max_context_length if surely else there.limits.max_context_length) == length


def test_users_are_surely_served_by_what_the_low_end_holds() -> None:
    found = plan(LLAMA_8B, "RTX 4090", {"mem_fraction_static": 0.85}, load=Load(100, 1500, 500))
    assert found.kv_cache is not None
    assert found.limits.serves_users == found.kv_cache.tokens // 2000
    assert found.limits.sure_serves_users == (found.kv_cache.tokens_low // 2000 if found.sure else 0)
    assert plan(LLAMA_8B, "H100", load=Load(8, 1500, 500)).limits.sure_serves_users == 8


MODELS = sorted(entry.id for entry in models.index())
GPUS = ["RTX 4090", "H100", "2xL40S", "4xH100", "8xB200"]


def tokens(found: Plan) -> int:
    return found.kv_cache.tokens if found.kv_cache is not None else 0


@settings(max_examples=25)
@given(st.sampled_from(MODELS), st.sampled_from(GPUS), st.floats(0.1, 0.98), st.floats(0.001, 0.3))
def test_laws_of_every_model_of_the_catalogue(model: str, gpu: str, high: float, step: float) -> None:
    """Tokens never rise when the fraction falls, weights grow or pages grow; budget and slack are what was free."""
    low = max(high - step, 0.05)
    try:
        more, less = at(model, gpu, high), at(model, gpu, low)
    except (BadInput, NotModelled):
        return
    untold = keeps_nothing(more.request.model.spec.layers)
    assert (more.verdict.state == "cannot_tell") == untold
    if untold:
        return  # an encoder: no budget is known to hold to
    assert tokens(less) <= tokens(more)
    try:
        paged = at(model, gpu, high, page_size=256)
        assert tokens(paged) <= tokens(more)
    except BadInput:
        pass
    heavier = more.request._replace(
        measured={"weights": more.devices[0].segments[3].bytes + (1 << 28)},
    )
    from tests.engine.sglang.kit import SGLANG

    assert tokens(SGLANG.plan(heavier)) <= tokens(more)
    for device in more.devices:
        before = device.total_bytes - device.budget_start
        budget = device.budget
        assert budget is not None
        assert device.budget_share is not None
        assert 0 <= budget.value <= before
        assert budget.value == pytest.approx(before * device.budget_share, abs=1)
