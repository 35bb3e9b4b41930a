"""What real config files hold beside the catalogue's trimmed copies is known and does not get in the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.engine.vllm.weights.rules import built
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.families import read_config

# Fields that current repositories carry, by model and dictionary ("" for the top).
EXTRA: list[tuple[str, str, dict[str, Any]]] = [
    ("swiss-ai/Apertus-8B-2509", "", {"qk_norm": True, "post_norm": False, "mlp_bias": False}),
    ("zai-org/chatglm3-6b", "", {"bias_dropout_fusion": True, "quantization_bit": 0, "pre_seq_len": None}),
    ("baidu/ERNIE-4.5-21B-A3B-Thinking", "", {"compression_ratio": 1.0, "moe_gate": "topk", "moe_capacity": [64] * 3}),
    ("tencent/Hunyuan-A13B-Instruct", "", {"use_cla": False, "cla_share_factor": 2, "attention_head_dim": 128,
                                            "kv_lora_rank": None, "moe_layer_num_skipped": 0, "use_qk_norm": True,
                                            "add_classification_head": False}),
    ("LiquidAI/LFM2-1.2B", "", {"block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5, "block_use_swiglu": True,
                                 "block_use_xavier_init": True, "conv_use_xavier_init": True, "block_dim": 2048}),
    ("ai21labs/Jamba-v0.1", "", {"mamba_inner_layernorms": True, "num_logits_to_keep": 1}),
    ("OpenGVLab/InternVL3-8B-hf", "", {"vision_feature_layer": -1}),
    ("OpenGVLab/InternVL3-8B-hf", "vision_config", {"layer_scale_init_value": 0.1, "use_mean_pooling": True}),
    ("MiniMaxAI/MiniMax-M2", "", {"layernorm_full_attention_beta": 1.0, "layernorm_mlp_beta": 1.0}),
    ("Qwen/Qwen3-8B", "", {"output_hidden_states": False, "chunk_size_feed_forward": 0, "hidden_dropout": 0.1}),
    ("tiiuae/Falcon-H1-3B-Base", "", {"mamba_norm_before_gate": False, "attn_layer_indices": None, "mlp_bias": False}),
    ("meta-llama/Llama-4-Scout-17B-16E", "text_config", {"moe_layers": [], "no_rope_layers": []}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "nest", "extra"), EXTRA)
def test_known_extras_change_nothing(model: str, nest: str, extra: dict[str, Any]) -> None:
    facts = models.record(model)
    config = copy.deepcopy(facts["config"])
    (config[nest] if nest else config).update(extra)
    spec, inventory = read_config(config, side_quant=facts.get("side_quant"))
    assert inventory == models.load(model).inventory
    assert spec.layers == models.load(model).spec.layers


def test_a_nearly_empty_text_dictionary_takes_its_class_defaults() -> None:
    """Gemma-3-4B's repository states no heads, KV heads, head size or vocabulary."""
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "image_token_index": 262144,
        "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3", "torch_dtype": "bfloat16",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
        },
    }  # fmt: skip
    spec, inventory = read_config(config)
    assert inventory == models.load("google/gemma-3-4b-it").inventory
    assert inventory.stored_bytes() == 8_600_158_944
    assert {"text_config.num_attention_heads", "text_config.vocab_size"} <= set(spec.defaulted)
    assert spec.context_length == 131_072


@pytest.mark.parametrize("model", ["Qwen/Qwen3-VL-8B-Instruct", "google/gemma-3-27b-it", "moonshotai/Kimi-K2.5"])
def test_fields_repeated_at_the_top_must_agree(model: str) -> None:
    config = copy.deepcopy(models.record(model)["config"])
    repeated = {k: v for k, v in config["text_config"].items() if k.startswith(("num_", "hidden_size", "head_dim"))}
    assert repeated
    assert read_config(config | repeated)[1] == models.load(model).inventory
    with pytest.raises(NotModelled, match="num_hidden_layers"):
        read_config(config | {"num_hidden_layers": 7})


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("tencent/Hunyuan-A13B-Instruct", {"use_cla": True}),
        ("swiss-ai/Apertus-8B-2509", {"post_norm": True}),
        ("zai-org/glm-4-9b", {"rmsnorm": False}),
        ("stabilityai/stablelm-3b-4e1t", {"qk_layernorm": True}),
        ("bigcode/starcoder2-3b", {"norm_type": "rms_norm"}),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", {"mlp_hidden_act": "silu"}),
    ],
)
def test_variants_that_change_tensors_are_refused(model: str, change: dict[str, Any]) -> None:
    name = next(iter(change))
    with pytest.raises(NotModelled, match=name):
        read_config(models.record(model)["config"] | change)


JINA = {
    "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002, "type_vocab_size": 1,
    "max_position_embeddings": 8194, "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_rank": 4,
    "lora_alpha": 1, "lora_dropout_p": 0.0, "lora_main_params_trainable": False, "load_trained_adapters": True,
    "lora_adaptations": ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"],
    "matryoshka_dimensions": [32, 64, 128, 256, 512, 768, 1024], "task_instructions": {"separation": ""},
    "use_flash_attn": True, "torch_dtype": "bfloat16", "emb_pooler": None, "truncate_dim": None,
}  # fmt: skip
PADDLE_OCR = {
    "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl", "hidden_size": 1024,
    "head_dim": 128, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16,
    "num_key_value_heads": 2, "vocab_size": 103424, "max_position_embeddings": 131072, "compression_ratio": 1.0,
    "weight_share_add_bias": True, "use_3d_rope": True, "rope_is_neox_style": True, "use_bias": False,
    "use_flash_attention": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 500000,
    "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
    "vision_config": {
        "architectures": ["SiglipVisionModel"], "model_type": "paddleocr_vl", "hidden_size": 1152, "image_size": 384,
        "intermediate_size": 4304, "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 27,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "elements", "left_out"),
    [
        # Adapters for five tasks on every matrix, the pooler's and the words' too; the engine adds one of them in.
        (JINA, 572_310_396, 12_946_300 + 1024 * 1025),
        # SigLIP's head and a second table of positions, which the engine drops by name (models/paddleocr_vl.py).
        (PADDLE_OCR, 958_588_736, 32_768 * 1152 + 15_238_352),
    ],
)
def test_parts_that_a_file_holds_and_no_engine_builds(config: dict[str, Any], elements: int, left_out: int) -> None:
    """Element counts that the Hub shows, as public files quote them."""
    spec, inventory = read_config(config)
    assert inventory.parameters() == elements
    unbuilt = sum(
        group.elements // group.count * (group.count - built(group, spec)) * n for group, n in inventory.groups()
    )
    assert unbuilt == left_out


def test_a_resampler_that_is_described_and_not_used_changes_nothing() -> None:
    """SmolVLM's first files describe that of Idefics 2 inside the text's dictionary."""
    text = {
        "model_type": "llama", "architectures": ["VLlama3ForCausalLM"], "hidden_size": 2048, "vocab_size": 49155,
        "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 16384, "use_resampler": False, "qk_layer_norms": False, "neftune_noise_alpha": 0.0,
        "perceiver_config": {"resampler_depth": 6, "resampler_n_heads": 16, "resampler_head_dim": 96},
    }  # fmt: skip
    vision = {
        "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "num_attention_heads": 16,
        "num_hidden_layers": 27, "patch_size": 14, "model_type": "idefics3",
    }  # fmt: skip
    config = {
        "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3", "scale_factor": 3,
        "text_config": text, "vision_config": vision, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert read_config(config)[1].parameters() == 2_246_272_880
    with pytest.raises(NotModelled, match="use_resampler"):
        read_config(config | {"text_config": text | {"use_resampler": True}})


def test_a_language_model_that_is_named_by_id_alone_is_asked_for() -> None:
    config = {
        "architectures": ["UltravoxModel"], "model_type": "ultravox", "hidden_size": 4096,
        "text_model_id": "meta-llama/Llama-3.2-1B-Instruct", "audio_model_id": "openai/whisper-large-v3-turbo",
    }  # fmt: skip
    with pytest.raises(BadInput, match=r"text_config: is missing.*meta-llama/Llama-3.2-1B-Instruct"):
        read_config(config)


@pytest.mark.parametrize(
    ("model", "nest", "extra"),
    [
        ("openai/whisper-large-v3", "", {"median_filter_width": 7, "begin_suppress_tokens": [220, 50257]}),
        (
            "BAAI/bge-reranker-v2-m3",
            "",
            {"lora_rank": 4, "lora_adaptations": None, "lora_alpha": 1, "use_flash_attn": True},
        ),
        ("Qwen/Qwen3-Embedding-0.6B", "", {"is_original_qwen3_reranker": True, "classifier_from_token": ["no", "yes"]}),
        ("Qwen/Qwen2.5-7B-Instruct", "", {"attention_bias": True}),
    ],
)
def test_what_published_files_add_changes_nothing(model: str, nest: str, extra: dict[str, Any]) -> None:
    test_known_extras_change_nothing(model, nest, extra)
