"""Public configs that the program had never seen, each with its published value or the message that it deserves."""

from __future__ import annotations

import pytest

from kvplanner import jsonfile
from kvplanner.errors import PlannerError
from kvplanner.model.families import read_config
from kvplanner.model.kv import token_cache
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from tests.model.cases import CASES

# What is no model, or one that nobody serves: the words that the message must hold.
REFUSED = {
    "mllama-cross-layers-past-end": ("cross_attention_layers", "33", "38", "0 to 31"),
    "ome-deepseek-vl2-tiny": ("deepseek_vl_v2", "--hf-overrides", "DeepseekVLV2ForCausalLM"),
    "lora-adapter-config": ("LORA adapter", "base model"),
    "arch-clip-vision": ("CLIPVisionModelWithProjection", "without a language model"),
}
# Published figures that are rounded, named after the model's size, or not explained to the last element: how far off.
ABOUT = {
    "qwen-vl-chat-int4": 1e-4,  # its files hold 442,368 elements that no other Qwen-VL file has
    "arch-deepseek-ocr-2": 2e-4,
    "glm-4v-9b-shape": 1e-3,
    "infinity-nvidia-nemotron-3-super-120b-a12b-fp8": 1e-6,
    "arch-molmo-7b-d": 1e-3,
    "arch-ling-plus": 3e-3,
    "arch-minicpm-v-4": 4e-3,
    "arch-qwen2-audio": 1e-3,
    "arch-minicpm-v-2_6": 1e-3,
    "arch-telechat2-115b": 2e-2,
    "pass-devstral-2-123b-fp8": 1e-4,
}


def read(name: str) -> tuple[ModelSpec, Inventory]:
    return read_config(jsonfile.parse_config(CASES[name]["text"].encode(), f"{name}.json"), where=f"{name}.json")


def cache_per_token(spec: ModelSpec, dtype: str) -> int:
    total = 0
    for layer, count in zip(spec.layers, spec.counts(), strict=True):
        total += sum(int(c.bytes) * count for mixer in layer.mixers for c in token_cache(mixer, dtype))
    return total


@pytest.mark.parametrize("name", sorted(set(CASES) - set(REFUSED)))
def test_a_config_gives_its_published_values(name: str) -> None:
    spec, inventory = read(name)
    expected, far = CASES[name]["expected"], ABOUT.get(name, 0.0)
    for key, found in (("params", inventory.parameters()), ("params_about", inventory.parameters()),
                       ("stored_bytes", inventory.stored_bytes())):  # fmt: skip
        if key in expected:
            assert found == pytest.approx(expected[key], rel=far, abs=0)
    for key in ("kv_bytes_per_token", "kv_bytes_per_token_bf16"):
        if key in expected:
            # Of a float32 file some give what the file says, others what an engine makes of it.
            assert expected[key] in (cache_per_token(spec, spec.dtype), cache_per_token(spec, "bfloat16"))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_no_model_to_serve_says_so(name: str) -> None:
    with pytest.raises(PlannerError) as caught:
        read(name)
    assert all(word in str(caught.value) for word in REFUSED[name]), str(caught.value)


def test_an_encoder_that_the_engine_refuses_is_counted_and_told() -> None:
    spec, _ = read("glm-4v-9b-shape")
    assert spec.multimodal
    assert any("GLM4VForCausalLM" in words for words in spec.remarks)
    assert CASES["glm-4v-9b-shape"]["expected"]["vllm"]


def test_yarn_states_its_length_and_the_one_that_older_releases_derive() -> None:
    expected = CASES["qwen3-4b-yarn"]["expected"]
    spec, _ = read("qwen3-4b-yarn")
    assert spec.context_length == expected["context_after"] == 40_960
    assert spec.yarn_context_length == expected["context_before_56446"] == 131_072
