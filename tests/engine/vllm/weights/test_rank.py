"""Weights per rank against what vLLM 0.33 itself allocates, and the laws that every model must obey."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.engine.vllm.weights import loaded as weights_loaded
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.errors import BadInput, NotModelled
from kvplanner.estimate import banded
from kvplanner.model.model import Model
from tests.engine.vllm.weights.models import H100, LLAMA_3_8B, LLAMA_3_70B, QWEN3_8B, experts, llama, settings

# param_bytes of vLLM 0.33 on meta tensors, tensor parallel 1, 2, 4, 8 on H100.
ENGINE = {
    "llama-3-8b": (LLAMA_3_8B, {1: 16060522496, 2: 8030527488, 4: 4015529984, 8: 2008031232}),
    "llama-3-70b": (LLAMA_3_70B, {1: 141107412992, 2: 70555025408, 4: 35278831616, 8: 17640734720}),
    "qwen3-8b": (QWEN3_8B, {1: 16381470720, 2: 8191043584, 4: 4095830016, 8: 2048223232}),
}


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ENGINE)
def test_dense_weights_equal_the_engines_to_the_byte(name: str, tp: int) -> None:
    model, expected = ENGINE[name]
    estimate = weights.rank_weights(model, settings(tp=tp), H100, 0)
    assert estimate.value == expected[tp]
    assert estimate.basis == "exact"


def test_pipeline_stages_hold_what_the_engine_allocates() -> None:
    both = [weights.rank_weights(LLAMA_3_8B, settings(tp=2, pp=2), H100, stage).value for stage in (0, 1)]
    assert both == [4015259648, 4015267840]


def test_loading_line_adds_rotary_tables_and_rounding() -> None:
    # allocator_bytes of the engine: 16,062,718,976
    assert weights_loaded.loaded(LLAMA_3_8B, settings(), H100, 0).value == pytest.approx(16062718976, rel=1e-5)


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [(61, 4, [15, 15, 16, 15]), (32, 3, [11, 11, 10]), (80, 4, [20] * 4), (23, 4, [6, 6, 6, 5])],
)
def test_partition_gives_the_rest_to_stages_before_the_last(layers: int, pp: int, expected: list[int]) -> None:
    sizes = [end - first for first, end in weights.partition(layers, pp)]
    assert sizes == expected


def test_partition_override_must_sum_to_the_layers() -> None:
    assert weights.partition(10, 2, (3, 7)) == ((0, 3), (3, 10))
    with pytest.raises(BadInput, match="VLLM_PP_LAYER_PARTITION"):
        weights.partition(10, 2, (3, 3))
    with pytest.raises(BadInput, match="stages"):
        weights.partition(2, 3)


@given(layers=st.integers(1, 200), pp=st.integers(1, 16))
def test_partition_covers_every_layer_once(layers: int, pp: int) -> None:
    if pp > layers:
        return
    bounds = weights.partition(layers, pp)
    assert [first for first, _ in bounds] == [0] + [end for _, end in bounds[:-1]]
    assert bounds[-1][1] == layers
    assert max(e - f for f, e in bounds) - min(e - f for f, e in bounds) <= 1


@given(
    layers=st.integers(2, 12), head=st.sampled_from([64, 128]), kv=st.sampled_from([1, 2, 4, 8]),
    width=st.integers(1, 40), vocab=st.integers(100, 5000), tied=st.booleans(), tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.integers(1, 4),
)  # fmt: skip
def test_ranks_hold_at_least_the_model_and_stages_sum_to_it(
    layers: int, head: int, kv: int, width: int, vocab: int, tied: bool, tp: int, pp: int
) -> None:
    model = llama(layers, 8 * head, 8, kv, head, 64 * width, vocab, tied=tied)
    pp = min(pp, layers)
    whole = weights.rank_weights(model, settings(), H100, 0).value
    stages = [weights.rank_weights(model, settings(pp=pp), H100, stage).value for stage in range(pp)]
    tied_again = 0 if not tied or pp == 1 else -(-vocab // 64) * 64 * 8 * head * 2
    assert sum(stages) == whole + tied_again
    rank = weights.rank_weights(model, settings(tp=tp), H100, 0).value
    assert tp * rank >= whole
    assert rank <= whole


def test_weights_shrink_by_what_is_kept_on_the_host() -> None:
    kept = weights.rank_weights(LLAMA_3_8B, settings(cpu_offload_bytes=4 << 30), H100, 0)
    assert kept.value == 16060522496 - (4 << 30)
    assert "kept on the host" in kept.formula


def test_unknown_tensors_are_refused() -> None:
    bare = Model("x", LLAMA_3_8B.spec, None, "config")
    with pytest.raises(NotModelled):
        weights.rank_weights(bare, settings(), H100, 0)


def test_float32_doubles_the_weights() -> None:
    assert weights.rank_weights(LLAMA_3_8B, settings(dtype="float32"), H100, 0).value == 2 * 16060522496


def _experts_of(tp: int = 1, **changes: Any) -> int:
    model = experts(2, 512, 16, 256, 2)
    return sum(
        h.bytes for h in weights.rank_tensors(model, settings(tp=tp, **changes), H100, 0) if h.group.kind == "experts"
    )


def test_experts_are_cut_over_all_ranks_or_spread_whole() -> None:
    whole = 2 * 16 * 3 * 512 * 256 * 2
    assert _experts_of() == whole
    assert _experts_of(tp=4) == whole // 4
    assert _experts_of(tp=2, dp=2) == whole // 4
    assert _experts_of(tp=4, expert_parallel=True) == whole // 4
    # Four redundant experts: 20 over 4 ranks are 5 on each.
    assert _experts_of(tp=4, expert_parallel=True, redundant_experts=4) == whole // 16 * 5
    # 16 experts over 3 × 2 ranks: the fullest has 3.
    assert _experts_of(tp=3, dp=2, expert_parallel=True) == whole // 16 * 3


def test_data_parallel_copies_everything_but_experts() -> None:
    model = experts(2, 512, 16, 256, 2)
    one, two = (weights.rank_weights(model, settings(dp=dp), H100, 0).value for dp in (1, 2))
    assert one - two == _experts_of() // 2


def test_kv_heads_are_copied_where_ranks_outnumber_them() -> None:
    model = llama(1, 1024, 8, 2, 128, 1024, 6400)
    kv = [
        sum(h.bytes for h in weights.rank_tensors(model, settings(tp=tp), H100, 0) if h.group.shard == "kv")
        for tp in (1, 2, 4, 8)
    ]
    assert kv == [2 * 256 * 1024 * 2, 2 * 128 * 1024 * 2, 2 * 128 * 1024 * 2, 2 * 128 * 1024 * 2]


def test_lora_slots_and_drafts_are_counted_and_named() -> None:
    lora = weights.rank_weights(LLAMA_3_8B, settings(lora={"slots": 2, "rank": 16}), H100, 0)
    per_layer = (4096 + 4096) * 2 + (1024 + 4096) * 2 + (14336 + 4096) * 3
    assert lora.value - 16060522496 == 2 * 2 * 16 * 32 * per_layer
    draft = weights.rank_weights(LLAMA_3_8B, settings(speculative={"method": "eagle3", "tokens": 3}), H100, 0)
    assert draft.low < draft.value < draft.high
    assert "draft model" in draft.formula
    assert "rule of thumb" in draft.notes[0]
    unknown = weights.rank_weights(LLAMA_3_8B, settings(speculative={"method": "draft_model", "tokens": 3}), H100, 0)
    assert unknown.value == 16060522496
    assert "not counted" in unknown.notes[0]
    assert weights.rank_weights(LLAMA_3_8B, settings(speculative={"method": "ngram", "tokens": 3}), H100, 0).notes == ()


@pytest.mark.parametrize(
    ("method", "version", "loaded_gib"), [("fp8", "0.19.0", 8.49), ("fp8_per_channel", "0.33.0", 8.5)]
)
def test_online_quantisation_leaves_embeddings_and_head(method: str, version: str, loaded_gib: float) -> None:
    here = settings(version, quantization=method, max_model_len=131072)
    assert weights_loaded.loaded(LLAMA_3_8B, here, H100, 0).value / 2**30 == pytest.approx(loaded_gib, abs=0.03)


def test_old_versions_load_all_of_it_before_they_quantise() -> None:
    late, early = (
        weights.loading_peak(LLAMA_3_8B, settings(version, quantization="fp8"), H100, 0)
        for version in ("0.33.0", "0.11.0")
    )
    assert early.value - late.value > 6 * 2**30
    assert "16-bit copy" in early.formula


def test_a_what_if_size_carries_its_band() -> None:
    stored = banded(1000, 995, 1020, "analytic")
    loose = weights.rank_weights(LLAMA_3_8B._replace(stored=stored), settings(tp=2), H100, 0)
    assert loose.value == 8030527488
    assert loose.high / loose.value == pytest.approx(1.02)
    assert loose.basis == "analytic"


def test_an_encoder_that_is_skipped_as_a_whole_is_built_in_8_bits() -> None:
    """Devstral Small 2 lists "model.vision_tower", which names no layer: 1.7 % less than its files hold."""
    model = models.load("mistralai/Devstral-Small-2-24B-Instruct-2512")
    assert model.stored is not None
    halved = 24 * (4 * 1024 * 1024 + 3 * 1024 * 4096) + 5120 * (1024 + 5120)
    found = weights.rank_weights(model, settings(), H100, 0)
    assert found.value == pytest.approx(model.stored.value - halved, rel=2e-5)
    listed = model._replace(spec=model.spec._replace(quantization_traits=()))
    assert weights.rank_weights(listed, settings(), H100, 0).value == pytest.approx(model.stored.value, rel=2e-5)
