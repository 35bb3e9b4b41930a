"""Persistent buffers that vLLM makes after the weights: counted in its budget, gone only when it stops.

Sizes: v1/worker/gpu/sample/*, v1/worker/gpu/input_batch.py, fused_moe/*, 0.33.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import loaded as weights_loaded
from kvplanner.engine.vllm.weights.shard import expert_ranks
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.kv import index_row_bytes
from kvplanner.model.model import Model
from kvplanner.model.spec import Mla, ModelSpec, Moe
from kvplanner.record import NamedTuple
from kvplanner.units import MIB, ceil_div, round_up

# Tokens, biases and length of the logit-bias table, and of the bad-word table, per sequence (4 bytes each).
_LOGIT_BIAS_WORDS: Final = 1024 * 3 + 128
_BAD_WORDS: Final = 1024 + 129
_LONG_CONTEXT: Final = 1 << 18
_BLACKWELL: Final = (10, 0)
_CONSUMER_BLACKWELL: Final = (12, 0)
_FLASHINFER: Final = 394 * MIB
_FLASHINFER_MLA: Final = 128 * MIB


class Buffer(NamedTuple):
    """One persistent buffer: what it is, its bytes, and how the bytes come about."""

    name: str
    bytes: int
    why: str


def persistent(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """Bytes of the buffers that stay beside the weights on one rank of a stage.

    With rotary tables and what the allocator rounds up.
    """
    buffers = [b for b in _buffers(model, settings, gpu, stage) if b.bytes]
    tables = weights_loaded.tables(model, settings, gpu, stage)
    value = sum(b.bytes for b in buffers)
    moe = sum(b.bytes for b in buffers if b.name.endswith("workspace"))
    # Kernels of a GPU that is not known may need no workspace at all.
    least = 0 if gpu.arch is None and model.spec.quantization else moe - moe // 4
    inputs = [Input(b.name, b.bytes, "B", b.why) for b in buffers]
    inputs += [Input(f"rotary {i.name}" if i.name == "tables" else i.name, *i[1:]) for i in tables.inputs]
    formula = " + ".join(f"{{{i.name}}}" for i in inputs)
    low, high = value - moe + least + tables.low, value + moe // 4 + tables.high
    return banded(value + tables.value, low, high, "analytic", formula, *inputs)


def after_profile(model: Model, settings: Settings, layout: CacheLayout | None = None) -> Estimate:
    """Bytes allocated after the measurement: not in the budget, they must fit into what it leaves of the GPU.

    Two block tables for each cache group (sequences × blocks of a longest request × 4, rows padded to 128:
    v1/worker/gpu/block_table.py, 0.33), slot mappings, and the workspaces that attention back ends make with their
    metadata builders (FlashInfer 394 MiB, its latent attention 128 MiB). layout: the cache's groups and their
    blocks; without one, a group for each kind of attention in blocks of 16.
    """
    rows = [_table_row(settings, size) for size in _table_blocks(model, settings, layout)]
    tables = 2 * settings.scheduler.max_num_seqs * sum(rows) * 4
    slots = len(rows) * settings.scheduler.max_num_batched_tokens * 8
    backend = settings.attention_backend or ""
    flashinfer = (_FLASHINFER_MLA if "MLA" in backend else _FLASHINFER) if "FLASHINFER" in backend else 0
    value = tables + slots + flashinfer
    return banded(
        value, value, value + _FLASHINFER, "analytic",
        "2 × {sequences} × {row lengths} × 4 + {groups} × {tokens} × 8 + {attention workspace}",
        Input("sequences", settings.scheduler.max_num_seqs),
        Input("row lengths", sum(rows), "", "blocks, all groups together"),
        Input("groups", len(rows)), Input("tokens", settings.scheduler.max_num_batched_tokens, "", "slot mappings"),
        Input("attention workspace", flashinfer, "B", backend or "none known"),
    )  # fmt: skip


def _table_row(settings: Settings, block_size: int) -> int:
    """Entries of one sequence's row in a block table."""
    return round_up(ceil_div(settings.model.max_model_len, block_size * settings.parallel.dcp), 128)


def _table_blocks(model: Model, settings: Settings, layout: CacheLayout | None) -> list[int]:
    """Tokens of a block of each cache group."""
    if layout is not None:
        return [table.spec.block_size for table in layout.tables]
    kinds = {_cache_kind(m) for layer in model.spec.layers for m in layer.mixers}
    return [settings.cache.block_size or 16] * max(1, len(kinds))


def _cache_kind(mixer: object) -> tuple[str, object, object]:
    return type(mixer).__name__, getattr(mixer, "window", None), getattr(mixer, "chunk", None)


def penalty_counters(seqs: int, vocab: int) -> int:
    """Bytes of the V2 runner's penalty counters: how often each sequence used each word, and a bit per word."""
    return 4 * seqs * vocab + 4 * seqs * ceil_div(vocab, 32)


def has_counters(settings: Settings) -> bool:
    """Whether the runner keeps penalty counters on the GPU (the V2 runner does)."""
    return settings.era.runner == "V2"


def shared_workspace(model: Model, settings: Settings, gpu: Gpu) -> Buffer:
    """The scratch that expert and sparse-attention kernels share: as large as the larger of both asks.

    Two overlapping half batches (--enable-dbo) each have their own (v1/worker/workspace.py, 0.33).
    """
    largest = max(expert_workspace(model, settings, gpu), _sparse_workspace(model, settings), key=lambda b: b.bytes)
    if not settings.parallel.dbo:
        return largest
    arithmetic, _, rest = largest.why.partition("; ")
    return Buffer(largest.name, 2 * largest.bytes, f"2 × ({arithmetic}); --enable-dbo{rest and f'; {rest}'}")


def _sparse_workspace(model: Model, settings: Settings) -> Buffer:
    """What sparse attention gathers: the indexer the keys of the whole context, FlashMLA the rows of its own cache.

    indexer: rows × context × (128 values + 4 bytes of scale) (v1/attention/backends/mla/indexer.py). FlashMLA-sparse:
    the context five times (since 0.32 twice beyond 256 Ki) with an fp8_ds_mla cache, else the queries of a step
    (flashmla_sparse.py). Both share one buffer.
    """
    mixers = (m for layer in model.spec.layers for m in layer.mixers if isinstance(m, Mla) and m.indexer is not None)
    mixer = next(mixers, None)
    if mixer is None or mixer.indexer is None:
        return Buffer("sparse attention workspace", 0, "")
    length = settings.model.max_model_len
    short = length <= _LONG_CONTEXT or not rules.GATHER_BY_LENGTH.at(settings.version)
    factor = 5 if short else 2
    times = rules.INDEXER_ROWS.at(settings.version)
    if rules.GATHER_BY_LENGTH.at(settings.version):
        times *= factor
    row = index_row_bytes(mixer.indexer.head_size)
    scratch = MIB if rules.INDEXER_SCRATCH.at(settings.version) else 0
    why = f"{times} × {length:,} tokens × {row:,} + {scratch:,}; the keys that the indexer gathers"
    gathered = Buffer("sparse attention workspace", times * length * row + scratch, why)
    wide = (mixer.kv_lora_rank + mixer.qk_rope) * 2
    if settings.cache.dtype in ("fp8_ds_mla", "nvfp4_ds_mla", "fp8", "fp8_e4m3"):
        own, why = factor * length * wide, f"{factor} × {length:,} tokens × {wide:,}; the context gathered"
    else:
        tokens, heads = settings.scheduler.max_num_batched_tokens, ceil_div(mixer.heads, settings.parallel.tp)
        own, why = tokens * heads * wide, f"{tokens:,} tokens × {heads:,} heads × {wide:,}; the queries of a step"
    flash = (settings.attention_backend or "") == "FLASHMLA_SPARSE"
    return max(gathered, Buffer("sparse attention workspace", own if flash else 0, why), key=lambda b: b.bytes)


def expert_workspace(model: Model, settings: Settings, gpu: Gpu) -> Buffer:
    """The scratch of the fused expert kernels, as large as a full step needs (fused_moe/modular_kernel.py).

    tokens × experts per token × (max(half the gate-up width, hidden) + max(gate-up width, hidden)) × 2 bytes.
    Quantised experts on compute capability 10 run TRT-LLM's kernels, which route inside and need none; those in
    NVFP4 may run CUTLASS's, which do. vLLM's own CUTLASS kernels for NVFP4 want the wider of both first, and the
    width of an expert second (experts/cutlass_moe.py:749, 0.20.2).
    """
    largest = Buffer("expert workspace", 0, "")
    arch, method = gpu.arch, model.spec.quantization or ""
    if method and "modelopt" not in method and arch and _BLACKWELL <= arch < _CONSUMER_BLACKWELL:
        return largest
    tokens = (
        settings.scheduler.max_num_batched_tokens * settings.parallel.dp
    )  # every replica's tokens meet at the experts
    ranks = expert_ranks(settings).cut
    for layer in model.spec.layers:
        for moe in layer.mlps:
            if not isinstance(moe, Moe):
                continue
            hidden = moe.hidden or model.spec.hidden_size
            up = (moe.matrices - 1) * ceil_div(moe.width, ranks)
            first, second, element = max(up // 2, hidden), max(up, hidden), DTYPE_BYTES[settings.model.dtype]
            if copies_rows(model, settings):
                first = up // 2
            size = tokens * moe.top_k * (first + second) * element
            why = f"{tokens:,} tokens × {moe.top_k} experts × ({first:,} + {second:,}) wide × {element}"
            largest = max(largest, Buffer("expert workspace", size, why), key=lambda b: b.bytes)
    return largest


def copies_rows(model: Model, settings: Settings) -> bool:
    """Whether vLLM's own CUTLASS kernels run NVFP4 experts (--moe-backend cutlass).

    They copy every token's row for each of its experts, before the first product and after the second, outside of the
    shared scratch (run_cutlass_moe_fp4 in experts/cutlass_moe.py, 0.20.2).
    """
    if settings.expert_backend != "cutlass" or model.inventory is None:
        return False
    return any(g.kind == "experts" and g.format.name == "nvfp4" for block in model.inventory.blocks for g in block)


def _buffers(model: Model, settings: Settings, gpu: Gpu, stage: int) -> list[Buffer]:
    spec = model.spec
    last = stage == settings.parallel.pp - 1
    buffers = [shared_workspace(model, settings, gpu)]
    if last and spec.task == "generate":
        buffers += _sampling_buffers(spec, settings)
    tokens, hidden, element = (
        settings.scheduler.max_num_batched_tokens,
        spec.hidden_size,
        DTYPE_BYTES[settings.model.dtype],
    )
    row, why = tokens * hidden * element, f"{tokens:,} tokens × {hidden:,} hidden × {element}"
    if spec.multimodal and stage == 0 and not settings.multimodal.language_model_only:
        buffers.append(Buffer("input embeddings", row, why))
    if stage > 0:
        buffers.append(Buffer("pipeline buffers", 2 * row, f"2 × {why}; from the stage before"))
    if settings.speculative.tokens and last:
        buffers.append(Buffer("draft hidden states", row, why))
    return buffers


def _sampling_buffers(spec: ModelSpec, settings: Settings) -> list[Buffer]:
    """What the last stage keeps for sampling."""
    seqs, words = settings.scheduler.max_num_seqs, spec.vocab_size
    bits = ceil_div(words, 32)
    buffers = []
    if has_counters(settings):
        why = f"{seqs:,} sequences × ({words:,} counts + {bits:,} words of bits) × 4"
        buffers.append(Buffer("penalty counters", penalty_counters(seqs, words), why))
        size = _LOGIT_BIAS_WORDS + _BAD_WORDS
        why = f"{seqs:,} sequences × ({_LOGIT_BIAS_WORDS:,} + {_BAD_WORDS:,}) × 4"
        buffers.append(Buffer("logit-bias and bad-word tables", 4 * seqs * size, why))
    positions = 1 + settings.speculative.tokens
    why = f"{seqs:,} sequences × {positions} × {bits:,} words of bits × 4"
    return [*buffers, Buffer("grammar bitmask", seqs * positions * bits * 4, why)]
