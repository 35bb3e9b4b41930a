"""Nothing structural is ignored: unread dictionaries, renamed fields, contradictions. Metadata does no harm."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.families import read_config
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from tests.model.kit import LLAMA
from tests.model.mutations import facts, seeds

UNREAD: tuple[tuple[str, Any], ...] = (
    ("visual", {"width": 1664, "layers": 48}), ("vision_tower", {"hidden_size": 64}), ("encoder", {"depth": 2}),
    ("adapter", {"rank": 8}), ("x", {"a": 1}), ("perceiver_config", {"n": [1]}), ("speech", [{"dim": 3}]),
    ("zones", [1, 2, 3]), ("image_tokenizer_config", {"backbone": {"hidden_size": 64}}),
    ("generation_extra", {"num_layers": 2}),
)  # fmt: skip


@cache
def original(model: str) -> tuple[ModelSpec, Inventory]:
    config, side, _ = facts(model)
    return read_config(config, where=model, side_quant=side)


@pytest.mark.parametrize("model", seeds())
def test_an_unread_dictionary_or_list_refuses(model: str) -> None:
    config, side, _ = facts(model)
    for name, value in UNREAD:
        if name in config:
            continue
        with pytest.raises(PlannerError, match=name):
            read_config(config | {name: value}, side_quant=side)


def objects(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a config's objects stand, itself first."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from objects(inner, (*path, key))


def inside(config: dict[str, Any], path: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A copy of a config and the object at a place in it."""
    made = copy.deepcopy(config)
    held = made
    for key in path:
        held = held[key]
    return made, held


@pytest.mark.parametrize("model", seeds())
def test_an_unread_dictionary_refuses_at_any_depth(model: str) -> None:
    config, side, _ = facts(model)
    for path in objects(config):
        if not FREE.isdisjoint(path):
            continue
        made, held = inside(config, path)
        held["surprise_block"] = {"hidden_size": 64, "layers": 2}
        with pytest.raises(PlannerError):
            read_config(made, side_quant=side)


# Fields whose absence is a statement or leads to what an engine derives; the result says so.
TOLD_BY_ABSENCE = {"quantization_config", "torch_dtype", "dtype", "transformers_version"}
# Objects whose keys are names of modules, or of groups, and no fields.
NAMES_MODULES = {"quantized_layers", "config_groups", "dynamic"}
# What its maker may write anything into.
FREE = {"meta"}


@pytest.mark.parametrize("model", seeds())
def test_a_renamed_field_refuses_or_changes_nothing(model: str) -> None:
    config, side, _ = facts(model)
    rng = random.Random(model)
    before = original(model)
    for path in objects(config):
        if not NAMES_MODULES.isdisjoint(path):
            continue
        for name in inside(config, path)[1]:
            made, held = inside(config, path)
            other = rng.choice((f"{name}_x", f"my_{name}", f"{name}s", name.replace("_", "", 1)))
            if name in TOLD_BY_ABSENCE or other in held or other == name:
                continue
            held[other] = held.pop(name)
            try:
                spec, inventory = read_config(made, side_quant=side)
            except PlannerError:
                continue
            same = before[0]._replace(defaulted=()) == spec._replace(defaulted=()) and before[1] == inventory
            assert same, f"{path} {name} → {other}"


@pytest.mark.parametrize(
    "extra",
    [
        {"n_layer": 32}, {"n_embd": 4096, "n_head": 32}, {"num_layers": 32, "num_kv_heads": 8},
        {"pooler_num_attention_heads": 12, "pooler_fc_size": 768}, {"id2label": {"0": "a"}, "label2id": {"a": 0}},
        {"use_sliding_window": False, "window_size": 4096}, {"time_step_limit": [0.0, float("inf")]},
        {"task_specific_params": {"x": {"max_length": 3}}, "eos_token_id": [1, 2]}, {"unsloth_version": "2024.12"},
        {"auto_map": {"AutoConfig": "a.B"}, "generation_config": {"do_sample": True}, "pretraining_tp": 2},
    ],
)  # fmt: skip
def test_metadata_and_second_names_do_no_harm(extra: dict[str, Any]) -> None:
    assert read_config(LLAMA | extra)[1] == read_config(LLAMA)[1]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"n_layer": 24}, ("n_layer", "24", "num_hidden_layers", "32")),
        ({"n_embd": 5120}, ("n_embd", "hidden_size")),
        ({"num_kv_heads": 4}, ("num_kv_heads", "num_key_value_heads")),
    ],
)
def test_a_contradiction_under_a_second_name_is_an_error(extra: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        read_config(LLAMA | extra)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_misspelling_of_an_absent_field_is_told() -> None:
    config = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
    with pytest.raises(NotModelled, match="tie_word_embeddings, which it resembles"):
        read_config(config | {"tie_word_embedding": True})


def test_a_nested_dictionary_takes_its_class_defaults() -> None:
    """A Qwen2-VL fine-tune whose vision dictionary leaves out all that equals its class."""
    vision = {"in_chans": 3, "model_type": "qwen2_vl", "spatial_patch_size": 14}
    config = {k: v for k, v in LLAMA.items() if k != "architectures"} | {
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "vision_config": vision,
    }  # fmt: skip
    spec, _ = read_config(config)
    assert spec.towers[0].depth == 32
    assert "vision_config.depth" in spec.defaulted


# What transformers writes into every dictionary that it saves whole, and what fine-tuning tools add.
WRITTEN: dict[str, Any] = {
    "_name_or_path": "x/y", "return_dict": True, "output_hidden_states": False, "torchscript": False,
    "pruned_heads": {},
    "chunk_size_feed_forward": 0, "is_encoder_decoder": False, "cross_attention_hidden_size": None, "max_length": 20,
    "add_cross_attention": False, "tie_encoder_decoder": False, "do_sample": False, "num_beams": 1, "top_k": 50,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "pad_token_id": 0,
    "decoder_start_token_id": 2, "task_specific_params": None, "pretraining_tp": 1, "unsloth_fixed": True,
    "auto_map": {"AutoConfig": "a.B"}, "use_cache": True, "transformers_version": "4.57.1", "initializer_range": 0.02,
    "_attn_implementation_autoset": True, "gradient_checkpointing": False, "use_bfloat16": False,
}  # fmt: skip


@pytest.mark.parametrize("model", seeds())
def test_what_transformers_writes_into_each_dictionary_changes_nothing(model: str) -> None:
    config, side, _ = facts(model)
    before = original(model)
    for path in ((), ("text_config",), ("vision_config",), ("audio_config",)):
        if path and not isinstance(config.get(path[0]), dict):
            continue
        made, held = inside(config, path)
        for name, value in WRITTEN.items():
            held.setdefault(name, value)
        spec, inventory = read_config(made, side_quant=side)
        assert spec._replace(defaulted=()) == before[0]._replace(defaulted=())
        assert inventory == before[1]


@pytest.mark.parametrize("model", [m for m in seeds() if "num_hidden_layers" in facts(m)[0]])
def test_a_second_name_of_another_value_refuses_whoever_reads_it(model: str) -> None:
    config, side, _ = facts(model)
    layers = config["num_hidden_layers"]
    if "n_layer" in config or "num_layers" in config or "n_layers" in config:
        return
    read_config(config | {"n_layer": layers}, side_quant=side)
    with pytest.raises(PlannerError):
        read_config(config | {"n_layer": layers + 1}, side_quant=side)
