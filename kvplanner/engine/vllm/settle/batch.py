"""vLLM's own choices for a step: tokens, sequences and the batch sizes that become CUDA graphs.

Sources: engine/arg_utils.py (get_batch_defaults), config/vllm.py and config/compilation.py of vLLM 0.33; older
releases from their change history and public start-up reports.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import GraphMode, Parallel, Scheduler, Version
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, round_up

_HUGE_BYTES: Final = 160 * GIB
_LARGE_BYTES: Final = 70 * GIB
_GB10: Final = (12, 1)
_LARGEST_GRAPH: Final = 512
_LARGEST_V0: Final = 8192
# From this size on the steps between captured sizes may be wider.
_WIDE_FROM: Final = 256


class BatchDefaults(NamedTuple):
    """What vLLM takes for a class of GPUs: tokens of a step in the LLM class and the server, and sequences.

    reason: for people.
    """

    tokens_llm: int
    tokens_server: int
    sequences: int
    reason: str


def batch_defaults(gpu: Gpu, version: Version) -> BatchDefaults:
    """The batch defaults of a GPU by its total memory, name and compute capability, on the V1 engine."""
    classes, name = rules.GPU_CLASSES.at(version), gpu.name.lower()
    small = next((part.upper() for part in classes.small_names if part in name), "")
    if gpu.arch == _GB10:
        # Named since 0.33 (engine/arg_utils.py:2963); before, NVML told no total of it, and the query that fails made
        # it small (platforms/cuda.py of 0.13.0 to 0.31.0; starts of 0.13.0 and 0.27.1 print 2048 tokens).
        small = "GB10"
    if classes.huge is not None and gpu.total_bytes >= _HUGE_BYTES:
        return BatchDefaults(*classes.huge, "from the GPU: total ≥ 160 GiB")
    if small:
        return BatchDefaults(*classes.small, f"from the GPU: {'an ' if small == 'A100' else ''}{small} counts as small")
    if classes.large_names:
        large = any(part in name for part in classes.large_names)
        why = "from the GPU: its name is that of an H100 or H200" if large else "from the GPU: neither H100 nor H200"
        return BatchDefaults(*(classes.large if large else classes.small), why)
    if gpu.total_bytes >= _LARGE_BYTES:
        but = " and not an A100" if classes.small_names else ""
        return BatchDefaults(*classes.large, f"from the GPU: total ≥ 70 GiB{but}")
    return BatchDefaults(*classes.small, "from the GPU: total below 70 GiB")


def max_capture_size(steps: Scheduler, spec_tokens: int, gpu: Gpu, version: Version, raised_to: int = 0) -> int:
    """The largest batch that is captured when nobody chose one; raised_to: what a model's own hook asks for."""
    if rules.LARGEST_GRAPH.at(version) == "all":
        return min(_LARGEST_GRAPH, steps.max_num_batched_tokens)
    blackwell = gpu.arch is not None and gpu.arch[0] == 10
    limit = rules.BLACKWELL_GRAPHS.at(version) if blackwell else _LARGEST_GRAPH
    drafted = 1 + spec_tokens if rules.GRAPHS_FOR_DRAFTS.at(version) else 1
    size = min(steps.max_num_seqs * drafted * 2, limit)
    return min(max(size, raised_to), steps.max_num_batched_tokens)


def v0_capture_sizes(sequences: int) -> tuple[int, ...]:
    """Captured batch sizes on V0: all up to the first that holds every sequence, 8,192 at most (config.py, 0.6.6)."""
    return tuple(sorted({1, 2, 4} | set(range(8, min(round_up(max(sequences, 1), 8), _LARGEST_V0) + 1, 8))))


@lru_cache(maxsize=256)
def capture_sizes(
    largest: int,
    steps: Scheduler,
    spec_tokens: int,
    version: Version,
    every_small: bool = False,
    step: int = 0,
) -> tuple[int, ...]:
    """The batch sizes that are captured up to `largest`, ascending.

    every_small: 1 to 32 without gaps (performance mode "interactivity"). step: from 256 on, 0 for the release's.
    """
    if largest < 1:
        return ()
    sizes = {1, 2, 4} | set(range(8, min(largest, _WIDE_FROM - 1) + 1, 8))
    sizes |= set(range(_WIDE_FROM, largest + 1, step or rules.GRAPH_STEP.at(version)))
    if every_small:
        sizes |= set(range(1, 33))
    if rules.TOKENS_CAPTURED.at(version):
        sizes.add(steps.max_num_batched_tokens)
    if rules.SEQUENCES_CAPTURED.at(version):
        sizes.add(steps.max_num_seqs)
    if spec_tokens and rules.GRAPHS_FOR_DRAFTS.at(version):
        sizes = {round_up(s, 1 + spec_tokens) for s in sizes}
    return tuple(sorted(s for s in sizes if s <= largest))


def graph_mode(
    wanted: GraphMode | None, level: int, causal: bool, ranks: Parallel, version: Version
) -> tuple[GraphMode, str]:
    """The CUDA graph mode and why it is that, where graphs are not switched off."""
    if wanted is not None:
        return wanted, "set by the user"
    if level == 0:
        return "NONE", "optimisation level 0"
    if level == 1 or not rules.FULL_GRAPHS.at(version):
        return "PIECEWISE", "optimisation level 1" if level == 1 else "before 0.11"
    if not causal:
        return "PIECEWISE", "encoder attention is captured in pieces only"
    if (ranks.dcp > 1 or ranks.pcp > 1) and version < (14, 0):
        return "PIECEWISE", "context parallelism cannot use whole-step graphs"
    return "FULL_AND_PIECEWISE", "optimisation level 2"
