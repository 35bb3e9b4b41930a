"""Model folders as an engine loads them: headers against config, shards, duplicates, adapters and what is odd."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvplanner.errors import BadInput, NotModelled, UnknownName
from kvplanner.model.model import Model
from kvplanner.source.resolve import open_model
from tests.source.checkpoints import MODELS, WRAPPED, configs, sub_model
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_gguf import llama_file
from tests.source.make_models import (
    Tensors,
    awq,
    fp8_block,
    gptq,
    nvfp4,
    packed_int4,
    size_of,
    total_bytes,
    write_file,
    write_folder,
)

pytestmark = pytest.mark.slow

CONFIGS = configs()


def groups(model: Model) -> list[Any]:
    assert model.inventory is not None
    by_layer = [sorted(model.inventory.blocks[block], key=repr) for block in model.inventory.block_of]
    return [by_layer, sorted(model.inventory.outside, key=repr)]


@pytest.mark.parametrize("id_", MODELS)
def test_headers_and_the_catalogue_agree(id_: str, tmp_path: Path) -> None:
    """A folder with the real names gives, group by group, the inventory that the catalogue counts from the config."""
    from kvplanner.catalog import models

    tensors = MODELS[id_](CONFIGS[id_])
    path = write_folder(tmp_path / "model", CONFIGS[id_], tensors, shards=1 if len(tensors) < 2000 else 7)
    model = open_model(str(path))
    assert model.problems == ()
    assert model.inventory is not None
    assert model.inventory.exact
    assert model.stored is not None
    assert model.stored.value == total_bytes(tensors) == model.inventory.stored_bytes()
    known = models.load(id_)
    assert groups(model) == groups(known)
    assert model.spec.layers == known.spec.layers
    assert model.parameters == known.parameters


@pytest.mark.parametrize("id_", WRAPPED)
def test_language_models_inside_a_wrapper_agree_too(id_: str, tmp_path: Path) -> None:
    """A few layers of them, compared with what the same config implies; only their towers are absent here."""
    from kvplanner.model.families import read_config

    text = CONFIGS[id_]["text_config"]
    lists = {name: value[:4] for name, value in text.items() if isinstance(value, list) and len(value) > 40}
    config = {**CONFIGS[id_], "text_config": {**text, **lists, "num_hidden_layers": 4}}
    model = open_model(str(write_folder(tmp_path / "model", config, WRAPPED[id_](config), shards=3)))
    assert [problem for problem in model.problems if "towers" not in problem] == []
    _, implied = read_config(config)
    assert model.inventory is not None
    ours = [sorted(model.inventory.blocks[block], key=repr) for block in model.inventory.block_of]
    assert ours == [sorted(implied.blocks[block], key=repr) for block in implied.block_of]
    assert model.inventory.stored_bytes() == total_bytes(WRAPPED[id_](config))


def test_published_totals_are_met() -> None:
    """The generator itself is right: its bytes are those that the repositories' own indexes state."""
    published = {
        "meta-llama/Llama-3.1-8B-Instruct": 16_060_522_496,
        "Qwen/Qwen2.5-7B-Instruct": 15_231_233_024,
        "Qwen/Qwen3-30B-A3B": 61_064_245_248,
        "mistralai/Mixtral-8x7B-Instruct-v0.1": 93_405_585_408,
        "google/gemma-2-9b-it": 18_483_411_968,
        "microsoft/phi-4": 29_319_014_400,
        "openai/gpt-oss-20b": 13_761_264_768,
    }
    assert {id_: total_bytes(MODELS[id_](CONFIGS[id_])) for id_ in published} == published


# ---- disagreements ----


def opened(tmp_path: Path, tensors: Tensors, config: dict[str, Any] | None = CONFIG, shards: int = 1) -> Model:
    return open_model(str(write_folder(tmp_path / "model", config, tensors, shards)))


def said(model: Model, words: str) -> bool:
    return any(words in problem for problem in model.problems)


def test_the_header_beats_the_config(tmp_path: Path) -> None:
    tensors = llama(CONFIG)
    for layer in range(4):
        tensors[f"model.layers.{layer}.mlp.down_proj.weight"] = ("BF16", (512, 2048))
    model = opened(tmp_path, tensors)
    assert said(model, "differ from the config's")
    assert said(model, "mlp.down_proj [512 × 2,048]")
    assert model.stored is not None
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == model.stored.value == total_bytes(tensors)
    down = next(group for group in model.inventory.blocks[0] if group.path == "mlp.down_proj")
    assert (down.shape, down.shard) == ((512, 2048), "row")


def test_another_dtype_than_the_configs(tmp_path: Path) -> None:
    tensors = {name: ("F32", shape) for name, (_, shape) in llama(CONFIG).items()}
    model = opened(tmp_path, tensors)
    assert said(model, "Stored otherwise")
    assert said(model, "float32")
    assert model.weight_format == "float32"
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(tensors)


@pytest.mark.parametrize(
    ("linear", "name"), [(fp8_block, "fp8"), (nvfp4, "nvfp4"), (awq, "awq"), (gptq, "gptq"), (packed_int4, "int4")]
)
def test_a_quantisation_that_the_config_does_not_tell(tmp_path: Path, linear: Any, name: str) -> None:
    tensors = llama(CONFIG, linear=linear)
    model = opened(tmp_path, tensors)
    assert said(model, "Stored otherwise")
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(tensors)
    assert model.parameters == sum(size_of("U8", shape) for _, shape in llama(CONFIG).values())
    query = next(group for group in model.inventory.blocks[0] if group.path == "self_attn.q_proj")
    assert query.format.name == name
    assert query.shape == (512, 512)


def test_a_tied_head_that_is_stored_all_the_same(tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    tensors = llama(config, tied=False)
    model = opened(tmp_path, tensors, config)
    assert said(model, "tied to the embedding, and yet stored: 4,194,304 bytes")
    assert model.stored is not None
    assert model.inventory is not None
    assert model.stored.value == total_bytes(tensors)
    assert model.inventory.stored_bytes() == total_bytes(tensors) - 4_194_304


def test_a_head_that_is_nowhere(tmp_path: Path) -> None:
    assert said(opened(tmp_path, llama(CONFIG, tied=True)), "lm_head")


def test_tensors_that_nobody_expects(tmp_path: Path) -> None:
    tensors = {**llama(CONFIG), "model.layers.2.mystery.weight": ("BF16", (16, 16)), "extra.thing": ("F32", (8,))}
    model = opened(tmp_path, tensors)
    assert said(model, "does not imply: layer 2: mystery, extra.thing")
    assert model.inventory is not None
    kinds = {g.path: g.kind for block in model.inventory.blocks for g in block} | {
        g.path: g.kind for g in model.inventory.outside
    }
    assert kinds["mystery"] == kinds["extra.thing"] == "other"
    assert model.inventory.stored_bytes() == total_bytes(tensors)


@pytest.mark.parametrize("held", [3, 5, 6])
def test_another_number_of_layers_leaves_the_cache_open(tmp_path: Path, held: int) -> None:
    model = opened(tmp_path, llama(sub_model(CONFIG, held)))
    assert said(model, f"The files hold {held} layers, the config tells 4")
    assert not said(model, "multi-token-prediction")
    assert model.spec.not_modelled == (f"The files hold {held} layers, the config tells 4",)


def test_other_kv_heads_leave_the_cache_open(tmp_path: Path) -> None:
    heads = CONFIG["num_key_value_heads"]
    assert isinstance(heads, int)
    assert heads > 1
    model = opened(tmp_path, llama({**CONFIG, "num_key_value_heads": heads // 2}))
    assert said(model, "Shapes that differ from the config's")
    assert len(model.spec.not_modelled) == 1
    assert "self_attn.k_proj" in model.spec.not_modelled[0]
    narrow = opened(tmp_path / "mlp", {**llama(CONFIG), "model.layers.0.mlp.down_proj.weight": ("BF16", (512, 8))})
    assert said(narrow, "Shapes that differ")
    assert narrow.spec.not_modelled == ()


def test_old_position_tables_are_not_counted_as_weights(tmp_path: Path) -> None:
    tensors = {**llama(CONFIG), "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (32,))}
    model = opened(tmp_path, tensors)
    assert model.problems == ()
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(tensors) - 128


def test_a_tower_that_is_stored_otherwise_keeps_its_split(tmp_path: Path) -> None:
    id_ = "Qwen/Qwen2.5-VL-7B-Instruct"
    tensors = MODELS[id_]({**CONFIGS[id_], "num_hidden_layers": 2})
    wide = {name: ("F32" if name.startswith("visual") else dtype, shape) for name, (dtype, shape) in tensors.items()}
    model = opened(tmp_path, wide, {**CONFIGS[id_], "num_hidden_layers": 2})
    assert said(model, "encoder towers")
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(wide)
    tower = {group.path: group for group in model.inventory.outside if group.place == "tower"}
    assert len(tower) < 30
    assert (tower["visual.blocks.mlp.down_proj"].shard, tower["visual.blocks.mlp.down_proj"].count) == ("row", 32)
    assert tower["visual.blocks.mlp.down_proj"].format.name == "float32"


def test_the_zero_biases_of_gptq_are_not_loaded(tmp_path: Path) -> None:
    id_ = "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"
    config = {**CONFIGS[id_], "num_hidden_layers": 2}
    tensors = MODELS[id_](config)
    plain = opened(tmp_path, tensors, config)
    tensors["model.layers.1.mlp.down_proj.bias"] = ("F16", (config["hidden_size"],))
    model = opened(tmp_path, tensors, config)
    assert model.problems == plain.problems == ()
    assert model.inventory is not None
    assert plain.inventory is not None
    assert model.inventory.stored_bytes() == plain.inventory.stored_bytes() == total_bytes(tensors) - 7168


# ---- files ----


def test_missing_shards(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=4)
    (path / "model-00002-of-00004.safetensors").unlink()
    model = open_model(str(path))
    assert said(model, "1 weight file is missing: model-00002-of-00004.safetensors")
    assert model.inventory is not None
    assert not model.inventory.exact
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))
    assert (model.stored.basis, model.stored.inputs[0].source) == ("exact", "stated by the index or the pointers")


def test_experts_in_a_missing_shard_are_not_fewer_experts(tmp_path: Path) -> None:
    config = {**CONFIGS["Qwen/Qwen3-30B-A3B"], "num_hidden_layers": 2}
    path = write_folder(tmp_path / "model", config, MODELS["Qwen/Qwen3-30B-A3B"](config), shards=9)
    whole = open_model(str(path))
    (path / "model-00003-of-00009.safetensors").unlink()
    model = open_model(str(path))
    assert [problem for problem in model.problems if "missing" not in problem] == []
    assert groups(model) == groups(whole)


def test_missing_shards_without_an_index(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=4)
    (path / "model-00002-of-00004.safetensors").unlink()
    (path / "model.safetensors.index.json").unlink()
    assert said(open_model(str(path)), "model-00002-of-00004.safetensors")


def test_a_truncated_shard(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=2)
    shard = path / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1000)
    model = open_model(str(path))
    assert said(model, "1,000 bytes short")
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))


def test_files_that_no_index_names_are_not_counted(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=2)
    write_file(path / "consolidated.safetensors", llama(CONFIG))
    (path / "training.bin").write_bytes(b"\x80\x04pickle")
    model = open_model(str(path))
    assert said(model, "consolidated.safetensors")
    assert said(model, "not opened: training.bin")
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))


def test_tensors_in_two_shards_count_once(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG))
    (path / "model.safetensors").rename(path / "a.safetensors")
    write_file(path / "b.safetensors", {"model.norm.weight": ("BF16", (512,))})
    model = open_model(str(path))
    assert said(model, "stored more than once, for example model.norm.weight")
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))


def test_an_index_with_another_total(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=2)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    index["metadata"]["total_size"] = 12345.0
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert said(open_model(str(path)), "12,345 bytes in all")


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a\\b.safetensors", "..", ""])
def test_an_index_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=2)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadInput, match="not the name of a file"):
        open_model(str(path))


def test_pickles_are_sized_and_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    model = open_model(str(path))
    assert said(model, "not opened: pytorch_model.bin")
    assert said(model, "those files hold 30 bytes")
    with pytest.raises(BadInput, match="never opened"):
        open_model(str(path / "pytorch_model.bin"))


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    path = tmp_path / "lora"
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 16}))
    write_file(path / "adapter_model.safetensors", {"base_model.model.q_proj.lora_A.weight": ("BF16", (16, 512))})
    with pytest.raises(BadInput, match=r"LoRA adapter of rank 16 .*Open its base model: org/base"):
        open_model(str(path))
    with pytest.raises(BadInput, match="LoRA adapter of 1 tensors"):
        open_model(str(path / "adapter_model.safetensors"))


def test_a_file_of_a_folder_opens_the_folder(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", CONFIG, llama(CONFIG), shards=2)
    whole = open_model(str(path))
    assert open_model(str(path / "model-00001-of-00002.safetensors")) == whole
    assert open_model(str(path / "model.safetensors.index.json")) == whole


def test_a_lone_file_gives_its_weights(tmp_path: Path) -> None:
    write_file(tmp_path / "lone.safetensors", llama(CONFIG))
    model = open_model(str(tmp_path / "lone.safetensors"))
    assert model.spec.not_modelled
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(llama(CONFIG))
    assert (model.spec.num_layers, model.spec.vocab_size, model.spec.hidden_size) == (4, 4096, 512)
    shards = {group.path: group.shard for group in model.inventory.blocks[0]}
    assert shards["self_attn.q_proj"] == "column"
    assert shards["mlp.down_proj"] == "row"


def test_an_unknown_architecture_gives_its_weights_and_says_why(tmp_path: Path) -> None:
    model = opened(tmp_path, llama(CONFIG), {**CONFIG, "architectures": ["NewForCausalLM"], "model_type": "new"})
    assert model.spec.architecture == "NewForCausalLM"
    assert model.spec.not_modelled
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == total_bytes(llama(CONFIG))


def test_a_config_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = open_model(str(tmp_path / "config.json"))
    assert model.source_kind == "config"
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))
    assert said(open_model(str(tmp_path)), "holds no weights")
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["New"], "model_type": "new"}))
    with pytest.raises(NotModelled):
        open_model(str(tmp_path / "config.json"))


def test_a_folder_with_one_gguf_opens_it(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(llama_file())
    (tmp_path / "mmproj-a.gguf").write_bytes(b"GGUF")
    assert open_model(str(tmp_path)).source_kind == "gguf"
    (tmp_path / "b.gguf").write_bytes(llama_file())
    with pytest.raises(BadInput, match="holds 2 GGUF models"):
        open_model(str(tmp_path))


# ---- names ----


def test_catalogue_names() -> None:
    assert open_model("llama-3.1-8b-instruct").id == "meta-llama/Llama-3.1-8B-Instruct"
    with pytest.raises(UnknownName) as caught:
        open_model("Llama-3.1-8B-Instrukt")
    assert any(name.endswith("/Llama-3.1-8B-Instruct") for name in caught.value.near)


def test_a_folder_wins_over_a_catalogue_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "meta-llama" / "Llama-3.1-8B-Instruct", CONFIG, llama(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert open_model("meta-llama/Llama-3.1-8B-Instruct").source_kind == "safetensors"
    (tmp_path / "Qwen3-8B").mkdir()
    assert open_model("Qwen3-8B").source_kind == "catalogue"


@pytest.mark.parametrize("text", ["", "  ", "a\0b", "x" * 5000])
def test_texts_that_name_nothing(text: str) -> None:
    with pytest.raises(BadInput):
        open_model(text)


@pytest.mark.parametrize(
    "text", ["./none", "/nowhere/at/all", "~/none.gguf", "none.safetensors", "none.json", "none.bin"]
)
def test_paths_that_are_not_there(text: str) -> None:
    with pytest.raises(BadInput, match=r"no such file|never opened"):
        open_model(text)


def test_a_kind_of_file_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(BadInput, match="not a kind of file"):
        open_model(str(tmp_path / "x.txt"))


def test_gguf_is_told_by_content(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(llama_file())
    assert open_model(str(tmp_path / "blob")).source_kind == "gguf"
