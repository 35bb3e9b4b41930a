"""Hand-made dense models for the weight and activation tests: every size is written out, nothing is read."""

from __future__ import annotations

from kvplanner.engine.vllm.eras import era_of
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.formats import dense
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec, Mlp, ModelSpec, Moe
from kvplanner.model.tensors import Inventory, Place, TensorGroup
from kvplanner.units import GIB

BF16 = dense("bfloat16")


def llama(
    layers: int, hidden: int, heads: int, kv_heads: int, head: int, width: int, vocab: int, *, qk_norm: bool = False,
    tied: bool = False,
) -> Model:  # fmt: skip
    """A Llama- or Qwen3-like dense model in bf16."""
    block = [
        TensorGroup("self_attn.q_proj", "attention", (heads * head, hidden), 1, "column", BF16, head, "qkv_proj"),
        TensorGroup("self_attn.k_proj", "attention", (kv_heads * head, hidden), 1, "kv", BF16, head, "qkv_proj"),
        TensorGroup("self_attn.v_proj", "attention", (kv_heads * head, hidden), 1, "kv", BF16, head, "qkv_proj"),
        TensorGroup("self_attn.o_proj", "attention", (hidden, heads * head), 1, "row", BF16),
        TensorGroup("mlp.gate_proj", "mlp", (width, hidden), 1, "column", BF16, fused="gate_up_proj"),
        TensorGroup("mlp.up_proj", "mlp", (width, hidden), 1, "column", BF16, fused="gate_up_proj"),
        TensorGroup("mlp.down_proj", "mlp", (hidden, width), 1, "row", BF16),
        TensorGroup("input_layernorm", "norm", (hidden,), 2, "replicated", BF16),
    ]
    if qk_norm:
        block.append(TensorGroup("self_attn.q_norm", "norm", (head,), 2, "replicated", BF16))
    place: Place = "first+last" if tied else "first"
    outside = [
        TensorGroup("model.embed_tokens", "embedding", (vocab, hidden), 1, "vocab", BF16, place=place),
        TensorGroup("model.norm", "norm", (hidden,), 1, "replicated", BF16, place="last"),
    ]
    if not tied:
        outside.append(TensorGroup("lm_head", "head", (vocab, hidden), 1, "vocab", BF16, place="last"))
    spec = ModelSpec(
        "LlamaForCausalLM", "llama", hidden, vocab,
        (LayerSpec((Attention(heads, kv_heads, head, head),), (Mlp(width),)),), (0,) * layers, 8192, "bfloat16", tied,
    )  # fmt: skip
    return Model("test/llama", spec, Inventory((tuple(block),), (0,) * layers, tuple(outside)), "config")


LLAMA_3_8B = llama(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_3_70B = llama(80, 8192, 64, 8, 128, 28672, 128256)
QWEN3_8B = llama(36, 4096, 32, 8, 128, 12288, 151936, qk_norm=True)


def settings(version: str = "0.33.0", **changes: object) -> Settings:
    """Defaults of a server on one H100 80GB HBM3, with changes."""
    match = era_of(version)
    base = Settings(
        version=match.version, era=match.era, usage="server", dtype="bfloat16", quantization=None, tp=1, pp=1, dp=1,
        dcp=1, pcp=1, expert_parallel=False, redundant_experts=0, max_model_len=8192, auto_fit=False,
        max_num_batched_tokens=8192, max_num_seqs=1024, block_size=None, kv_cache_dtype="auto", kv_skip_layers=(),
        utilization=match.era.default_utilization, kv_cache_memory_bytes=None, num_gpu_blocks_override=None,
        prefix_caching=True, chunked_prefill=True, async_scheduling=True, hybrid_manager=True, mamba_cache_mode="none",
        mamba_cache_dtype="auto", mamba_ssm_cache_dtype="auto", mamba_block_size=None,
        graph_mode="FULL_AND_PIECEWISE", graph_sizes=tuple(range(1, 52)), spec_method=None, spec_tokens=0,
        attention_backend=None, gpu_arch=(9, 0), gpu_name="NVIDIA H100 80GB HBM3",
        gpu_total_bytes=round(79.19 * GIB), lora_slots=0, lora_rank=0, cpu_offload_bytes=0, language_model_only=False,
        skip_mm_profiling=False, tower_data_parallel=False,
    )  # fmt: skip
    return base._replace(**changes)  # type: ignore[arg-type]


def experts(layers: int, hidden: int, count: int, width: int, top_k: int, vocab: int = 32000) -> Model:
    """A mixture-of-experts model in bf16: attention as in a small Llama, `count` gated experts a layer."""
    dense_twin = llama(layers, hidden, 8, 8, hidden // 8, 64, vocab)
    assert dense_twin.inventory is not None
    kept = tuple(g for g in dense_twin.inventory.blocks[0] if g.kind != "mlp")
    block = (
        *kept,
        TensorGroup("mlp.gate", "router", (count, hidden), 1, "replicated", BF16),
        TensorGroup("mlp.experts.gate_proj", "experts", (width, hidden), count, "expert_column", BF16, fused="w13"),
        TensorGroup("mlp.experts.up_proj", "experts", (width, hidden), count, "expert_column", BF16, fused="w13"),
        TensorGroup("mlp.experts.down_proj", "experts", (hidden, width), count, "expert_row", BF16, fused="w2"),
    )
    layer = dense_twin.spec.layers[0]._replace(mlps=(Moe(count, top_k, width),))
    spec = dense_twin.spec._replace(architecture="MixtralForCausalLM", model_type="mixtral", layers=(layer,))
    return dense_twin._replace(spec=spec, inventory=dense_twin.inventory._replace(blocks=(block,)))
