"""Options that had no effect or the wrong one: drafts, graphs, media, block size, releases."""

from __future__ import annotations

import pytest

from kvplanner.engine.option import OptionValue
from kvplanner.engine.vllm.options import declared as options
from kvplanner.engine.vllm.settle.batch import v0_capture_sizes
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec, Tower
from kvplanner.units import GIB
from tests.engine.vllm.kv.models import dense, gated, laid_out, latent, resolved, spec
from tests.engine.vllm.kv.models import full as attention

DRAFT = dense(4, architecture="LlamaForCausalLM")


class TestDrafts:
    @pytest.mark.parametrize(
        ("model", "architecture", "method"),
        [
            ("meta-llama/Llama-3.2-1B", "LlamaForCausalLM", "draft_model"),
            ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "LlamaForCausalLMEagle3", "eagle3"),
            ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "", "eagle"),
            ("a/head", "EagleLlamaForCausalLM", "eagle"),
            ("a/head", "Eagle3LlamaForCausalLM", "eagle3"),
            ("a/head", "DeepSeekMTPModel", "mtp"),
            ("ngram", "", "ngram"),
        ],
    )
    def test_the_method_follows_from_the_draft(self, model: str, architecture: str, method: str) -> None:
        draft = dense(4, architecture=architecture) if architecture else None
        given: dict[str, OptionValue] = {"speculative_model": model, "num_speculative_tokens": 3}
        settings, reasons, _ = resolved(dense(), given, draft=draft)
        assert (settings.speculative.method, settings.speculative.tokens) == (method, 3)
        assert reasons["speculative_method"].origin == "derived"

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"speculative_model": "a/b", "num_speculative_tokens": 3}, "cannot be told"),
            ({"num_speculative_tokens": 3}, "nothing drafts them"),
            ({"speculative_method": "mtp"}, "no multi-token-prediction layers"),
            ({"speculative_method": "ngram", "num_speculative_tokens": 0}, "greater than zero"),
        ],
    )
    def test_what_cannot_draft_is_refused(self, given: dict[str, OptionValue], words: str) -> None:
        with pytest.raises(BadInput, match=words) as error:
            resolved(dense(), given)
        assert error.value.where == "--speculative-config"

    def test_a_kind_of_draft_that_is_not_modelled_is_refused(self) -> None:
        with pytest.raises(BadInput, match="cannot be told"):
            resolved(dense(), {"speculative_model": "a/b"}, draft=dense(1, architecture="MedusaModel"))

    def test_prediction_layers_draft(self) -> None:
        settings = resolved(gated(), {"speculative_method": "mtp", "num_speculative_tokens": 2})[0]
        assert (settings.speculative.method, settings.speculative.tokens) == ("mtp", 2)


class TestGraphs:
    @pytest.mark.parametrize("level", ["0", "1", "2"])
    def test_pieces_need_compilation(self, level: str) -> None:
        settings, reasons, _ = resolved(dense(), {"compilation_mode": level})
        assert settings.graphs.sizes == ()
        assert "compilation mode 3" in reasons["cudagraph_mode"].reason
        asked = resolved(dense(), {"compilation_mode": level, "cudagraph_mode": "PIECEWISE"})
        assert asked[0].graphs.mode == "NONE"
        assert asked[1]["cudagraph_mode"].value == "NONE"

    def test_whole_steps_do_not(self) -> None:
        assert resolved(dense(), {"compilation_mode": "0", "cudagraph_mode": "FULL"})[0].graphs.mode == "FULL"
        assert resolved(dense(), {"compilation_mode": "3"})[0].graphs.mode == "FULL_AND_PIECEWISE"

    def test_the_level_was_the_compilation_mode(self) -> None:
        assert resolved(dense(), {"optimization_level": "1"}, version="0.10.0")[0].graphs.mode == "NONE"
        assert resolved(dense(), {"optimization_level": "1"}, version="0.33")[0].graphs.mode == "PIECEWISE"

    def test_what_compiles(self) -> None:
        assert resolved(dense())[0].graphs.compiled
        assert resolved(dense(), {"cudagraph_mode": "NONE"})[0].graphs.compiled
        for given in ({"enforce_eager": True}, {"optimization_level": "0"}, {"compilation_mode": "0"}):
            assert resolved(dense(), given)[0].graphs.compiled is False

    def test_v0_captures_no_more_than_its_list_has(self) -> None:
        """1, 2, 4 and 1,024 multiples of 8, whatever number of sequences is asked for (config.py, 0.6.6)."""
        sizes = v0_capture_sizes(2**31 - 1)
        assert (len(sizes), sizes[-1]) == (1027, 8192)
        assert v0_capture_sizes(200)[-1] == 200

    def test_a_largest_size_of_none_captures_none(self) -> None:
        settings = resolved(dense(), {"max_cudagraph_capture_size": 0})[0]
        assert (settings.graphs.mode, settings.graphs.sizes) == ("NONE", ())
        with pytest.raises(BadInput, match="should be consistent"):
            resolved(dense(), {"max_cudagraph_capture_size": 16, "cudagraph_capture_sizes": "1,2"})

    def test_a_list_and_a_largest_size_of_the_user(self) -> None:
        assert resolved(dense(), {"cudagraph_capture_sizes": "8,1,2"})[0].graphs.sizes == (1, 2, 8)
        assert resolved(dense(), {"max_cudagraph_capture_size": 16})[0].graphs.sizes[-1] == 16


class TestMedia:
    MODEL = dense(towers=(Tower("vision", 1024, 24, 300_000_000),), multimodal=True)

    @pytest.mark.parametrize(
        ("limits", "skipped"),
        [
            ('{"image": 0, "video": 0}', True),
            ("image=0,video=0", True),
            ('{"image": {"count": 0}, "video": 0}', True),
            ('{"image": 0}', False),
            ('{"image": 0, "video": 1}', False),
            ("", False),
        ],
    )
    def test_no_items_profile_no_encoder(self, limits: str, skipped: bool) -> None:
        assert resolved(self.MODEL, {"limit_mm_per_prompt": limits})[0].multimodal.skip_profiling is skipped

    @pytest.mark.parametrize("text", ["x", '{"image": -1}', '{"image": "many"}', "{", '{"image": [1]}', "1,2"])
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(BadInput, match="not a list of limits"):
            resolved(self.MODEL, {"limit_mm_per_prompt": text})

    def test_the_reserve_is_in_bytes(self) -> None:
        assert resolved(dense(), {"mm_ipc_gpu_memory_gb": 1.5})[0].multimodal.ipc_bytes == 3 * GIB // 2


class TestBlockSize:
    @pytest.mark.parametrize(
        ("model", "given"),
        [
            (dense(), {}),
            (latent(), {}),
            (gated(), {}),
            (gated(), {"max_model_len": 8192, "kv_cache_dtype": "fp8"}),
        ],
    )
    def test_the_engines_choice_is_told_as_derived(self, model: ModelSpec, given: dict[str, OptionValue]) -> None:
        found = resolved(model, given)[1]["block_size"]
        assert found.origin == "derived"
        assert found.value == laid_out(model, given).block_size

    def test_the_users_stays_unless_a_state_needs_more(self) -> None:
        assert resolved(dense(), {"block_size": 32})[1]["block_size"].origin == "user"
        enlarged = resolved(gated(), {"block_size": 32})[1]["block_size"]
        assert enlarged.origin == "derived"
        assert "32 was asked for" in enlarged.reason


class TestReleases:
    @pytest.mark.parametrize(
        ("architecture", "version", "words"),
        [
            ("Qwen3ForCausalLM", "0.8.3", "came with 0.8.4"),
            ("Qwen3NextForCausalLM", "0.10.1", "came with 0.10.2"),
            ("Llama4ForConditionalGeneration", "0.8.2", "came with 0.8.3"),
            ("Qwen3_5ForConditionalGeneration", "0.16.1", "may not know"),
        ],
    )
    def test_an_architecture_that_may_be_younger_than_the_release_is_told(
        self, architecture: str, version: str, words: str
    ) -> None:
        model = dense(architecture=architecture)
        assert any(words in warning for warning in resolved(model, version=version)[2])
        assert not any("came with" in warning for warning in resolved(model, version="0.30")[2])

    @pytest.mark.parametrize(
        ("architecture", "version", "first"),
        [
            ("Qwen3ForCausalLM", "0.6.6", "0.8.4"),
            ("GptOssForCausalLM", "0.8.5", "0.10.1"),
            ("Qwen3NextForCausalLM", "0.9", "0.10.2"),
            ("Gemma3ForConditionalGeneration", "0.7.3", "0.8.0"),
            ("DeepseekV32ForCausalLM", "0.10.2", "0.11.0"),
            ("Qwen3_5ForConditionalGeneration", "0.11", "0.17.0"),
            ("Qwen3ForSequenceClassification", "0.7", "0.8.4"),
            ("DeepseekV4ForCausalLM", "0.19.1", "0.20.0"),
        ],
    )
    def test_an_architecture_younger_than_the_release_is_refused(
        self, architecture: str, version: str, first: str
    ) -> None:
        with pytest.raises(BadInput, match=f"came with {first}") as error:
            resolved(dense(architecture=architecture), version=version)
        assert f"--engine-version {first}" in error.value.remedy

    @pytest.mark.parametrize("method", ["gguf", "bitsandbytes"])
    def test_formats_that_left_are_refused(self, method: str) -> None:
        model = spec([(attention(),)] * 2, quantization=method)
        with pytest.raises(BadInput, match="no longer lists") as error:
            resolved(model)
        assert "--engine-version" in error.value.where
        assert resolved(model, version="0.16")[0].model.quantization == method


def test_the_other_runner_has_the_other_name() -> None:
    older = resolved(dense(), {"v2_model_runner": False})[0]
    assert (older.era.runner, older.era.name) == ("V1", "0.29–0.33, V1 runner")
    newer = resolved(dense(), {"v2_model_runner": True}, version="0.24")[0]
    assert (newer.era.runner, "V2 runner" in newer.era.name) == ("V2", True)


def test_what_is_not_modelled_is_told() -> None:
    given: dict[str, OptionValue] = {
        "load_format": "runai_streamer",
    }
    warnings = resolved(dense(), given)[2]
    assert "--load-format is not modelled: planned without it" in warnings


def test_an_option_moves_something_or_is_not_modelled() -> None:
    # These decide what is refused, and what sleep leaves.
    checked_only = {"draft_tensor_parallel_size", "use_heterogeneous_vocab", "enable_sleep_mode"}
    assert {o.name for o in options.declared() if not o.moves and o.modelled} == checked_only
    assert [o.name for o in options.declared() if o.moves and not o.modelled] == []
