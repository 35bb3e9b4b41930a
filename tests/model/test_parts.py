"""What a recipe makes of a model's size, counted by parts, is what its inventory in those formats says."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.model.quantisation import published

MODELS = (
    "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "google/gemma-3-27b-it", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_bytes_by_parts_are_those_of_the_inventory(name: str) -> None:
    model = models.load(name)
    assert model.inventory is not None
    parts, plain = published.Parts(model.inventory, model.spec), published.plain(model.inventory, model.spec)
    found = {parts.bytes_in(recipe) for recipe in published.recipes()[::5]}
    for recipe in published.recipes()[::5]:
        assert parts.bytes_in(recipe) == published.quantised(plain, recipe.parts).stored_bytes(mtp=False)
    assert len(found) > 5
