"""What cannot be read says which field, what it holds and what was expected."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.families import architectures, read_config
from kvplanner.model.spec import Attention
from tests.model.kit import LLAMA
from tests.model.mutations import facts, seeds


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"architectures": ["NovelForCausalLM"]}, NotModelled, ("architectures", "NovelForCausalLM")),
        ({"architectures": [], "model_type": None}, BadInput, ("architectures", "missing", "model_type")),
        ({"architectures": None, "model_type": "deepseek_vl_v2"}, BadInput, ("deepseek_vl_v2", "--hf-overrides")),
        ({"hidden_size": None}, BadInput, ("hidden_size", "missing")),
        ({"hidden_size": "4096"}, BadInput, ("hidden_size", "'4096'", "whole number")),
        ({"hidden_size": 4100}, BadInput, ("num_attention_heads", "divisor", "4100")),
        ({"num_key_value_heads": 7}, BadInput, ("num_key_value_heads", "divisor", "32")),
        ({"num_hidden_layers": 0}, BadInput, ("num_hidden_layers", "from 1 to")),
        ({"num_hidden_layers": 10**9}, BadInput, ("num_hidden_layers", "from 1 to")),
        ({"vocab_size": True}, BadInput, ("vocab_size", "whole number")),
        ({"tie_word_embeddings": "yes"}, BadInput, ("tie_word_embeddings", "true or false")),
        ({"torch_dtype": "float12"}, BadInput, ("torch_dtype", "bfloat16")),
        ({"layer_types": ["full_attention"]}, BadInput, ("layer_types", "1 entries", "32 layers")),
        ({"layer_types": ["spiral_attention"] * 32}, NotModelled, ("layer_types", "spiral_attention")),
        ({"num_shadow_layers": 2}, NotModelled, ("num_shadow_layers", "not understood")),
        ({"num_experts": 8}, NotModelled, ("num_experts", "not understood")),
        ({"rope_scaling": [1]}, BadInput, ("rope_scaling", "object")),
        ({"quantization_config": {"quant_method": "magic"}}, NotModelled, ("quant_method", "magic", "awq")),
        ({"quantization_config": {"quant_method": "awq"}}, BadInput, ("bits", "missing")),
        ({"quantization_config": {"quant_method": "hqq"}}, NotModelled, ("quant_method", "HQQ", "no engine here")),
    ],
)
def test_errors_name_the_field(change: dict[str, Any], kind: type[PlannerError], words: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        read_config(LLAMA | change, where="some/config.json")
    assert "some/config.json" in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("model", seeds())
def test_an_unknown_structural_field_is_never_ignored(model: str) -> None:
    config, side, _ = facts(model)
    for nest in ("", "text_config", "vision_config", "linear_attn_config"):
        changed = copy.deepcopy(config)
        holder = changed.get(nest) if nest else changed
        if not isinstance(holder, dict):
            continue
        holder["num_shadow_layers"] = 3
        with pytest.raises(NotModelled, match="num_shadow_layers"):
            read_config(changed, side_quant=side)


def test_a_null_is_an_absence_and_not_a_zero() -> None:
    spec, _ = read_config(LLAMA | {"num_key_value_heads": None})
    mixer = spec.layers[0].mixers[0]
    assert isinstance(mixer, Attention)
    assert mixer.kv_heads == 32
    assert "num_key_value_heads" in spec.defaulted


def test_defaults_are_told() -> None:
    config = {k: v for k, v in LLAMA.items() if k not in ("torch_dtype", "tie_word_embeddings")}
    spec, _ = read_config(config)
    assert {"torch_dtype", "tie_word_embeddings", "head_dim"} <= set(spec.defaulted)
    assert read_config(LLAMA | {"head_dim": 128})[0].defaulted == ("attention_bias", "mlp_bias")


def test_a_config_that_is_no_object_is_bad_input() -> None:
    broken: Any = []
    with pytest.raises(BadInput, match="JSON object"):
        read_config(broken, where="x.json")


def test_a_missing_context_length_stays_unknown() -> None:
    mamba = models.load("mistralai/Mamba-Codestral-7B-v0.1").spec
    assert mamba.context_length is None


def test_a_plain_model_loads_no_other_family() -> None:
    code = (
        "import sys; from kvplanner.catalog import models as m; m.read(m.find('meta-llama/Llama-3.1-8B-Instruct'));"
        "print(*[n.rpartition('.')[2] for n in sys.modules if n.startswith('kvplanner.model.families.')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dense" in loaded
    assert not {"sparse", "gated", "gemma4", "towers", "statespace"} & set(loaded)


def test_no_architecture_has_two_readers() -> None:
    assert len(architectures()) == len(set(architectures()))


def test_no_model_is_read_inside_itself() -> None:
    """A language model that names the whole's architecture would be read for ever."""
    inside = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "other", "hidden_size": 64}
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": inside, "vision_config": {}}
    with pytest.raises(BadInput, match="which would hold itself"):
        read_config(config, where="config.json")
