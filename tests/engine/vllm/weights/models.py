"""Hand-made dense models for the weight and activation tests: every size is written out, nothing is read."""

from __future__ import annotations

from typing import Any, Final, Literal

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.memory import activations, graphs, runtime, workspace
from kvplanner.engine.vllm.releases import release_of
from kvplanner.engine.vllm.settings import Cache, Era, Graphs, ModelPart, Parallel, Scheduler, Settings, Version
from kvplanner.engine.vllm.weights import loaded as weights_loaded
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.estimate import Estimate
from kvplanner.model.formats import dense
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec, Mlp, ModelSpec, Moe
from kvplanner.model.tensors import Inventory, Place, TensorGroup
from kvplanner.units import GIB

BF16 = dense("bfloat16")
PARTS: Final = ("parallel", "model", "scheduler", "multimodal", "lora", "graphs")


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


H100: Final = Gpu("NVIDIA H100 80GB HBM3", (9, 0), round(79.19 * GIB))


def era(version: Version) -> Era:
    """How a release accounts for the memory of a dense model."""
    runner: Literal["V0", "V1", "V2"] = "V2" if rules.V2_MODELS.at(version).dense or version >= (29, 0) else "V1"
    if version < (8, 0):
        runner = "V0"
    silent = runner == "V0" or (runner == "V2" and not rules.V2_ESTIMATES_GRAPHS.at(version))
    return Era(
        f"{rules.accounting(version)}, {runner} runner", runner, rules.CONSUMED.at(version),
        rules.GRAPHS_ESTIMATED.at(version) and not silent, rules.FREE_CHECK.at(version), rules.PRINTED.at(version),
    )  # fmt: skip


def settings(version: str = "0.33.0", **changes: Any) -> Settings:
    """Defaults of a server on an H100. changes: fields of a part by their names, or a part as a mapping of its own."""
    release = release_of(version).version
    made = Settings(
        version=release, era=era(release), model=ModelPart("bfloat16", None, 8192), parallel=Parallel(),
        scheduler=Scheduler(8192, 1024), cache=Cache(rules.UTILIZATION.at(release)),
        graphs=Graphs("FULL_AND_PIECEWISE", tuple(range(1, 52))),
    )  # fmt: skip
    for name, value in changes.items():
        part = name if name in made._fields else next(p for p in PARTS if name in getattr(made, p)._fields)
        fields = value if part == name else {name: value}
        made = made._replace(**{part: getattr(made, part)._replace(**fields)})
    return made


def terms(model: Model, here: Settings, gpu: Gpu, stage: int) -> dict[str, Estimate]:
    """Every estimate of a rank by the name of its rule."""
    rules = (
        weights.rank_weights, weights_loaded.loaded, weights.loading_peak, workspace.persistent, activations.peak,
        graphs.estimate, graphs.actual,
    )  # fmt: skip
    return {
        "outside": runtime.outside(here, gpu),
        "inside": runtime.inside(here, gpu, stage),
        "after_profile": workspace.after_profile(model, here),
    } | {rule.__name__: rule(model, here, gpu, stage) for rule in rules}


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
