"""Folders and files that stand for a model: Git LFS pointers, the Hub's cache, training runs, lone configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.errors import BadInput
from kvplanner.source.resolve import open_model
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_models import total_bytes, write_file, write_folder

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize {}\n"
TENSORS = llama(CONFIG)
SIZE = total_bytes(TENSORS)


def put(folder: Path, config: dict[str, Any] | None = None, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(config or CONFIG))
    return folder


def test_a_clone_without_its_large_files_is_planned_by_its_config(tmp_path: Path) -> None:
    folder = put(tmp_path / "clone")
    first = 4_000_000
    (folder / "model-00001-of-00002.safetensors").write_text(POINTER.format(first))
    (folder / "model-00002-of-00002.safetensors").write_text(POINTER.format(SIZE + 900 - first))
    for path in (folder, folder / "model-00001-of-00002.safetensors"):
        model = open_model(str(path))
        assert model.stored is not None
        assert model.stored.value == SIZE + 900
        assert model.spec.num_layers == CONFIG["num_hidden_layers"]
        assert any("Git LFS pointers" in problem and f"{SIZE + 900:,}" in problem for problem in model.problems)
        assert any("git lfs pull" in problem for problem in model.problems)


def test_pointers_beside_real_shards_count_with_them(tmp_path: Path) -> None:
    folder = put(tmp_path / "clone")
    write_folder(folder, CONFIG, TENSORS, shards=2)
    (folder / "model.safetensors.index.json").unlink()
    second = folder / "model-00002-of-00002.safetensors"
    size = second.stat().st_size
    second.write_text(POINTER.format(size))
    model = open_model(str(folder))
    assert model.stored is not None
    assert abs(model.stored.value - SIZE) < 10_000
    assert any("1 weight file is a Git LFS pointer" in problem for problem in model.problems)


@pytest.mark.parametrize("name", ["config.json", "model.gguf", "model.safetensors"])
def test_a_pointer_alone_says_what_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(POINTER.format(16_940_128_464))
    with pytest.raises(BadInput, match=r"Git LFS pointer to 16,940,128,464 bytes.*git lfs pull"):
        open_model(str(tmp_path / name))
    with pytest.raises(BadInput, match=r"Git LFS pointer to 16,940,128,464 bytes.*git lfs pull"):
        open_model(str(tmp_path))


def test_a_cached_repository_opens_the_snapshot_of_its_branch(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--My-Model"
    old, new = "a" * 40, "b" * 40
    put(repository / "snapshots" / old, CONFIG | {"num_hidden_layers": 2})
    put(repository / "snapshots" / new)
    with pytest.raises(BadInput, match=f"2 snapshots.*{old}, {new}"):
        open_model(str(repository))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(new)
    for path in (repository, repository / "snapshots"):
        model = open_model(str(path))
        assert (model.id, model.spec.num_layers) == ("org/My-Model", 4)
    with pytest.raises(BadInput, match=r"Hub cache of 1 models.*org/My-Model"):
        open_model(str(tmp_path))


def test_of_a_training_run_the_last_checkpoint_is_planned(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (100, 1000, 200):
        put(run / f"checkpoint-{step}", CONFIG | {"num_hidden_layers": step // 100})
    model = open_model(str(run))
    assert (model.id, model.spec.num_layers) == ("run, checkpoint-1000", 10)
    assert model.problems[0] == "Of 3 checkpoints in run, checkpoint-1000 is planned"


def index(folder: Path, total: float | None, *tensors: str) -> None:
    metadata = {} if total is None else {"metadata": {"total_size": total}}
    content = metadata | {"weight_map": dict.fromkeys(tensors, "model-00001-of-00002.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


MOE = "Qwen/Qwen3.5-35B-A3B"
TOWER = "model.visual.blocks.0.attn.qkv.weight"


def test_an_index_says_that_a_block_is_not_stored(tmp_path: Path) -> None:
    """A re-saved model has no MTP block though its config counts one."""
    inventory = models.load(MOE).inventory
    assert inventory is not None
    folder = put(tmp_path / "m", models.record(MOE)["config"])
    main = inventory.stored_bytes(mtp=False)
    index(folder, main, "model.language_model.layers.0.mlp.gate.weight", TOWER)
    model = open_model(str(folder))
    assert model.stored is not None
    assert (model.stored.value, model.spec.mtp_layers) == (main, 0)
    assert any("no multi-token-prediction block" in problem for problem in model.problems)
    index(folder, None, "model.language_model.layers.0.mlp.gate.weight", "mtp.fc.weight", TOWER)
    model = open_model(str(folder))
    assert model.stored is not None
    assert (model.stored.value, model.spec.mtp_layers) == (inventory.stored_bytes(), 1)


def test_an_index_total_that_differs_is_said_and_taken(tmp_path: Path) -> None:
    folder = put(tmp_path / "m")
    index(folder, SIZE * 1.1, "model.layers.0.mlp.up_proj.weight")
    model = open_model(str(folder))
    assert model.stored is not None
    assert model.inventory is not None
    assert model.stored.value == int(SIZE * 1.1)
    assert any("10.0% more than the config implies" in problem for problem in model.problems)
    assert SIZE * 1.09 < model.inventory.stored_bytes() <= SIZE * 1.1
    index(folder, SIZE * 0.9, "model.layers.0.mlp.up_proj.weight")
    model = open_model(str(folder))
    assert model.stored is not None
    assert model.stored.value == int(SIZE * 0.9)
    assert any("10.0% less than the config implies" in problem for problem in model.problems)


def test_an_index_of_two_bytes_an_element_is_not_believed(tmp_path: Path) -> None:
    """DeepSeek-V3's own index counts its FP8 weights so."""
    config = models.record("deepseek-ai/DeepSeek-V3")["config"]
    inventory = models.load("deepseek-ai/DeepSeek-V3").inventory
    assert inventory is not None
    folder = put(tmp_path / "m", config)
    index(folder, 1_369_062_772_000, "model.layers.0.mlp.gate_proj.weight", "model.layers.61.eh_proj.weight")
    model = open_model(str(folder))
    assert model.stored is not None
    assert model.stored.value == inventory.stored_bytes()
    assert any("2 for each element" in problem for problem in model.problems)


def test_a_head_that_an_index_names_is_on_disk_only(tmp_path: Path) -> None:
    tied = CONFIG | {"tie_word_embeddings": True}
    folder = put(tmp_path / "m", tied)
    index(folder, None, "model.embed_tokens.weight", "lm_head.weight")
    model = open_model(str(folder))
    assert model.stored is not None
    assert model.inventory is not None
    assert model.stored.value == SIZE
    assert model.inventory.stored_bytes() == SIZE - 2 * 4096 * 512


@pytest.mark.parametrize(
    ("folder", "name", "content", "called"),
    [
        ("My-Model", "config.json", {}, "My-Model"), ("Downloads", "config.json", {}, "LlamaForCausalLM, 13.1 M"),
        ("Downloads", "my-thing.json", {}, "my-thing"), ("Downloads", "config.json", {"_name_or_path": "a/B"}, "a/B"),
        ("My-Model", "config.json", {"_name_or_path": "a/B"}, "My-Model"),
        ("Downloads", "config.json", {"_name_or_path": "/home/me/x"}, "LlamaForCausalLM, 13.1 M"),
    ],
)  # fmt: skip
def test_a_lone_config_is_called_by_its_content(
    folder: str, name: str, content: dict[str, Any], called: str, tmp_path: Path
) -> None:
    put(tmp_path / folder, CONFIG | content, name)
    assert open_model(str(tmp_path / folder / name)).id == called


def test_an_adapters_config_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B", "r": 16}))
    with pytest.raises(BadInput, match=r"adapter.*Qwen/Qwen3-8B"):
        open_model(str(file))


def test_quantisers_that_save_anew_leave_two_things_open(tmp_path: Path) -> None:
    small = models.record("RedHatAI/Llama-3.2-1B-Instruct-FP8-dynamic")["config"]
    moe = models.record("RedHatAI/Qwen3.5-35B-A3B-FP8-dynamic")["config"]
    assert any("tied head once more" in p for p in open_model(str(put(tmp_path / "a", small))).problems)
    assert any("may lack the multi-token" in p for p in open_model(str(put(tmp_path / "b", moe))).problems)


def test_mistrals_own_names_are_those_of_its_params(tmp_path: Path) -> None:
    params = {
        "dim": 512, "n_layers": 4, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64, "hidden_dim": 1024, "norm_eps": 1e-5,
        "vocab_size": 4096, "rope_theta": 1e6,
    }  # fmt: skip
    own = {
        "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    tensors = {}
    for name, tensor in TENSORS.items():
        short = name.removeprefix("model.").replace("embed_tokens", "tok_embeddings").replace("lm_head", "output")
        for theirs, ours in own.items():
            short = short.replace(theirs, ours)
        tensors[short] = tensor
    put(tmp_path / "m", params, "params.json")
    write_file(tmp_path / "m" / "consolidated.safetensors", tensors)
    model = open_model(str(tmp_path / "m"))
    assert model.problems == ()
    assert model.inventory is not None
    assert model.inventory.stored_bytes() == SIZE
    assert next(g for g in model.inventory.blocks[0] if g.path == "self_attn.k_proj").shard == "kv"
