"""The context length by vLLM's rule."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.model.families import read_config
from tests.model.kit import LLAMA


@pytest.mark.parametrize(
    ("change", "limit", "start"),
    [
        ({}, 8192, None),
        ({"seq_length": 4096}, 4096, None),
        ({"model_max_length": 1_000_000}, 1_000_000, None),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32_768, None),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 16_384, None),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192, None),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}}, 8192, None),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}}}, 65_536, None),
        ({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}, 8192, 4096),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}, 8192, None),
        ({"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8.0}}, 8192, None),
    ],
)
def test_lengths(change: dict[str, Any], limit: int, start: int | None) -> None:
    spec, _ = read_config(LLAMA | change)
    assert (spec.context_length, spec.default_context_length) == (limit, start)


def test_a_class_default_is_told() -> None:
    spec, _ = read_config({k: v for k, v in LLAMA.items() if k != "max_position_embeddings"})
    assert spec.context_length == 2048
    assert "max_position_embeddings" in spec.defaulted
