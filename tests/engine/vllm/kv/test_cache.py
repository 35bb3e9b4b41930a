"""The cache rules one by one: rows, groups, blocks, refusals, and why each figure is what it is."""

from __future__ import annotations

import pytest

from kvplanner.engine.option import OptionValue
from kvplanner.engine.vllm import dtypes as kv_dtypes
from kvplanner.engine.vllm.kv import notes as kv_notes
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.errors import BadInput
from kvplanner.model.kv import index_row_bytes
from kvplanner.model.spec import Compressed, Indexer, State
from kvplanner.units import GIB
from tests.engine.vllm.kv.models import (
    B200,
    H100,
    RTX4090,
    dense,
    full,
    gated,
    kimi_linear,
    laid_out,
    latent,
    resolved,
    spec,
    windowed,
)

TP4 = {"tensor_parallel_size": 4}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("auto", 512), ("fp8", 256), ("fp8_e5m2", 256), ("int8_per_token_head", 264), ("int4_per_token_head", 136),
        ("nvfp4", 144), ("turboquant_k8v4", 196), ("turboquant_4bit_nc", 134), ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
    ],
)  # fmt: skip
def test_bytes_of_a_head_of_128(dtype: str, expected: int) -> None:
    assert kv_dtypes.head_bytes(dtype, "bfloat16", 128, 128) == expected


def test_latent_rows() -> None:
    assert kv_dtypes.latent_bytes("auto", "bfloat16", 576, packed=False) == 1152
    assert kv_dtypes.latent_bytes("fp8", "bfloat16", 576, packed=False) == 576
    assert kv_dtypes.latent_bytes("fp8", "bfloat16", 576, packed=True) == 656
    assert index_row_bytes(128) == 132
    assert index_row_bytes(192) == 196  # rounded down: models/deepseek_v2.py of 0.33


def test_dense_is_one_group() -> None:
    layout = laid_out(dense())
    assert layout.bytes_per_block == (2 << 20,)
    assert layout.bytes_per_token == 131072
    assert [(g.kind, g.layers, g.unit_tokens, g.units_per_request) for g in layout.groups] == [("full", 32, 16, 8192)]
    sizing = kv_sizing.size(layout, (40 * GIB,))
    assert (sizing.num_blocks, sizing.tokens) == (20480, 327680)
    assert sizing.max_concurrency == 2.5
    assert kv_sizing.max_context(layout, sizing) == 131072
    assert layout.blocks_at(1000) == 63


def test_kimi_linear_of_late_2025() -> None:
    options = {"tensor_parallel_size": 2, "max_model_len": 120000}
    layout = laid_out(kimi_linear(), options, version="0.11.2")
    assert layout.block_size == 960
    assert layout.bytes_per_block == (7_741_440,)
    assert [(g.kind, g.layers) for g in layout.groups] == [("state", 7), ("state", 7), ("state", 6), ("mla", 7)]
    # The log prints 2.30 GiB: anything from 2.295 to 2.305.
    sizing = kv_sizing.size(layout, (int(2.2975 * GIB),))
    assert sizing.tokens == 75_840
    assert round(sizing.max_concurrency, 2) == 2.48
    assert kv_sizing.size(layout, (int(2.30 * GIB),)).tokens == 75_840
    assert any("at most 5.00 %" in note for note in layout.notes)


def test_kimi_linear_now() -> None:
    layout = laid_out(kimi_linear(), {"tensor_parallel_size": 2, "max_model_len": 120000})
    assert layout.block_size == 1024
    sizing = kv_sizing.size(layout, (int(2.30 * GIB),))
    assert sizing.tokens == int(sizing.max_concurrency * 120000)


def test_latent_cache_does_not_shrink_with_tensor_parallelism() -> None:
    one, four = laid_out(latent()), laid_out(latent(), TP4)
    assert one.bytes_per_block == four.bytes_per_block == (61 * 16 * 1152,)
    assert not any("does not shrink" in n for n in one.notes)
    assert any("does not shrink" in n and "576 elements" in n for n in four.notes)


def test_heads_are_copied_beyond_their_number() -> None:
    few = spec([(full(32, 2),)] * 8)
    assert laid_out(few, {"tensor_parallel_size": 2}).bytes_per_block == laid_out(few, TP4).bytes_per_block
    assert any("copied" in n for n in laid_out(few, TP4).notes)


def test_decode_context_parallelism_splits_tokens() -> None:
    options = {"tensor_parallel_size": 8, "decode_context_parallel_size": 4, "max_model_len": 100000}
    layout = laid_out(latent(), options)
    assert layout.groups[0].units_per_request == -(-25000 // 16)
    assert layout.bytes_per_token == 61 * 1152 / 4


def test_the_tightest_stage_decides() -> None:
    layout = laid_out(latent(), {"pipeline_parallel_size": 4, "tensor_parallel_size": 2, "max_model_len": 8192})
    assert [b // (16 * 1152) for b in layout.bytes_per_block] == [15, 15, 16, 15]
    sizing = kv_sizing.size(layout, (4 * GIB, 2 * GIB, 4 * GIB, 4 * GIB))
    assert sizing.num_blocks == 2 * GIB // (15 * 16 * 1152)
    assert any("Pipeline stages" in n for n in layout.notes)


def test_windows_keep_tokens_in_flight() -> None:
    layout = laid_out(windowed(10, 2, window=1024))
    window, plain = layout.groups[0], layout.groups[-1]
    assert window.units_per_request == -(-(1023 + 2 * 8192) // 16) + 1
    assert plain.units_per_request == 8192
    assert len(layout.groups) == 6
    assert any("tokens in flight" in n for n in layout.notes)
    assert any("printed token figure" in n for n in layout.notes)
    older = laid_out(windowed(10, 2, window=1024), version="0.23.0")
    assert older.groups[0].units_per_request == -(-(1023 + 8192) // 16) + 1


def test_disabled_manager_keeps_everything() -> None:
    layout = laid_out(windowed(10, 2), {"disable_hybrid_kv_cache_manager": True})
    assert [(g.kind, g.layers) for g in layout.groups] == [("full", 12)]


def test_chunked_layers_by_version() -> None:
    model = spec([(full(chunk=8192),)] * 3 + [(full(),)], context_length=1 << 20)
    assert laid_out(model).groups[0].units_per_request == (8192 + 2 * 8192) // 16
    grouped, promoted = ["chunked"] * 3 + ["full"], ["full"]
    for version, kinds in (("0.33.0", grouped), ("0.19.0", grouped), ("0.13.0", grouped), ("0.12.0", promoted)):
        assert [g.kind for g in laid_out(model, version=version).groups] == kinds
    allowed, forbidden = {"chunked_attention_in_hybrid_cache": True}, {"chunked_attention_in_hybrid_cache": False}
    assert [g.kind for g in laid_out(model, allowed, version="0.12.0").groups] == grouped
    assert [g.kind for g in laid_out(model, forbidden).groups] == promoted


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "ngram"])
def test_chunked_layers_beside_heads_that_read_states(method: str) -> None:
    model = spec([(full(chunk=8192),)] * 3 + [(full(),)], context_length=1 << 20, mtp_layers=1)
    options: dict[str, OptionValue] = {
        "speculative_method": method,
        "num_speculative_tokens": 1,
        "disable_hybrid_kv_cache_manager": False,
    }
    settings, reasons, _ = resolved(model, options)
    assert settings.cache.hybrid_manager is (method == "ngram")
    if method != "ngram":
        assert reasons["disable_hybrid_kv_cache_manager"].reason == f"on for chunked attention beside {method}"


def test_uneven_groups_are_padded() -> None:
    layout = laid_out(windowed(13, 12))
    assert [(g.kind, g.layers, g.padding_layers) for g in layout.groups] == [("sliding", 13, 0), ("full", 12, 1)]
    assert any("1 slot empty" in n for n in layout.notes)


def test_smaller_pages_get_longer_blocks() -> None:
    model = spec([(full(32, 16, 256, window=1024),)] * 5 + [(full(32, 4, 512),)])
    layout = laid_out(model)
    assert [(g.kind, g.unit_tokens, g.page_bytes) for g in layout.groups][-1] == ("full", 32, 262144)


def test_indexer_lies_beside_the_latent_cache() -> None:
    layout = laid_out(latent(78, Indexer(64, 128, 2048)))
    assert layout.block_size == 64
    assert layout.bytes_per_block == (78 * 64 * (1152 + 132),)
    packed = laid_out(latent(78, Indexer(64, 128, 2048)), {"kv_cache_dtype": "fp8"})
    assert packed.bytes_per_block == (78 * 64 * (656 + 132),)
    assert any("8-bit already" in n for n in packed.notes)


def test_shared_indexers_own_no_cache() -> None:
    from kvplanner.model.spec import Mla

    own, borrowed = Indexer(64, 128, 2048), Indexer(64, 128, 2048, owns_cache=False)
    model = spec([(Mla(64, 512, 192, 64, 256, 2048, own),)] * 2 + [(Mla(64, 512, 192, 64, 256, 2048, borrowed),)] * 4)
    assert laid_out(model).bytes_per_block == (64 * (6 * 1152 + 2 * 132),)


def test_state_pads_its_page_and_counts_per_request() -> None:
    layout = laid_out(gated())
    assert layout.block_size == 832
    assert [g.units_per_request for g in layout.groups] == [3, 3, 3, -(-262144 // 832)]
    assert any("is padded to the attention page" in n for n in layout.notes)
    plain = laid_out(gated(), {"enable_prefix_caching": False})
    assert [g.units_per_request for g in plain.groups][:3] == [1, 1, 1]
    assert plain.block_size == 784


def test_fp8_gains_less_than_twice_in_hybrids() -> None:
    layout = laid_out(gated(), {"kv_cache_dtype": "fp8", "max_model_len": 32768})
    note = next(n for n in layout.notes if n.startswith("fp8 makes"))
    assert "recurrent state keeps its own dtype" in note


def test_pure_state_models_keep_one_block_per_request() -> None:
    model = spec([(State("mamba2", 4, 128, 64, state_size=128, groups=8),)] * 4, architecture="Mamba2ForCausalLM")
    layout = laid_out(model)
    assert layout.groups[0].units_per_request == 1
    assert kv_sizing.size(layout, (GIB,)).error is None


def test_mtp_layer_joins_the_last_stage() -> None:
    options: dict[str, OptionValue] = {
        "speculative_method": "mtp",
        "num_speculative_tokens": 3,
        "max_model_len": 262144,
    }
    layout = laid_out(gated(), options | {"kv_cache_dtype": "fp8_e5m2", "tensor_parallel_size": 2}, RTX4090, "0.28.0")
    assert layout.block_size == 1600
    assert [g.units_per_request for g in layout.groups] == [5, 5, 5, 164]
    assert layout.groups[-1].layers == 17
    # A public report: 10.85 GiB make 612,157 tokens.
    assert kv_sizing.size(layout, (int(10.85 * GIB),)).tokens == 612_157


def test_eagle_adds_one_layer() -> None:
    plain, drafted = laid_out(dense(36)), laid_out(dense(36), {"speculative_method": "eagle3"})
    assert drafted.bytes_per_token == (plain.bytes_per_token or 0) / 36 * 37
    assert drafted.exact


def test_draft_model_counts_all_its_layers_or_says_so() -> None:
    options: dict[str, OptionValue] = {"speculative_method": "draft_model", "num_speculative_tokens": 2}
    unknown = laid_out(dense(), options)
    assert not unknown.exact
    assert "draft model" in unknown.not_modelled[0]
    known = laid_out(dense(), options, draft=dense(4))
    assert known.exact
    assert known.groups[0].layers == 36


def test_named_layers_keep_the_models_dtype() -> None:
    layout = laid_out(dense(8), {"kv_cache_dtype": "int8_per_token_head", "kv_cache_dtype_skip_layers": "0,7"})
    assert [g.layers for g in layout.groups] == [2, 2, 2, 2]
    assert layout.groups[0].page_bytes == layout.groups[-1].page_bytes
    with pytest.raises(BadInput, match="not a layer"):
        laid_out(dense(8), {"kv_cache_dtype": "fp8", "kv_cache_dtype_skip_layers": "8"})
    for name in ("8", "-1", "first", "²"):  # also where the cache is not quantised
        with pytest.raises(BadInput, match="is not a layer of this model") as caught:
            laid_out(dense(8), {"kv_cache_dtype_skip_layers": name})
        assert caught.value.remedy == "Give layer numbers from 0 to 7, or sliding_window"
    assert laid_out(dense(8), {"kv_cache_dtype_skip_layers": "0,7"}).groups == laid_out(dense(8), {}).groups


def test_turboquant_keeps_the_outer_layers() -> None:
    layout = laid_out(dense(32), {"kv_cache_dtype": "turboquant_k8v4"})
    assert sorted({g.unit_tokens for g in layout.groups}) == [16, 48]
    assert sum(g.layers for g in layout.groups if g.unit_tokens == 16) == 4


def test_cross_attention_holds_the_encoder_tokens() -> None:
    layout = laid_out(
        spec([(full(),)] * 3 + [(full(cross=True),)]), {"max_model_len": 512, "max_num_batched_tokens": 4096}
    )
    assert {g.kind: g.units_per_request for g in layout.groups} == {"full": 32, "cross": 256}


def test_encoders_keep_nothing() -> None:
    layout = laid_out(spec([(full(16, 16, 64, causal=False),)] * 4, task="encode", context_length=512))
    assert layout.tables == ()
    sizing = kv_sizing.size(layout, (GIB,))
    assert (sizing.num_blocks, sizing.tokens, sizing.error) == (1, 0, None)


def test_given_bytes_and_blocks_replace_what_is_left() -> None:
    fixed = laid_out(dense(), {"kv_cache_memory_bytes": 30 * GIB})
    assert kv_sizing.size(fixed, (GIB,)).num_blocks == 15360
    forced = laid_out(dense(), {"num_gpu_blocks_override": 9000})
    sizing = kv_sizing.size(forced, (GIB,))
    assert (sizing.num_blocks, sizing.error) == (9000, None)


def test_one_block_is_set_aside_for_the_check() -> None:
    layout = laid_out(dense(), {"max_model_len": 8192})
    exactly = 512 * layout.bytes_per_block[0]
    refused = kv_sizing.size(layout, (exactly,))
    assert refused.error is not None
    assert "(1.0 GiB KV cache is needed" in refused.error
    assert refused.estimated_max_model_len == 8176
    assert kv_sizing.size(layout, (exactly + layout.bytes_per_block[0],)).error is None
    older = laid_out(dense(), {"max_model_len": 8192}, version="0.19.0")
    assert kv_sizing.size(older, (exactly,)).error is None


def test_no_room_at_all() -> None:
    layout = laid_out(dense())
    for memory in (-GIB, 0, layout.bytes_per_block[0]):
        assert kv_sizing.size(layout, (memory,)).error == kv_sizing.NO_BLOCKS


def test_length_is_fitted() -> None:
    layout = laid_out(dense(), {"max_model_len": -1})
    sizing = kv_sizing.size(layout, (4 * GIB,))
    assert sizing.error is None
    assert sizing.max_model_len == (4 * GIB // layout.bytes_per_block[0] - 1) * 16
    assert kv_sizing.size(layout, (0,)).error == kv_sizing.NO_AUTO_FIT


def test_v0_counts_every_layer_as_full() -> None:
    model = spec([(full(cross=True),)] * 8 + [(full(window=512),)] * 4 + [(full(),)] * 28)
    layout = laid_out(model, {"max_model_len": 65536}, version="0.6.6")
    assert [(g.kind, g.layers) for g in layout.groups] == [("full", 40)]
    sizing = kv_sizing.size(layout, (GIB,))
    assert sizing.tokens == sizing.num_blocks * 16
    assert sizing.error is not None
    assert sizing.error.startswith("The model's max seq len (65536) is larger than the maximum number of tokens")


def test_compressed_caches_are_packed_and_marked() -> None:
    index = Indexer(64, 128, 512)
    layers = [(Compressed(64, 512, 0, 128),)] * 2 + [
        (Compressed(64, 512, 4, 128, index),),
        (Compressed(64, 512, 128, 128),),
    ] * 10
    layout = laid_out(spec(layers, architecture="DeepseekV4ForCausalLM", context_length=1 << 20))
    assert not layout.exact
    assert max(layout.bytes_per_block) == max(max(t.page_bytes) for t in layout.tables)
    assert sum(t.total_layers for t in layout.tables if t.spec.kind == "sliding_mla") == 22


def test_block_size_must_suit_the_back_end() -> None:
    with pytest.raises(BadInput, match="Block size 24"):
        laid_out(dense(), {"block_size": 24})
    assert laid_out(dense(), {"block_size": 32}).block_size == 32
    assert laid_out(gated(), {"block_size": 2048}).block_size >= 2048


def test_latent_blocks_by_back_end() -> None:
    assert laid_out(latent()).block_size == 16
    assert laid_out(latent(), {"kv_cache_dtype": "fp8"}).block_size == 64
    assert laid_out(latent(), gpu=B200).block_size == 32
    assert laid_out(latent(), version="0.11.0").block_size == 64


def test_layout_stays_the_same_for_equal_questions() -> None:
    first = laid_out(gated(), gpu=H100)
    assert laid_out(gated(), gpu=H100) == first
    assert first._replace(notes=()) != first


def test_pool_against_the_printed_figure() -> None:
    layout = laid_out(gated())
    note = kv_notes.pool(layout, kv_sizing.size(layout, (60 * GIB,)))
    assert "shared by 4 groups" in note
    assert kv_notes.pool(laid_out(dense()), kv_sizing.size(laid_out(dense()), (60 * GIB,))) == ""


def test_states_must_suffice_for_all_sequences() -> None:
    options = {"enable_prefix_caching": False, "max_model_len": 131072, "max_num_seqs": 256}
    layout = laid_out(gated(), options, RTX4090, "0.26.0")
    # A public report: 8.82 GiB make 184 blocks, and the engine refuses its default of 256 sequences.
    sizing = kv_sizing.size(layout, (int(8.82 * GIB),))
    assert (sizing.num_blocks, sizing.tokens, sizing.error) == (184, 141_036, None)
    assert (sizing.capture_error or "").startswith("max_num_seqs (256) exceeds available Mamba cache blocks (184). ")
    assert kv_sizing.size(laid_out(dense()), (40 * GIB,)).capture_error is None
