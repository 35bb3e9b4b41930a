"""What --quantization may be, what it does to 16-bit weights, and which splits the engine refuses."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models as catalogue
from kvplanner.engine.vllm.weights import methods as weights_methods
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.formats import dense, fp8_block
from kvplanner.model.model import Model
from tests.engine.vllm.weights.models import H100, LLAMA_3_8B, QWEN3_8B, experts, llama, settings

FP32 = dense("float32")


@pytest.mark.parametrize(
    ("method", "version", "said"),
    [
        ("foo", "0.33.0", "Unknown quantization method: foo"),
        ("mxfp4", "0.33.0", "Cannot find the config file for mxfp4"),
        ("compressed-tensors", "0.33.0", "Cannot find the config file"),
        ("awq", "0.16.0", "Cannot find the config file for awq"),
        ("bitsandbytes", "0.33.0", "vLLM 0.33.0 does not have it"),
        ("bitsandbytes", "0.28.0", "vLLM 0.28.0 does not have it"),
        ("fp8_per_block", "0.11.0", "vLLM 0.11.0 does not have it"),
    ],
)
def test_methods_that_the_engine_refuses_on_16_bit_weights(method: str, version: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        weights.rank_weights(LLAMA_3_8B, settings(version, quantization=method), H100, 0)
    assert caught.value.where == "--quantization"
    assert caught.value.remedy


@pytest.mark.parametrize(("method", "version"), [("torchao", "0.33.0"), ("humming", "0.33")])
def test_methods_of_unknown_size_are_not_guessed(method: str, version: str) -> None:
    with pytest.raises(NotModelled):
        weights.rank_weights(LLAMA_3_8B, settings(version, quantization=method), H100, 0)


def test_a_quantised_checkpoint_takes_its_own_names_only() -> None:
    """config/model.py compares the argument with the config's method after the engine's own renaming."""
    for own, names in {
        "awq": ("awq", "AWQ", "auto_awq", "awq_marlin"), "gptq": ("gptq", "gptq_marlin", "auto_gptq"),
        "mxfp4": ("mxfp4", "gpt_oss_mxfp4"), "modelopt_fp4": ("modelopt", "modelopt_fp4"), "fp8": ("fp8",),
        "compressed-tensors": ("compressed-tensors",), "gguf": ("gguf",),
    }.items():  # fmt: skip
        spec = LLAMA_3_8B.spec._replace(quantization=own)
        for name in names:
            weights_methods.check(spec, settings(quantization=name))
        with pytest.raises(BadInput, match="does not match the quantization method"):
            weights_methods.check(spec, settings(quantization="fbgemm_fp8"))


def _layers(model: Model, **changes: object) -> int:
    here = settings(**changes)  # type: ignore[arg-type]  # fields of settings, by name
    return sum(h.bytes for h in weights.rank_tensors(model, here, H100, 0) if h.group.kind in ("attention", "mlp"))


def test_bitsandbytes_takes_half_a_byte_and_an_absmax_for_64_weights() -> None:
    plain = _layers(LLAMA_3_8B)
    assert _layers(LLAMA_3_8B, version="0.16.0", quantization="bitsandbytes") == plain // 2 // 64 * (32 + 4)
    found = weights.rank_weights(LLAMA_3_8B, settings("0.16.0", quantization="bitsandbytes"), H100, 0)
    assert found.low < found.value < found.high
    assert any("by its rule" in note for note in found.notes)
    # 128,256 × 4,096 embedding and head stay in 16 bits.
    assert found.value > 2 * 2 * 128256 * 4096


def test_experts_int8_converts_experts_alone() -> None:
    model = experts(2, 512, 16, 256, 2)
    plain, packed = (
        {h.group.path: h.bytes for h in weights.rank_tensors(model, settings(quantization=q), H100, 0)}
        for q in (None, "experts_int8")
    )
    changed = {path for path in plain if plain[path] != packed[path]}
    assert changed == {"mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj"}
    assert packed["mlp.experts.down_proj"] == 2 * 16 * (512 * 256 + 4 * 512)
    dense_model = weights.rank_weights(LLAMA_3_8B, settings(quantization="experts_int8"), H100, 0)
    assert dense_model.low == dense_model.value == dense_model.high == 16060522496


def _in_fp32(model: Model) -> Model:
    """The model as a folder holds it whose config says bfloat16 and whose files hold F32."""
    inventory = model.inventory
    assert inventory is not None
    blocks = tuple(tuple(g._replace(format=FP32) for g in block) for block in inventory.blocks)
    outside = tuple(g._replace(format=FP32) for g in inventory.outside)
    return model._replace(inventory=inventory._replace(blocks=blocks, outside=outside))


def test_fp32_files_are_cast_to_the_models_dtype() -> None:
    for model, size in ((LLAMA_3_8B, 16060522496), (QWEN3_8B, 16381470720)):
        assert weights.rank_weights(_in_fp32(model), settings(), H100, 0).value == size
        assert weights.rank_weights(_in_fp32(model), settings(dtype="float32"), H100, 0).value == 2 * size


@pytest.mark.parametrize(
    "name",
    ["deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-Linear-48B-A3B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct",
     "MiniMaxAI/MiniMax-M2"],
)  # fmt: skip
def test_fp32_files_keep_what_the_engine_declares_in_fp32(name: str) -> None:
    """These equal the engine's allocations to the byte; a file in fp32 must not change what a class declares."""
    model = catalogue.load(name)
    inventory = model.inventory
    assert inventory is not None
    here = settings(quantization=model.spec.quantization, tp=8)
    wide = {
        g.path
        for g, _ in inventory.groups()
        if g.format == FP32 and not g.path.endswith("A_log") and g.place == "layer"
    }
    sizes = {h.group.path: (h.bytes, h.local.elements * h.layers) for h in weights.rank_tensors(model, here, H100, 0)}
    for path in wide:
        held_bytes, elements = sizes[path]
        assert held_bytes == 4 * elements, path


def test_the_notes_speak_of_the_right_method() -> None:
    gpt_oss = catalogue.load("openai/gpt-oss-20b")
    notes = weights.rank_weights(gpt_oss, settings(quantization="gpt_oss_mxfp4"), H100, 0).notes
    assert not any("NVFP4" in note for note in notes)
    gptq = catalogue.load("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4")
    notes = weights.rank_weights(gptq, settings(quantization="auto_gptq", dtype="float16"), H100, 0).notes
    assert any("act-order" in note for note in notes)


def test_weights_of_a_gpu_without_a_known_capability_span_the_kernels() -> None:
    model = catalogue.load("deepseek-ai/DeepSeek-V3")
    sizes = [
        weights.rank_weights(model, settings(quantization="fp8", tp=8), H100._replace(arch=arch), 0).value
        for arch in ((8, 0), (9, 0), (10, 0))
    ]
    unknown = weights.rank_weights(model, settings(quantization="fp8", tp=8), H100._replace(arch=None), 0)
    assert unknown.low <= min(sizes) < max(sizes) <= unknown.high
    assert unknown.basis == "assumed"
    plain = weights.rank_weights(LLAMA_3_8B, settings(), H100._replace(arch=None), 0)
    assert plain.low == plain.value == plain.high


@pytest.mark.parametrize(
    ("model", "tp", "said"),
    [
        # A padded vocabulary of 100,352 rows over 5 ranks: distributed/utils.py divide.
        (llama(2, 5120, 40, 10, 128, 17920, 100352), 5, "100352 is not divisible by 5: the padded rows of model.embed"),
        (llama(2, 1024, 8, 8, 128, 1025, 6400), 2, "1025 is not divisible by 2: the rows of mlp.gate_proj"),
        (llama(2, 1024, 12, 3, 128, 1024, 6400), 2, "3 is not divisible by 2: the KV heads of self_attn.k_proj"),
        (experts(2, 512, 16, 260, 2, 6400), 8, "260 is not divisible by 8: the rows of mlp.experts.gate_proj"),
    ],
)
def test_splits_that_do_not_divide_are_refused(model: Model, tp: int, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        weights.rank_weights(model, settings(tp=tp), H100, 0)
    assert caught.value.where == "--tensor-parallel-size"


def test_heads_that_are_copied_and_experts_that_stay_whole_divide() -> None:
    weights.rank_weights(llama(2, 1024, 8, 2, 128, 1024, 6400), settings(tp=8), H100, 0)
    weights.rank_weights(experts(2, 512, 16, 260, 2, 6400), settings(tp=8, expert_parallel=True), H100, 0)
    # Words are padded to 64 first: 6,401 become 6,464 rows.
    weights.rank_weights(llama(2, 1024, 8, 8, 128, 1024, 6401), settings(tp=2), H100, 0)


def _fp8_blocks(model: Model) -> Model:
    inventory = model.inventory
    assert inventory is not None
    packed = {"attention", "mlp", "experts"}
    blocks = tuple(
        tuple(g._replace(format=fp8_block(128, 128)) if g.kind in packed and len(g.shape) == 2 else g for g in block)
        for block in inventory.blocks
    )
    return model._replace(spec=model.spec._replace(quantization="fp8"), inventory=inventory._replace(blocks=blocks))


def test_experts_that_are_not_whole_blocks_are_refused_until_they_are_cut() -> None:
    """1,536 over 8 ranks are 192 columns of 128 (vllm-project/vllm#48173); 0.33 loads them in blocks of 64."""
    model = _fp8_blocks(experts(2, 1024, 16, 1536, 2, 6400))

    def weigh(version: str, tp: int, **changes: object) -> tuple[str, ...]:
        here = settings(version, quantization="fp8", tp=tp, **changes)
        return weights.rank_weights(model, here, H100, 0).notes

    words = "The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128"
    with pytest.raises(BadInput, match=words):
        weigh("0.24.0", 8)
    assert any(words in note for note in weigh("0.28.0", 8))
    assert not any(words in note for note in weigh("0.33.0", 8))
    assert not any(words in note for note in weigh("0.24.0", 4))
    assert not any(words in note for note in weigh("0.24.0", 8, expert_parallel=True))


def test_linear_layers_that_are_not_whole_blocks_are_remarked() -> None:
    """A share of 64 of blocks of 128 (vllm-project/vllm#52997)."""
    model = _fp8_blocks(llama(2, 1024, 8, 8, 128, 512, 6400))
    words = "Weight output_partition_size = 64 is not divisible by weight quantization block_n = 128"
    notes = weights.rank_weights(model, settings(quantization="fp8", tp=8), H100, 0).notes
    assert any("may refuse" in note and words in note for note in notes)
    assert not weights.rank_weights(model, settings(quantization="fp8", tp=4), H100, 0).notes


def test_a_model_divides_where_its_weights_do() -> None:
    """An encoder may rule out a size that the decoder allows: 3,420 columns over 8 ranks."""
    sizes = {
        "Qwen/Qwen2.5-VL-3B-Instruct": (1, 2, 4), "meta-llama/Llama-3.1-8B-Instruct": (1, 2, 4, 8),
        "microsoft/phi-4": (1, 2), "Qwen/Qwen3-30B-A3B": (1, 2, 4, 8),
    }  # fmt: skip
    for name, expected in sizes.items():
        model = catalogue.load(name)
        assert tuple(tp for tp in (1, 2, 4, 5, 8) if weights.divides(model, tp)) == expected, name
