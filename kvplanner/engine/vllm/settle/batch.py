"""vLLM's own choices for a step: tokens, sequences and the batch sizes that become CUDA graphs.

Sources: engine/arg_utils.py (get_batch_defaults), config/vllm.py and config/compilation.py of vLLM 0.33; older
releases from their change history and public start-up reports.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import GraphMode, Parallel, Scheduler, Version
from kvplanner.units import GIB, round_up

# GPUs that count as large only where the newer rows exist.
_HUGE_BYTES: Final = 160 * GIB
_LARGE_BYTES: Final = 70 * GIB
_HUGE_SINCE: Final = (12, 0)
_LARGE_SINCE: Final = (8, 3)
# Graph sizes above 256 were spaced by 8, later by 16.
_WIDE_STEPS_SINCE: Final = (11, 1)


class BatchDefaults(NamedTuple):
    """What vLLM takes for a class of GPUs: tokens of a step in the LLM class and the server, and sequences.

    reason: for people.
    """

    tokens_llm: int
    tokens_server: int
    sequences: int
    reason: str


def batch_defaults(gpu: Gpu, version: Version) -> BatchDefaults:
    """The batch defaults of a GPU by its total memory, name and compute capability."""
    if version < (8, 0):
        return BatchDefaults(2048, 2048, 256, "before 0.8: 256 sequences on every GPU")
    if gpu.total_bytes >= _HUGE_BYTES and version >= _HUGE_SINCE:
        return BatchDefaults(16384, 16384, 1024, "from the GPU: total ≥ 160 GiB")
    a100, gb10 = "a100" in gpu.name.lower(), gpu.arch == (12, 1)
    if gpu.total_bytes >= _LARGE_BYTES and not (a100 or gb10) and version >= _LARGE_SINCE:
        return BatchDefaults(16384, 8192, 1024, "from the GPU: total ≥ 70 GiB and not an A100")
    why = "from the GPU: an A100 counts as small" if a100 else "from the GPU: total below 70 GiB"
    if gb10:
        why = "from the GPU: GB10 counts as small"
    return BatchDefaults(8192, 2048, 256, why)


def max_capture_size(steps: Scheduler, spec_tokens: int, gpu: Gpu, version: Version, raised_to: int = 0) -> int:
    """The largest batch that is captured when nobody chose one.

    raised_to: what a model's own hook asks for (gpt-oss: 1024).
    """
    if version < (8, 0):
        return min(256, round_up(steps.max_num_seqs, 8))
    limit = 1024 if gpu.arch is not None and gpu.arch[0] == 10 and version >= (20, 0) else 512
    size = min(steps.max_num_seqs * (1 + spec_tokens) * 2, limit)
    return min(max(size, raised_to), steps.max_num_batched_tokens)


def capture_sizes(
    largest: int, steps: Scheduler, spec_tokens: int, version: Version, every_small: bool = False
) -> tuple[int, ...]:
    """The batch sizes that are captured up to `largest`, ascending.

    every_small: 1 to 32 without gaps (performance mode "interactivity").
    """
    if largest < 1:
        return ()
    sizes = {1, 2, 4} | set(range(8, min(largest, 255) + 1, 8))
    sizes |= set(range(256, largest + 1, 16 if version >= _WIDE_STEPS_SINCE else 8))
    if every_small:
        sizes |= set(range(1, 33))
    if version >= _WIDE_STEPS_SINCE:
        sizes.add(steps.max_num_batched_tokens)
        sizes.add(steps.max_num_seqs)
    if spec_tokens:
        step = 1 + spec_tokens
        sizes = {-(-s // step) * step for s in sizes}
    return tuple(sorted(s for s in sizes if s <= largest))


def graph_mode(
    wanted: GraphMode | None, level: int, causal: bool, ranks: Parallel, version: Version
) -> tuple[GraphMode, str]:
    """The CUDA graph mode and why it is that, where graphs are not switched off."""
    if wanted is not None:
        return wanted, "set by the user"
    if level == 0:
        return "NONE", "optimisation level 0"
    if level == 1 or version < (11, 0):
        return "PIECEWISE", "optimisation level 1" if level == 1 else "before 0.11"
    if not causal:
        return "PIECEWISE", "encoder attention is captured in pieces only"
    if (ranks.dcp > 1 or ranks.pcp > 1) and version < (14, 0):
        return "PIECEWISE", "context parallelism cannot use whole-step graphs"
    return "FULL_AND_PIECEWISE", "optimisation level 2"
