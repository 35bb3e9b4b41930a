"""What a model would weigh in another format, checked against repositories that exist in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplanner.catalog import models
from kvplanner.errors import NotModelled, UnknownName
from kvplanner.model.dynamic import LIKE
from kvplanner.model.gguf_recipes import more_bits
from kvplanner.model.tensors import Inventory
from kvplanner.model.whatif import WHATIF_FORMATS, reformat, respec, stored

PUBLISHED = json.loads((Path(__file__).parents[2] / "packaging" / "dynamic_sizes.json").read_bytes())["models"]


def inventory(model: str) -> Inventory:
    found = models.load(model).inventory
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("plain", "quantised", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8", "FP8 block"),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8", "FP8 block"),
        ("meta-llama/Llama-3.1-70B-Instruct", "nvidia/Llama-3.1-70B-Instruct-FP8", "FP8"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ", "AWQ 4-bit"),
        ("Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "GPTQ 4-bit"),
        ("Qwen/Qwen3-235B-A22B", "nvidia/Qwen3-235B-A22B-NVFP4", "NVFP4"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b", "MXFP4"),
    ],
)
def test_sizes_are_those_of_repositories_that_follow_the_rule(plain: str, quantised: str, name: str) -> None:
    made = reformat(inventory(plain), models.load(plain).spec, name)
    assert made.stored_bytes(mtp=False) == inventory(quantised).stored_bytes(mtp=False)


def test_nvfp4_of_a_hybrid_is_what_publishers_make_of_it() -> None:
    """nvidia's build of a 27B is 21.9 GB with its MTP block; others leave the linear attention in 16 bits: 24.6 GiB."""
    model = models.load("Qwen/Qwen3.6-27B")
    made = reformat(inventory(model.id), model.spec, "NVFP4")
    assert abs(made.stored_bytes() / 21_900_000_000 - 1) < 0.005
    size = stored(inventory(model.id), model.spec, "NVFP4")
    assert size.low < 20 * 2**30 < 24.6 * 2**30 < size.high
    assert "nvidia/Qwen3.6-27B-NVFP4" in size.inputs[0].source
    dense = stored(
        inventory("meta-llama/Llama-3.1-8B-Instruct"), models.load("meta-llama/Llama-3.1-8B-Instruct").spec, "NVFP4"
    )
    assert dense.high < 1.04 * dense.value


def test_q4_k_m_of_llama_is_the_published_file() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")
    rotary_table = 256
    made = reformat(inventory(model.id), model.spec, "GGUF Q4_K_M")
    assert made.stored_bytes() + rotary_table == 4_912_898_304


@pytest.mark.parametrize("name", WHATIF_FORMATS)
@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "google/gemma-3-4b-it"]
)
def test_every_format_keeps_the_model(model: str, name: str) -> None:
    before, spec = inventory(model), models.load(model).spec
    after = reformat(before, spec, name)
    assert after.parameters(mtp=True) == before.parameters(mtp=True)
    assert len(after.block_of) == len(before.block_of)
    size = stored(before, spec, name)
    assert size.low <= size.value <= size.high
    assert 0.097 < size.value / (2 * before.parameters()) < 1.01  # IQ1_S takes 50 bytes for 256 weights
    assert size.in_numbers()
    assert respec(spec, name).quantization


@pytest.mark.parametrize(
    ("model", "name", "published"),
    [("LiquidAI/LFM2-8B-A1B", "GGUF Q4_K_M", 5_042_000_000), ("LiquidAI/LFM2-1.2B", "GGUF Q4_K_M", 731_000_000)],
)
def test_short_convolutions_are_quantised_but_for_their_kernel(model: str, name: str, published: int) -> None:
    made = reformat(inventory(model), models.load(model).spec, name)
    assert abs(made.stored_bytes(mtp=False) / published - 1) < 0.005


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_dynamic_mixes_lie_in_their_band(model: str) -> None:
    """Files leave out towers, and a few layers that predict further tokens, which their 16-bit file shows."""
    spec, tensors = models.load(model.partition("#")[0]).spec, inventory(model.partition("#")[0])
    towers = sum(group.stored_bytes * n for group, n in reformat(tensors, spec, "GGUF BF16").groups()
                 if group.place == "tower")  # fmt: skip
    sizes = PUBLISHED[model]
    scale = sizes.get("BF16", 0) / (stored(tensors, spec, "GGUF BF16").value - towers) or 1
    seen = [mix for mix in LIKE if mix.removeprefix("UD-") in sizes]
    assert seen
    for mix in seen:
        band = stored(tensors, spec, f"GGUF {mix}")
        assert band.basis == "assumed"
        published = sizes[mix.removeprefix("UD-")] / scale + towers
        assert band.low < published < band.high, mix
        assert LIKE[mix] in band.in_numbers() + str(band.inputs)


def test_a_dynamic_mix_of_what_is_published_in_four_bits_is_refused() -> None:
    model = models.load("openai/gpt-oss-20b")
    with pytest.raises(NotModelled, match="published in MXFP4"):
        reformat(inventory(model.id), model.spec, "GGUF UD-Q4_K_XL")


def test_gguf_mixes_are_ordered() -> None:
    model = models.load("Qwen/Qwen3-32B")
    sizes = [
        stored(inventory(model.id), model.spec, f"GGUF {name}").value
        for name in ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_rows_that_fit_no_block_fall_back() -> None:
    """Qwen2.5-0.5B is 896 wide: no multiple of 256, so llama.cpp takes 32-wide blocks."""
    model = models.load("Qwen/Qwen2.5-0.5B")
    made = reformat(inventory(model.id), model.spec, "GGUF Q4_K_M")
    names = {group.format.name for group, _ in made.groups()}
    assert {"Q5_0", "Q8_0"} <= names
    assert "Q4_K" in names


def test_the_first_and_last_eighth_get_more_bits() -> None:
    chosen = [i for i in range(32) if more_bits(i, 32)]
    assert chosen[:4] == [0, 1, 2, 3]
    assert chosen[-4:] == [28, 29, 30, 31]
    assert chosen[4:8] == [6, 9, 12, 15]


def test_an_unknown_format_lists_the_known() -> None:
    model = models.load("Qwen/Qwen3-8B")
    with pytest.raises(UnknownName, match="NVFP4"):
        reformat(inventory(model.id), model.spec, "FP5")
