"""The default rules by total memory, with values from the oracle of 0.5.23 and from older releases."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kvplanner.catalog import models
from kvplanner.engine.sglang.eras import ERAS, era_of
from kvplanner.errors import BadInput
from tests.engine.sglang.kit import A10G, B200, H100, HYBRID, LLAMA_8B, QWEN_32B, SGLANG, T4, plan, settings


@pytest.mark.parametrize(
    ("gpu", "chunk", "most", "fraction"),
    [(H100, 8192, 256, 0.830), (B200, 16384, 512, 0.854), (T4, 2048, 8, 0.735), (A10G, 4096, 48, 0.684)],
)
def test_chunk_graphs_and_fraction_follow_the_cards_size(
    gpu: tuple[str, int], chunk: int, most: int, fraction: float
) -> None:
    found = settings(LLAMA_8B, *gpu)
    assert (found.chunk, found.graphs.decode_max) == (chunk, most)
    assert found.fraction == pytest.approx(fraction, abs=0.0005)


def test_small_cards_took_smaller_chunks_in_older_releases() -> None:
    assert settings(LLAMA_8B, *A10G, version="0.5.9").chunk == 2048


def test_a_limit_of_requests_lowers_the_graphs() -> None:
    found = settings(LLAMA_8B, *H100, options={"max_running_requests": 12})
    assert found.graphs.decode_max == 12
    assert max(found.graphs.decode) <= 12
    assert found.fraction > settings(LLAMA_8B, *H100).fraction


def test_the_users_fraction_stands() -> None:
    assert settings(LLAMA_8B, *H100, options={"mem_fraction_static": 0.7}).fraction == 0.7


def test_larger_chunks_leave_a_smaller_fraction() -> None:
    fractions = [settings(LLAMA_8B, *H100, options={"chunked_prefill_size": c}).fraction for c in (2048, 8192, 16384)]
    assert fractions == sorted(fractions, reverse=True)
    assert len(set(fractions)) == 3


def test_old_eras_take_their_own_rules() -> None:
    now, in_0_4_6 = settings(LLAMA_8B, *H100), settings(LLAMA_8B, *H100, version="0.4.6")
    assert in_0_4_6.fraction == 0.88
    assert not in_0_4_6.graphs.prefill
    assert now.graphs.prefill


def test_eras_follow_each_other_without_a_gap() -> None:
    for before, after in pairwise(ERAS):
        assert before.last < after.first
        assert era_of(".".join(map(str, after.first))).era is after


@pytest.mark.parametrize(
    ("version", "era"),
    [("0.4.6.post5", "0.4-table"), ("v0.4.10", "0.4.10"), ("0.5.3", "0.5.3"), ("0.5.9", "0.5.3"),
     ("0.5.10.post1", "0.5.10"), ("0.5.17", "0.5.14"), ("0.5.18", "0.5.18"), ("0.5.23rc1", "0.5.20"), (None, "0.5.20")],
)  # fmt: skip
def test_versions_find_their_era(version: str | None, era: str) -> None:
    assert era_of(version).era.name == era


def test_unknown_versions_take_the_nearest_era_and_say_so() -> None:
    newer = era_of("0.6.1")
    assert newer.era is ERAS[-1]
    assert "newer than 0.5.23" in newer.warnings[0]
    assert "older" in era_of("0.1.0").warnings[0]
    assert any("0.6.1" in warning for warning in plan(LLAMA_8B, "H100", version="0.6.1").warnings)


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(BadInput, match="not an SGLang version"):
        era_of("yesterday")


@pytest.mark.parametrize("version", SGLANG.versions)
@pytest.mark.parametrize("name", [LLAMA_8B, QWEN_32B, HYBRID, "deepseek-ai/DeepSeek-V3.1", "openai/gpt-oss-20b"])
def test_every_release_that_is_offered_plans(version: str, name: str) -> None:
    found = plan(name, "8xH200", version=version)
    assert found.fits
    assert found.kv_cache is not None
    assert found.kv_cache.unit == ("tokens" if found.kv_cache.unit_tokens == 1 else "pages")
    assert found.rules == era_of(version).era.name


@pytest.mark.slow
def test_every_architecture_of_the_catalogue_plans_or_is_refused_in_words() -> None:
    for name in (entry.id for entry in models.index()[::9]):
        try:
            found = plan(name, "8xH200")
        except BadInput as refused:
            assert refused.what
            continue
        for device in found.devices:
            assert sum(s.bytes for s in device.segments) == device.total_bytes + device.overflow_bytes
