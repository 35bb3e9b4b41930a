"""Settings: every value that vLLM has settled on before it measures memory, typed and frozen, in parts.

Made by `settle.resolve` from a request; the memory rules read nothing else beside the model and a rank's GPU. The parts
have the names of vLLM's own (config/*.py, 0.33); sizes are in tokens, sequences or bytes as its flags say.
"""

from __future__ import annotations

from typing import Literal

from kvplanner.record import NamedTuple

Version = tuple[int, int]  # (minor, patch) of 0.x
GraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
MambaCacheMode = Literal["none", "align", "all"]


class Era(NamedTuple):
    """How a start accounts for memory: by its release, and by the runner that its model is given there.

    name: for people ("0.29–0.33, V2 runner"). consumed_rule: budget − consumed − headroom (True) or budget − weights −
    peak − non-torch (False). graphs_in_budget: the CUDA graph estimate is subtracted before the KV cache is sized.
    printed_tokens: "concurrency" (int(C × L)) or "pool" (blocks // groups × B).
    """

    name: str
    runner: Literal["V0", "V1", "V2"]
    consumed_rule: bool
    graphs_in_budget: bool
    free_memory_check: bool
    printed_tokens: Literal["concurrency", "pool"]


class ModelPart(NamedTuple):
    """ModelConfig. auto_fit: max_model_len is lowered until it fits. cpu_offload_bytes: weights kept on the host."""

    dtype: str
    quantization: str | None
    max_model_len: int
    auto_fit: bool = False
    cpu_offload_bytes: int = 0


class Parallel(NamedTuple):
    """ParallelConfig: ranks by tensor, pipeline, data, and decode and prefill context.

    pp_partition: layers of each stage, empty for an even split. dbo: two half batches overlap.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    pcp: int = 1
    expert_parallel: bool = False
    redundant_experts: int = 0
    pp_partition: tuple[int, ...] = ()
    dbo: bool = False
    custom_all_reduce: bool = True

    @property
    def world(self) -> int:
        """GPUs of all replicas."""
        return self.tp * self.pp * self.dp


class Scheduler(NamedTuple):
    """SchedulerConfig: what one step holds."""

    max_num_batched_tokens: int
    max_num_seqs: int
    chunked_prefill: bool = True
    async_scheduling: bool = True


class Cache(NamedTuple):
    """CacheConfig. dtype: "auto" or a name of --kv-cache-dtype, after the checkpoint's wish was honoured.

    skip_layers: those that keep the model's dtype. block_size: the user's, None when the engine chooses.
    memory_bytes, num_gpu_blocks_override: given sizes instead of what the budget leaves.
    """

    utilization: float
    dtype: str = "auto"
    skip_layers: tuple[str, ...] = ()
    block_size: int | None = None
    memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    prefix_caching: bool = True
    hybrid_manager: bool = True
    mamba_mode: MambaCacheMode = "none"
    mamba_dtype: str = "auto"
    mamba_ssm_dtype: str = "auto"
    mamba_block_size: int | None = None


class Graphs(NamedTuple):
    """CompilationConfig. sizes: captured, ascending, empty without graphs. compiled: torch.compile runs.

    cold: it finds no compiled kernels of an earlier start; None where that is not known, and then taken to be so.
    """

    mode: GraphMode
    sizes: tuple[int, ...] = ()
    compiled: bool = True
    cold: bool | None = None


class Speculative(NamedTuple):
    """SpeculativeConfig. method: None without drafts; tokens: num_speculative_tokens."""

    method: str | None = None
    tokens: int = 0


class Multimodal(NamedTuple):
    """MultiModalConfig. ipc_bytes: kept off the KV cache for decoding media on the GPU."""

    language_model_only: bool = False
    skip_profiling: bool = False
    tower_data_parallel: bool = False
    ipc_bytes: int = 0


class Lora(NamedTuple):
    """LoRAConfig; no slots without adapters."""

    slots: int = 0
    rank: int = 0


class Settings(NamedTuple):
    """Resolved settings. version: (minor, patch) of 0.x. attention_backend: of AttentionConfig, once it is chosen.

    expert_backend: of KernelConfig, None where the engine chooses. expandable_segments: PyTorch's allocator lets
    segments grow in place.
    """

    version: Version
    era: Era
    model: ModelPart
    parallel: Parallel
    scheduler: Scheduler
    cache: Cache
    graphs: Graphs
    speculative: Speculative = Speculative()
    multimodal: Multimodal = Multimodal()
    lora: Lora = Lora()
    attention_backend: str | None = None
    expert_backend: str | None = None
    expandable_segments: bool = False

    @property
    def max_concurrent_batches(self) -> int:
        """Scheduler steps in flight (v1/executor, 0.33: pp + 1 with async scheduling on the V2 runner)."""
        pp = self.parallel.pp
        if not self.scheduler.async_scheduling:
            return pp
        if self.era.runner == "V2":
            return pp + 1
        return 2 if pp == 1 else pp

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens that may be in flight: what bounded caches keep beside their window."""
        return self.max_concurrent_batches * self.scheduler.max_num_batched_tokens
