"""Architectures without a model in the catalogue: small configs against the element counts of their library classes."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.errors import BadInput
from kvplanner.model.families import read_config
from kvplanner.model.spec import Attention, State

# Counted from the modelling classes of transformers 5.24 built on the meta device; a tied head counts once.
COUNTED: list[tuple[str, dict[str, Any], int]] = [
    ("OPTForCausalLM", {"vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 4, "ffn_dim": 3072,
                        "max_position_embeddings": 2048, "num_attention_heads": 12, "word_embed_proj_dim": 768},
     68_536_320),
    ("OPTForCausalLM", {"vocab_size": 50272, "hidden_size": 1024, "num_hidden_layers": 3, "ffn_dim": 4096,
                        "max_position_embeddings": 2048, "num_attention_heads": 16, "word_embed_proj_dim": 512,
                        "do_layer_norm_before": False}, 66_675_712),
    ("GPT2LMHeadModel", {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 3, "n_head": 12},
     60_648_960),
    ("GPTBigCodeForCausalLM", {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 3, "n_head": 12,
                               "multi_query": True, "num_key_value_heads": 1}, 57_400_704),
    ("GPTJForCausalLM", {"vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 3, "n_head": 16,
                         "rotary_dim": 64}, 1_017_001_184),
    ("GPTNeoXForCausalLM", {"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 3,
                            "num_attention_heads": 64, "intermediate_size": 24576}, 1_978_914_816),
    ("GPTNeoXForCausalLM", {"vocab_size": 50432, "hidden_size": 1024, "num_hidden_layers": 3,
                            "num_attention_heads": 16, "intermediate_size": 4096, "attention_bias": False},
     141_063_168),
    ("BloomForCausalLM", {"vocab_size": 250880, "hidden_size": 1024, "n_layer": 3, "n_head": 16}, 294_693_888),
    ("FalconForCausalLM", {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 3,
                           "num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True}, 916_688_384),
    ("FalconForCausalLM", {"vocab_size": 65024, "hidden_size": 1024, "num_hidden_layers": 3,
                           "num_attention_heads": 16, "num_kv_heads": 8, "new_decoder_architecture": True,
                           "num_ln_in_parallel_attn": 2}, 101_201_920),
    ("FalconForCausalLM", {"vocab_size": 65024, "hidden_size": 1024, "num_hidden_layers": 3, "bias": True,
                           "num_attention_heads": 16, "multi_query": False, "parallel_attn": False}, 104_375_296),
    ("PhiForCausalLM", {"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 3,
                        "num_attention_heads": 32}, 360_833_024),
    ("OlmoForCausalLM", {"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                         "num_hidden_layers": 3, "num_attention_heads": 32}, 1_019_215_872),
    ("NemotronForCausalLM", {"vocab_size": 256000, "hidden_size": 1024, "intermediate_size": 4096,
                             "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 8,
                             "head_dim": 64, "hidden_act": "relu2"}, 558_905_344),
    ("MinistralForCausalLM", {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096,
                              "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
                              "head_dim": 128, "sliding_window": 1024}, 141_042_688),
    ("MambaForCausalLM", {"vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 3,
                          "expand": 2, "conv_kernel": 4, "time_step_rank": 48}, 49_930_752),
    ("BambaForCausalLM", {"vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336,
                          "num_hidden_layers": 6, "num_attention_heads": 32, "num_key_value_heads": 8,
                          "attn_layer_indices": [2, 5], "mamba_n_heads": 128, "mamba_d_head": 64,
                          "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4}, 2_602_827_264),
    ("GraniteMoeSharedForCausalLM", {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                                     "num_hidden_layers": 3, "num_attention_heads": 32, "num_local_experts": 8,
                                     "num_experts_per_tok": 2, "shared_intermediate_size": 1024}, 3_747_737_600),
    ("Llama4ForCausalLM", {"vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
                           "intermediate_size_mlp": 2048, "num_attention_heads": 8, "num_key_value_heads": 2,
                           "head_dim": 64, "num_experts_per_tok": 1, "num_local_experts": 4}, 35_115_520),
    ("Dots1ForCausalLM", {"vocab_size": 1000, "hidden_size": 4608, "intermediate_size": 10944,
                          "moe_intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 32,
                          "num_key_value_heads": 32, "n_shared_experts": 2, "n_routed_experts": 8,
                          "num_experts_per_tok": 4, "first_k_dense_replace": 1}, 804_700_512),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "config", "expected"), COUNTED)
def test_elements_are_those_of_the_library_class(architecture: str, config: dict[str, Any], expected: int) -> None:
    _, inventory = read_config(config | {"architectures": [architecture], "torch_dtype": "bfloat16"})
    copies = ("e_score_correction_bias", *(("lm_head",) if architecture.startswith("Falcon") else ()))
    buffers = sum(g.elements * n for g, n in inventory.groups() if g.path.endswith(copies))
    assert inventory.parameters() - buffers == expected


def test_glm_4_5v_has_the_count_of_its_class() -> None:
    text = {
        "vocab_size": 1000,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "num_hidden_layers": 3,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "moe_intermediate_size": 1408,
        "head_dim": 42,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "first_k_dense_replace": 1,
    }
    vision = {
        "depth": 2,
        "hidden_size": 1536,
        "num_heads": 12,
        "in_channels": 3,
        "image_size": 336,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 4096,
        "intermediate_size": 13696,
    }
    config = {"architectures": ["Glm4vMoeForConditionalGeneration"], "text_config": text, "vision_config": vision}
    _, inventory = read_config(config)
    corrections = 2 * 8
    assert inventory.parameters() - corrections == 831_131_936
    with pytest.raises(BadInput, match="num_attention_heads"):
        read_config(config | {"text_config": {k: v for k, v in text.items() if k != "head_dim"}})  # fmt: skip


def test_falcon_reads_its_kv_heads_by_its_own_rule() -> None:
    def kv(**change: Any) -> int:
        base = next(config for name, config, _ in COUNTED if name == "FalconForCausalLM")
        mixer = read_config(base | {"architectures": ["FalconForCausalLM"]} | change)[0].layers[0].mixers[0]
        assert isinstance(mixer, Attention)
        return mixer.kv_heads

    assert kv() == 1
    assert kv(multi_query=False) == 71
    assert kv(new_decoder_architecture=True, num_kv_heads=71) == 71


def test_mamba_keeps_a_state_and_no_cache() -> None:
    config = next(config for name, config, _ in COUNTED if name == "MambaForCausalLM")
    spec, _ = read_config(config | {"architectures": ["MambaForCausalLM"]})
    assert spec.layers[0].mixers == (State("mamba1", 4, state_size=16, channels=1536),)
