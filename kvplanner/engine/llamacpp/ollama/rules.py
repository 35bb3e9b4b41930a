"""What Ollama decides before it starts llama-server: context, slots, batch, GPU, and its own estimate.

Source: llm/server.go, server/sched.go, server/routes.go of Ollama 0.30 (2026), where GGUF models run in llama-server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.model.spec import Attention, Mla, ModelSpec
from kvplanner.record import NamedTuple
from kvplanner.units import GIB, MIB

# Total memory of all GPUs below which the default context is this long.
TIERS: Final = ((23 * GIB, 4096), (47 * GIB, 32768))
LONGEST: Final = 262144
SHORTEST_VISION: Final = 2048
# Architectures that are given one slot, whatever was asked.
_ONE_SLOT: Final = ("qwen35", "qwen3next", "qwen3vl", "lfm2", "nemotron_h", "mllama")
# Shares of free memory that its estimate may take: of one GPU, and of all with a batch of 1,024 and 2,048.
_ONE_GPU: Final = 0.8
_BATCHES: Final = ((2048, 0.6, 2 * GIB), (1024, 0.75, 768 * MIB))
_PLAIN_BATCH: Final = 512
_SMALL_GPU: Final = 8 * GIB


# Models that are loaded at once for each GPU, where OLLAMA_MAX_LOADED_MODELS says nothing.
MODELS_PER_GPU: Final = 3


class Gpus(NamedTuple):
    """The GPUs as Ollama sees them. one: the index of the one that is used alone, None for all."""

    free: tuple[int, ...]
    one: int | None

    @property
    def available(self) -> int:
        """Free bytes of those in use."""
        return sum(self.free) if self.one is None else self.free[self.one]


def default_context(totals: Sequence[int], overhead: int) -> int:
    """num_ctx where nobody set it: by total memory, not by what is free."""
    memory = sum(max(total - overhead, 0) for total in totals)
    return next((tokens for limit, tokens in TIERS if memory < limit), LONGEST)


def slots(spec: ModelSpec, asked: int) -> int:
    """Requests at once: some architectures get one only."""
    return 1 if spec.model_type.startswith(_ONE_SLOT) else asked


def rough_cache(spec: ModelSpec, tokens: int) -> int:
    """The cache as Ollama estimates it: 16-bit, every layer alike, the fewest heads, the width of the embedding."""
    heads, kv_heads = 1, 0
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                heads = mixer.heads
                kv_heads = min(kv_heads or mixer.kv_heads, mixer.kv_heads)
            elif isinstance(mixer, Mla):
                heads, kv_heads = mixer.heads, 1
    return 2 * 2 * spec.num_layers * kv_heads * (spec.hidden_size // heads) * tokens


def choose(estimate: int, free: Sequence[int], *, spread: bool) -> Gpus:
    """One GPU where Ollama's estimate takes at most 80 % of what is free there, the freest first; else all."""
    best = max(range(len(free)), key=lambda index: free[index], default=None)
    fits = best is not None and estimate <= _ONE_GPU * free[best]
    return Gpus(tuple(free), best if fits and len(free) > 1 and not spread else None)


def room_for_another(left: Sequence[int]) -> int:
    """The largest estimate with which a further model is loaded before any is unloaded. left: free bytes by GPU then.

    (Scheduler.load: 80 % of the GPUs that it would take, one where that is enough, else all.)
    """
    return int(_ONE_GPU * sum(max(size, 0) for size in left))


def at_once(asked: int, gpus: int) -> int:
    """Models that are loaded at once."""
    return asked or MODELS_PER_GPU * max(gpus, 1)


def batch(context: int, estimate: int, gpus: Gpus, *, flash: bool, smallest: int) -> int:
    """Tokens of a batch, which is the micro-batch too. smallest: total bytes of the smallest GPU in use."""
    if not flash:
        return 256 if smallest <= _SMALL_GPU and context > TIERS[0][1] else _PLAIN_BATCH
    wanted = 512 if context <= TIERS[0][1] else 1024 if context <= TIERS[1][1] else 2048
    for size, share, surcharge in _BATCHES:
        held = estimate <= share * gpus.available and estimate + surcharge <= _ONE_GPU * gpus.available
        if wanted >= size and held:
            return size
    return _PLAIN_BATCH


def has_flash(capabilities: Sequence[tuple[int, int] | None]) -> bool:
    """Whether every GPU is given flash attention: compute capability 6.0 and above, 7.2 apart."""
    return all(known is None or (known >= (6, 0) and known != (7, 2)) for known in capabilities)


def human(size: int) -> str:
    """A size as `ollama ps` writes it: decimal, one digit below ten."""
    for limit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= limit:
            value = size / limit
            return f"{value:.0f} {name}" if value >= 10 or value == int(value) else f"{value:.1f} {name}"
    return f"{size} B"


def processor(total: int, on_gpus: int) -> str:
    """The share of bytes as `ollama ps` writes it: "100% GPU", "38%/62% CPU/GPU"."""
    if on_gpus <= 0:
        return "100% CPU"
    if on_gpus >= total:
        return "100% GPU"
    host = round(100 * (total - on_gpus) / total)
    return f"{host}%/{100 - host}% CPU/GPU"
