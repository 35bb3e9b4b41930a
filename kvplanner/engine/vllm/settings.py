"""Settings: every value that vLLM has settled on before it measures memory, typed and frozen.

Made by `defaults.resolve` from a request; the memory rules read nothing else.
"""

from typing import Literal, NamedTuple

Version = tuple[int, int]  # (minor, patch) of 0.x
GraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
MambaCacheMode = Literal["none", "align", "all"]


class Era(NamedTuple):
    """A run of vLLM versions that share rules.

    first, last: versions covered, (minor, patch) of 0.x; name: shown to people ("0.27–0.33, V2 runner").
    consumed_rule: budget − consumed − headroom (True) or budget − weights − peak − non-torch (False).
    graphs_in_budget: the CUDA graph estimate is subtracted before the KV cache is sized.
    snapshot_after_nccl: context and NCCL lie outside the budget.
    default_utilization: of --gpu-memory-utilization.
    printed_tokens: "concurrency" (int(C × L)) or "pool" (blocks // groups × B).
    sure: how sure the borders are.
    """

    name: str
    first: tuple[int, int]
    last: tuple[int, int]
    runner: Literal["V0", "V1", "V2"]
    consumed_rule: bool
    graphs_in_budget: bool
    snapshot_after_nccl: bool
    free_memory_check: bool
    default_utilization: float
    printed_tokens: Literal["concurrency", "pool"]
    sure: str = ""


class Settings(NamedTuple):
    """Resolved settings. Sizes in tokens, sequences or bytes as the engine's flags say.

    version: (minor, patch) of 0.x. kv_cache_dtype: "auto" or a name of --kv-cache-dtype, after the checkpoint's
    wish was honoured. gpu_arch: compute capability. graph_sizes: capture sizes, ascending, empty without graphs.
    spec_tokens: num_speculative_tokens. block_size: the user's, None when the engine chooses.
    mm_ipc_bytes: kept off the KV cache for decoding media on the GPU. dbo: two half batches overlap.
    compiled: torch.compile runs; None: it does wherever graphs are captured.
    """

    version: tuple[int, int]
    era: Era
    usage: Literal["server", "llm"]
    dtype: str
    quantization: str | None
    tp: int
    pp: int
    dp: int
    dcp: int
    pcp: int
    expert_parallel: bool
    redundant_experts: int
    max_model_len: int
    auto_fit: bool
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int | None
    kv_cache_dtype: str
    kv_skip_layers: tuple[str, ...]
    utilization: float
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    prefix_caching: bool
    chunked_prefill: bool
    async_scheduling: bool
    hybrid_manager: bool
    mamba_cache_mode: MambaCacheMode
    mamba_cache_dtype: str
    mamba_ssm_cache_dtype: str
    mamba_block_size: int | None
    graph_mode: GraphMode
    graph_sizes: tuple[int, ...]
    spec_method: str | None
    spec_tokens: int
    attention_backend: str | None
    gpu_arch: tuple[int, int] | None
    gpu_name: str
    gpu_total_bytes: int
    lora_slots: int
    lora_rank: int
    cpu_offload_bytes: int
    language_model_only: bool
    skip_mm_profiling: bool
    tower_data_parallel: bool
    pp_partition: tuple[int, ...] = ()
    mm_ipc_bytes: int = 0
    dbo: bool = False
    custom_all_reduce: bool = True
    compiled: bool | None = None

    @property
    def max_concurrent_batches(self) -> int:
        """Scheduler steps in flight (v1/executor, 0.33: pp + 1 with async scheduling on the V2 runner)."""
        if not self.async_scheduling:
            return self.pp
        if self.era.runner == "V2":
            return self.pp + 1
        return 2 if self.pp == 1 else self.pp

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens that may be in flight: what bounded caches keep beside their window."""
        return self.max_concurrent_batches * self.max_num_batched_tokens
