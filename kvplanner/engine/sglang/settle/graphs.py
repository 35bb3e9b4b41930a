"""Sizes that CUDA graphs are captured for, and when prefill graphs are left out (arg_groups/cuda_graph_hook.py)."""

from __future__ import annotations

from itertools import chain
from typing import Final

from kvplanner.model.spec import ModelSpec, State

_LATENT_MOST: Final = 8192
_LLAMA2_MOST: Final = 4096
_PIPELINE_MOST: Final = 2048
_A2A_CAPTURED: Final = ("none", "deepep", "megamoe", "flashinfer")


def decode_sizes(largest: int, *, speculative: bool) -> tuple[int, ...]:
    """Batch sizes of decode graphs up to `largest`, which is always one of them."""
    if speculative:
        sizes = chain(range(1, 9), range(10, 33, 2), range(40, 65, 4), range(72, 257, 8), range(272, largest + 1, 16))
    else:
        sizes = chain((1, 2, 4, 8, 12), range(16, 257, 8), range(272, 512, 16), range(512, largest + 1, 32))
    kept = [size for size in sizes if size <= largest]
    return tuple(kept if largest in kept else [*kept, largest])


def prefill_sizes(largest: int) -> tuple[int, ...]:
    """Token counts of prefill graphs up to `largest`."""
    sizes = chain(range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64),
                  range(1280, 4097, 256), range(4608, largest + 1, 512))  # fmt: skip
    return tuple(size for size in sizes if size <= largest)


def prefill_most(chunk: int, *, latent: bool, model_id: str, max_total_tokens: int | None) -> int:
    """The largest prefill graph, in tokens, where nobody sets one: a chunk, with three exceptions."""
    most = min(_LATENT_MOST, chunk) if latent else chunk
    if max_total_tokens is not None:
        most = min(most, max_total_tokens)
    return min(most, _LLAMA2_MOST) if "llama-2" in model_id.lower() else most


def pipeline_most(most: int) -> int:
    """The largest prefill graph of a pipeline whose user asks for breakable graphs."""
    return min(most, _PIPELINE_MOST)


def why_no_prefill(spec: ModelSpec, *, media_eager: bool, pp: int, a2a: str, two_batches: bool, dcp: int) -> str:
    """Why prefill graphs are left out by default, "" where they are captured.

    media_eager: the model takes media, and its class is not known to capture prefill all the same.
    """
    if pp > 1:
        return "pipeline parallelism"
    if any(isinstance(m, State) and m.kind == "kda" for layer in spec.layers for m in layer.mixers):
        return "KDA layers"
    if spec.architecture == "DeepseekV4ForCausalLM":
        return "DeepSeek V4: captured indexer scratch takes too much memory"
    if dcp > 1:
        return "decode context parallelism"
    if two_batches:
        return "two-batch overlap"
    if a2a not in _A2A_CAPTURED:
        return f"the all-to-all back end {a2a}"
    if media_eager:
        return "multimodal model"
    return ""
