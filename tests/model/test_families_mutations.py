"""Broken and hand-edited configs: an error of our kinds, or a consistent result that says what it assumed."""

from __future__ import annotations

import copy
import random
from collections import Counter
from contextlib import suppress
from functools import cache, reduce
from operator import getitem
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.families import read_config
from kvplanner.model.kv import state_bytes, token_cache
from kvplanner.model.spec import Attention, Mla, ModelSpec, Moe, State
from kvplanner.model.tensors import Inventory
from tests.model.mutations import Mutation, facts, mutate, seeds

pytestmark = pytest.mark.slow

EXAMPLES, PER_EXAMPLE = 250, 40
# Fields whose absence is a statement, not an omission; what it states is in the result.
ABSENCE = {
    "quantization_config": "not quantised", "quantization": "not quantised", "quant_method": "the side file decides",
    "ignore": "nothing is skipped", "ignored_layers": "nothing is skipped",
    "modules_to_not_convert": "nothing is skipped", "dynamic": "nothing is overridden",
    "kv_cache_scheme": "no wish for the cache", "mamba_ssm_dtype": "the engine's choice",
    "max_position_embeddings": "length unknown", "seq_length": "length unknown", "n_positions": "length unknown",
    "model_max_length": "length unknown", "vision_encoder": "a text model",
    "use_bidirectional_attention": "attention looks back only",
    "factor": "no length beyond the stated one", "rope_type": "the default rope",
    "rope_parameters": "length as stated", "original_max_position_embeddings": "length as stated",
    "rope_scaling": "length as stated",
    "type": "no long rope",
    "model_type": "told, not used", "dtype": "recorded under torch_dtype", "torch_dtype": "recorded",
}  # fmt: skip


# Objects whose entries each name modules, or classes: one fewer is another, complete list.
LISTS = {"quantized_layers", "config_groups", "dynamic", "id2label"}


@cache
def original(model: str) -> tuple[ModelSpec, Inventory]:
    config, side, _ = facts(model)
    return read_config(config, where=model, side_quant=side)


def check_consistent(spec: ModelSpec, inventory: Inventory) -> None:
    """What must hold for any result."""
    assert sum(spec.counts()) == spec.num_layers == len(inventory.block_of)
    assert set(inventory.block_of) == set(range(len(inventory.blocks)))
    assert spec.hidden_size > 0
    assert spec.vocab_size > 0
    assert 0 < inventory.parameters() <= inventory.parameters(mtp=True)
    assert inventory.stored_bytes() > 0
    assert spec.context_length is None or spec.context_length > 0
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                assert mixer.heads % mixer.kv_heads == 0
                assert min(mixer.heads, mixer.kv_heads, mixer.head_size, mixer.head_size_v) > 0
                assert not (mixer.window and mixer.chunk)
            if isinstance(mixer, State):
                assert state_bytes(mixer, spec.dtype) > 0
            assert all(c.bytes > 0 for c in token_cache(mixer, spec.dtype))
        for mlp in layer.mlps:
            assert not isinstance(mlp, Moe) or 0 < mlp.top_k <= mlp.experts
    for group, _ in inventory.groups():
        assert min(group.shape) > 0
        assert group.count > 0
        assert group.unit >= 1
    check_tensors_fit(spec, inventory)


def check_tensors_fit(spec: ModelSpec, inventory: Inventory) -> None:
    """Key rows are those of the KV heads; latent layers hold their down projection."""
    for kind, block in set(zip(spec.layer_of, inventory.block_of, strict=True)):
        mixers, groups = spec.layers[kind].mixers, inventory.blocks[block]
        rows = {g.shape[0] for g in groups if g.shard == "kv" and len(g.shape) == 2}
        for mixer in mixers:
            if isinstance(mixer, Attention) and rows:
                assert mixer.kv_heads * mixer.head_size in rows
            if isinstance(mixer, Mla):
                wide = mixer.kv_lora_rank + mixer.qk_rope
                assert any(g.path.endswith("kv_a_proj_with_mqa") and g.shape[0] == wide for g in groups)


def check_nothing_silent(mutation: Mutation, spec: ModelSpec, inventory: Inventory) -> None:
    """A removed field changes nothing, or is named among the defaults, or its absence is a statement."""
    before = original(mutation.model)
    same = before[0]._replace(defaulted=()) == spec._replace(defaulted=()) and before[1] == inventory
    told = any(name.rpartition(".")[2] == mutation.deleted for name in spec.defaulted)
    listed = LISTS.intersection(mutation.path[:-1])
    assert same or told or listed or mutation.deleted in ABSENCE, mutation.path


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_ten_thousand_mutations(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(PER_EXAMPLE):
        mutation = mutate(rng.choice(seeds()), rng)
        try:
            spec, inventory = read_config(mutation.config, where="mutated", side_quant=mutation.side)
        except PlannerError as error:
            assert isinstance(error, BadInput | NotModelled)
            assert error.what
            assert error.where or "quantization" in str(error)
            assert len(str(error)) < 1000
            continue
        check_consistent(spec, inventory)
        if mutation.deleted:
            check_nothing_silent(mutation, spec, inventory)


def test_the_mutations_meet_both_outcomes() -> None:
    rng, outcomes = random.Random(7), Counter[str]()
    for _ in range(400):
        mutation = mutate(rng.choice(seeds()), rng)
        try:
            read_config(mutation.config, side_quant=mutation.side)
            outcomes["read"] += 1
        except PlannerError as error:
            outcomes[type(error).__name__] += 1
    assert min(outcomes["read"], outcomes["BadInput"], outcomes["NotModelled"]) > 20


@pytest.mark.parametrize("model", seeds())
def test_originals_are_consistent(model: str) -> None:
    check_consistent(*original(model))


@pytest.mark.parametrize("odd", [10**400, 1e308, 5e-324, -1e308], ids=["integer", "large", "tiny", "negative"])
def test_no_number_is_too_large_or_too_small_for_a_ratio(odd: float) -> None:
    """A size times such a number is no size, and its inverse neither: every broken number of every config is one."""
    for model in {entry.architecture: entry.id for entry in models.index() if not entry.like}.values():
        for path in facts(model)[2]:
            config = copy.deepcopy(facts(model)[0])
            *way, last = path
            holder: Any = reduce(getitem, way, cast("Any", config))
            if isinstance(holder[last], float) or last in {"factor", "mlp_ratio", "downsample_ratio"}:
                holder[last] = odd
                with suppress(BadInput, NotModelled):
                    read_config(config, where=model, side_quant=facts(model)[1])
