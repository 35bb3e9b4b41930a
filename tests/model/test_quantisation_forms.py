"""Quantisation configs in the forms in which their tools write them, down to the fields that change nothing.

Each is that of a Llama 3 8B. Fields are those that AutoAWQ, transformers' optimum, GPTQModel, llm-compressor, Quark,
torchao, AutoRound, bitsandbytes, ModelOpt, ExLlama and MLX write; sizes by the layouts that test_families_schemes.py
holds against published totals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.errors import PlannerError
from kvplanner.model.families import read_config
from tests.model.kit import LLAMA

FORMS = [json.loads(line) for line in (Path(__file__).parent / "quantisation_forms.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("form", [f for f in FORMS if "words" not in f], ids=lambda f: f["name"])
def test_a_form_is_read_with_all_its_fields(form: dict[str, Any]) -> None:
    spec, inventory = read_config(LLAMA | {"quantization_config": form["quantization_config"]})
    assert (spec.quantization, spec.kv_cache_dtype) == (form["method"], form["kv_cache"])
    assert inventory.stored_bytes() == form["stored_bytes"]


@pytest.mark.parametrize("form", [f for f in FORMS if "words" in f], ids=lambda f: f["name"])
def test_what_no_reader_knows_says_why(form: dict[str, Any]) -> None:
    with pytest.raises(PlannerError) as caught:
        read_config(LLAMA | {"quantization_config": form["quantization_config"]})
    assert all(word in str(caught.value) for word in form["words"]), str(caught.value)


def test_modules_in_a_block_are_the_only_ones_quantised() -> None:
    """GPTQ of the attention alone: 4 bits, scale and zero of groups of 128, an index of 4 bytes a column."""
    form = next(f for f in FORMS if f["name"] == "gptq block")
    plain = read_config(LLAMA)[1].stored_bytes()
    rows, layers = 4096 + 1024 + 1024 + 4096, 32
    packed = rows * 4096 // 2 + rows * 32 * 2 + rows * 32 // 2 + 4 * 4096 * 4
    quantised = read_config(LLAMA | {"quantization_config": form["quantization_config"]})[1].stored_bytes()
    assert quantised == plain - layers * (rows * 4096 * 2 - packed)
