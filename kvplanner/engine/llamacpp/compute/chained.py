"""The layers of a graph in their order, and which of them need not be built because they are like others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.llamacpp.compute.graph import Repeat
from kvplanner.model.spec import LayerSpec
from kvplanner.record import NamedTuple

# The longest pattern of layers that is looked for.
_PERIOD: Final = 12
# Fewer layers are built sooner than they are compared.
_WORTH: Final = 6
# First, last, and more than one between them.
_FEW_GPUS: Final = 4


class Chain(NamedTuple):
    """The layers to build: device, cache's backend and weights of each; and where the output and the embedding lie.

    shared: for a layer without its own cache, the backend of the one that it reads. output: bytes and backend.

    turns: bytes of the table of factors that positions turn heads by, 0 without one; it lies with its layers.
    placed: a table of positions is added to the embedding.
    streams: of Gemma 3n, the matrices that make the other streams of the embedding and that take them back.
    unturned: layers that leave positions out; () where all heed them.
    per_layer: elements of Gemma's per-layer inputs, 0 without them; looked_up: the backend of their table.
    bound, fixed, cache_offload: as in Layer.
    """

    specs: tuple[LayerSpec, ...]
    devices: tuple[int, ...]
    caches: tuple[int, ...]
    shared: tuple[int | None, ...]
    weights: tuple[Mapping[str, tuple[int, int]], ...]
    output: tuple[int, int]
    output_norm: int
    embedding: int
    bound: bool
    fixed: bool
    per_layer: int = 0
    per_layer_layers: int = 0
    projection: tuple[int, int] = (0, 0)
    looked_up: int = 0
    turns: int = 0
    unturned: tuple[bool, ...] = ()
    streams: tuple[tuple[int, int], ...] = ()
    cache_offload: bool = True
    placed: bool = False


def condensed(chain: Chain, gpus: int) -> tuple[Chain, tuple[int, ...]]:
    """The chain without the layers of GPUs that have the same as another, and which GPU each is like; () for none.

    Of a chain whose operations are all bound to their layers' devices: what one GPU holds for the next is then of one
    size everywhere. The first GPU and the last, and those with what comes before or after the layers, have more.
    """
    if chain.per_layer or chain.streams or chain.caches != chain.devices or any(at is not None for at in chain.shared):
        return chain, ()
    runs: dict[int, list[int]] = {}
    for index, device in enumerate(chain.devices):
        runs.setdefault(device, []).append(index)
    own = {chain.devices[0], chain.devices[-1], chain.output[1], chain.output_norm, chain.embedding}
    names: dict[int, tuple[str, ...] | None] = {}
    for held, device in zip(chain.weights, chain.devices, strict=True):
        if id(held) not in names:
            names[id(held)] = tuple(held) if all(home == device for _, home in held.values()) else None
    if len(runs) < _FEW_GPUS or None in names.values():
        return chain, ()
    found: dict[object, int] = {}
    like = list(range(gpus))
    for device, run in runs.items():
        if device not in own:
            layers = [
                (id(chain.specs[i]), names[id(chain.weights[i])], chain.unturned and chain.unturned[i]) for i in run
            ]
            like[device] = found.setdefault(tuple(layers), device)
    keep = [index for index, device in enumerate(chain.devices) if like[device] == device]
    return (_of(chain, keep), tuple(like)) if len(keep) < len(chain.devices) else (chain, ())


def repeated(chain: Chain, host: int, start: int) -> tuple[Chain, list[Repeat]]:
    """The chain without the layers that are like those before them, and where they would be.

    start: layers that differ from those after them.
    """
    if chain.per_layer or chain.streams:
        return chain, []
    named: dict[int, object] = {}
    sized: dict[int, object] = {}  # of a weight that lies where it is used the size is nothing to the graph
    for held in chain.weights:
        if id(held) not in named:
            named[id(held)] = tuple((name, home) for name, (_, home) in held.items())
            sized[id(held)] = tuple(size for size, home in held.values() if home == host)
    kinds = [*zip(map(id, chain.specs), (named[id(held)] for held in chain.weights), chain.devices, chain.caches,
                  chain.shared, chain.unturned or chain.devices, strict=True)]  # fmt: skip
    keep: list[int] = []
    repeats: list[Repeat] = []
    weights = list(chain.weights)
    at, count = 0, len(kinds)
    while at < count:
        period, times = _recurring(kinds, at) if at >= start else (1, 0)
        if not times:
            keep.append(at)
            at += 1
            continue
        first, last = at + period, at + (3 + times) * period
        kept = [*range(first, first + 2 * period), *range(last, last + period)]
        beside: tuple[Sequence[Mapping[str, tuple[int, int]]], ...] = ()
        if any(sized[id(weights[i])] != sized[id(weights[i - period])] for i in range(first + period, last + period)):
            for i in kept:  # each of its own, to be known by
                weights[i] = {name: (size, home) for name, (size, home) in weights[i].items()}
            beside = [weights[i] for i in kept], weights[first : last + period]
        repeats.append(Repeat(len(keep) + period, period, times, *beside))
        keep += [*range(at, first), *kept]
        at = last + period
    return (_of(chain._replace(weights=tuple(weights)), keep), repeats) if repeats else (chain, [])


def _recurring(kinds: Sequence[object], start: int) -> tuple[int, int]:
    """The length of the pattern that begins here, and how often it comes beyond what is built of it.

    That is one period before three, in which all that is read for the first time is copied, and one with a layer more
    behind them: what all layers read is let go by the last that does.
    """
    best = (1, 0)
    for period in range(1, _PERIOD + 1):
        end = start + period
        while end < len(kinds) and kinds[end] == kinds[end - period]:
            end += 1
        times = (end - start - 1) // period - 5
        if times * period > best[0] * best[1]:
            best = period, times
    return best if best[0] * best[1] >= _WORTH else (1, 0)


def _of(chain: Chain, keep: Sequence[int]) -> Chain:
    """Some layers of a chain."""
    return chain._replace(
        specs=tuple(chain.specs[i] for i in keep), devices=tuple(chain.devices[i] for i in keep),
        caches=tuple(chain.caches[i] for i in keep), shared=tuple(chain.shared[i] for i in keep),
        weights=tuple(chain.weights[i] for i in keep),
        unturned=tuple(chain.unturned[i] for i in keep) if chain.unturned else (),
    )  # fmt: skip
