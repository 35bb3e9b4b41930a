"""Architectures against their library classes: small configs as transformers saves them, defaults left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.model.families import read_config

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("class_counts.jsonl").read_text("utf-8").splitlines()
]
# Kept as buffers by the classes, stored by the files.
BUFFERS = ("e_score_correction_bias",)


@pytest.mark.parametrize("row", ROWS, ids=[row["architecture"] for row in ROWS])
def test_elements_are_those_of_the_library_class(row: dict[str, Any]) -> None:
    _, inventory = read_config(row["config"])
    buffers = sum(g.elements * n for g, n in inventory.groups() if g.path.endswith(BUFFERS) and g.place != "mtp")
    assert row["elements"] in (inventory.parameters() - buffers, inventory.parameters())


def test_hunyuan_vl_has_the_count_of_its_class() -> None:
    """Its class does not build from a saved config of this size; this is what it counts from Python."""
    text = {
        "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 1000, "head_dim": 32, "model_type": "hunyuan_vl_text",
    }  # fmt: skip
    config = {"architectures": ["HunYuanVLForConditionalGeneration"], "model_type": "hunyuan_vl", "text_config": text,
              "vision_config": {"model_type": "hunyuan_vl_vision"}}  # fmt: skip
    assert read_config(config)[1].parameters() == 456_142_064
