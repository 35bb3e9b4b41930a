"""llama.cpp's recipes against the types that its own tests pin for eight models: every mix, every matrix."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.model.gguf_names import gguf_name, outside_name
from kvplanner.model.gguf_recipes import RECIPES, Place, by_layer, recipe_format
from kvplanner.model.quantisation import published
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from kvplanner.model.whatif import _as_gguf

TYPES: dict[str, dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parent / "gguf_types.json.gz").read_bytes())
)
# A shared expert's matrix down is counted like a layer's own there, so that the first eighth ends one layer earlier.
_COUNTED = ("IQ2_", "IQ1_")


@pytest.fixture(scope="module")
def plain() -> dict[str, tuple[ModelSpec, Inventory]]:
    """Each model's tensors before any quantisation."""
    found = {}
    for name in TYPES:
        model = models.load(name)
        assert model.inventory is not None
        found[name] = model.spec, published.plain(model.inventory, model.spec)
    return found


@pytest.mark.parametrize("mix", [name for name in RECIPES if name not in ("F16", "BF16")])
def test_every_matrix_has_the_type_that_llama_cpp_gives_it(
    mix: str, plain: dict[str, tuple[ModelSpec, Inventory]]
) -> None:  # fmt: skip
    for model_id, mixes in TYPES.items():
        spec, inventory = plain[model_id]
        made = _as_gguf(inventory, spec, mix, matrix=False)
        named = mixes["MXFP4_MOE" if mix == "MXFP4" else mix]
        rest = next(iter(named[""]))
        groups = [
            (layer, gguf_name(group.path), group) for layer, at in enumerate(made.block_of) for group in made.blocks[at]
        ]
        groups += [(-1, outside_name(group), group) for group in made.outside if group.kind in ("embedding", "head")]
        compared = 0
        for layer, name, group in groups:
            if group.format.name.startswith(("float", "bfloat")) or (
                mix.startswith(_COUNTED) and name == "ffn_down_shexp.weight"
            ):
                continue
            types = named.get(name, {})
            wanted = next((type_ for type_, layers in types.items() if layer in layers), rest)
            assert group.format.name.upper() == wanted, (model_id, layer, name)
            compared += 1
        assert compared > 100


@pytest.mark.parametrize("mix", RECIPES)
def test_what_no_layer_decides_is_alike_in_all(mix: str) -> None:
    recipe = RECIPES[mix]
    names = {f"{stem}.weight" for stem in (
        "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_kv_b", "attn_k_b", "attn_output", "attn_gate", "ffn_gate",
        "ffn_up", "ffn_down", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_down_shexp", "ffn_up_shexp",
        "ssm_in", "ssm_out", "shortconv.in_proj", "token_embd", "output",
    )}  # fmt: skip
    deciding = set()
    for name in names:
        for experts, gqa, older, matrix in itertools.product((0, 8, 64), (1, 8), (False, True), (False, True)):
            made = {
                recipe_format(recipe, name, (512, 512), Place(
                    at, 32, at, 32, at, gqa, experts, tied=False, large=False, older=older,
                ), matrix=matrix) for at in range(32)
            }  # fmt: skip
            if len(made) > 1:
                deciding.add(name)
    assert all(by_layer(recipe, name) for name in deciding)
