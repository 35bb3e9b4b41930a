"""Writes model folders with the tensor names, shapes and dtypes that public checkpoints have, as sparse files.

The names are spelled out here by architecture, independently of the application's own rules: what the application
reads from such a folder is compared with what it counts from the same model's config.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

# name → (dtype, shape)
Tensors = dict[str, tuple[str, tuple[int, ...]]]
BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8, "I8": 1}


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    total = BYTES[dtype]
    for size in shape:
        total *= size
    return total


def total_bytes(tensors: Tensors) -> int:
    return sum(size_of(*tensor) for tensor in tensors.values())


def header_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A header as the reference writer lays it out: length, then JSON padded to eight bytes."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + size_of(dtype, shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_file(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file whose data is a hole."""
    header = header_bytes(tensors, metadata or {"format": "pt"})
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + total_bytes(tensors))


def write_folder(path: Path, config: Mapping[str, Any] | None, tensors: Tensors, shards: int = 1) -> Path:
    """A model folder; with more than one shard also the index."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_file(path / "model.safetensors", tensors)
        return path
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        mine = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        write_file(path / file, {name: tensors[name] for name in mine})
        weight_map.update(dict.fromkeys(mine, file))
    index = {"metadata": {"total_size": total_bytes(tensors)}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


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
            _bias(tensors, f"{base}.{name}", rows)
        _norm(tensors, f"{base}.norm1", hidden)
        _norm(tensors, f"{base}.norm2", hidden)
    _norm(tensors, "visual.merger.ln_q", hidden)
    for name, rows in (("mlp.0", 4 * hidden), ("mlp.2", out)):
        dense(tensors, f"visual.merger.{name}", rows, 4 * hidden)
        _bias(tensors, f"visual.merger.{name}", rows)
    return tensors


Linear = Callable[[Tensors, str, int, int], None]


def dense(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("BF16", (out, inp))


def fp8_block(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("F8_E4M3", (out, inp))
    tensors[f"{name}.weight_scale_inv"] = ("F32", (-(-out // 128), -(-inp // 128)))


def awq(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.qweight"] = ("I32", (inp, out // 8))
    tensors[f"{name}.qzeros"] = ("I32", (inp // 128, out // 8))
    tensors[f"{name}.scales"] = ("F16", (inp // 128, out))


def gptq(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.qweight"] = ("I32", (inp // 8, out))
    tensors[f"{name}.qzeros"] = ("I32", (inp // 128, out // 8))
    tensors[f"{name}.scales"] = ("F16", (inp // 128, out))
    tensors[f"{name}.g_idx"] = ("I32", (inp,))


def packed_int4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    """compressed-tensors pack-quantized, groups of 32."""
    tensors[f"{name}.weight_packed"] = ("I32", (out, inp // 8))
    tensors[f"{name}.weight_scale"] = ("BF16", (out, inp // 32))
    tensors[f"{name}.weight_shape"] = ("I32", (2,))


def nvfp4(tensors: Tensors, name: str, out: int, inp: int) -> None:
    tensors[f"{name}.weight"] = ("U8", (out, inp // 2))
    tensors[f"{name}.weight_scale"] = ("F8_E4M3", (out, inp // 16))
    tensors[f"{name}.weight_scale_2"] = ("F32", ())
    tensors[f"{name}.input_scale"] = ("F32", ())


def _norm(tensors: Tensors, name: str, size: int, bias: bool = False) -> None:
    tensors[f"{name}.weight"] = ("BF16", (size,))
    if bias:
        tensors[f"{name}.bias"] = ("BF16", (size,))


def _bias(tensors: Tensors, name: str, size: int) -> None:
    tensors[f"{name}.bias"] = ("BF16", (size,))


def _head_size(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _ends(tensors: Tensors, config: Mapping[str, Any], tied: bool) -> None:
    _norm(tensors, "model.norm", config["hidden_size"])
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
    hidden, head = config["hidden_size"], _head_size(config)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        for name, rows in (("q", heads * head), ("k", kv * head), ("v", kv * head)):
            linear(tensors, f"{base}.self_attn.{name}_proj", rows, hidden)
            if bias:
                _bias(tensors, f"{base}.self_attn.{name}_proj", rows)
        linear(tensors, f"{base}.self_attn.o_proj", hidden, heads * head)
        if qk_norm:
            _norm(tensors, f"{base}.self_attn.q_norm", head)
            _norm(tensors, f"{base}.self_attn.k_norm", head)
        if mlp is None:
            _gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"], linear)
        else:
            mlp(tensors, base, layer)
        for name in norms:
            _norm(tensors, f"{base}.{name}", hidden)
    _ends(tensors, config, bool(config.get("tie_word_embeddings")) if tied is None else tied)
    return tensors


def _gated(tensors: Tensors, base: str, hidden: int, width: int, linear: Linear = dense) -> None:
    linear(tensors, f"{base}.gate_proj", width, hidden)
    linear(tensors, f"{base}.up_proj", width, hidden)
    linear(tensors, f"{base}.down_proj", hidden, width)


def qwen3_moe(config: Mapping[str, Any]) -> Tensors:
    def experts(tensors: Tensors, base: str, layer: int) -> None:
        dense(tensors, f"{base}.mlp.gate", config["num_experts"], config["hidden_size"])
        for expert in range(config["num_experts"]):
            _gated(tensors, f"{base}.mlp.experts.{expert}", config["hidden_size"], config["moe_intermediate_size"])

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
    hidden, head = config["hidden_size"], _head_size(config)
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["intermediate_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        dense(tensors, f"{base}.self_attn.qkv_proj", (heads + 2 * kv) * head, hidden)
        dense(tensors, f"{base}.self_attn.o_proj", hidden, heads * head)
        dense(tensors, f"{base}.mlp.gate_up_proj", 2 * width, hidden)
        dense(tensors, f"{base}.mlp.down_proj", hidden, width)
        _norm(tensors, f"{base}.input_layernorm", hidden)
        _norm(tensors, f"{base}.post_attention_layernorm", hidden)
    _ends(tensors, config, bool(config.get("tie_word_embeddings")))
    return tensors


def starcoder2(config: Mapping[str, Any]) -> Tensors:
    hidden, head, width = config["hidden_size"], _head_size(config), config["intermediate_size"]
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
            _bias(tensors, f"{base}.{name}", out)
        _norm(tensors, f"{base}.input_layernorm", hidden, bias=True)
        _norm(tensors, f"{base}.post_attention_layernorm", hidden, bias=True)
    _norm(tensors, "model.norm", hidden, bias=True)
    if not config.get("tie_word_embeddings", True):
        dense(tensors, "lm_head", config["vocab_size"], hidden)
    return tensors


def deepseek_v3(config: Mapping[str, Any]) -> Tensors:
    """DeepSeek-V3 as published: block FP8, and one multi-token-prediction block after the last layer."""
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (vocab, hidden))}
    for layer in range(layers + 1):
        base = f"model.layers.{layer}"
        _latent_attention(tensors, config, f"{base}.self_attn")
        if layer < config["first_k_dense_replace"]:
            _gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"], fp8_block)
        else:
            _deepseek_experts(tensors, config, f"{base}.mlp")
        _norm(tensors, f"{base}.input_layernorm", hidden)
        _norm(tensors, f"{base}.post_attention_layernorm", hidden)
    _prediction_block(tensors, f"model.layers.{layers}", hidden, vocab)
    _ends(tensors, config, tied=False)
    return tensors


def _latent_attention(tensors: Tensors, config: Mapping[str, Any], base: str, linear: Linear = fp8_block) -> None:
    hidden, heads, q_rank, kv_rank = (
        config[name] for name in ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank")
    )
    nope, rope, value = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    linear(tensors, f"{base}.q_a_proj", q_rank, hidden)
    _norm(tensors, f"{base}.q_a_layernorm", q_rank)
    linear(tensors, f"{base}.q_b_proj", heads * (nope + rope), q_rank)
    linear(tensors, f"{base}.kv_a_proj_with_mqa", kv_rank + rope, hidden)
    _norm(tensors, f"{base}.kv_a_layernorm", kv_rank)
    linear(tensors, f"{base}.kv_b_proj", heads * (nope + value), kv_rank)
    linear(tensors, f"{base}.o_proj", hidden, heads * value)


def _deepseek_experts(
    tensors: Tensors, config: Mapping[str, Any], base: str, linear: Linear = fp8_block, shared: Linear | None = None
) -> None:
    hidden, width, experts = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    dense(tensors, f"{base}.gate", experts, hidden)
    tensors[f"{base}.gate.e_score_correction_bias"] = ("F32", (experts,))
    for expert in range(experts):
        _gated(tensors, f"{base}.experts.{expert}", hidden, width, linear)
    _gated(tensors, f"{base}.shared_experts", hidden, width * config["n_shared_experts"], shared or linear)


def _prediction_block(tensors: Tensors, base: str, hidden: int, vocab: int) -> None:
    dense(tensors, f"{base}.embed_tokens", vocab, hidden)
    _norm(tensors, f"{base}.enorm", hidden)
    _norm(tensors, f"{base}.hnorm", hidden)
    dense(tensors, f"{base}.eh_proj", hidden, 2 * hidden)
    _norm(tensors, f"{base}.shared_head.norm", hidden)
    dense(tensors, f"{base}.shared_head.head", vocab, hidden)


def glm4_moe(config: Mapping[str, Any]) -> Tensors:
    """GLM-4.5-Air: biased q, k and v, experts after the first layer, one multi-token-prediction block."""
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]

    def mlp(tensors: Tensors, base: str, layer: int) -> None:
        if layer < config["first_k_dense_replace"]:
            _gated(tensors, f"{base}.mlp", hidden, config["intermediate_size"])
        else:
            _deepseek_experts(tensors, config, f"{base}.mlp", dense)

    tensors = llama({**config, "num_hidden_layers": layers + 1}, bias=True, mlp=mlp, tied=False)
    _prediction_block(tensors, f"model.layers.{layers}", hidden, vocab)
    return tensors


def gpt_oss(config: Mapping[str, Any]) -> Tensors:
    """gpt-oss as published: experts in MXFP4 blocks, biases everywhere, attention sinks."""
    hidden, head, experts = config["hidden_size"], _head_size(config), config["num_local_experts"]
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["intermediate_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        for name, out, inp in (
            ("q", heads * head, hidden), ("k", kv * head, hidden), ("v", kv * head, hidden),
            ("o", hidden, heads * head),
        ):  # fmt: skip
            dense(tensors, f"{base}.self_attn.{name}_proj", out, inp)
            _bias(tensors, f"{base}.self_attn.{name}_proj", out)
        tensors[f"{base}.self_attn.sinks"] = ("BF16", (heads,))
        dense(tensors, f"{base}.mlp.router", experts, hidden)
        _bias(tensors, f"{base}.mlp.router", experts)
        for name, out, inp in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            tensors[f"{base}.mlp.experts.{name}_blocks"] = ("U8", (experts, out, inp // 32, 16))
            tensors[f"{base}.mlp.experts.{name}_scales"] = ("U8", (experts, out, inp // 32))
            tensors[f"{base}.mlp.experts.{name}_bias"] = ("BF16", (experts, out))
        _norm(tensors, f"{base}.input_layernorm", hidden)
        _norm(tensors, f"{base}.post_attention_layernorm", hidden)
    _ends(tensors, config, tied=False)
    return tensors


def qwen3_next(config: Mapping[str, Any]) -> Tensors:
    """Qwen3-Next: three gated delta layers to one of full attention, experts everywhere, one prediction block."""
    hidden = config["hidden_size"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        if (layer + 1) % config.get("full_attention_interval", 4) == 0:
            _gated_attention(tensors, config, f"{base}.self_attn")
        else:
            _gated_delta(tensors, config, f"{base}.linear_attn")
        _qwen_next_experts(tensors, config, f"{base}.mlp")
        _norm(tensors, f"{base}.input_layernorm", hidden)
        _norm(tensors, f"{base}.post_attention_layernorm", hidden)
    dense(tensors, "mtp.fc", hidden, 2 * hidden)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        _norm(tensors, f"mtp.{name}", hidden)
    _gated_attention(tensors, config, "mtp.layers.0.self_attn")
    _qwen_next_experts(tensors, config, "mtp.layers.0.mlp")
    _norm(tensors, "mtp.layers.0.input_layernorm", hidden)
    _norm(tensors, "mtp.layers.0.post_attention_layernorm", hidden)
    _ends(tensors, config, tied=False)
    return tensors


def _gated_attention(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
    hidden, head = config["hidden_size"], _head_size(config)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dense(tensors, f"{base}.q_proj", 2 * heads * head, hidden)
    dense(tensors, f"{base}.k_proj", kv * head, hidden)
    dense(tensors, f"{base}.v_proj", kv * head, hidden)
    dense(tensors, f"{base}.o_proj", hidden, heads * head)
    _norm(tensors, f"{base}.q_norm", head)
    _norm(tensors, f"{base}.k_norm", head)


def _gated_delta(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
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
    _norm(tensors, f"{base}.norm", value)
    dense(tensors, f"{base}.out_proj", hidden, values * value)


def _qwen_next_experts(tensors: Tensors, config: Mapping[str, Any], base: str) -> None:
    hidden = config["hidden_size"]
    dense(tensors, f"{base}.gate", config["num_experts"], hidden)
    for expert in range(config["num_experts"]):
        _gated(tensors, f"{base}.experts.{expert}", hidden, config["moe_intermediate_size"])
    _gated(tensors, f"{base}.shared_expert", hidden, config["shared_expert_intermediate_size"])
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
        _norm(tensors, f"backbone.layers.{layer}.norm", hidden)
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
            _norm(tensors, f"{base}.norm", inner)
            dense(tensors, f"{base}.out_proj", hidden, inner)
    _norm(tensors, "backbone.norm_f", hidden)
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
        _gated(tensors, f"{inner}.shared_expert", hidden, width)

    return {f"language_model.{name}": tensor for name, tensor in llama(text, mlp=mlp, tied=False).items()}


def kimi_k2_5(config: Mapping[str, Any]) -> Tensors:
    """Kimi-K2.5's language model: DeepSeek's layers with int4 experts; attention and shared experts in bf16."""
    text = config["text_config"]
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", (text["vocab_size"], text["hidden_size"]))}
    for layer in range(text["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        _latent_attention(tensors, text, f"{base}.self_attn", dense)
        if layer < text["first_k_dense_replace"]:
            _gated(tensors, f"{base}.mlp", text["hidden_size"], text["intermediate_size"])
        else:
            _deepseek_experts(tensors, text, f"{base}.mlp", packed_int4, dense)
        _norm(tensors, f"{base}.input_layernorm", text["hidden_size"])
        _norm(tensors, f"{base}.post_attention_layernorm", text["hidden_size"])
    _ends(tensors, text, tied=False)
    return {f"language_model.{name}": tensor for name, tensor in tensors.items()}


def _quantised(linear: Linear, *, bias: bool) -> Callable[[Mapping[str, Any]], Tensors]:
    def made(config: Mapping[str, Any]) -> Tensors:
        half = llama(config, linear=linear, bias=bias, qk_norm=config["model_type"] == "qwen3")
        return {name: ("F16" if dtype == "BF16" else dtype, shape) for name, (dtype, shape) in half.items()}

    return made


# Catalogue id → the tensors of its repository, for sixteen architectures and layouts.
MODELS: Final[dict[str, Callable[[Mapping[str, Any]], Tensors]]] = {
    "meta-llama/Llama-3.1-8B-Instruct": llama,
    "Qwen/Qwen2.5-7B-Instruct": lambda config: llama(config, bias=True),
    "Qwen/Qwen3-8B": lambda config: llama(config, qk_norm=True),
    "Qwen/Qwen3-30B-A3B": qwen3_moe,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": mixtral,
    "google/gemma-2-9b-it": gemma2,
    "google/gemma-3-1b-it": gemma3_text,
    "microsoft/phi-4": phi3,
    "bigcode/starcoder2-15b": starcoder2,
    "deepseek-ai/DeepSeek-V3": deepseek_v3,
    "zai-org/GLM-4.5-Air": glm4_moe,
    "openai/gpt-oss-20b": gpt_oss,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": qwen3_next,
    "Qwen/Qwen2.5-VL-7B-Instruct": qwen2_5_vl,
    "nvidia/Nemotron-H-8B-Base-8K": nemotron_h,
    "Qwen/Qwen2.5-7B-Instruct-AWQ": _quantised(awq, bias=True),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": _quantised(gptq, bias=True),
}


# Language models inside a wrapper, whose towers are not written here.
WRAPPED: Final[dict[str, Callable[[Mapping[str, Any]], Tensors]]] = {
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": llama4,
    "moonshotai/Kimi-K2.5": kimi_k2_5,
}


def sub_model(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The config with fewer layers, for tests that need no size."""
    return {**config, "num_hidden_layers": layers}


def configs() -> dict[str, dict[str, Any]]:
    """The configs of all models here, from the bundled catalogue."""
    from kvplanner.catalog import models

    return {id_: models.record(id_)["config"] for id_ in (*MODELS, *WRAPPED)}
