"""Model specs made by hand, and settings of a plan, for the cache tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.engine.vllm.weights.rank import partition
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Indexer, LayerSpec, Mixer, Mla, ModelSpec, State
from kvplanner.units import GIB

H100 = ("NVIDIA H100 80GB HBM3", 79, (9, 0))
A100 = ("NVIDIA A100-SXM4-80GB", 79, (8, 0))
RTX4090 = ("NVIDIA GeForce RTX 4090", 23, (8, 9))
T4 = ("Tesla T4", 15, (7, 5))
B200 = ("NVIDIA B200", 178, (10, 0))
Gpu = tuple[str, int, tuple[int, int]]


def spec(layers: Sequence[tuple[Mixer, ...]], **more: Any) -> ModelSpec:
    """A model of the given mixers, one tuple a layer."""
    distinct = list(dict.fromkeys(layers))
    values: dict[str, Any] = {
        "architecture": "LlamaForCausalLM", "model_type": "llama", "hidden_size": 4096, "vocab_size": 128256,
        "context_length": 131072, "dtype": "bfloat16", "tied_embeddings": False,
    }  # fmt: skip
    return ModelSpec(
        layers=tuple(LayerSpec(m) for m in distinct),
        layer_of=tuple(distinct.index(m) for m in layers),
        **(values | more),
    )


def full(heads: int = 32, kv_heads: int = 8, size: int = 128, **more: Any) -> Attention:
    """A full attention mixer; more: window, chunk, ..."""
    return Attention(heads, kv_heads, size, size, **more)


def dense(layers: int = 32, **more: Any) -> ModelSpec:
    """A Llama-like model."""
    return spec([(full(),)] * layers, **more)


def windowed(windows: int, plain: int, window: int = 1024, **more: Any) -> ModelSpec:
    """Window layers and full layers of the same size."""
    return spec([(full(window=window),)] * windows + [(full(),)] * plain, **more)


def latent(layers: int = 61, index: Indexer | None = None, **more: Any) -> ModelSpec:
    """A DeepSeek-like model."""
    return spec([(Mla(128, 512, 128, 64, 128, 1536, index),)] * layers, **more)


def kimi_linear() -> ModelSpec:
    """Kimi-Linear-48B: 20 KDA and 7 latent layers."""
    kda = (State("kda", 4, 32, 128, 32, 128),)
    mla = (Mla(32, 512, 128, 64, 128),)
    order = [mla if (i + 1) % 4 == 0 or i == 26 else kda for i in range(27)]
    return spec(order, architecture="KimiLinearForCausalLM", model_type="kimi_linear", context_length=1048576)


def gated(dtype: str | None = "float32") -> ModelSpec:
    """Qwen3.5-27B: 48 gated-delta and 16 attention layers."""
    delta = (State("gated_delta", 4, 48, 128, 16, 128, state_dtype=dtype),)
    return spec(
        [(full(24, 4, 256),) if i % 4 == 3 else delta for i in range(64)],
        architecture="Qwen3_5ForConditionalGeneration",
        model_type="qwen3_5_text",
        context_length=262144,
        mtp_layers=1,
    )


def machine(gpu: Gpu = H100, count: int = 1) -> Machine:
    """`count` GPUs."""
    name, total, capability = gpu
    one = GpuSpec(name, name, "nvidia", exact(total * GIB), exact(total * GIB), capability)
    return Machine(tuple(Device(i, one) for i in range(count)))


def resolved(
    model: ModelSpec,
    options: Mapping[str, OptionValue] | None = None,
    gpu: Gpu = H100,
    version: str | None = None,
    draft: ModelSpec | None = None,
) -> tuple[Settings, dict[str, Resolved], tuple[str, ...]]:
    """Settings, their reasons and warnings."""
    request = PlanRequest(Model("test", model, None, "config"), machine(gpu), version=version, options=options or {})
    drafts = Model("draft", draft, None, "config") if draft else None
    return defaults.resolve(request._replace(draft=drafts))


def laid_out(
    model: ModelSpec,
    options: Mapping[str, OptionValue] | None = None,
    gpu: Gpu = H100,
    version: str | None = None,
    draft: ModelSpec | None = None,
) -> CacheLayout:
    """The cache layout."""
    settings = resolved(model, options, gpu, version)[0]
    return kv_layout.plan_cache(
        model,
        settings,
        gpu_of(machine(gpu).devices[0].gpu),
        partition(model.num_layers, settings.parallel.pp, settings.parallel.pp_partition),
        draft,
    )
