"""What changed in vLLM from release to release, one rule a value, each row with the file and line that say so.

Read in the Python source of the released wheels, 0.6.6.post1 to 0.33.0; a line number is that of the release in which
the row begins. A new release needs rows here, nothing else. Rules of one architecture stand in `quirks`, of one weight
format in `settle/formats` and `weights/format`.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

from kvplanner.engine.vllm.releases import ByRelease, Row, Version, run_of
from kvplanner.record import NamedTuple
from kvplanner.units import MIB


class V2Models(NamedTuple):
    """Which models run on the V2 runner unless asked otherwise.

    every: all of them. dense: all that generate, are dense and have attention only. listed: these architectures
    besides, quantised ones only where `quantised`.
    """

    every: bool = False
    dense: bool = False
    listed: tuple[str, ...] = ()
    quantised: bool = True


class Batch(NamedTuple):
    """A class of GPUs: tokens of a step in the LLM class and in the server, and sequences."""

    llm: int
    server: int
    sequences: int


class GpuClasses(NamedTuple):
    """How the batch defaults follow from a GPU.

    large_names: parts of names of large GPUs, none where the memory decides; small_names: GPUs that are small whatever
    their memory. huge: the class of those with 160 GiB and more.
    """

    small: Batch
    large: Batch
    large_names: tuple[str, ...] = ()
    small_names: tuple[str, ...] = ()
    huge: Batch | None = None


_V0 = Batch(2048, 2048, 256)
_SMALL, _LARGE = Batch(8192, 2048, 256), Batch(16384, 8192, 1024)
_MOE = ("DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM")
_MOE_026 = (*_MOE, "InklingForCausalLM", "InklingForConditionalGeneration", "LongcatFlashNgramForCausalLM")
_MOE_027 = (*_MOE_026, "KimiK3ForConditionalGeneration")

# --- Which engine and runner -----------------------------------------------------------------------------------------
V1_ENGINE: Final = ByRelease(False, Row((8, 0), True, "engine/arg_utils.py _is_v1_supported_oracle"))
# What made 0.8 to 0.10 fall back to V0: GPUs before 8.0; models with a recurrent state; an 8-bit cache without
# FlashAttention 3; drafts that V1 did not know.
V0_FALLBACK: Final = ByRelease(
    False, Row((8, 0), True, "engine/arg_utils.py _is_v1_supported_oracle"),
    Row((10, 2), False, "engine/arg_utils.py, 0.10.2: a T4 and hybrids run on V1"),
)  # fmt: skip
V0_FALLBACK_CACHE: Final = ByRelease(
    False, Row((8, 0), True, "engine/arg_utils.py: --kv-cache-dtype"),
    Row((10, 0), False, "platforms/cuda.py is_kv_cache_dtype_supported", sure=False),
)  # fmt: skip
V1_DRAFTS: Final = ByRelease[tuple[str, ...]](
    (), Row((9, 0), ("ngram", "eagle", "eagle3", "medusa"), "engine/arg_utils.py: ngram and eagle fell back in 0.8.5",
            sure=False),
    Row((9, 1), ("ngram", "eagle", "eagle3", "medusa", "mtp"), "engine/arg_utils.py, 0.9.1: deepseek_mtp counts"),
)  # fmt: skip
POOLING_ON_V1: Final = ByRelease(False, Row((9, 2), True, "engine/arg_utils.py; --task in 0.8.5", sure=False))
PIPELINE_ON_V1: Final = ByRelease(False, Row((9, 0), True, "engine/arg_utils.py; Ray only in 0.8.5", sure=False))
V2_MODELS: Final = ByRelease(
    V2Models(),
    Row((22, 0), V2Models(listed=("Qwen3ForCausalLM",), quantised=False), "config/vllm.py:69"),
    Row((23, 0), V2Models(listed=("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"), quantised=False),
        "config/vllm.py:69"),
    Row((24, 0), V2Models(listed=("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM", *_MOE)),
        "config/vllm.py:68"),
    Row((25, 0), V2Models(dense=True, listed=_MOE), "config/vllm.py:572, 0.25.1"),
    Row((26, 0), V2Models(dense=True, listed=_MOE_026), "config/vllm.py:620"),
    Row((27, 0), V2Models(dense=True, listed=_MOE_027), "config/vllm.py:69, 0.27.1"),
    Row((28, 0), V2Models(dense=True, listed=(*_MOE_027, "DeepseekV4ForCausalLM")), "config/vllm.py:69"),
    Row((29, 0), V2Models(every=True), "config/vllm.py use_v2_model_runner"),
)  # fmt: skip
# What the V2 runner left to V1: drafts by method, EAGLE-3 over pipeline stages, overlapping half batches.
V2_WITHOUT: Final = ByRelease[tuple[str, ...]](
    ("ngram", "draft_model", "dbo", "eagle3 over stages"),
    Row((30, 0), (), "config/vllm.py _get_v2_model_runner_unsupported_features"),
)  # fmt: skip

# --- The budget ------------------------------------------------------------------------------------------------------
UTILIZATION: Final = ByRelease(0.9, Row((20, 0), 0.92, "config/cache.py:66; 0.9 at :41 of 0.19.1"))
FREE_CHECK: Final = ByRelease(False, Row((9, 1), True, "v1/worker/gpu_worker.py init_device"))
# Runners that measured the whole device: what other programs held was taken for their own (issues 10533 and 14376).
OTHERS_CHARGED: Final = ByRelease[tuple[str, ...]](
    ("V0",), Row((6, 5), (), "utils.py memory_profiling: counted from a snapshot; pull request 10528"),
    Row((8, 0), ("V1",), "v1/worker/gpu_worker.py determine_available_memory: total in use less PyTorch's"),
    Row((9, 1), (), "v1/worker/gpu_worker.py: counted from a snapshot"),
)  # fmt: skip
GRAPHS_ESTIMATED: Final = ByRelease(False, Row((20, 0), True, "envs.py:1725; v1/worker/gpu_worker.py:401"))
V2_ESTIMATES_GRAPHS: Final = ByRelease(False, Row((29, 0), True, "v1/worker/gpu/model_runner.py:896; 0 before"))
CONSUMED: Final = ByRelease(False, Row((27, 0), True, "v1/worker/gpu_worker.py, 0.27.1"))
SNAPSHOT_AFTER_NCCL: Final = ByRelease(False, Row((11, 0), True, "v1/worker/gpu_worker.py init_device"))

# --- A step ----------------------------------------------------------------------------------------------------------
GPU_CLASSES: Final = ByRelease(
    GpuClasses(_V0, _V0),
    Row((8, 0), GpuClasses(_SMALL._replace(sequences=1024), _LARGE, ("h100", "h200")), "engine/arg_utils.py:1694"),
    Row((8, 4), GpuClasses(_SMALL, _LARGE, ("h100", "h200")), "engine/arg_utils.py"),
    Row((8, 5), GpuClasses(_SMALL, _LARGE), "engine/arg_utils.py:1596"),
    Row((9, 0), GpuClasses(_SMALL, _LARGE, small_names=("a100",)), "engine/arg_utils.py:1495, pull request 17885"),
    Row((28, 0), GpuClasses(_SMALL, _LARGE, small_names=("a100",), huge=Batch(16384, 16384, 1024)),
        "engine/arg_utils.py:2582"),
)  # fmt: skip
ASYNC_SCHEDULING: Final = ByRelease(False, Row((14, 0), True, "config/vllm.py"))
WHOLE_ITEMS: Final = ByRelease(False, Row((33, 0), True, "config/vllm.py"))
IN_FLIGHT: Final = ByRelease(False, Row((26, 0), True, "v1/kv_cache_interface.py; reports of 0.25.1 and 0.26"))

# --- CUDA graphs -----------------------------------------------------------------------------------------------------
# How large the largest captured batch is: "all" 512 whatever the sequences, "sequences" twice as many as those.
LARGEST_GRAPH: Final = ByRelease[Literal["all", "sequences"]](
    "all", Row((10, 0), "sequences", "config.py:2456; [512] in 0.9.2"),
)  # fmt: skip
GRAPH_STEP: Final = ByRelease(8, Row((11, 1), 16, "config/vllm.py:886: from 256 on"))
# Sizes that a decode step with drafts needs are counted in.
GRAPHS_FOR_DRAFTS: Final = ByRelease(False, Row((13, 0), True, "config/vllm.py:1063"))
TOKENS_CAPTURED: Final = ByRelease(False, Row((20, 1), True, "config/vllm.py:1524: max_num_batched_tokens is added"))
SEQUENCES_CAPTURED: Final = ByRelease(False, Row((29, 0), True, "config/vllm.py:2142: uniform decode sizes"))
BLACKWELL_GRAPHS: Final = ByRelease(512, Row((28, 0), 1024, "config/vllm.py:1884 default_max_graph_size"))
FULL_GRAPHS: Final = ByRelease(False, Row((11, 0), True, "config/vllm.py"))
# gpt-oss: the largest batch, and the step between sizes above 256 up to it.
WIDE_GRAPHS: Final = ByRelease[tuple[int, int]](
    (0, 0), Row((10, 1), (1024, 16), "model_executor/models/config.py"),
    Row((11, 0), (992, 16), "model_executor/models/config.py: 81 sizes"),
    Row((11, 1), (1024, 16), "model_executor/models/config.py: 83 sizes"),
)  # fmt: skip
# Inductor fuses kernels side by side and tries them on arguments of full size, the embedding among them: PyTorch 2.9.
COMBO_KERNELS: Final = ByRelease(
    False, Row((11, 1), True, "config/compilation.py:664, 0.11.2; not in 0.10.2", sure=False)
)
# Layers that attend in chunks kept whole-step graphs off where they have a cache of their own.
CHUNKED_IN_PIECES: Final = ByRelease(
    False, Row((11, 0), True, "v1/attention/backends: chunked_local_attention.py builds no whole-step graphs")
)

# --- The cache -------------------------------------------------------------------------------------------------------
HYBRID_PREFIXES: Final = ByRelease(False, Row((26, 0), True, "config/model.py is_prefix_caching_supported"))
HYBRID_MANAGER: Final = ByRelease(False, Row((9, 2), True, "v1/core/kv_cache_coordinator.py", sure=False))
CHUNKED_GROUPS: Final = ByRelease(False, Row((13, 0), True, "envs.py, pull request 29627"))
PRINTED: Final = ByRelease[Literal["pool", "concurrency"]](
    "pool", Row((20, 1), "concurrency", "v1/core/kv_cache_utils.py:1699")
)
BLOCKS_PER_REQUEST: Final = ByRelease(False, Row((9, 1), True, "v1/core/kv_cache_utils.py:640; tokens ÷ length before"))
# The fit check compared the whole model's need with what one pipeline stage has.
WHOLE_MODEL_NEED: Final = ByRelease(
    False, Row((14, 0), True, "v1/core/kv_cache_utils.py:1515"), Row((17, 0), False, "v1/core/kv_cache_utils.py:1465")
)
NULL_BLOCK: Final = ByRelease(False, Row((29, 0), True, "v1/core/kv_cache_utils.py:975"))
# More sequences than blocks of a recurrent state, where whole steps are captured.
# Before, from 0.18 on, the captured sizes were capped instead (config/compilation.py:1198 of 0.18.0).
STATE_CHECK: Final = ByRelease(False, Row((20, 0), True, "config/compilation.py:1436"))
# Tokens that blocks of a latent cache are rounded to beside a recurrent state; 0: as the kernel wants. 64 since the
# first such model (0.11.1; models/config.py:210 of 0.19.1, a report of 0.11.2).
LATENT_ALIGNMENT: Final = ByRelease(
    64, Row((20, 0), 0, "platforms/interface.py"), Row((27, 0), 128, "platforms/interface.py:888")
)
CHECKPOINTS: Final = ByRelease(False, Row((31, 0), True, "reports of 0.27 to 0.30 do not show it yet", sure=False))

# --- Kernels ---------------------------------------------------------------------------------------------------------
LATENT_CACHE: Final = ByRelease(False, Row((7, 0), True, "pull request 12601"))
FA_MLA_SPARSE: Final = ByRelease(False, Row((25, 0), True, "v1/attention/backends/mla/flashattn_mla_sparse.py"))
# Whether the engine knows inside a model with towers that image tokens see each other: before, it looked at the text
# part's own type, so that FlashAttention took them.
KNOWS_IMAGE_PREFIX: Final = ByRelease(
    False,
    Row((25, 0), True, "transformers_utils/model_arch_config_convertor.py; read in 0.24.0 and 0.28.0", sure=False),
)
FLASHINFER_SINKS: Final = ByRelease(False, Row((28, 0), True, "v1/attention/backends/flashinfer.py:544: SM12x"))
# Rows that the sparse indexer gathers, in multiples of the context; 0 where none are reserved.
INDEXER_ROWS: Final = ByRelease(
    2, Row((13, 0), 40, "v1/attention/backends/mla/indexer.py:188"),
    Row((32, 0), 8, "v1/attention/backends/mla/indexer.py:927, 0.33: 8 × the factor"),
)  # fmt: skip
INDEXER_SCRATCH: Final = ByRelease(False, Row((20, 0), True, "v1/attention/backends/mla/indexer.py; not in 0.19.1"))
GATHER_BY_LENGTH: Final = ByRelease(False, Row((32, 0), True, "config/vllm.py:1872: 5 up to 256 Ki tokens, else 2"))
INDEXER_LOGITS: Final = ByRelease(False, Row((19, 0), True, "sparse_attn_indexer.py:121; not in 0.18.0"))
ROUND_UP_ITEMS: Final = ByRelease(True, Row((10, 0), False, "v1/worker/gpu_model_runner.py:2361"))

# --- Weights ---------------------------------------------------------------------------------------------------------
# MXFP4 experts: what TRT-LLM's kernels (10.x) pad the width of a rank to; what Triton's layout for Hopper pads the
# dimension that is summed over to; whether its scales stay once, and its biases widen to fp32.
MXFP4_TRTLLM_WIDTH: Final = ByRelease(256, Row((27, 0), 128, "layers/fused_moe/oracle/mxfp4.py", sure=False))
MXFP4_TRITON_SUMMED: Final = ByRelease(
    1, Row((17, 0), 128, "the vendored triton_kernels"), Row((22, 0), 1, "the vendored triton_kernels"),
)  # fmt: skip
MXFP4_SCALES_ONCE: Final = ByRelease(
    False, Row((25, 0), True, "layers/fused_moe/oracle/mxfp4.py:1155, 0.25.1; scales twice in 0.24.0")
)
# NVFP4 experts with a gate: what TRT-LLM's kernels (10.x) pad the width of a rank to.
NVFP4_TRTLLM_WIDTH: Final = ByRelease(
    16, Row((26, 0), 64, "layers/quantization/utils/flashinfer_fp4_moe.py:362; 16 in 0.24.0", sure=False)
)
# Machete (GPTQ on Hopper) keeps the order of its groups beside the zero points.
GPTQ_ORDER_KEPT: Final = ByRelease(
    True, Row((30, 0), False, "kernels/linear/mixed_precision/machete.py; kept in 0.29.0")
)
# Bytes of a packed word of zero points that Marlin keeps of GPTQ's experts.
GPTQ_EXPERT_ZEROS: Final = ByRelease(2, Row((27, 0), 4, "layers/quantization/auto_gptq.py:590, 0.27.1"))
# Pieces of the allocator that loading cuts no smaller (max_split_size_mb around the load); None: any.
LOAD_SPLIT: Final = ByRelease[int | None](
    None, Row((20, 1), 20 * MIB, "v1/worker/gpu_worker.py _scoped_allocator_max_split; pull request 41268", sure=False)
)
# Repacking leaves pieces behind that no later matrix fits into, since PyTorch 2.10.
REPACKING_GAPS: Final = ByRelease(False, Row((17, 0), True, "pull request 41268; PyTorch 2.10", sure=False))
# Rotary tables of Qwen3-VL and Qwen3.5 are as long as four contexts, as Qwen2.5-VL's are for the time in a video.
LONG_AXES: Final = ByRelease(
    True, Row((33, 0), False, "models/qwen3_vl.py mrope_positions_factor; long in reports of 0.19 to 0.28", sure=False)
)
# FP8 in blocks on a card of 8.9: Triton's kernels, which keep a scale for each block, before Marlin's for each row.
ADA_BLOCKS_BY_MARLIN: Final = ByRelease(
    False, Row((33, 0), True, "kernels/linear/__init__.py _POSSIBLE_FP8_BLOCK_KERNELS; a report of 0.26", sure=False)
)
MACHETE_AWQ: Final = ByRelease(False, Row((20, 0), True, "layers/quantization/awq_marlin.py", sure=False))

# --- Names and words -------------------------------------------------------------------------------------------------
MXFP4_NAME: Final = ByRelease("mxfp4", Row((20, 0), "gpt_oss_mxfp4", "layers/quantization/__init__.py"))
GPTQ_NAME: Final = ByRelease("gptq_marlin", Row((22, 0), "auto_gptq", "layers/quantization/__init__.py"))
AWQ_NAME: Final = ByRelease("awq_marlin", Row((24, 0), "auto_awq", "layers/quantization/__init__.py"))
POSSESSIVE: Final = ByRelease("models's", Row((22, 0), "model's", "v1/core/kv_cache_utils.py"))
SEE_PAGE: Final = ByRelease(False, Row((13, 0), True, "v1/core/kv_cache_utils.py"))
CPU_REMARK: Final = ByRelease(False, Row((22, 0), True, "v1/core/kv_cache_utils.py"))

# What a measurement of one release says of another: how the budget is accounted for.
_ACCOUNTING: Final = (
    V1_ENGINE, V2_MODELS, UTILIZATION, FREE_CHECK, GRAPHS_ESTIMATED, V2_ESTIMATES_GRAPHS, CONSUMED, PRINTED,
    SNAPSHOT_AFTER_NCCL,
)  # fmt: skip


@cache
def accounting(version: Version) -> str:
    """The run of releases around a version that account for memory alike, for people: "0.29–0.33"."""
    return run_of(version, _ACCOUNTING)
