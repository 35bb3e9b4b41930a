"""Tensor names of architectures with many experts or recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.source.checkpoints_dense import add_bias, add_norm, ends, gated, head_size, llama
from tests.source.make_models import Linear, Tensors, dense, fp8_block, packed_int4


def deepseek_v3(config: Mapping[str, Any]) -> Tensors:
    """DeepSeek-V3 as published: block FP8, and one multi-token-prediction block after the last layer."""
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (vocab, hidden))}
    for layer in range(layers + 1):
        base = f"model.layers.{layer}"
        latent_attention(tensors, config, f"{base}.self_attn")
        if layer < config["first_k_dense_replace"]:
            gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"], fp8_block)
        else:
            deepseek_experts(tensors, config, f"{base}.mlp")
        add_norm(tensors, f"{base}.input_layernorm", hidden)
        add_norm(tensors, f"{base}.post_attention_layernorm", hidden)
    prediction_block(tensors, f"model.layers.{layers}", hidden, vocab)
    ends(tensors, config, tied=False)
    return tensors


def latent_attention(tensors: Tensors, config: Mapping[str, Any], base: str, linear: Linear = fp8_block) -> None:
    hidden, heads, q_rank, kv_rank = (
        config[name] for name in ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank")
    )
    nope, rope, value = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    linear(tensors, f"{base}.q_a_proj", q_rank, hidden)
    add_norm(tensors, f"{base}.q_a_layernorm", q_rank)
    linear(tensors, f"{base}.q_b_proj", heads * (nope + rope), q_rank)
    linear(tensors, f"{base}.kv_a_proj_with_mqa", kv_rank + rope, hidden)
    add_norm(tensors, f"{base}.kv_a_layernorm", kv_rank)
    linear(tensors, f"{base}.kv_b_proj", heads * (nope + value), kv_rank)
    linear(tensors, f"{base}.o_proj", hidden, heads * value)


def deepseek_experts(
    tensors: Tensors, config: Mapping[str, Any], base: str, linear: Linear = fp8_block, shared: Linear | None = None
) -> None:
    hidden, width, experts = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    dense(tensors, f"{base}.gate", experts, hidden)
    tensors[f"{base}.gate.e_score_correction_bias"] = ("F32", (experts,))
    for expert in range(experts):
        gated(tensors, f"{base}.experts.{expert}", hidden, width, linear)
    gated(tensors, f"{base}.shared_experts", hidden, width * config["n_shared_experts"], shared or linear)


def prediction_block(tensors: Tensors, base: str, hidden: int, vocab: int) -> None:
    dense(tensors, f"{base}.embed_tokens", vocab, hidden)
    add_norm(tensors, f"{base}.enorm", hidden)
    add_norm(tensors, f"{base}.hnorm", hidden)
    dense(tensors, f"{base}.eh_proj", hidden, 2 * hidden)
    add_norm(tensors, f"{base}.shared_head.norm", hidden)
    dense(tensors, f"{base}.shared_head.head", vocab, hidden)


def glm4_moe(config: Mapping[str, Any]) -> Tensors:
    """GLM-4.5-Air: biased q, k and v, experts after the first layer, one multi-token-prediction block."""
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]

    def mlp(tensors: Tensors, base: str, layer: int) -> None:
        if layer < config["first_k_dense_replace"]:
            gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"])
        else:
            deepseek_experts(tensors, config, f"{base}.mlp", dense)

    tensors = llama({**config, "num_hidden_layers": layers + 1}, bias=True, mlp=mlp, tied=False)
    prediction_block(tensors, f"model.layers.{layers}", hidden, vocab)
    return tensors


def gpt_oss(config: Mapping[str, Any]) -> Tensors:
    """gpt-oss as published: experts in MXFP4 blocks, biases everywhere, attention sinks."""
    hidden, head, experts = config["hidden_size"], head_size(config), config["num_local_experts"]
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["intermediate_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        for name, out, inp in (
            ("q", heads * head, hidden), ("k", kv * head, hidden), ("v", kv * head, hidden),
            ("o", hidden, heads * head),
        ):  # fmt: skip
            dense(tensors, f"{base}.self_attn.{name}_proj", out, inp)
            add_bias(tensors, f"{base}.self_attn.{name}_proj", out)
        tensors[f"{base}.self_attn.sinks"] = ("BF16", (heads,))
        dense(tensors, f"{base}.mlp.router", experts, hidden)
        add_bias(tensors, f"{base}.mlp.router", experts)
        for name, out, inp in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            tensors[f"{base}.mlp.experts.{name}_blocks"] = ("U8", (experts, out, inp // 32, 16))
            tensors[f"{base}.mlp.experts.{name}_scales"] = ("U8", (experts, out, inp // 32))
            tensors[f"{base}.mlp.experts.{name}_bias"] = ("BF16", (experts, out))
        add_norm(tensors, f"{base}.input_layernorm", hidden)
        add_norm(tensors, f"{base}.post_attention_layernorm", hidden)
    ends(tensors, config, tied=False)
    return tensors


def qwen3_next(config: Mapping[str, Any]) -> Tensors:
    """Qwen3-Next: three gated delta layers to one of full attention, experts everywhere, one prediction block."""
    hidden = config["hidden_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        if (layer + 1) % config.get("full_attention_interval", 4) == 0:
            gated_attention(tensors, config, f"{base}.self_attn")
        else:
            gated_delta(tensors, config, f"{base}.linear_attn")
        qwen_next_experts(tensors, config, f"{base}.mlp")
        add_norm(tensors, f"{base}.input_layernorm", hidden)
        add_norm(tensors, f"{base}.post_attention_layernorm", hidden)
    dense(tensors, "mtp.fc", hidden, 2 * hidden)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        add_norm(tensors, f"mtp.{name}", hidden)
    gated_attention(tensors, config, "mtp.layers.0.self_attn")
    qwen_next_experts(tensors, config, "mtp.layers.0.mlp")
    add_norm(tensors, "mtp.layers.0.input_layernorm", hidden)
    add_norm(tensors, "mtp.layers.0.post_attention_layernorm", hidden)
    ends(tensors, config, tied=False)
    return tensors


def gated_attention(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
    hidden, head = config["hidden_size"], head_size(config)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dense(tensors, f"{base}.q_proj", 2 * heads * head, hidden)
    dense(tensors, f"{base}.k_proj", kv * head, hidden)
    dense(tensors, f"{base}.v_proj", kv * head, hidden)
    dense(tensors, f"{base}.o_proj", hidden, heads * head)
    add_norm(tensors, f"{base}.q_norm", head)
    add_norm(tensors, f"{base}.k_norm", head)


def gated_delta(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
    hidden = config["hidden_size"]
    keys, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values, value = config["linear_num_value_heads"], config["linear_value_head_dim"]
    dense(tensors, f"{base}.in_proj_qkvz", 2 * keys * key + 2 * values * value, hidden)
    dense(tensors, f"{base}.in_proj_ba", 2 * values, hidden)
    tensors[f"{base}.conv1d.weight"] = (
        "BF16", (2 * keys * key + values * value, 1, config["linear_conv_kernel_dim"])
    )  # fmt: skip
    tensors[f"{base}.A_log"] = ("BF16", (values,))
    tensors[f"{base}.dt_bias"] = ("BF16", (values,))
    add_norm(tensors, f"{base}.norm", value)
    dense(tensors, f"{base}.out_proj", hidden, values * value)


def qwen_next_experts(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
    hidden = config["hidden_size"]
    dense(tensors, f"{base}.gate", config["num_experts"], hidden)
    for expert in range(config["num_experts"]):
        gated(tensors, f"{base}.experts.{expert}", hidden, config["moe_intermediate_size"])
    gated(tensors, f"{base}.shared_expert", hidden, config["shared_expert_intermediate_size"])
    dense(tensors, f"{base}.shared_expert_gate", 1, hidden)


def nemotron_h(config: Mapping[str, Any]) -> Tensors:
    """Nemotron-H: one mixer a layer, Mamba-2, attention or a two-matrix MLP by the pattern's letter."""
    hidden, head = config["hidden_size"], config.get("attention_head_dim") or config["head_dim"]
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["intermediate_size"]
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    state = config["n_groups"] * config["ssm_state_size"]
    tensors: Tensors = {"backbone.embeddings.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer, letter in enumerate(config["hybrid_override_pattern"]):
        base = f"backbone.layers.{layer}.mixer"
        add_norm(tensors, f"backbone.layers.{layer}.norm", hidden)
        if letter == "*":
            for name, out, inp in (("q", heads * head, hidden), ("k", kv * head, hidden), ("v", kv * head, hidden),
                                   ("o", hidden, heads * head)):  # fmt: skip
                dense(tensors, f"{base}.{name}_proj", out, inp)
        elif letter == "-":
            dense(tensors, f"{base}.up_proj", width, hidden)
            dense(tensors, f"{base}.down_proj", hidden, width)
        else:
            dense(tensors, f"{base}.in_proj", 2 * inner + 2 * state + config["mamba_num_heads"], hidden)
            tensors[f"{base}.conv1d.weight"] = ("BF16", (inner + 2 * state, 1, config["conv_kernel"]))
            tensors[f"{base}.conv1d.bias"] = ("BF16", (inner + 2 * state,))
            for name in ("A_log", "D", "dt_bias"):
                tensors[f"{base}.{name}"] = ("BF16", (config["mamba_num_heads"],))
            add_norm(tensors, f"{base}.norm", inner)
            dense(tensors, f"{base}.out_proj", hidden, inner)
    add_norm(tensors, "backbone.norm_f", hidden)
    dense(tensors, "lm_head", config["vocab_size"], hidden)
    return tensors


def llama4(config: Mapping[str, Any]) -> Tensors:
    """Llama 4's language model: experts stored as one transposed matrix each for gate with up, and for down."""
    text = config["text_config"]
    hidden, width, experts = text["hidden_size"], text["intermediate_size"], text["num_local_experts"]

    def mlp(tensors: Tensors, base: str, layer: int) -> None:
        inner = f"{base}.feed_forward"
        dense(tensors, f"{inner}.router", experts, hidden)
        tensors[f"{inner}.experts.gate_up_proj"] = ("BF16", (experts, hidden, 2 * width))
        tensors[f"{inner}.experts.down_proj"] = ("BF16", (experts, width, hidden))
        gated(tensors, f"{inner}.shared_expert", hidden, width)

    return {f"language_model.{name}": tensor for name, tensor in llama(text, mlp=mlp, tied=False).items()}


def kimi_k2_5(config: Mapping[str, Any]) -> Tensors:
    """Kimi-K2.5's language model: DeepSeek's layers with int4 experts; attention and shared experts in bf16."""
    text = config["text_config"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (text["vocab_size"], text["hidden_size"]))}
    for layer in range(text["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        latent_attention(tensors, text, f"{base}.self_attn", dense)
        if layer < text["first_k_dense_replace"]:
            gated(tensors, f"{base}.mlp", text["hidden_size"], text["intermediate_size"])
        else:
            deepseek_experts(tensors, text, f"{base}.mlp", packed_int4, dense)
        add_norm(tensors, f"{base}.input_layernorm", text["hidden_size"])
        add_norm(tensors, f"{base}.post_attention_layernorm", text["hidden_size"])
    ends(tensors, text, tied=False)
    return {f"language_model.{name}": tensor for name, tensor in tensors.items()}
