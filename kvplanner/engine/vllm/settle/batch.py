"""vLLM's own choices for a step: tokens, sequences and the batch sizes that become CUDA graphs.

Sources: engine/arg_utils.py (get_batch_defaults), config/vllm.py and config/compilation.py of vLLM 0.33; older
releases from their change history and public start-up reports.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplanner.engine.vllm.settings import GraphMode
from kvplanner.units import GIB

# GPUs that count as large only where the newer rows exist.
_HUGE_BYTES: Final = 160 * GIB
_LARGE_BYTES: Final = 70 * GIB
_HUGE_SINCE: Final = (12, 0)
_LARGE_SINCE: Final = (8, 3)
# Graph sizes above 256 were spaced by 8, later by 16.
_WIDE_STEPS_SINCE: Final = (11, 1)


class GpuClass(NamedTuple):
    """How vLLM classes a GPU for its batch defaults. reason: for people."""

    name: str
    tokens_llm: int
    tokens_server: int
    sequences: int
    reason: str


def gpu_class(total_bytes: int, name: str, arch: tuple[int, int] | None, version: tuple[int, int]) -> GpuClass:
    """The batch defaults of a GPU by its total memory, name and compute capability."""
    if version < (8, 0):
        return GpuClass("any", 2048, 2048, 256, "before 0.8: 256 sequences on every GPU")
    if total_bytes >= _HUGE_BYTES and version >= _HUGE_SINCE:
        return GpuClass("huge", 16384, 16384, 1024, "from the GPU: total ≥ 160 GiB")
    small_name = "a100" in name.lower() or arch == (12, 1)
    if total_bytes >= _LARGE_BYTES and not small_name and version >= _LARGE_SINCE:
        return GpuClass("large", 16384, 8192, 1024, "from the GPU: total ≥ 70 GiB and not an A100")
    why = "from the GPU: an A100 counts as small" if "a100" in name.lower() else "from the GPU: total below 70 GiB"
    if arch == (12, 1):
        why = "from the GPU: GB10 counts as small"
    return GpuClass("small", 8192, 2048, 256, why)


def max_capture_size(max_num_seqs: int, max_num_batched_tokens: int, spec_tokens: int, arch: tuple[int, int] | None,
                     version: tuple[int, int], raised_to: int = 0) -> int:  # fmt: skip
    """The largest batch that is captured when nobody chose one.

    raised_to: what a model's own hook asks for (gpt-oss: 1024).
    """
    if version < (8, 0):
        return min(256, -(-max_num_seqs // 8) * 8)
    limit = 1024 if arch is not None and arch[0] == 10 and version >= (20, 0) else 512
    size = min(max_num_seqs * (1 + spec_tokens) * 2, limit)
    return min(max(size, raised_to), max_num_batched_tokens)


def capture_sizes(largest: int, max_num_seqs: int, max_num_batched_tokens: int, spec_tokens: int,
                  version: tuple[int, int], every_small: bool = False) -> tuple[int, ...]:  # fmt: skip
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
        sizes.add(max_num_batched_tokens)
        sizes.add(max_num_seqs)
    if spec_tokens:
        step = 1 + spec_tokens
        sizes = {-(-s // step) * step for s in sizes}
    return tuple(sorted(s for s in sizes if s <= largest))


def graph_mode(wanted: GraphMode | None, level: int, eager: bool, causal: bool, context_parallel: bool,
               version: tuple[int, int]) -> tuple[GraphMode, str]:  # fmt: skip
    """The CUDA graph mode and why it is that."""
    if eager:
        return "NONE", "--enforce-eager"
    if wanted is not None:
        return wanted, "set by the user"
    if level == 0:
        return "NONE", "optimisation level 0"
    if level == 1 or version < (11, 0):
        return "PIECEWISE", "optimisation level 1" if level == 1 else "before 0.11"
    if not causal:
        return "PIECEWISE", "encoder attention is captured in pieces only"
    if context_parallel and version < (14, 0):
        return "PIECEWISE", "context parallelism cannot use whole-step graphs"
    return "FULL_AND_PIECEWISE", "optimisation level 2"
