"""What starts a plan, from the terminal: alone on standard output, and a local model by its whole path."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.kit import Terminal
from tests.source import make_models

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


ROWS = (
    ("self_attn.q_proj", 64, 64), ("self_attn.k_proj", 64, 64), ("self_attn.v_proj", 64, 64),
    ("self_attn.o_proj", 64, 64), ("mlp.gate_proj", 128, 64), ("mlp.up_proj", 128, 64), ("mlp.down_proj", 64, 128),
)  # fmt: skip


def folder(place: Path) -> Path:
    """A Llama of one small layer."""
    norms = ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")
    tensors: make_models.Tensors = {f"model.{name}.weight": ("BF16", (64,)) for name in norms}
    for name, out, inp in ROWS:
        make_models.dense(tensors, f"model.layers.0.{name}", out, inp)
    make_models.dense(tensors, "model.embed_tokens", 128, 64)
    make_models.dense(tensors, "lm_head", 128, 64)
    return make_models.write_folder(place, CONFIG, tensors)


@pytest.mark.parametrize("named", ["", "config.json"])
def test_a_folder_is_named_by_its_whole_path(terminal: Terminal, tmp_path: Path, named: str) -> None:
    place = folder(tmp_path / "my model's")
    ran = terminal("plan", str(place / named), "--gpu", "H100", "--launch", "shell")
    assert ran.status == 0, ran.err
    assert shlex.split(ran.out) == ["vllm", "serve", str(place)]
    text = terminal("plan", str(place / named), "--gpu", "H100", "--launch", "docker").out
    docker = shlex.split(text.replace("\\\n", ""))
    assert f"{place}:{place}:ro" in docker
    again = terminal("plan", "--gpu", "H100", "--launch", "shell", "--", ran.out)
    assert again.out == ran.out


def test_the_verdict_is_the_exit_status(terminal: Terminal) -> None:
    ran = terminal("plan", "Llama-3.1-70B-Instruct", "--gpu", "H100", "--launch", "docker")
    assert ran.status == 1
    assert ran.out.startswith("# By the plan this does not start\n")


def test_one_form_at_a_time(terminal: Terminal) -> None:
    ran = terminal("plan", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--launch", "docker", "--json")
    assert ran.status == 2
    assert "two forms" in ran.err
    assert terminal("plan", "Llama-3.1-8B-Instruct", "--launch", "nomad").status == 2
