"""Quantisation configs of every form: which matrices get which format, and how many bytes that is."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.families import read_config
from kvplanner.model.formats import WeightFormat
from kvplanner.model.tensors import Inventory
from tests.model.kit import LLAMA
from tests.model.schemes import E4M3, FP4, INT4, NV4, ROUND4, grouped, quark, torchao
from tests.patience import processor_seconds

pytestmark = pytest.mark.slow

MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 2048, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
    "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1024, "intermediate_size": 6144,
}  # fmt: skip


def read(base: dict[str, Any], quantization: dict[str, Any] | None, side: dict[str, Any] | None = None) -> Inventory:
    config = base | ({"quantization_config": quantization} if quantization else {})
    return read_config(config, side_quant=side)[1]


def form(inventory: Inventory, path: str, layer: int = 0) -> WeightFormat:
    """The format of a module of a layer, or of one outside the layers."""
    groups = (*inventory.blocks[inventory.block_of[layer]], *inventory.outside)
    return next(group.format for group in groups if group.path == path)


def size(inventory: Inventory, path: str) -> int:
    groups = (*inventory.blocks[inventory.block_of[0]], *inventory.outside)
    return next(group.stored_bytes for group in groups if group.path == path)


ROWS, COLUMNS = 14336, 4096
WEIGHTS = ROWS * COLUMNS
TENSOR8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
CHANNEL8 = {"num_bits": 8, "type": "float", "strategy": "channel"}


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", WEIGHTS + 4 * 112 * 32),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", WEIGHTS + 8),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", WEIGHTS + 4),
        ({"quant_method": "fbgemm_fp8"}, "fp8", WEIGHTS + 4 * ROWS),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", WEIGHTS // 2 + ROWS * 32 * 2 + ROWS * 16),
        ({"w_bit": 4, "q_group_size": 128}, "awq", WEIGHTS // 2 + ROWS * 32 * 2 + ROWS * 16),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            "gptq",
            WEIGHTS // 2 + ROWS * 32 * 2 + ROWS * 16 + 4 * COLUMNS,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq", WEIGHTS + ROWS * 2 + ROWS + 4 * COLUMNS),
        (grouped(CHANNEL8), "fp8", WEIGHTS + 2 * ROWS),
        (grouped(TENSOR8), "fp8", WEIGHTS + 8),
        (grouped(INT4, "pack-quantized"), "int4", WEIGHTS // 2 + ROWS * 128 * 2 + 8),
        (grouped(FP4, "nvfp4-pack-quantized"), "nvfp4", WEIGHTS // 2 + ROWS * 256 + 8),
        (grouped(FP4 | {"group_size": 32}, "mxfp4-pack-quantized"), "mxfp4", WEIGHTS // 2 + ROWS * 128),
        (grouped({"num_bits": 8, "type": "int", "strategy": "channel"}), "int8", WEIGHTS + 2 * ROWS),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", WEIGHTS + 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", WEIGHTS // 2 + ROWS * 256 + 8),
        ({"quant_algo": "FP8", "config_groups": {}}, "fp8", WEIGHTS + 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb8", WEIGHTS + 4 * ROWS),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb4", WEIGHTS // 2 + WEIGHTS // 16),
    ],
)
def test_each_form_has_its_layout(config: dict[str, Any], name: str, expected: int) -> None:
    inventory = read(LLAMA, config)
    assert form(inventory, "mlp.gate_proj").name == name
    assert size(inventory, "mlp.gate_proj") == expected
    for path in ("lm_head", "model.embed_tokens", "input_layernorm"):
        assert form(inventory, path).name == "bfloat16"


def test_mxfp4_takes_the_experts_alone() -> None:
    inventory = read(MOE, {"quant_method": "mxfp4"})
    assert form(inventory, "mlp.experts.gate_proj").name == "mxfp4"
    assert form(inventory, "self_attn.q_proj").name == "bfloat16"


def test_routers_are_never_quantised() -> None:
    assert form(read(MOE, {"quant_method": "fp8", "weight_block_size": [128, 128]}), "mlp.gate").name == "bfloat16"


def test_a_skip_list_makes_as_few_bodies_as_it_can() -> None:
    skips = [f"model.layers.{i}.self_attn.q_proj" for i in (0, 3)] + ["model.layers.1.mlp"]
    inventory = read(LLAMA, {"quant_method": "fp8", "modules_to_not_convert": skips})
    assert len(inventory.blocks) == 3
    assert inventory.block_of[:5] == (0, 1, 2, 0, 2)
    assert form(inventory, "self_attn.q_proj", 3).name == "bfloat16"
    assert form(inventory, "self_attn.q_proj", 2).name == "fp8"
    assert form(inventory, "mlp.down_proj", 1).name == "bfloat16"


def test_gptq_overrides_single_modules() -> None:
    dynamic = {"-:.*self_attn.*": {}, "+:.*down_proj.*": {"bits": 8, "group_size": 64}}
    inventory = read(LLAMA, {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic})
    assert form(inventory, "self_attn.q_proj").name == "bfloat16"
    assert (form(inventory, "mlp.down_proj").bits, form(inventory, "mlp.down_proj").group) == (8, 64)
    assert form(inventory, "mlp.up_proj").bits == 4


@pytest.mark.parametrize("name", ["re:.*expert{}.*", "*.block{}*", "model.layers.0.name{}"])
def test_a_hostile_list_is_refused_or_read_soon(name: str) -> None:
    names = [name.format(i) for i in range(20_000)]
    with processor_seconds(20):
        try:
            read(LLAMA, {"quant_method": "fp8", "modules_to_not_convert": names})
        except BadInput as error:
            assert "patterns" in str(error)


def test_auto_round_leaves_named_modules_in_sixteen_bits() -> None:
    extra = {"model.layers.0.mlp.down_proj": {"bits": 16}, "model.layers.1.mlp.down_proj": {"bits": 8}}
    quantization = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra}
    inventory = read(LLAMA, quantization)
    assert [form(inventory, "mlp.down_proj", layer).bits for layer in (0, 1, 2)] == [16, 8, 4]
    assert size(inventory, "mlp.gate_proj") == WEIGHTS // 2 + ROWS * 32 * 2 + ROWS * 16


def test_gptq_may_quantise_the_head() -> None:
    inventory = read(LLAMA, {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True})
    assert form(inventory, "lm_head").name == "gptq"


SIDE = {"producer": {}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
        "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}}  # fmt: skip


def test_a_side_file_alone_decides() -> None:
    spec, inventory = read_config(LLAMA, side_quant=SIDE)
    assert (spec.quantization, spec.kv_cache_dtype) == ("modelopt_fp4", "fp8")
    assert form(inventory, "self_attn.q_proj", 0).name == "bfloat16"
    assert form(inventory, "self_attn.q_proj", 1).name == "nvfp4"


def test_mixed_precision_maps_each_module() -> None:
    layers = {
        f"model.layers.{i}.mlp.experts.{e}.{name}": {"quant_algo": "NVFP4", "group_size": 16}
        for i in range(4) for e in range(8) for name in ("gate_proj", "up_proj", "down_proj")
    } | {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "MXFP8"} for i in range(4)}  # fmt: skip
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    inventory = read(MOE, quantization)
    assert len(inventory.blocks) == 1
    assert form(inventory, "mlp.experts.down_proj").name == "nvfp4"
    assert form(inventory, "self_attn.q_proj").name == "mxfp8"
    assert form(inventory, "self_attn.k_proj").name == "bfloat16"


def test_experts_of_one_layer_in_two_formats_are_refused() -> None:
    layers = {f"model.layers.0.mlp.experts.{e}.gate_proj": {"quant_algo": "NVFP4"} for e in range(5)}
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    with pytest.raises(NotModelled, match="5 of 8 experts"):
        read(MOE, quantization)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [({"num_bits": 8, "type": "float"}, "fp8"), ("FP8", "fp8"), (None, None), ({"num_bits": 4}, "nvfp4")],
)
def test_the_wish_for_the_cache_is_told(scheme: object, expected: str | None) -> None:
    quantization = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme}
    assert read_config(LLAMA | {"quantization_config": quantization})[0].kv_cache_dtype == expected


def test_a_scheme_may_lie_in_the_text_dictionary() -> None:
    from kvplanner.catalog import models

    assert "quantization_config" in models.record("moonshotai/Kimi-K2.5")["config"]["text_config"]
    assert models.load("moonshotai/Kimi-K2.5").spec.quantization == "compressed-tensors"


GROUP4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
STATIC = {"input_tensors": {"dtype": "fp8_e4m3", "is_dynamic": False}}
BLOCK8 = E4M3 | {"qscheme": "per_block", "block_size": [128, 128]}
INT4G = {"dtype": "int4", "qscheme": "per_group", "group_size": 128, "symmetric": True}


@pytest.mark.parametrize(
    ("config", "name", "method", "expected"),
    [
        (quark(E4M3 | {"qscheme": "per_tensor"}, **STATIC), "fp8", "quark", WEIGHTS + 8),
        (quark(E4M3 | {"qscheme": "per_channel"}), "fp8", "quark", WEIGHTS + 4 * ROWS),
        (quark(BLOCK8), "fp8", "quark", WEIGHTS + 4 * 112 * 32),
        (quark(BLOCK8 | {"scale_type": "float8_e8m0fnu"}), "fp8", "quark", WEIGHTS + 112 * 32),
        (quark(GROUP4), "mxfp4", "quark", WEIGHTS // 2 + ROWS * 128),
        (quark(GROUP4 | {"dtype": "fp6_e3m2"}), "mxfp6_e3m2", "quark", WEIGHTS * 6 // 8 + ROWS * 128),
        (quark(NV4), "nvfp4", "quark", WEIGHTS // 2 + ROWS * 256 + 8),
        (quark([E4M3, {"dtype": "int4", "qscheme": "per_channel"}]), "int4", "quark", WEIGHTS // 2 + 4 * ROWS + 4),
        (quark({"dtype": "int8", "qscheme": "per_channel"}), "int8", "quark", WEIGHTS + 4 * ROWS),
        (quark(INT4G), "int4", "quark", WEIGHTS // 2 + ROWS * 32 * 2),
        (quark(INT4G | {"dtype": "uint4", "symmetric": False}), "int4", "quark", WEIGHTS // 2 + ROWS * (64 + 16)),
        (torchao("Int4WeightOnlyConfig", group_size=128), "int4", "torchao", WEIGHTS // 2 + ROWS * 32 * 4),
        (torchao("Int8WeightOnlyConfig"), "int8", "torchao", WEIGHTS + 4 * ROWS),
        (torchao("Float8WeightOnlyConfig"), "fp8", "torchao", WEIGHTS + 4 * ROWS),
        (torchao("Float8DynamicActivationFloat8WeightConfig"), "fp8", "torchao", WEIGHTS + 4),
        (torchao("Int8DynamicActivationIntxWeightConfig"), "int8", "torchao", WEIGHTS + ROWS * 128 * 5),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "int8", "torchao", WEIGHTS + 4 * ROWS),
        (ROUND4, "auto-round", "auto-round", WEIGHTS // 2 + ROWS * 32 * 2 + ROWS * 16),
        (ROUND4 | {"quant_method": "inc"}, "auto-round", "auto-round", WEIGHTS // 2 + ROWS * 80),
        (ROUND4 | {"data_type": "mx_fp", "group_size": 32}, "mxfp4", "auto-round", WEIGHTS // 2 + ROWS * 128),
        (ROUND4 | {"data_type": "mx_fp", "bits": 8, "group_size": 32}, "mxfp8", "auto-round", WEIGHTS + ROWS * 128),
        (ROUND4 | {"data_type": "nv_fp", "group_size": 16}, "nvfp4", "auto-round", WEIGHTS // 2 + ROWS * 256 + 8),
        (ROUND4 | {"data_type": "fp8", "bits": 8, "group_size": [128, 128]}, "fp8", "auto-round",
         WEIGHTS + 4 * 112 * 32),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4", "hadamard_group_size": 32}, "mxfp4", "fp_quant",
         WEIGHTS // 2 + ROWS * 128 + 8 + 4096),
        ({"quant_method": "mxfp8"}, "mxfp8", "mxfp8", WEIGHTS + ROWS * 128),
        ({"quant_method": "FP8", "weight_block_size": [128, 128]}, "fp8", "fp8", WEIGHTS + 4 * 112 * 32),
        ({"quant_method": "compressed_tensors", **{k: v for k, v in grouped(CHANNEL8).items() if k != "quant_method"}},
         "fp8", "compressed-tensors", WEIGHTS + 2 * ROWS),
        ({"quant_method": "modelopt", "quant_algo": "mxfp8"}, "mxfp8", "modelopt_mxfp8", WEIGHTS + ROWS * 128),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8", "modelopt", WEIGHTS + 4 * 112 * 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "nvfp4", "modelopt_fp4",
         WEIGHTS // 2 + ROWS * 128 + 8),
        (grouped(INT4 | {"group_size": 128}, "marlin-24"), "int4-2:4", "compressed-tensors",
         WEIGHTS * 3 // 8 + ROWS * 32 * 2 + 8),
        (grouped(CHANNEL8) | {"sparsity_config": {"format": "sparse-24-bitmask", "targets": ["Linear"]}}, "fp8-2:4",
         "compressed-tensors", WEIGHTS * 5 // 8 + 2 * ROWS),
        (grouped(CHANNEL8) | {"sparsity_config": {"format": "dense"}}, "fp8", "compressed-tensors", WEIGHTS + 2 * ROWS),
    ],
)  # fmt: skip
def test_each_method_that_vllm_knows_has_its_layout(
    config: dict[str, Any], name: str, method: str, expected: int
) -> None:
    spec, inventory = read_config(LLAMA | {"quantization_config": config})
    assert spec.quantization == method
    assert form(inventory, "mlp.gate_proj").name == name
    assert size(inventory, "mlp.gate_proj") == expected
    assert form(inventory, "lm_head").name == "bfloat16"


def test_an_unsigned_key_of_gptq_quantises_nothing_new() -> None:
    """Official Qwen3.5 files hold "lm_head": {} beside their exclusions."""
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    dynamic = {"lm_head": {}, "model.embed_tokens": {}, "-:.*attn.*": {}, ".*up_proj": {"bits": 8}}
    inventory = read(LLAMA, base | {"dynamic": dynamic})
    assert form(inventory, "lm_head").name == form(inventory, "model.embed_tokens").name == "bfloat16"
    assert form(inventory, "self_attn.q_proj").name == "bfloat16"
    assert (form(inventory, "mlp.up_proj").bits, form(inventory, "mlp.down_proj").bits) == (8, 4)
    assert form(read(LLAMA, base | {"lm_head": True, "dynamic": dynamic}), "lm_head").name == "gptq"


@pytest.mark.parametrize(("asked", "cache"), [("static", None), ("FP8", "fp8"), ({"num_bits": 8}, "fp8"), (None, None)])
def test_a_cache_scheme_in_an_unknown_word_asks_for_nothing(asked: object, cache: str | None) -> None:
    config = {"quant_method": "fp8", "activation_scheme": "static", "kv_cache_scheme": asked}
    assert read_config(LLAMA | {"quantization_config": config})[0].kv_cache_dtype == cache


def test_groups_of_attention_are_the_caches_and_expressions_come_first() -> None:
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": CHANNEL8},
        "group_1": {"targets": ["Linear"], "weights": FP4},
        "group_2": {"targets": ["LlamaAttention"], "input_activations": {}},
    }  # fmt: skip
    inventory = read(LLAMA, {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": groups})
    assert form(inventory, "self_attn.o_proj").name == "fp8"
    assert form(inventory, "mlp.down_proj").name == "nvfp4"


def test_what_an_engine_must_support_besides_the_method_is_kept() -> None:
    ordered = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
    whole = ordered | {"group_size": -1}
    traits = [read_config(LLAMA | {"quantization_config": c})[0].quantization_traits for c in (ordered, whole)]
    assert traits == [("act-order",), ()]
    sparse = grouped(CHANNEL8) | {"sparsity_config": {"format": "sparse-24-bitmask", "targets": ["Linear"]}}
    assert "2:4 sparse" in read_config(LLAMA | {"quantization_config": sparse})[0].quantization_traits


def test_auto_round_names_modules_plainly_or_by_expression() -> None:
    extra = {"model.layers.0.self_attn.q_proj": {"bits": 16}, r".*down_proj$": {"bits": 8}}
    inventory = read(LLAMA, ROUND4 | {"extra_config": extra})
    assert form(inventory, "self_attn.q_proj", 0).name == "bfloat16"
    assert form(inventory, "self_attn.q_proj", 1).bits == 4
    assert form(inventory, "mlp.down_proj").bits == 8


def test_torchao_maps_modules() -> None:
    kind, four = "ModuleFqnToConfig", {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}
    by_module = {"_default": four, "model.layers.0.mlp.up_proj": None, "re:.*o_proj": {"_type": "Int8WeightOnlyConfig"}}
    inventory = read(LLAMA, torchao(kind, module_fqn_to_config=by_module))
    assert form(inventory, "mlp.down_proj").group == 32
    assert form(inventory, "mlp.up_proj", 0).name == "bfloat16"
    assert form(inventory, "self_attn.o_proj").name == "int8"


@pytest.mark.parametrize(
    ("config", "name", "bits"),
    [
        ({"bits": 4, "group_size": 64}, "mlx", 4),
        ({"quant_method": "exl2", "bits": 4.65, "head_bits": 6}, "exl2", 4.65),
        ({"quant_method": "exl3", "bits": 3.5, "head_bits": 6}, "exl3", 3.5),
    ],
)  # fmt: skip
def test_formats_of_other_programs_have_sizes(config: dict[str, Any], name: str, bits: float) -> None:
    spec, inventory = read_config(LLAMA | {"quantization_config": config})
    assert spec.quantization == name
    assert form(inventory, "mlp.gate_proj").bits == bits
    assert form(inventory, "lm_head").name == name
    assert form(inventory, "model.embed_tokens").name == (name if name == "mlx" else "bfloat16")


@pytest.mark.parametrize("method", ["hqq", "aqlm", "quanto", "higgs", "bitnet"])
def test_formats_without_a_layout_say_who_loads_them(method: str) -> None:
    with pytest.raises(NotModelled, match="which transformers loads: no engine here does"):
        read(LLAMA, {"quant_method": method})
