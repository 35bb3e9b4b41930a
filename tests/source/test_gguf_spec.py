"""ModelSpec of GGUF metadata, architecture by architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mla, Mlp, Moe, State
from kvplanner.source.gguf.model import open_gguf
from tests.source.make_gguf import ARRAY, BOOL, F32_TYPE, MXFP4, Q8_0, STRING, U32, llama_pairs, llama_tensors, write


def model(tmp_path: Path, arch: str, tensors: Any = None, layers: int = 6, tied: bool = False, **keys: Any) -> Model:
    rows = llama_tensors(layers, tied=tied) if tensors is None else tensors
    return open_gguf(write(tmp_path / "m.gguf", llama_pairs(layers, arch=arch, **keys), rows))


def attention(found: Model, layer: int) -> Attention:
    mixer = found.spec.layers[found.spec.layer_of[layer]].mixers[0]
    assert isinstance(mixer, Attention)
    return mixer


def ends(hidden: int = 512) -> list[Any]:
    return [("token_embd.weight", (hidden, 100), Q8_0), ("output_norm.weight", (hidden,), F32_TYPE)]


def test_llama(tmp_path: Path) -> None:
    found = model(tmp_path, "llama")
    spec = found.spec
    assert spec.architecture == "LlamaForCausalLM"
    assert (spec.num_layers, spec.hidden_size, spec.vocab_size, spec.context_length) == (6, 512, 100, 8192)
    assert attention(found, 0) == Attention(8, 2, 64, 64)
    assert spec.layers[0].mlps == (Mlp(1024, 3),)
    assert not spec.tied_embeddings
    assert spec.not_modelled == ()
    assert found.problems == ()


def test_llama_ignores_a_window_as_the_engine_does(tmp_path: Path) -> None:
    assert attention(model(tmp_path, "llama", attention__sliding_window=(U32, 4096)), 0).window is None


def test_a_head_size_of_its_own(tmp_path: Path) -> None:
    found = model(tmp_path, "qwen3", attention__key_length=(U32, 128), attention__value_length=(U32, 128))
    assert attention(found, 0).head_size == 128


@pytest.mark.parametrize(
    ("arch", "keys", "windows"),
    [
        ("gemma2", {}, [1024, None, 1024, None, 1024, None]),
        ("gemma3", {}, [1024, 1024, 1024, 1024, 1024, None]),
        ("gpt-oss", {}, [1024, None, 1024, None, 1024, None]),
        ("cohere2", {}, [1024, 1024, 1024, None, 1024, 1024]),
        ("cohere2moe", {}, [None, 1024, 1024, 1024, None, 1024]),
        ("phi3", {}, [None] * 6),
        ("gemma3", {"attention__sliding_window_pattern": (U32, 3)}, [1024, 1024, None, 1024, 1024, None]),
        (
            "gemma4", {"attention__sliding_window_pattern": ((ARRAY, BOOL), [1, 1, 0, 1, 1, 0])},
            [1024, 1024, None, 1024, 1024, None],
        ),
    ],
)  # fmt: skip
def test_which_layers_slide(tmp_path: Path, arch: str, keys: Any, windows: list[int | None]) -> None:
    found = model(tmp_path, arch, attention__sliding_window=(U32, 1024), **keys)
    assert [attention(found, layer).window for layer in range(6)] == windows
    assert found.spec.not_modelled == ()


def test_a_window_without_a_known_pattern_is_not_guessed(tmp_path: Path) -> None:
    found = model(tmp_path, "newarch", attention__sliding_window=(U32, 1024))
    assert any("sliding window" in words for words in found.spec.not_modelled)


def test_llama4_chunks(tmp_path: Path) -> None:
    found = model(tmp_path, "llama4")
    assert [attention(found, layer).chunk for layer in range(4)] == [8192, 8192, 8192, None]


def test_shared_kv_layers_and_two_head_sizes(tmp_path: Path) -> None:
    found = model(
        tmp_path, "gemma4", attention__shared_kv_layers=(U32, 2), attention__sliding_window=(U32, 512),
        attention__sliding_window_pattern=((ARRAY, BOOL), [1, 1, 0, 1, 1, 0]), attention__key_length=(U32, 128),
        attention__value_length=(U32, 128), attention__key_length_swa=(U32, 64), attention__value_length_swa=(U32, 64),
    )  # fmt: skip
    assert [attention(found, layer).owns_cache for layer in range(6)] == [True] * 4 + [False] * 2
    assert [attention(found, layer).head_size for layer in (0, 2)] == [64, 128]


def test_per_layer_kv_heads(tmp_path: Path) -> None:
    found = model(tmp_path, "openelm", layers=2, attention__head_count_kv=((ARRAY, U32), [2, 4]))
    assert [attention(found, layer).kv_heads for layer in range(2)] == [2, 4]


def test_per_layer_arrays_of_the_wrong_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one for each layer"):
        model(tmp_path, "openelm", attention__head_count_kv=((ARRAY, U32), [2, 4]))


def experts(layers: int, dense: int = 0, kind: int = Q8_0, shared: int = 0) -> list[Any]:
    rows = ends()
    for layer in range(layers):
        base = f"blk.{layer}"
        rows += [(f"{base}.attn_{n}.weight", s, kind) for n, s in
                 (("q", (512, 512)), ("k", (512, 128)), ("v", (512, 128)), ("output", (512, 512)))]  # fmt: skip
        if layer < dense:
            rows += [(f"{base}.ffn_{n}.weight", s, kind) for n, s in
                     (("gate", (512, 1024)), ("up", (512, 1024)), ("down", (1024, 512)))]  # fmt: skip
            continue
        rows += [(f"{base}.ffn_gate_inp.weight", (512, 16), F32_TYPE)]
        rows += [(f"{base}.ffn_{n}_exps.weight", s, kind) for n, s in
                 (("gate", (512, 256, 16)), ("up", (512, 256, 16)), ("down", (256, 512, 16)))]  # fmt: skip
        if shared:
            rows.append((f"{base}.ffn_down_shexp.weight", (shared, 512), kind))
    return rows


def test_experts(tmp_path: Path) -> None:
    found = model(tmp_path, "qwen3moe", experts(4, kind=MXFP4), 4, expert_count=(U32, 16), expert_used_count=(U32, 4))
    assert found.spec.layers[0].mlps == (Moe(16, 4, 256, 0, 3),)
    assert found.spec.tied_embeddings
    inventory = found.inventory
    assert inventory is not None
    groups = {group.path: group for group in inventory.blocks[0]}
    assert groups["ffn_down_exps"].shard == "expert_row"
    assert (groups["ffn_down_exps"].count, groups["ffn_down_exps"].shape) == (16, (512, 256))
    assert groups["ffn_gate_exps"].format.name == "MXFP4"
    assert groups["ffn_gate_inp"].kind == "router"
    assert groups["attn_k"].shard == "kv"
    assert groups["attn_k"].unit == 64


def test_leading_dense_layers_and_shared_experts(tmp_path: Path) -> None:
    found = model(
        tmp_path, "glm4moe", experts(4, dense=1, shared=128), 4, expert_count=(U32, 16), expert_used_count=(U32, 4),
        nextn_predict_layers=(U32, 1),
    )  # fmt: skip
    spec = found.spec
    assert (spec.num_layers, spec.mtp_layers) == (3, 1)
    assert spec.layers[spec.layer_of[0]].mlps == (Mlp(1024, 3),)
    assert spec.layers[spec.layer_of[1]].mlps == (Moe(16, 4, 256, 128, 3),)
    assert found.inventory is not None
    assert {group.place for group in found.inventory.outside} >= {"mtp", "first+last"}


def mla_rows(layers: int) -> list[Any]:
    rows = ends()
    for layer in range(layers):
        base = f"blk.{layer}"
        rows += [(f"{base}.attn_q.weight", (512, 512), Q8_0), (f"{base}.attn_kv_a_mqa.weight", (512, 96), Q8_0),
                 (f"{base}.attn_k_b.weight", (64, 64, 8), Q8_0), (f"{base}.attn_v_b.weight", (64, 64, 8), Q8_0),
                 (f"{base}.attn_output.weight", (512, 512), Q8_0)]  # fmt: skip
    return rows


def test_latent_attention(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"attention__kv_lora_rank": (U32, 64), "rope__dimension_count": (U32, 32)}
    found = model(
        tmp_path, "deepseek2", mla_rows(2), 2, attention__key_length=(U32, 96), attention__value_length=(U32, 64),
        attention__key_length_mla=(U32, 96), attention__value_length_mla=(U32, 64), **keys,
    )  # fmt: skip
    assert found.spec.layers[0].mixers == (Mla(8, 64, 64, 32, 64),)
    assert found.problems == ()
    old = model(
        tmp_path,
        "deepseek2",
        mla_rows(2),
        2,
        attention__key_length=(U32, 96),
        attention__value_length=(U32, 64),
        **keys,
    )
    assert any("old conversion" in problem for problem in old.problems)


def test_gated_delta_layers(tmp_path: Path) -> None:
    rows = ends()
    for layer in range(4):
        base = f"blk.{layer}"
        if layer == 3:
            rows += [(f"{base}.attn_q.weight", (512, 1024), Q8_0), (f"{base}.attn_k.weight", (512, 128), Q8_0),
                     (f"{base}.attn_v.weight", (512, 128), Q8_0)]  # fmt: skip
        else:
            rows += [(f"{base}.attn_qkv.weight", (512, 768), Q8_0), (f"{base}.ssm_out.weight", (512, 512), Q8_0),
                     (f"{base}.ssm_conv1d.weight", (4, 768), F32_TYPE)]  # fmt: skip
    found = model(
        tmp_path, "qwen3next", rows, 4, ssm__conv_kernel=(U32, 4), ssm__inner_size=(U32, 512),
        ssm__state_size=(U32, 64), ssm__group_count=(U32, 2), ssm__time_step_rank=(U32, 8),
    )  # fmt: skip
    assert found.spec.layers[found.spec.layer_of[0]].mixers == (State("gated_delta", 4, 8, 64, 2, 64),)
    assert attention(found, 3).kv_heads == 2
    assert found.spec.not_modelled == ()


def test_mamba2_beside_attention(tmp_path: Path) -> None:
    rows = ends()
    for layer in range(2):
        base = f"blk.{layer}"
        rows += [(f"{base}.attn_k.weight", (512, 128), Q8_0), (f"{base}.ssm_out.weight", (512, 512), Q8_0),
                 (f"{base}.ssm_conv1d.weight", (4, 640), F32_TYPE)]  # fmt: skip
    found = model(
        tmp_path, "falcon-h1", rows, 2, ssm__conv_kernel=(U32, 4), ssm__inner_size=(U32, 512),
        ssm__state_size=(U32, 64), ssm__group_count=(U32, 1), ssm__time_step_rank=(U32, 8),
    )  # fmt: skip
    mixers = found.spec.layers[0].mixers
    assert isinstance(mixers[0], Attention)
    assert mixers[1] == State("mamba2", 4, 8, 64, state_size=64, groups=1)


def test_short_convolutions(tmp_path: Path) -> None:
    rows = [*ends(), ("blk.0.shortconv.conv.weight", (3, 512), F32_TYPE), ("blk.1.attn_k.weight", (512, 128), Q8_0)]
    found = model(
        tmp_path, "lfm2", rows, 2, shortconv__l_cache=(U32, 3), attention__head_count_kv=((ARRAY, U32), [0, 2])
    )
    assert found.spec.layers[found.spec.layer_of[0]].mixers == (State("short_conv", 3, channels=512),)
    assert attention(found, 1).kv_heads == 2


def test_joined_projections_are_told_apart(tmp_path: Path) -> None:
    rows = [*ends(), ("blk.0.attn_qkv.weight", (512, 768), Q8_0), ("blk.0.attn_output.weight", (512, 512), Q8_0),
            ("blk.0.ffn_up.weight", (512, 2048), Q8_0), ("blk.0.ffn_down.weight", (1024, 512), Q8_0)]  # fmt: skip
    found = model(tmp_path, "phi3", rows, 1)
    assert found.inventory is not None
    groups = [group for group in found.inventory.blocks[0] if group.path == "attn_qkv"]
    assert [(group.shape, group.shard) for group in groups] == [
        ((512, 512), "column"), ((128, 512), "kv"), ((128, 512), "kv")
    ]  # fmt: skip
    assert found.spec.layers[0].mlps == (Mlp(1024, 3),)
    assert found.stored is not None
    assert found.inventory.stored_bytes() == found.stored.value


def test_encoders_keep_no_cache(tmp_path: Path) -> None:
    found = model(tmp_path, "bert")
    assert found.spec.task == "embed"
    assert not attention(found, 0).causal


def test_state_that_is_not_understood_is_said(tmp_path: Path) -> None:
    found = model(tmp_path, "rwkv7", wkv__head_size=(U32, 64))
    assert any("RWKV" in words for words in found.spec.not_modelled)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_count", (U32, 0), "missing or zero"),
        ("block_count", (U32, 4_000_000), "layers"),
        ("block_count", (STRING, "six"), "not a whole number"),
        ("embedding_length", (U32, 0), "missing or zero"),
        ("attention__head_count", (U32, 0), "missing or zero"),
        ("nextn_predict_layers", (U32, 6), "prediction layers"),
    ],
)
def test_metadata_that_cannot_be_right(tmp_path: Path, key: str, value: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        model(tmp_path, "llama", **{key: value})
    assert "m.gguf: llama." in caught.value.where
