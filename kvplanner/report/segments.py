"""What the parts of a device's memory are called, once for window, terminal, reports and pictures.

These are the words for any engine. An engine that uses a kind in its own way gives its own (`Engine.segment_words`),
and a plan that departs from its engine's usual way says so in `Segment.meaning`.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.plan import Plan
from kvplanner.engine.segment import SegmentKind
from kvplanner.record import NamedTuple


class SegmentWords(NamedTuple):
    """name: in a table's cell, within a sentence; short: where room is scarce; letter: in a bar of text.

    meaning: what it is, as a clause; title: over its explanation; detail: a sentence more.
    """

    name: str
    short: str
    letter: str
    meaning: str
    title: str
    detail: str


_WORDS: Final[dict[SegmentKind, SegmentWords]] = {
    "driver_reserved": SegmentWords(
        "driver reserved", "driver", "d", "what the driver keeps for itself: NVML counts it, CUDA never sees it",
        "Driver reserved: memory that CUDA never sees",
        "NVML counts it in the total and in what is used; no program can have it.",
    ),
    "other": SegmentWords(
        "other programs", "others", "o", "what other programs hold before the engine starts",
        "Other programs: taken before the engine starts",
        "What NVML found in use, or what was given as free, before the engine starts.",
    ),
    "runtime_outside": SegmentWords(
        "runtime outside the budget", "outside", "x",
        "CUDA context, NCCL and the like, made before the engine looks: not charged to its budget",
        "Runtime outside the budget: context and communication",
        "CUDA's context and the communicators are there before the engine measures: not in its budget.",
    ),
    "runtime": SegmentWords(
        "runtime", "runtime", "r", "libraries and kernels that load after the engine has looked",
        "Runtime: late libraries and kernels", "They load while the engine starts and count into its budget.",
    ),
    "weights": SegmentWords(
        "weights", "weights", "W", "this rank's share of the model's tensors",
        "Weights: this rank's share of the tensors",
        "Loaded once and kept; tensor and pipeline parallelism divide them.",
    ),
    "workspace": SegmentWords(
        "workspace", "workspace", "s", "buffers that the engine keeps for as long as it runs",
        "Workspace: buffers that stay", "Made at start and kept for as long as the engine runs.",
    ),
    "activations": SegmentWords(
        "activations", "activations", "A", "the peak of the profile run: one step of the most tokens it may batch",
        "Activations: the peak of the profile run",
        "The engine runs one step of the most tokens that it may batch and keeps as much for real ones.",
    ),
    "compute": SegmentWords(
        "compute buffers", "compute", "C", "what one step of the most tokens works in: reserved at start, kept",
        "Compute buffers: what a step works in", "Reserved at start for the largest step, and kept.",
    ),
    "output": SegmentWords(
        "output buffers", "output", "u", "where the results of a step are put for the reader",
        "Output buffers: results of a step", "Logits and embeddings of a step, kept for as long as the engine runs.",
    ),
    "cuda_graphs": SegmentWords(
        "CUDA graphs", "graphs", "G", "recorded kernels and their memory pools",
        "CUDA graphs: recorded kernels and their pools",
        "One recording for each batch size; without them decoding is slower.",
    ),
    "kv_cache": SegmentWords(
        "KV cache", "KV cache", "K", "keys and values of all requests",
        "KV cache: keys and values of all requests", "Taken whole at start, used or not.",
    ),
    "fragmentation": SegmentWords(
        "fragmentation", "gaps", "f", "what the allocator has reserved and cannot hand out",
        "Fragmentation: reserved, and of no use", "Gaps between tensors that no later tensor fits into.",
    ),
    "headroom": SegmentWords(
        "headroom", "headroom", "·", "what the engine leaves alone",
        "Headroom: what the engine leaves alone", "Outside the budget: room for what grows beside the engine.",
    ),
}  # fmt: skip
MISSING_LETTER: Final = "!"


def words_of(kind: SegmentKind, engine: str = "") -> SegmentWords:
    """The words for a kind, those of the named engine where it has its own."""
    words = _WORDS[kind]
    if engine:
        from kvplanner.engine.registry import engine as engine_named

        own = engine_named(engine).segment_words().get(kind)
        if own:
            words = words._replace(**own)
    return words


def name_of(kind: SegmentKind) -> str:
    """The name within a sentence or a table: "weights", "KV cache"."""
    return _WORDS[kind].name


def heading_of(kind: SegmentKind) -> str:
    """The name at the start of a line: "Weights", "KV cache"."""
    name = _WORDS[kind].name.replace(" the ", " ")  # a table's cell has less room than a sentence
    return name[:1].upper() + name[1:]


def meaning_of(plan: Plan, position: int, kind: SegmentKind) -> str:
    """What a segment is, by this plan's rules."""
    segment = plan.devices[position].segment(kind)
    return (segment.meaning if segment else "") or words_of(kind, plan.request.engine).meaning
