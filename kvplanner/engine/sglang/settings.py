"""Settings: every value that SGLang has settled on before it measures memory, typed and frozen, in its own groups."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from kvplanner.engine.sglang.eras import Era, Version
from kvplanner.record import NamedTuple

GraphBackend = Literal["full", "breakable", "tc_piecewise", "disabled"]
RadixStrategy = Literal["none", "no_buffer", "extra_buffer", "extra_buffer_lazy"]


class Parallel(NamedTuple):
    """How ranks share the model.

    tp: ranks of one pipeline stage. attention_dp: groups of ranks that each serve requests of their own
    (--enable-dp-attention). replicas: whole copies of the server (--dp-size without it). ep: ranks that spread experts.
    """

    tp: int = 1
    pp: int = 1
    replicas: int = 1
    attention_dp: int = 1
    ep: int = 1

    @property
    def attention_tp(self) -> int:
        """Ranks that share one attention layer."""
        return self.tp // self.attention_dp

    @property
    def world(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.pp


class Graphs(NamedTuple):
    """CUDA graphs. decode: batch sizes that are captured; prefill: token counts; both empty where there are none.

    prefill_reserve: prefill graphs are counted in the automatic fraction, captured or not.
    """

    decode_backend: GraphBackend
    decode_max: int
    decode: tuple[int, ...]
    prefill_backend: GraphBackend
    prefill: tuple[int, ...]
    prefill_reserve: bool


class Cache(NamedTuple):
    """The KV cache. dtype: its element type ("bfloat16", "fp8_e4m3", "mxfp8", "nvfp4" ...).

    raw_latent: sparse latent attention keeps its rows without scales (the TRT-LLM and TileLang layouts). windows:
    sliding-window layers have a pool of their own. window_ratio: its tokens for each of the full pool; ratio_given: by
    the user. prefix_tails: of --swa-prefix-tails, None where not set.
    """

    dtype: str
    page_size: int
    raw_latent: bool
    windows: bool
    window_ratio: float
    ratio_given: bool
    radix: bool
    max_total_tokens: int | None
    prefix_tails: int | None = None


class States(NamedTuple):
    """Recurrent state. strategy: how the radix cache keeps states; ssm_dtype: None for the model's own."""

    memory_ratio: float
    max_slots: int | None
    ssm_dtype: str | None
    strategy: RadixStrategy


class Speculation(NamedTuple):
    """Speculative decoding, algorithm "" for none. layers: the draft's, in the pool's token cost."""

    algorithm: str = ""
    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0
    layers: int = 0

    @property
    def charged(self) -> bool:
        """Whether the draft keeps a cache beside the target's (EAGLE, MTP and a model of its own)."""
        return self.algorithm in ("EAGLE", "EAGLE3", "STANDALONE")


class HostCache(NamedTuple):
    """The hierarchical cache. ratio: of the device pools; size_bytes: of each rank, 0 where the ratio decides."""

    on: bool = False
    ratio: float = 2.0
    size_bytes: int = 0


class Lora(NamedTuple):
    """Adapter slots, allocated before the pools are sized."""

    slots: int = 0
    rank: int = 0


class Settings(NamedTuple):
    """Resolved settings. fraction: of the free memory before loading that weights and pools may take.

    chunk: tokens of a prefill chunk on one attention group; -1 or less: not chunked. max_running: None while it is not
    set. overlap: the scheduler prepares a batch while another runs. media_mib: kept back by multimodal models.
    arch: compute capability.
    """

    version: Version
    era: Era
    dtype: str
    quantization: str | None
    arch: tuple[int, int]
    fraction: float
    chunk: int
    max_prefill_tokens: int
    max_running: int | None
    context_length: int
    overlap: bool
    prefill_attention: str
    decode_attention: str
    moe_runner: str
    media_mib: int
    parallel: Parallel
    graphs: Graphs
    cache: Cache
    states: States
    speculation: Speculation
    lora: Lora = Lora()
    cpu_offload_bytes: int = 0
    host_cache: HostCache = HostCache()


def of_weights(settings: Settings) -> Hashable:
    """All of the settings that a model's tensors on a rank depend on, beside the stage and the number of stages.

    What is remembered by these serves every plan of a slider, a sweep or a search over the others.
    """
    parallel = settings.parallel
    return (settings.dtype, settings.quantization, settings.arch, settings.moe_runner, parallel.tp,
            parallel.attention_dp, parallel.ep)  # fmt: skip


def with_ranks(settings: Settings, tp: int) -> Settings:
    """The settings with another number of tensor ranks, nothing else settled anew."""
    return settings._replace(parallel=settings.parallel._replace(tp=tp))
