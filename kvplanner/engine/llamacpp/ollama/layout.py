"""How Ollama lays layers out on GPUs from what each takes: from 0.11.11 for its own engine, from 0.12.11 for both.

Source: buildLayout, assignLayers, findBestFit and greedyFit of llm/server.go, Ollama 0.12.10 to 0.24.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NARROW: Final = 1e-6  # of the share of free memory that is looked for
_ENDLESS: Final = 1000.0  # times the memory that there is, where a number of layers was asked for


def lay_out(layers: Sequence[int], room: Sequence[int], *, wanted: int = -1, spread: bool = False) -> tuple[int, ...]:
    """Layers for each GPU. layers: bytes of each with its cache, the output layer last.

    room: bytes for layers on each GPU, the freest first; as few of them are used as hold everything (all with spread).
    """
    found: tuple[int, ...] = (0,) * len(room)
    for tail in (len(layers), len(layers) - 1):  # without the output layer, where not everything fits
        asked = min(tail, wanted)
        some = layers[:tail]
        for used in (len(room),) if spread else range(1, len(room) + 1):
            split = _best(some, room[:used], asked, force=used == len(room))
            found = (*split, *(0,) * (len(room) - used))
            if sum(found) in (tail, asked):
                break
        if sum(found) == len(layers):
            break
    return found


def _best(layers: Sequence[int], room: Sequence[int], wanted: int, *, force: bool) -> tuple[int, ...]:
    """With the smallest share of each GPU's room that holds as many layers as all of it does: evenly."""
    low, high = 0.0, _ENDLESS if wanted >= 0 and force else 1.0
    best = _greedy(layers, room, high, wanted)
    most = sum(best)
    while most and high - low > _NARROW:
        middle = (low + high) / 2
        split = _greedy(layers, room, middle, wanted)
        if sum(split) == most:
            high, best = middle, split
        else:
            low = middle
    return best


def _greedy(layers: Sequence[int], room: Sequence[int], share: float, wanted: int) -> tuple[int, ...]:
    """The last layers first, on the last GPU first."""
    split = [0] * len(room)
    device = len(room) - 1
    free = int(room[device] * share)
    for number, size in enumerate(reversed(layers)):
        if 0 <= wanted <= number:
            break
        while size > free:
            device -= 1
            if device < 0:
                return tuple(split)
            free = int(room[device] * share)
        free -= size
        split[device] += 1
    return tuple(split)
