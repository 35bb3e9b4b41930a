"""Tensor names of dense architectures, and the parts that others share with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.source.make_models import Linear, Tensors, dense


def add_norm(tensors: Tensors, name: str, size: int, bias: bool = False) -> None:
    tensors[f"{name}.weight"] = ("BF16", (size,))
    if bias:
        tensors[f"{name}.bias"] = ("BF16", (size,))


def add_bias(tensors: Tensors, name: str, size: int) -> None:
    tensors[f"{name}.bias"] = ("BF16", (size,))


def head_size(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def ends(tensors: Tensors, config: Mapping[str, Any], tied: bool) -> None:
    add_norm(tensors, "model.norm", config["hidden_size"])
    if not tied:
        dense(tensors, "lm_head", config["vocab_size"], config["hidden_size"])


def llama(
    config: Mapping[str, Any],
    *,
    linear: Linear = dense,
    bias: bool = False,
    qk_norm: bool = False,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
    mlp: Callable[[Tensors, str, int], None] | None = None,
    tied: bool | None = None,
) -> Tensors:
    """Llama, Qwen 2 to 3, Gemma 2 and 3, Mixtral: one decoder with q, k, v, o and a gated MLP (or `mlp`)."""
    hidden, head = config["hidden_size"], head_size(config)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        for name, rows in (("q", heads * head), ("k", kv * head), ("v", kv * head)):
            linear(tensors, f"{base}.self_attn.{name}_proj", rows, hidden)
            if bias:
                add_bias(tensors, f"{base}.self_attn.{name}_proj", rows)
        linear(tensors, f"{base}.self_attn.o_proj", hidden, heads * head)
        if qk_norm:
            add_norm(tensors, f"{base}.self_attn.q_norm", head)
            add_norm(tensors, f"{base}.self_attn.k_norm", head)
        if mlp is None:
            gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"], linear)
        else:
            mlp(tensors, base, layer)
        for name in norms:
            add_norm(tensors, f"{base}.{name}", hidden)
    ends(tensors, config, bool(config.get("tie_word_embeddings")) if tied is None else tied)
    return tensors


def gated(tensors: Tensors, base: str, hidden: int, width: int, linear: Linear = dense) -> None:
    linear(tensors, f"{base}.gate_proj", width, hidden)
    linear(tensors, f"{base}.up_proj", width, hidden)
    linear(tensors, f"{base}.down_proj", hidden, width)


def qwen3_moe(config: Mapping[str, Any]) -> Tensors:
    def experts(tensors: Tensors, base: str, layer: int) -> None:
        dense(tensors, f"{base}.mlp.gate", config["num_experts"], config["hidden_size"])
        for expert in range(config["num_experts"]):
            gated(tensors, f"{base}.mlp.experts.{expert}", config["hidden_size"], config["moe_intermediate_size"])

    return llama(config, qk_norm=True, mlp=experts)


def mixtral(config: Mapping[str, Any]) -> Tensors:
    hidden, width = config["hidden_size"], config["intermediate_size"]

    def experts(tensors: Tensors, base: str, layer: int) -> None:
        dense(tensors, f"{base}.block_sparse_moe.gate", config["num_local_experts"], hidden)
        for expert in range(config["num_local_experts"]):
            inner = f"{base}.block_sparse_moe.experts.{expert}"
            dense(tensors, f"{inner}.w1", width, hidden)
            dense(tensors, f"{inner}.w2", hidden, width)
            dense(tensors, f"{inner}.w3", width, hidden)

    return llama(config, mlp=experts)


GEMMA_NORMS: Final = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip


def gemma2(config: Mapping[str, Any]) -> Tensors:
    return llama(config, norms=GEMMA_NORMS, tied=True)


def gemma3_text(config: Mapping[str, Any]) -> Tensors:
    return llama(config, norms=GEMMA_NORMS, qk_norm=True, tied=True)


def phi3(config: Mapping[str, Any]) -> Tensors:
    hidden, head = config["hidden_size"], head_size(config)
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["intermediate_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        dense(tensors, f"{base}.self_attn.qkv_proj", (heads + 2 * kv) * head, hidden)
        dense(tensors, f"{base}.self_attn.o_proj", hidden, heads * head)
        dense(tensors, f"{base}.mlp.gate_up_proj", 2 * width, hidden)
        dense(tensors, f"{base}.mlp.down_proj", hidden, width)
        add_norm(tensors, f"{base}.input_layernorm", hidden)
        add_norm(tensors, f"{base}.post_attention_layernorm", hidden)
    ends(tensors, config, bool(config.get("tie_word_embeddings")))
    return tensors


def starcoder2(config: Mapping[str, Any]) -> Tensors:
    hidden, head, width = config["hidden_size"], head_size(config), config["intermediate_size"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        for name, out, inp in (
            ("self_attn.q_proj", heads * head, hidden), ("self_attn.k_proj", kv * head, hidden),
            ("self_attn.v_proj", kv * head, hidden), ("self_attn.o_proj", hidden, heads * head),
            ("mlp.c_fc", width, hidden), ("mlp.c_proj", hidden, width),
        ):  # fmt: skip
            dense(tensors, f"{base}.{name}", out, inp)
            add_bias(tensors, f"{base}.{name}", out)
        add_norm(tensors, f"{base}.input_layernorm", hidden, bias=True)
        add_norm(tensors, f"{base}.post_attention_layernorm", hidden, bias=True)
    add_norm(tensors, "model.norm", hidden, bias=True)
    if not config.get("tie_word_embeddings", True):
        dense(tensors, "lm_head", config["vocab_size"], hidden)
    return tensors


def qwen2_5_vl(config: Mapping[str, Any]) -> Tensors:
    """Qwen2.5-VL: the language model of Qwen2.5 and a vision tower with gated MLPs."""
    tensors = llama(config, bias=True)
    vision = config["vision_config"]
    hidden, width, out = vision["hidden_size"], vision["intermediate_size"], vision["out_hidden_size"]
    patch = vision.get("patch_size", 14)
    tensors["visual.patch_embed.proj.weight"] = (
        "BF16",
        (hidden, 3, vision.get("temporal_patch_size", 2), patch, patch),
    )
    for block in range(vision["depth"]):
        base = f"visual.blocks.{block}"
        for name, rows, columns in (
            ("attn.qkv", 3 * hidden, hidden), ("attn.proj", hidden, hidden), ("mlp.gate_proj", width, hidden),
            ("mlp.up_proj", width, hidden), ("mlp.down_proj", hidden, width),
        ):  # fmt: skip
            dense(tensors, f"{base}.{name}", rows, columns)
            add_bias(tensors, f"{base}.{name}", rows)
        add_norm(tensors, f"{base}.norm1", hidden)
        add_norm(tensors, f"{base}.norm2", hidden)
    add_norm(tensors, "visual.merger.ln_q", hidden)
    for name, rows in (("mlp.0", 4 * hidden), ("mlp.2", out)):
        dense(tensors, f"visual.merger.{name}", rows, 4 * hidden)
        add_bias(tensors, f"visual.merger.{name}", rows)
    return tensors
