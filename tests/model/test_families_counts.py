"""Every record of the catalogue against its published element count and byte total.

A hub counts stored elements: scales beside 8-bit weights, packed bytes instead of 4-bit weights, and blocks that
engines do not load. Which of these a repository's count follows is found here; a count that follows none, and a
byte total that differs, is listed below with its cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

from kvplanner.catalog import models, stored
from kvplanner.model.families import READERS
from kvplanner.model.tensors import Inventory, TensorGroup

# Vectors that a file may keep as buffers, which some counts leave out.
BUFFERS = ("e_score_correction_bias", "expert_bias", "gate.bias", "tid2eid", "layer_scalar", "std_bias", "std_scale")

ROTARY = "the file keeps rotary tables of an earlier save"
TEXT_ONLY = "the copy of the config is the language model's; the count includes the vision tower"
NO_VOCABULARY = "its MTP block stores no second vocabulary, unlike GLM-4.5 and 4.7, and the config does not say so"
MIXED = "the export adds input scales and keeps some tensors twice"
UNEXPLAINED = "fields are missing from the public copy of the config"
RESIDUALS = "the residuals over blocks of layers are not described"
POSITIONS = "the count includes a buffer of position numbers"
NO_TOWER = "the file holds no vision tower, which the config and the count's base have"
W4A16 = "its quantisation settings were not seen: scales by row, as its size and another's of its publisher would allow"
SCALES = "what is stored beside the scales was not seen"
COUNTS: dict[str, tuple[str, int]] = {
    "BAAI/bge-base-en-v1.5": (POSITIONS, 512),
    "BAAI/bge-small-en-v1.5": (POSITIONS, 512),
    "BAAI/bge-small-zh-v1.5": (POSITIONS, 512),
    "intfloat/multilingual-e5-large": (POSITIONS, 514),
    "Qwen/Qwen-AgentWorld-35B-A3B": (NO_TOWER, -446_571_248),
    "RedHatAI/Qwen3.6-35B-A3B-NVFP4": (NO_TOWER, -446_571_248),
    "RedHatAI/Kimi-K3-INT4": ("the residuals over blocks of layers are not described", 2_689_184),
    "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16": (W4A16, 0),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": (W4A16, 0),
    "RedHatAI/granite-3.1-8b-instruct-quantized.w4a16": (W4A16, 0),
    "RedHatAI/phi-4-quantized.w4a16": (W4A16, 0),
    "RedHatAI/Qwen3-32B-NVFP4": (SCALES, 0),
    "RedHatAI/Qwen3-Coder-Next-FP8-dynamic": (SCALES, 0),
    "RedHatAI/Qwen3-Coder-Next-NVFP4": (SCALES, 0),
    "tencent/Hy3-FP8": (SCALES, 46_647),
    "zai-org/GLM-4.5-Air-FP8": (SCALES, 151_552),
    "zai-org/GLM-4.6-FP8": (SCALES, 151_552),
    "moonshotai/Kimi-K2-Instruct": (ROTARY, 3416),
    "moonshotai/Kimi-K2-Instruct-0905": (ROTARY, 7808),
    "moonshotai/Kimi-K2-Thinking": (ROTARY, 7808),
    "moonshotai/Moonlight-16B-A3B": (ROTARY, 1728),
    "moonshotai/Moonlight-16B-A3B-Instruct": (ROTARY, 1728),
    "moonshotai/Kimi-K3": (RESIDUALS, 2_689_184),
    "zai-org/GLM-4.6": (NO_VOCABULARY, -1_551_892_480),
    "MiniMaxAI/MiniMax-M3": (TEXT_ONLY, 865_567_232),
    "XiaomiMiMo/MiMo-V2-Flash": ("192 elements of each MTP block are not explained", 576),
    "mistralai/Mistral-Small-4-119B-2603": ("the file joins gate and up of each expert: fewer scales", -9216),
    "nvidia/DeepSeek-V4-Flash-NVFP4": (MIXED, -16_802),
    "nvidia/DeepSeek-V4-Pro-NVFP4": (MIXED, -41_640),
    "nvidia/GLM-5.2-NVFP4": ("the count is that of an estimate: it exceeds the unquantised model's", 0),
    "stepfun-ai/Step-3.7-Flash": (UNEXPLAINED, 5_532_627_520),
    "stepfun-ai/Step-3.7-Flash-FP8": (UNEXPLAINED, 5_532_354_496),
}
# bitsandbytes stores a JSON text beside each matrix, of about so many bytes.
STATE_BYTES = (340, 350)
FP32_NORMS = "the gates' decay and the linear-attention norm are stored in fp32, which the config does not say"
BYTES: dict[str, tuple[str, int]] = {
    "meta-llama/Llama-2-7b-hf": ("the published total is that of the .bin files, without their rotary tables", -4096),
    "meta-llama/Llama-2-7b-chat-hf": (
        "the published total is that of the .bin files, without their rotary tables",
        -4096,
    ),
    "Qwen/Qwen3.5-0.8B": (FP32_NORMS, 5184),
    "Qwen/Qwen3.5-4B": (FP32_NORMS, 7680),
    "Qwen/Qwen3.5-9B": (FP32_NORMS, 7680),
    "moonshotai/Kimi-K2-Instruct": (ROTARY, 6832),
    "moonshotai/Kimi-K2-Instruct-0905": (ROTARY, 15_616),
    "moonshotai/Kimi-K2-Thinking": (ROTARY, 15_616),
    "moonshotai/Kimi-K3": (RESIDUALS, 5_400_448),
    "Qwen/Qwen3.5-397B-A17B-GPTQ-Int4": (FP32_NORMS, 17_280),
}


SIZES = {
    "MiniMaxAI/MiniMax-Text-01": "2.5 GB more than its element count gives in 16 bits: not explained",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "1.3 GB more than its recipe gives: not explained",
    "stepfun-ai/Step-3.7-Flash": UNEXPLAINED,
}


@cache
def records() -> dict[str, dict[str, Any]]:
    return {entry.id: models.record(entry.id) for entry in models.index() if not entry.like}


@cache
def inventory_of(model: str) -> Inventory:
    held = models.load(model).inventory
    assert held is not None
    return held._replace(outside=tuple(group for group in held.outside if group.path != stored.UNEXPLAINED))


def stored_copies(facts: dict[str, Any]) -> tuple[int, int]:
    """Elements that a file holds twice or without use, with their size, as its record says."""
    elements, what = facts.get("extra", (0, ""))
    if what.startswith("MTP"):
        return 0, 0
    return int(elements), 4 if "inv_freq" in what else 2


def counted(inventory: Inventory, scales: bool, packed: bool) -> int:
    """Elements as a hub counts them."""
    return sum(counted_group(group, scales, packed) * layers for group, layers in inventory.groups())


def counted_group(group: TensorGroup, scales: bool, packed: bool) -> int:
    form = group.format
    if form.layout == "dense" or len(group.shape) != 2:
        return group.elements
    total = int(group.elements * form.bits / 8) if packed and form.bits < 8 else group.elements
    if scales:
        inputs = 2 if (form.layout == "tensor" and form.extra_bytes) or form.zero_bits else 1
        total += form.scale_count(*group.shape) * group.count * inputs
        # compressed-tensors stores the logical shape of a packed matrix beside it, as two whole numbers.
        total += 2 * group.count if form.name.startswith("int") and form.layout == "group" else 0
    return total


def readings(model: str) -> Iterator[int]:
    """Every way in which the repository's elements may have been counted."""
    whole = inventory_of(model)
    main = whole._replace(outside=tuple(g for g in whole.outside if g.place != "mtp"))
    copies = stored_copies(records()[model])[0]
    for inventory, scales, packed in product((main, whole), (False, True), (False, True)):
        total = counted(inventory, scales, packed) + copies
        buffers = sum(g.elements * n for g, n in inventory.groups() if g.path.endswith(BUFFERS))
        yield from (total, total - buffers)


def test_every_architecture_has_a_reader() -> None:
    used = {name for facts in records().values() for name in facts["config"].get("architectures", ())[:1]}
    assert len(records()) == 727
    assert len(used) == 105
    assert all(name in READERS for name in used)


COUNTED = sorted(name for name, facts in records().items() if facts.get("params"))
PACKED = [name for name in COUNTED if "bnb-4bit" in name]


def test_most_counts_are_met_exactly() -> None:
    assert len(COUNTED) == 642
    assert len(COUNTS) + len(PACKED) <= 45
    assert set(COUNTS) <= set(COUNTED)


def test_three_digits_agree_for_nearly_all() -> None:
    """At least 95 % of the repositories whose element count is published."""
    wrong = [
        m
        for m in COUNTED
        if m not in PACKED and all(f"{p:.2e}" != f"{records()[m]['params']:.2e}" for p in readings(m))
    ]
    assert len(wrong) <= 0.02 * len(COUNTED), wrong
    assert set(wrong) <= set(COUNTS)


@pytest.mark.parametrize("model", PACKED)
def test_bitsandbytes_counts_are_the_published_ones(model: str) -> None:
    """Packed bytes are counted twice (as weights), and absmax, nested absmax, tables and state by byte or value."""
    inventory = inventory_of(model)
    packed = [(g, n) for g, n in inventory.groups() if g.format.name == "bnb4"]
    weights = sum(g.elements * n for g, n in packed)
    matrices = sum(g.count * n for g, n in packed)
    known = inventory.parameters() + stored_copies(records()[model])[0] + weights // 32 + weights // 16384
    assert STATE_BYTES[0] <= (records()[model]["params"] - known) / matrices - 272 <= STATE_BYTES[1]


@pytest.mark.parametrize("model", [name for name in COUNTED if name not in PACKED])
def test_elements_are_the_published_ones(model: str) -> None:
    published = records()[model]["params"]
    found = set(readings(model))
    if model not in COUNTS:
        assert published in found
        return
    assert published not in found, "the exception is no longer needed"
    difference = COUNTS[model][1]
    assert not difference or published - difference in found


SIZED = sorted(name for name, facts in records().items() if facts.get("bytes"))


def test_most_totals_are_met_to_the_byte() -> None:
    assert len(SIZED) == 56
    assert len(SIZED) - len(BYTES) >= 45


ROUNDED = sorted(name for name, facts in records().items() if facts.get("size") and not facts.get("bytes"))
# Three digits of a rounded size may differ by one in the last.
LAST_DIGIT = 1.5


def test_three_digits_of_rounded_sizes_agree_for_nearly_all() -> None:
    """What the config implies, without what was planned on top, against sizes that somebody published rounded."""
    wrong = {}
    for model in ROUNDED:
        facts = records()[model]
        implied = stored.counted(facts, inventory_of(model))
        size, grain, _ = facts["size"]
        last = 10 ** (len(str(size)) - 3)
        if abs(implied - size) > max(grain, LAST_DIGIT * last):
            wrong[model] = f"{implied / size - 1:+.2%}"
    assert len(ROUNDED) >= 120
    assert set(wrong) <= set(SIZES), wrong
    assert len(wrong) <= 0.05 * len(ROUNDED)


def test_the_catalogue_shows_the_published_size() -> None:
    """Whatever the config implies: within what the source rounds and what files hold beside tensors."""
    for model in ROUNDED:
        size, grain, _ = records()[model]["size"]
        told = models.load(model).stored
        assert told is not None
        assert abs(told.value - size) <= grain + 0.001 * size + 20_000_000, model


@pytest.mark.parametrize("model", SIZED)
def test_bytes_are_the_published_ones(model: str) -> None:
    facts = records()[model]
    copies, size = stored_copies(facts)
    difference = BYTES[model][1] if model in BYTES else 0
    assert inventory_of(model).stored_bytes() + copies * size + difference == facts["bytes"]


@pytest.mark.parametrize("model", sorted(records()))
def test_alike_layers_share_a_body(model: str) -> None:
    inventory = inventory_of(model)
    assert len(set(inventory.blocks)) == len(inventory.blocks)
    assert set(inventory.block_of) == set(range(len(inventory.blocks)))
    # A list of skipped modules or pruned layers makes more bodies, but never one for each layer of a large model.
    assert len(inventory.blocks) <= 20
