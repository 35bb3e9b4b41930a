"""--mem-fraction-static where nobody sets it: what is kept back for activations and graphs, by era.

arg_groups/memory_hook.py (0.5.23), server_args.py of the older releases.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.eras import Era
from kvplanner.engine.sglang.quirks import DEPTH_NOT_READ
from kvplanner.engine.sglang.settings import Graphs, Parallel
from kvplanner.model.spec import ModelSpec
from kvplanner.record import NamedTuple

_FLOOR_FROM_MIB: Final = 60 * 1024
_FLOOR_MIB: Final = 10 * 1024
_LATENT_PREFILL_MIB: Final = 1536
_DEEPEP_MIB: Final = 2048
_DEEPEP_PREFILL_MIB: Final = 1024
_STANDALONE_MIB: Final = 6144
_MANY_SEQUENCES: Final = 300
# The vision factor: ViT-L/14 is the measure.
_VISION_DEPTH, _VISION_WIDTH = 24, 1024
# Up to 0.4.6: by ranks.
_BY_RANKS: Final = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
_OLD_VISION: Final = 0.95


class Reserve(NamedTuple):
    """What the automatic fraction keeps back, in MiB, by what it is for."""

    metadata: float
    activations: float
    parallel: float
    decode_graphs: float
    prefill_graphs: float
    speculation: float
    all_to_all: float
    floor: float

    @property
    def total(self) -> float:
        """All of it; a floor holds on cards above 60 GiB."""
        kept = self.metadata + self.activations + self.parallel + self.decode_graphs + self.prefill_graphs
        return max(kept + self.speculation, self.floor) + self.all_to_all


def reserve(
    era: Era, graphs: Graphs, parallel: Parallel, *, total_mib: float, chunk: int, max_prefill: int, latent: bool,
    a2a: str, algorithm: str,
) -> Reserve:  # fmt: skip
    """The reserve of 0.5.3 and later, in the engine's own terms."""
    tokens = max(chunk, 2048) if chunk > 0 else max(max_prefill, 2048)
    decode = graphs.decode_backend != "disabled" or not era.prefill_graphs
    decode_mib = float(graphs.decode_max * 2) if decode else 0.0
    if parallel.attention_dp > 1:
        decode_mib += graphs.decode_max * parallel.attention_dp * 3
        if graphs.decode_max > _MANY_SEQUENCES:
            decode_mib += graphs.decode_max * parallel.attention_dp * 1.5
    prefill_mib = 0.0
    if graphs.prefill_reserve:
        prefill_mib += _LATENT_PREFILL_MIB if latent else len(graphs.prefill) * 8
        if graphs.prefill_backend == "breakable" and a2a == "deepep":
            prefill_mib += _DEEPEP_PREFILL_MIB
    draft = era.speculation_mib if algorithm.startswith("EAGLE") else 0
    if algorithm == "STANDALONE" and era.speculation_mib:
        draft = _STANDALONE_MIB
    return Reserve(
        metadata=512,
        activations=tokens * 1.5,
        parallel=parallel.tp * parallel.pp / 8 * 1024,
        decode_graphs=decode_mib,
        prefill_graphs=prefill_mib,
        speculation=draft,
        all_to_all=_DEEPEP_MIB if a2a == "deepep" and graphs.decode_backend != "disabled" else 0,
        floor=_FLOOR_MIB if total_mib > _FLOOR_FROM_MIB else 0,
    )


def automatic(era: Era, kept: Reserve, parallel: Parallel, total_mib: float | None, *, speculative: bool) -> float:
    """The fraction before media are thought of."""
    ranks = parallel.tp * parallel.pp
    if total_mib is None:
        return era.fallback
    if era.fraction == "by_ranks":
        return next(fraction for least, fraction in _BY_RANKS if ranks >= least)
    if era.fraction == "by_memory":
        return round((total_mib - _kept_by_memory(parallel, total_mib, speculative)) / total_mib, 3)
    return round((total_mib - kept.total) / total_mib, 3)


def _kept_by_memory(parallel: Parallel, total_mib: float, speculative: bool) -> float:
    ranks = parallel.tp * parallel.pp
    if total_mib < 35 * 1024:
        gib = 2.8 + ranks / 10
    elif total_mib < 90 * 1024:
        gib = 9.5 + ranks / 2
    elif total_mib < 160 * 1024:
        gib = 12 + ranks / 2
    else:
        gib = 32
    return (gib + (2 if speculative else 0) + (4 if parallel.attention_dp > 1 else 0)) * 1024


def vision_factor(spec: ModelSpec, era: Era) -> float:
    """By what a vision tower lowers the fraction; 1 where there is none. Not rounded again."""
    tower = next((t for t in spec.towers if t.kind == "vision"), None)
    if tower is None:
        return 1.0
    if era.fraction == "by_ranks":
        return _OLD_VISION
    depth = _VISION_DEPTH if spec.architecture.startswith(DEPTH_NOT_READ) else tower.depth
    share = depth * tower.hidden_size**2 / (_VISION_DEPTH * _VISION_WIDTH**2)
    return float(0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (share - 1.0))))
