"""How quantised matrices are stored: every layout gives the file's bytes and the matrix's own shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.source.checkpoint.modules import Part, content_of
from kvplanner.source.resolve import open_model
from tests.source import make_models
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_models import Linear, size_of, total_bytes, write_folder

ELEMENTS = sum(size_of("U8", shape) for _, shape in llama(CONFIG).values())


def packed(format_: str, bits: int, kind: str, strategy: str, group: int | None) -> dict[str, Any]:
    """A compressed-tensors config."""
    weights = {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "group_size": group,
        "symmetric": True,
        "dynamic": False,
    }
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": format_, "config_groups": groups, "ignore": ["lm_head"]}


# Layout, what the config says of it, the format's name.
LAYOUTS: dict[str, tuple[Linear, dict[str, Any] | None, str]] = {
    "dense": (make_models.dense, None, "bfloat16"),
    "fp8 block": (
        make_models.fp8_block,
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, "fp8",
    ),
    "fp8 tensor": (make_models.fp8_tensor, {"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
    "fp8 ModelOpt": (make_models.fp8_tensor, {"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
    "fp8 channel": (make_models.fp8_channel, packed("float-quantized", 8, "float", "channel", None), "fp8"),
    "int8 channel": (make_models.int8_channel, packed("int-quantized", 8, "int", "channel", None), "int8"),
    "int4 packed": (make_models.packed_int4, packed("pack-quantized", 4, "int", "group", 32), "int4"),
    "nvfp4 packed": (make_models.packed_nvfp4, packed("nvfp4-pack-quantized", 4, "float", "tensor_group", 16), "nvfp4"),
    "nvfp4 ModelOpt": (
        make_models.nvfp4,
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}, "nvfp4",
    ),
    "awq": (
        make_models.awq,
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "awq",
    ),
    "gptq": (
        make_models.gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq"
    ),
    "bnb 4-bit": (
        make_models.bnb4,
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "bnb4",
    ),
    "bnb 8-bit": (make_models.bnb8, {"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb8"),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_the_config_tells(layout: str, tmp_path: Path) -> None:
    linear, told, name = LAYOUTS[layout]
    tensors = llama(CONFIG, linear=linear)
    config = {**CONFIG, **({"quantization_config": told} if told else {})}
    model = open_model(str(write_folder(tmp_path / "m", config, tensors)))
    assert model.problems == ()
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(tensors)
    assert model.parameters == ELEMENTS
    query = next(group for group in model.inventory.blocks[0] if group.path == "self_attn.q_proj")
    assert (query.shape, query.format.name, query.shard) == ((512, 512), name, "column")


@pytest.mark.parametrize("layout", [*LAYOUTS, "MLX"])
def test_a_layout_without_a_config(layout: str, tmp_path: Path) -> None:
    linear, name = (make_models.mlx4, "int4") if layout == "MLX" else LAYOUTS[layout][::2]
    tensors = llama(CONFIG, linear=linear)
    model = open_model(str(write_folder(tmp_path / "m", None, tensors)))
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(tensors)
    assert model.parameters == ELEMENTS
    query = next(group for group in model.inventory.blocks[0] if group.path == "self_attn.q_proj")
    assert query.format.name == name
    assert query.elements == 512 * 512


@pytest.mark.parametrize(
    "parts",
    [
        (Part("weight", "BF16", (), 2),),
        (Part("weight", "F32", (0, 5), 0),),
        (Part("qweight", "I32", (0, 0), 0), Part("scales", "F16", (0, 0), 0)),
        (Part("qweight", "I32", (8, 8), 256), Part("scales", "F16", (3, 7), 42), Part("qzeros", "I32", (1,), 4)),
        (Part("weight", "U8", (4, 0), 0), Part("weight_scale", "F8_E4M3", (4, 0), 0)),
        (Part("weight_packed", "I32", (4, 1), 16), Part("weight_scale", "BF16", (4, 3), 24)),
        (Part("blocks", "U8", (2, 3, 4, 16), 384), Part("scales", "U8", (5,), 5)),
        (Part("weight", "F8_E4M3", (2, 2, 2), 8), Part("weight_scale_inv", "F32", (2, 1, 1), 8)),
        (Part("scales", "F16", (3, 7), 42),),
        (Part("weight", "F4", (4, 4), 8), Part("weight_scale", "F8_E8M0", (4,), 4)),
    ],
)
def test_odd_contents_still_give_their_bytes(parts: tuple[Part, ...]) -> None:
    shape, format_ = content_of(parts)
    assert format_.bytes_of(shape) == sum(part.bytes for part in parts)


ENCODER = {
    "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "torch_dtype": "float16", "hidden_size": 64,
    "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
    "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("beside", "length"),
    [
        ({}, 514),
        ({"tokenizer_config.json": {"model_max_length": 512}}, 512),
        ({"tokenizer_config.json": {"model_max_length": 1000000000000000019884624838656}}, 514),
        ({"tokenizer_config.json": {"model_max_length": 512},
          "sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({"tokenizer_config.json": {"model_max_length": "x"},
          "sentence_bert_config.json": {"max_seq_length": None}}, 514),
    ],
)  # fmt: skip
def test_an_encoders_length_is_what_the_files_beside_it_state(
    beside: dict[str, Any], length: int, tmp_path: Path
) -> None:
    for name, content in {"config.json": ENCODER, **beside}.items():
        (tmp_path / name).write_text(json.dumps(content))
    model = open_model(str(tmp_path))
    assert model.spec.context_length == length
    assert any(f"up to {length:,} tokens" in words for words in model.problems) == (length != 514)


def test_a_broken_file_beside_an_encoder_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ENCODER))
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert open_model(str(tmp_path)).spec.context_length == 514
