"""What changed from release to release: every border has the right value on both sides of it, with its source."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.releases import NEWEST, ByRelease, release_of, run_of, spelled
from kvplanner.engine.vllm.settle import batch
from kvplanner.errors import BadInput
from kvplanner.model.spec import Mlp, ModelSpec, Moe
from kvplanner.units import GIB
from tests.engine.vllm.kv.models import (
    A100,
    B200,
    H100,
    RTX4090,
    T4,
    Gpu,
    dense,
    full,
    gated,
    laid_out,
    latent,
    resolved,
    spec,
    windowed,
)

RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, ByRelease)}


@pytest.mark.parametrize("name", sorted(RULES))
def test_rows_stand_in_order_and_name_their_source(name: str) -> None:
    rows = RULES[name].rows
    assert all(older.since < newer.since <= NEWEST for older, newer in pairwise(rows))
    assert all(row.source for row in rows[1:])
    assert all(older.value != newer.value for older, newer in pairwise(rows))


class TestReleases:
    def test_no_version_is_the_newest(self) -> None:
        assert release_of(None).version == NEWEST

    @pytest.mark.parametrize(
        ("text", "version"),
        [("0.6.4.post1", (6, 4)), ("v0.7.3", (7, 3)), ("0.20.1rc1.dev16", (20, 1)), ("0.21", (21, 0))],
    )
    def test_versions_are_read(self, text: str, version: tuple[int, int]) -> None:
        assert release_of(text) == (version, ())

    def test_unknown_versions_take_the_nearest(self) -> None:
        assert "newer" in release_of("0.40.1").warnings[0]
        assert "older" in release_of("0.2.5").warnings[0]
        with pytest.raises(BadInput, match="not a vLLM version"):
            release_of("latest")

    @pytest.mark.parametrize("text", ["1.0", "v9.9.2", "12.0.0rc1"])
    def test_a_major_release_to_come_takes_the_newest(self, text: str) -> None:
        release = release_of(text)
        assert release.version > release_of("0.9999").version
        assert spelled(release.version).startswith(text.removeprefix("v").removesuffix("rc1"))
        assert "newer" in release.warnings[0]
        for rule in RULES.values():
            assert rule.at(release.version) == rule.at(NEWEST)

    def test_a_run_ends_before_the_next_border(self) -> None:
        assert run_of((20, 0), (rules.PRINTED,)) == "0.0–0.20"
        assert run_of((20, 2), (rules.PRINTED, rules.POSSESSIVE)) == "0.20.1–0.21"
        assert run_of((33, 0), (rules.CONSUMED,)) == "0.27–0.33"


def _experts() -> ModelSpec:
    made = dense(architecture="MixtralForCausalLM")
    return made._replace(layers=tuple(layer._replace(mlps=(Moe(8, 2, 14336),)) for layer in made.layers))


def _with_mlp(architecture: str, **more: Any) -> ModelSpec:
    made = dense(architecture=architecture, **more)
    return made._replace(layers=tuple(layer._replace(mlps=(Mlp(14336),)) for layer in made.layers))


class TestRunner:
    """config/vllm.py use_v2_model_runner; engine/arg_utils.py _is_v1_supported_oracle before 0.11."""

    @pytest.mark.parametrize(
        "options", [{"speculative_method": "ngram"}, {"enable_dbo": True},
                    {"speculative_method": "eagle3", "pipeline_parallel_size": 2}],
    )  # fmt: skip
    def test_what_v2_left_to_v1(self, options: dict[str, Any]) -> None:
        assert resolved(dense(), options, version="0.29.0")[0].era.runner == "V1"
        assert resolved(dense(), options, version="0.30.0")[0].era.runner == "V2"

    @pytest.mark.parametrize(
        ("model", "gpu", "options", "last", "since"),
        [
            (dense(), H100, {}, "0.7.3", "0.8.0"), (dense(), T4, {}, "0.10.1", "0.10.2"),
            (gated()._replace(architecture="FalconH1ForCausalLM"), H100, {}, "0.10.1", "0.10.2"),
            (dense(), RTX4090, {"kv_cache_dtype": "fp8"}, "0.9.2", "0.10.2"),
            (dense(), H100, {"pipeline_parallel_size": 2}, "0.8.5", "0.9.2"),
            (dense(), H100, {"speculative_method": "eagle"}, "0.8.5", "0.9.1"),
        ],
    )  # fmt: skip
    def test_what_fell_back_to_v0(
        self, model: ModelSpec, gpu: Gpu, options: dict[str, Any], last: str, since: str
    ) -> None:
        assert resolved(model, options, gpu, last)[0].era.runner == "V0"
        assert resolved(model, options, gpu, since)[0].era.runner == "V1"

    def test_an_8_bit_cache_stayed_on_v1_where_flash_attention_3_runs(self) -> None:
        assert resolved(dense(), {"kv_cache_dtype": "fp8"}, H100, "0.9.2")[0].era.runner == "V1"

    @pytest.mark.parametrize(
        ("model", "version", "estimated"),
        [
            (dense(), "0.19.1", False), (dense(), "0.20.0", True), (_with_mlp("Qwen3ForCausalLM"), "0.22.0", False),
            (dense(), "0.28.0", False), (_experts(), "0.28.0", True), (gated(), "0.27.0", True),
            (dense(), "0.29.0", True),
        ],
    )  # fmt: skip
    def test_graphs_are_estimated_by_the_runner(self, model: ModelSpec, version: str, estimated: bool) -> None:
        """v1/worker/gpu_worker.py:401 (0.20.0); v1/worker/gpu/model_runner.py returns 0 up to 0.28."""
        assert resolved(model, version=version)[0].era.graphs_in_budget is estimated

    def test_v2_estimates_none_though_it_is_asked_to(self) -> None:
        settings, reasons, _ = resolved(dense(), {"estimate_cuda_graphs": True}, version="0.28.0")
        assert not settings.era.graphs_in_budget
        assert "estimates none" in reasons["estimate_cuda_graphs"].reason


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "sequences"),
    [
        (A100, "0.8.0", 2048, 1024), (RTX4090, "0.8.3", 2048, 1024), (RTX4090, "0.8.4", 2048, 256),
        (B200, "0.8.4", 2048, 256), (A100, "0.8.5", 8192, 1024), (A100, "0.9.0", 2048, 256),
        (B200, "0.27.1", 8192, 1024),
        (B200, "0.28.0", 16384, 1024), (("NVIDIA GB10", 119, (12, 1)), "0.13.0", 2048, 256),
        (("NVIDIA GB10", 119, (12, 1)), "0.33.0", 2048, 256), (H100, "0.8.0", 8192, 1024), (H100, "0.7.3", 32768, 256),
    ],
)  # fmt: skip
def test_batch_defaults_of_the_server(gpu: Gpu, version: str, tokens: int, sequences: int) -> None:
    """engine/arg_utils.py: by name up to 0.8.4, then by memory; A100 small since 0.9.0; 160 GiB since 0.28.0."""
    steps = resolved(dense(context_length=32768), gpu=gpu, version=version)[0].scheduler
    assert (steps.max_num_batched_tokens, steps.max_num_seqs) == (tokens, sequences)


@pytest.mark.parametrize(
    ("model", "options", "chunked", "tokens"),
    [
        (dense(), {}, True, 2048), (dense(context_length=32768), {}, False, 32768),
        (dense(context_length=1024), {}, False, 2048),
        (windowed(2, 2), {}, False, 131072), (dense(), {"enable_lora": True}, False, 131072),
        (dense(multimodal=True, context_length=4096), {}, False, 5120), (latent(), {}, False, 131072),
    ],
)  # fmt: skip
def test_prompts_on_v0(model: ModelSpec, options: dict[str, Any], chunked: bool, tokens: int) -> None:
    """engine/arg_utils.py:1164 and config.py of 0.7.3."""
    steps = resolved(model, options, version="0.7.3")[0].scheduler
    assert (steps.chunked_prefill, steps.max_num_batched_tokens, steps.max_num_seqs) == (chunked, tokens, 256)


class TestGraphs:
    @pytest.mark.parametrize(
        ("options", "gpu", "version", "number", "largest"),
        [
            ({"max_num_seqs": 16}, H100, "0.9.2", 67, 512), ({"max_num_seqs": 16}, H100, "0.10.0", 7, 32),
            ({}, H100, "0.11.0", 67, 512), ({}, H100, "0.11.1", 51, 512),
            ({"max_num_seqs": 20}, H100, "0.28.0", 8, 40), ({"max_num_seqs": 20}, H100, "0.29.0", 9, 40),
            ({"max_num_batched_tokens": 100, "max_num_seqs": 64}, H100, "0.20.0", 15, 96),
            ({"max_num_batched_tokens": 100, "max_num_seqs": 64}, H100, "0.20.1", 16, 100),
            ({}, B200, "0.27.1", 51, 512), ({}, B200, "0.28.0", 83, 1024),
            ({"speculative_method": "ngram", "num_speculative_tokens": 3, "max_num_seqs": 32}, H100, "0.12.0", 11, 64),
            ({"speculative_method": "ngram", "num_speculative_tokens": 3, "max_num_seqs": 32}, H100, "0.13.0", 33, 256),
        ],
    )  # fmt: skip
    def test_sizes(self, options: dict[str, Any], gpu: Gpu, version: str, number: int, largest: int) -> None:
        """config.py, config/vllm.py of the releases on both sides of each border."""
        sizes = resolved(dense(), options, gpu, version)[0].graphs.sizes
        assert (len(sizes), sizes[-1]) == (number, largest)

    def test_v0_captures_every_sequence(self) -> None:
        assert batch.v0_capture_sizes(300)[-1] == 304

    def test_chunked_layers_with_caches_of_their_own_are_captured_in_pieces(self) -> None:
        model = spec([(full(chunk=8192),), (full(chunk=8192),), (full(chunk=8192),), (full(),)])
        assert resolved(model)[0].graphs.mode == "PIECEWISE"
        off = {"disable_hybrid_kv_cache_manager": True}
        assert resolved(model, off)[0].graphs.mode == "FULL_AND_PIECEWISE"


class TestSizing:
    def test_printed_tokens(self) -> None:
        """v1/core/kv_cache_utils.py:1690 (0.20.0), :1699 (0.20.1): 8 groups of a window model."""
        old, new = (laid_out(windowed(20, 4), version=version) for version in ("0.20.0", "0.20.1"))
        before, after = (kv_sizing.size(layout, (20 * GIB,)) for layout in (old, new))
        assert before.num_blocks == after.num_blocks
        assert before.tokens == before.num_blocks // len(old.tables) * 16
        assert after.tokens == int(after.max_concurrency * 131072)

    @pytest.mark.parametrize(
        ("version", "fits"), [("0.13.0", True), ("0.14.0", False), ("0.16.0", False), ("0.17.0", True)]
    )
    def test_the_whole_models_need_was_held_against_one_stage(self, version: str, fits: bool) -> None:
        """Llama 3.1 8B, PP 2, 131,072 tokens, 9.0e9 bytes each: 8,583 blocks, but 16.0 GiB were wanted in between."""
        layout = laid_out(dense(), {"pipeline_parallel_size": 2, "max_model_len": 131072}, version=version)
        layout = layout._replace(bytes_per_block=(1 << 20, 1 << 20))
        sizing = kv_sizing.size(layout, (9_000_000_000,) * 2)
        assert (sizing.error is None) is fits
        assert sizing.num_blocks == 8583
        assert fits or "(16.0 GiB KV cache is needed" in (sizing.error or "")

    def test_the_stage_with_least_memory_decides_also_where_the_whole_model_was_charged(self) -> None:
        layout = laid_out(dense(), {"pipeline_parallel_size": 2, "max_model_len": 4096}, version="0.16.0")
        assert [kv_sizing.size(layout, pair).stage for pair in ((20 * GIB, 30 * GIB), (30 * GIB, 20 * GIB))] == [0, 1]

    @pytest.mark.parametrize(
        ("options", "version", "refused"),
        [
            ({}, "0.17.1", False), ({}, "0.19.1", False), ({}, "0.20.0", True), ({}, "0.33.0", True),
            ({"cudagraph_mode": "PIECEWISE"}, "0.33.0", False), ({"enforce_eager": True}, "0.33.0", False),
            ({"cudagraph_mode": "FULL"}, "0.33.0", True),
        ],
    )  # fmt: skip
    def test_more_sequences_than_states(self, options: dict[str, Any], version: str, refused: bool) -> None:
        """config/compilation.py:1436 (0.20.0), :1526 (0.33.0): only where whole steps are captured."""
        layout = laid_out(gated(), {"max_model_len": 2048, **options}, version=version)
        blocks = 500
        sizing = kv_sizing.size(layout, (blocks * layout.bytes_per_block[0],))
        assert sizing.error is None
        assert (sizing.capture_error is not None) is refused
        assert not refused or "Please lower max_num_seqs to at most 500 or increase" in (sizing.capture_error or "")

    @pytest.mark.parametrize(
        ("version", "possessive", "page", "cpu"),
        [("0.12.0", "models's", False, False), ("0.13.0", "models's", True, False), ("0.21.0", "models's", True, False),
         ("0.22.0", "model's", True, True)],
    )  # fmt: skip
    def test_words(self, version: str, possessive: str, page: bool, cpu: bool) -> None:
        """v1/core/kv_cache_utils.py."""
        error = kv_sizing.size(laid_out(dense(), version=version), (GIB,)).error or ""
        assert f"the {possessive} max seq len" in error
        assert ("conserving_memory" in error, "CPU backend" in error) == (page, cpu)


@pytest.mark.parametrize(
    ("dtype", "gpu", "before", "since"),
    [
        ("nvfp4", B200, "0.19.1", "0.20.0"), ("turboquant_k8v4", H100, "0.19.1", "0.20.0"),
        ("int4_per_token_head", H100, "0.24.0", "0.25.1"), ("nvfp4_4over6", B200, "0.27.1", "0.28.0"),
    ],
)  # fmt: skip
def test_cache_dtypes_came_one_after_another(dtype: str, gpu: Gpu, before: str, since: str) -> None:
    """config/cache.py CacheDType of both releases."""
    with pytest.raises(BadInput, match="invalid choice"):
        resolved(dense(), {"kv_cache_dtype": dtype}, gpu, before)
    assert resolved(dense(), {"kv_cache_dtype": dtype}, gpu, since)[0].cache.dtype == dtype
