"""The figures of the help page are those that plans give."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.files import shipped
from kvplanner.units import GIB
from tests.engine.sglang.kit import GPT_OSS, HYBRID, LLAMA_8B, plan, request

PAGE = shipped("help", "sglang.md").read_text(encoding="utf-8")


def row(first: str) -> list[str]:
    found = [line for line in PAGE.splitlines() if line.startswith(f"| {first} |")]
    assert len(found) == 1, first
    return [cell.strip() for cell in found[0].strip("|").split("|")]


def tokens(found: Plan) -> str:
    assert found.kv_cache is not None
    return f"{found.kv_cache.tokens:,}"


def size(found: Plan, kind: str) -> str:
    return f"{next(s.bytes for s in found.devices[0].segments if s.kind == kind) / GIB:.2f} GiB"


@pytest.mark.parametrize(
    ("model", "gpu"),
    [(LLAMA_8B, "H100"), ("deepseek-ai/DeepSeek-V3.1", "8xH200"), (GPT_OSS, "H100"), (HYBRID, "4xH100")],
)
def test_tokens_beside_vllms(model: str, gpu: str) -> None:
    cells = row(model.rpartition("/")[2])
    theirs = engine("vllm").plan(request(model, gpu)._replace(engine="vllm"))
    assert cells[1:3] == [gpu, tokens(plan(model, gpu))]
    assert theirs.kv_cache is not None
    assert int(cells[3].replace(",", "")) == pytest.approx(theirs.kv_cache.tokens, rel=0.03)


@pytest.mark.parametrize("limit", [None, 4096, 256, 32])
def test_what_a_limit_of_requests_costs(limit: int | None) -> None:
    found = plan(LLAMA_8B, "H100", {"max_running_requests": limit} if limit else {})
    cells = row(str(limit) if limit else "not set")
    assert cells[1:] == [f"{found.limits.max_requests:,}", size(found, "workspace"), size(found, "cuda_graphs")]


@pytest.mark.parametrize(
    ("first", "options"),
    [("none", {}), ("`--disable-radix-cache`", {"disable_radix_cache": True}),
     ("`--mamba-full-memory-ratio 0.5`", {"mamba_full_memory_ratio": 0.5}),
     ("`--max-mamba-cache-size 320`", {"max_mamba_cache_size": 320})],
)  # fmt: skip
def test_what_hybrids_pay_for_a_request(first: str, options: Mapping[str, OptionValue]) -> None:
    found = plan(HYBRID, "4xH100", options)
    assert row(first)[2:] == [f"{found.limits.max_requests:,}", tokens(found)]
    assert any(f"takes {row(first)[1]} of " in warning for warning in found.warnings)


def test_the_window_of_fractions() -> None:
    found = plan(LLAMA_8B, "H100", {"mem_fraction_static": 0.1}).verdict.failing
    assert found is not None
    assert f"fractions from {found.reason.figures['least']} to {found.reason.figures['largest']} work" in PAGE.replace(
        "\n", " "
    )
