"""What SGLang offers to change: each lever where it can do something, and in the right direction."""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.engine.lever import Lever
from kvplanner.engine.option import OptionValue
from tests.engine.sglang.kit import HYBRID, LLAMA_8B, SGLANG, plan, request


def offered(model: str, gpu: str, options: Mapping[str, OptionValue] | None = None) -> dict[str, Lever]:
    asked = request(model, gpu, options)
    return {lever.name: lever for lever in SGLANG.levers(asked, SGLANG.plan(asked))}


def shares(lever: Lever) -> list[float]:
    return [float(step["mem_fraction_static"] or 0) for step in lever.steps]


def test_the_fraction_moves_up_for_pools_and_down_for_graphs() -> None:
    up = offered(LLAMA_8B, "H100", {"mem_fraction_static": 0.15})["budget_share"]
    down = offered(LLAMA_8B, "H100", {"mem_fraction_static": 0.98})["budget_share"]
    assert min(shares(up)) > 0.15
    assert max(shares(down)) < 0.98
    assert any(plan(LLAMA_8B, "H100", {"mem_fraction_static": share}).fits for share in shares(up))
    assert any(plan(LLAMA_8B, "H100", {"mem_fraction_static": share}).fits for share in shares(down))


def test_fewer_captures_are_offered_where_the_slack_is_too_small() -> None:
    assert "capture_sizes" in offered(LLAMA_8B, "H100", {"mem_fraction_static": 0.95})
    assert "capture_sizes" not in offered(LLAMA_8B, "H100", {"mem_fraction_static": 0.15})
    assert "capture_sizes" not in offered(LLAMA_8B, "H100")


def test_a_plan_that_works_is_offered_a_smaller_cache_type() -> None:
    step = offered(LLAMA_8B, "H100")["kv_dtype"].steps[0]
    more, usual = plan(LLAMA_8B, "H100", {"kv_cache_dtype": step["kv_cache_dtype"] or ""}), plan(LLAMA_8B, "H100")
    assert more.kv_cache is not None
    assert usual.kv_cache is not None
    assert more.kv_cache.tokens > 1.9 * usual.kv_cache.tokens


def test_hybrids_alone_gain_requests_without_the_prefix_cache() -> None:
    assert "no_prefix_caching" in offered(HYBRID, "4xH100")
    assert "no_prefix_caching" not in offered(LLAMA_8B, "H100")
