"""The dtype that a model is served in: by checkpoint, model, GPU and release."""

from __future__ import annotations

import pytest

from kvplanner.errors import BadInput
from tests.engine.kit import plan
from tests.engine.vllm.kv.models import H100, T4, Gpu, dense, full, resolved, spec

GEMMA2, GLM = "google/gemma-2-2b-it", "zai-org/GLM-4-9B-0414"
# Architecture, the text part's type, whether there is a tower, the type that the engine goes by.
LISTED = [
    ("Gemma2ForCausalLM", "gemma2", False, "gemma2"), ("Gemma3ForCausalLM", "gemma3_text", False, "gemma3_text"),
    ("Gemma3ForConditionalGeneration", "gemma3_text", True, "gemma3"), ("Glm4ForCausalLM", "glm4", False, "glm4"),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "model_type", "tower", "called"), LISTED)
class TestModelsThatTakeNoFloat16:
    def test_they_are_served_in_float32_without_bfloat16(
        self, architecture: str, model_type: str, tower: bool, called: str
    ) -> None:
        for dtype in ("bfloat16", "float16", "float32"):
            model = dense(architecture=architecture, model_type=model_type, multimodal=tower, dtype=dtype)
            settings, reasons, _ = resolved(model, gpu=T4)
            assert settings.model.dtype == "float32"
            assert f"{called} takes no float16" in reasons["dtype"].reason
            assert resolved(model, gpu=H100)[0].model.dtype == "bfloat16"

    @pytest.mark.parametrize("gpu", [H100, T4])
    def test_float16_is_refused_on_every_gpu(
        self, architecture: str, model_type: str, tower: bool, called: str, gpu: Gpu
    ) -> None:
        model = dense(architecture=architecture, model_type=model_type, multimodal=tower)
        with pytest.raises(BadInput, match=f"The model type '{called}' does not support float16") as caught:
            resolved(model, {"dtype": "half"}, gpu)
        assert ("bfloat16" in caught.value.remedy) is (gpu is H100)
        assert resolved(model, {"dtype": "half"}, gpu, version="0.9.0")[0].model.dtype == "float16"

    def test_what_else_they_can_be_told(self, architecture: str, model_type: str, tower: bool, called: str) -> None:
        model = dense(architecture=architecture, model_type=model_type, multimodal=tower)
        with pytest.raises(BadInput, match=r"compute capability of at least 8\.0") as caught:
            resolved(model, {"dtype": "bfloat16"}, T4)
        assert caught.value.remedy == "Use --dtype float32"
        assert called


def test_a_tower_gives_a_model_a_type_of_its_own() -> None:
    model = dense(architecture="PaliGemmaForConditionalGeneration", model_type="gemma2", multimodal=True)
    assert resolved(model, gpu=T4)[0].model.dtype == "float16"
    assert resolved(dense(architecture="Glm4vForConditionalGeneration", model_type="glm4v_text"), gpu=T4)[
        0
    ].model.dtype == ("float16")


@pytest.mark.parametrize(
    ("dtype", "gpu", "version", "expected"),
    [("float32", H100, "0.9.0", "float16"), ("float32", H100, "0.9.1", "bfloat16"),
     ("bfloat16", T4, "0.8.5", "float16"),
     ("float16", T4, "0.8.0", "float16"), ("float32", T4, "0.33", "float16"), ("bfloat16", H100, "0.6.6", "bfloat16")],
)  # fmt: skip
def test_by_release(dtype: str, gpu: Gpu, version: str, expected: str) -> None:
    assert resolved(dense(dtype=dtype), gpu=gpu, version=version)[0].model.dtype == expected


def test_before_it_fell_back_the_engine_refused() -> None:
    with pytest.raises(BadInput, match=r"Your Tesla T4 GPU has compute capability 7\.5") as caught:
        resolved(dense(), gpu=T4, version="0.8.0")
    assert caught.value.remedy == "Use --dtype half"


@pytest.mark.parametrize("quantization", ["awq", "gptq", "compressed-tensors", "fp8"])
def test_quantised_kernels_take_no_float32(quantization: str) -> None:
    with pytest.raises(BadInput, match=f"float32 is not supported for quantization method .*{quantization}") as caught:
        resolved(dense(quantization=quantization), {"dtype": "float32"})
    assert caught.value.remedy == "Use bfloat16 or float16"
    model = dense(architecture="Gemma2ForCausalLM", quantization=quantization)
    with pytest.raises(BadInput, match="float32 is not supported for quantization method") as caught:
        resolved(model, gpu=T4)
    assert "GPU with bfloat16" in caught.value.remedy


def test_wide_heads_in_float32_are_told() -> None:
    wide = spec([(full(size=256),)] * 4)
    assert any("heads of 256" in said for said in resolved(wide, {"dtype": "float32"})[2])
    assert not any("float32 attention" in said for said in resolved(wide)[2])
    assert not any("float32 attention" in said for said in resolved(dense(), {"dtype": "float32"})[2])


@pytest.mark.parametrize("model", [GEMMA2, GLM])
def test_a_plan_counts_four_bytes(model: str) -> None:
    short = {"max_model_len": 1024}
    here, same = plan(model, "Quadro RTX 8000", short), plan(model, "Quadro RTX 8000", {**short, "dtype": "float32"})
    half = plan(model, "H100", short)
    weights, blocks = [], []
    for told in (here, same, half):
        segment, cache = told.devices[0].segment("weights"), told.kv_cache
        assert segment is not None
        assert cache is not None
        weights.append(segment.bytes)
        blocks.append(cache.groups[0].page_bytes)
    assert weights == [2 * weights[2], 2 * weights[2], weights[2]]
    assert blocks == [2 * blocks[2], 2 * blocks[2], blocks[2]]


def test_one_that_a_later_release_dropped_took_no_float16_either() -> None:
    model = dense(architecture="Plamo2ForCausalLM", model_type="plamo2")
    with pytest.raises(BadInput, match="'plamo2' does not support float16"):
        resolved(model, {"dtype": "half"}, H100, version="0.26.0")
    with pytest.raises(BadInput, match=r"was supported in vLLM until v0\.26\.0"):
        resolved(model, {"dtype": "half"}, H100)
