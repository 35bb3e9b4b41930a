"""CUDA graphs: the mode that vLLM settles on and the batch sizes that it captures.

Rules follow config/vllm.py and config/compilation.py of vLLM 0.33.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, get_args

from kvplanner.engine.option import OptionValue
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import GraphMode, Graphs, Parallel, Scheduler, Speculative, Version
from kvplanner.engine.vllm.settle import batch
from kvplanner.engine.vllm.settle.scheduler import is_causal
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec

_LEVELS_SINCE: Final = (11, 1)
_MAX_DIGITS: Final = 9


def settle_graphs(
    spec: ModelSpec, book: Book, gpu: Gpu, version: Version, ranks: Parallel, steps: Scheduler, drafts: Speculative,
    runner: str, pieces: bool = False,
) -> Graphs:  # fmt: skip
    """The mode and the sizes that are captured. pieces: some layers can be captured in pieces alone.

    Raises BadInput for a mode or a list of sizes that is not read.
    """
    eager, level = bool(book.settle("enforce_eager", False, "off")), _level(book)
    wanted = _named_mode(book.options.get("cudagraph_mode"))
    mode, reason = batch.graph_mode(wanted, level, is_causal(spec), ranks, version)
    if pieces and "FULL" in mode:
        mode, reason = "PIECEWISE", "layers that attend in chunks are captured in pieces only"
    if eager:
        mode, reason = "NONE", "--enforce-eager"
    book.settle("cudagraph_mode", mode, reason, "derived")
    compiled = _compiles(book, version, eager or level == 0)
    if not compiled and "PIECEWISE" in mode:
        mode = "NONE"
        book.override("cudagraph_mode", mode, "pieces need compilation mode 3")
    sizes = () if mode == "NONE" else _sizes(spec, book, gpu, version, steps, drafts.tokens, runner)
    book.settle(
        "max_cudagraph_capture_size", sizes[-1] if sizes else 0, "from sequences and tokens in a step", "derived"
    )
    book.settle("cudagraph_capture_sizes", _listed(sizes), f"{len(sizes)} sizes", "derived")
    if not sizes and mode != "NONE":
        mode = "NONE"
        book.override("cudagraph_mode", mode, "no size is captured")
    cache = book.options.get("compile_cache")
    book.settle("compile_cache", "cold", "a first start; later ones find kernels compiled and have more KV cache")
    return Graphs(mode, sizes, compiled, None if cache is None else cache == "cold")


@lru_cache(maxsize=64)
def _listed(sizes: tuple[int, ...]) -> str:
    """The sizes in words: dozens, and the same for most models."""
    return ", ".join(map(str, sizes))


def _level(book: Book) -> int:
    return int(book.settle("optimization_level", "2", "all graphs"))


def _sizes(
    spec: ModelSpec, book: Book, gpu: Gpu, version: Version, steps: Scheduler, spec_tokens: int, runner: str
) -> tuple[int, ...]:
    listed, wished = book.options.get("cudagraph_capture_sizes"), book.options.get("max_cudagraph_capture_size")
    if listed is not None:
        return _listed_sizes(str(listed), wished)
    if runner == "V0" and wished is None:
        return batch.v0_capture_sizes(steps.max_num_seqs)
    raised, step = rules.WIDE_GRAPHS.at(version) if quirks(spec.architecture).wide_graphs else (0, 0)
    largest = batch.max_capture_size(steps, spec_tokens, gpu, version, raised)
    every = book.options.get("performance_mode") == "interactivity"
    return batch.capture_sizes(largest if wished is None else int(wished), steps, spec_tokens, version, every, step)


def _compiles(book: Book, version: Version, plain: bool) -> bool:
    """Whether steps are compiled in pieces, which graphs of pieces need (config/vllm.py, 0.33): compilation mode 3.

    plain: eager, or optimisation level 0. Before 0.11.1 -O named this mode.
    """
    levels = "optimization_level" if version < _LEVELS_SINCE else "compilation_mode"
    given = book.options.get("compilation_mode") or book.options.get(levels)
    default = "0" if plain else "3"
    why = "nothing is compiled: eager, or optimisation level 0" if plain else "pieces, as their graphs need"
    mode = str(book.settle("compilation_mode", default if given is None else given, why))
    return mode == "3" and not book.options.get("enforce_eager")


def _named_mode(given: OptionValue | None) -> GraphMode | None:
    modes: tuple[GraphMode, ...] = get_args(GraphMode)
    found = next((m for m in modes if m == given), None)
    if given is not None and found is None:
        raise BadInput(f"{given!r} is not a CUDA graph mode", "--compilation-config", "Known: " + ", ".join(modes))
    return found


def _listed_sizes(text: str, largest: OptionValue | None) -> tuple[int, ...]:
    parts = [p.strip() for p in text.strip("[]").split(",") if p.strip()]
    if not all(p.isascii() and p.isdecimal() and len(p) <= _MAX_DIGITS and int(p) for p in parts):
        raise BadInput(
            f"{text[:60]!r} is not a list of batch sizes", "--cudagraph-capture-sizes", "Write for example 1,2,4,8"
        )
    sizes = tuple(sorted({int(p) for p in parts}))
    if largest is not None and sizes and sizes[-1] != largest:
        raise BadInput(
            f"customized max_cudagraph_capture_size(={largest}) should be consistent with the max value of "
            f"cudagraph_capture_sizes(={sizes[-1]})", "--max-cudagraph-capture-size", "Give one of the two",
        )  # fmt: skip
    return sizes
