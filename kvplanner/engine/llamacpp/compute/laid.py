"""A graph whose operations have their backends and copies: what its allocator does, for any number of cells.

Behaviour: ggml-alloc.c of ggml 0.25.3 (llama.cpp 0.5.0-dev, October 2026). Which operation is the last to read a tensor
does not depend on sizes, so it is found once; how the memory is cut does, and is gone through for each size of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise
from typing import Final

from kvplanner.engine.llamacpp.compute.allocator import Pool
from kvplanner.record import NamedTuple

_GPU_ALIGNMENT: Final = 128
_HOST_ALIGNMENT: Final = 64
UNKNOWN: Final = -1
# In the sizes of a graph that is to be packed for several numbers of cells, each cell counts as so many bytes, and each
# of a window's: what a tensor takes is then its fixed bytes and, above them, those of one cell of either kind, for it
# grows evenly with both. Powers of two, so that halves stay exact.
CELLS: Final = 1 << 80
WINDOW: Final = 1 << 160

# An operation once it is known what is copied: its result, what it reads, which sources it may overwrite, and whether
# its result lies in memory that is allocated elsewhere (a cache) and so takes none.
Placed = tuple[int, tuple[int, ...], tuple[int, ...], bool]
# What is done for it: the tensor that takes memory (UNKNOWN for none), sources that nothing reads later and that it may
# overwrite, and all that nothing reads later.
_Done = tuple[int, tuple[int, ...], tuple[int, ...]]


class Again(NamedTuple):
    """A period of layers that comes `times` more often than it stands in a graph, behind the second of three of it.

    starts: the places in the graph's order where the three begin, and where the last ends. loose: tensors whose size
    may be another one in each period; sized: those of them that take memory, with the size in the second period and for
    each further time.
    """

    starts: tuple[int, int, int, int]
    times: int
    loose: frozenset[int] = frozenset()
    sized: Sequence[tuple[int, tuple[int, ...]]] = ()


class Early(NamedTuple):
    """What has its place before the first operation, in this order: inputs, leaves, and a pipeline's copies.

    times: copies of each input of a split. once: inputs that are kept once all the same.
    """

    inputs: Sequence[int]
    leaves: Sequence[int]
    copies: Sequence[int]
    times: int
    once: Set[int] = frozenset()


class _Span(NamedTuple):
    """Operations from start to end, to be done so often more. Each further time the tensors are the next period's.

    made: those that take memory. moved: one that is read from the period before, and which of this period is read so by
    the next. leaves: those that are read. sized: of those that are made, as of Again; left: of those that are made
    behind all times, some of them for the layers of the last one.
    """

    start: int
    end: int
    times: int
    made: tuple[int, ...]
    moved: tuple[tuple[int, int], ...]
    leaves: tuple[int, ...]
    sized: list[tuple[int, tuple[int, ...]]]
    left: list[tuple[int, tuple[int, ...]]]


class Laid:
    """A graph that is ready to be packed. sizes: bytes of each tensor, its cells in units; backends: where.

    again: periods of layers that come more often. stand_ins: the GPU that each is like, () for none.
    host_adds: the host does some of each layer, which adds up there, so that no GPU's layers stand for another's.
    is_alike: whether those that stand for others differ from them in nothing that counts; else it cannot be packed.
    """

    def __init__(
        self, order: Sequence[Placed], sizes: Sequence[int], backends: Sequence[int], outputs: set[int], early: Early,
        devices: int, again: Sequence[Again] = (), stand_ins: Sequence[int] = (), *, host_adds: bool = False,
    ) -> None:  # fmt: skip
        self._sizes = sizes
        self._backends = backends
        self._devices = devices
        self._stand_ins = stand_ins or range(devices)
        copies = early.copies if early.times > 1 else ()
        self._early = early._replace(copies=copies)
        kept = {*outputs, *early.inputs, *copies} if early.times > 1 else outputs
        self._done = _done(order, len(sizes), kept, {*copies})
        self._of_cells = [at for at, size in enumerate(sizes) if size >= CELLS]
        spans = [self._span(one, order, {*copies}) for one in again]
        self._spans = [span for span in spans if span is not None]
        self.is_alike = not host_adds and len(self._spans) == len(spans)

    def reserve(self, cells: int = 0, window: int = 0) -> tuple[int, ...]:
        """Bytes of the buffer of each GPU, then of the host. cells, window: how many CELLS and WINDOW stand for."""
        sizes = list(self._sizes)
        for at in self._of_cells:
            whole, fixed = divmod(sizes[at], CELLS)
            short, full = divmod(whole, WINDOW // CELLS)
            sizes[at] = fixed + full * cells + short * window
        pools = [Pool(_GPU_ALIGNMENT) for _ in range(self._devices)] + [Pool(_HOST_ALIGNMENT)]
        place, address = list(self._backends), [UNKNOWN] * len(sizes)
        further = self._take_early(pools, address, sizes)
        done, at = self._done, 0
        for span, leaves in zip(self._spans, further, strict=True):
            _pack(done[at : span.start], sizes, pools, place, address)
            period = done[span.start : span.end]
            for time in range(1 + span.times):
                if time:
                    self._move(span, place, address, sizes)
                    for leaf, its_address in zip(span.leaves, leaves[time - 1], strict=True):
                        address[leaf] = its_address
                for tensor, its_sizes in span.sized:
                    sizes[tensor] = its_sizes[time]
                _pack(period, sizes, pools, place, address)
            for tensor, its_sizes in span.left:
                sizes[tensor] = its_sizes[-1]
            at = span.end
        _pack(done[at:], sizes, pools, place, address)
        return (*(pools[like].high for like in self._stand_ins), pools[-1].high)

    def _take_early(self, pools: Sequence[Pool], address: list[int], sizes: Sequence[int]) -> list[list[list[int]]]:
        """Inputs lie first; with a pipeline every copy of them does, and every copy of what splits take.

        Gives the addresses of the leaves of each span's further periods.
        """
        early, host, backends = self._early, self._devices, self._backends
        for tensor in early.inputs:
            if sizes[tensor]:  # else a graph without it
                address[tensor] = _times(pools[host], sizes[tensor], 1 if tensor in early.once else early.times)
        further: list[list[list[int]]] = [[[] for _ in range(span.times)] for span in self._spans]
        behind = {span.leaves[-1]: number for number, span in enumerate(self._spans) if span.leaves}
        for tensor in early.leaves:
            address[tensor] = pools[backends[tensor]].take(sizes[tensor])
            number = behind.get(tensor)
            if number is not None:
                leaves = self._spans[number].leaves
                for found in further[number]:
                    found += [pools[backends[leaf]].take(sizes[leaf]) for leaf in leaves]
        for tensor in early.copies:
            address[tensor] = _times(pools[backends[tensor]], sizes[tensor], early.times)
        return further

    def _move(self, span: _Span, place: list[int], address: list[int], sizes: list[int]) -> None:
        """What the last period left for the next is what that one reads."""
        held = [(read, address[left], place[left], sizes[left]) for read, left in span.moved]
        for tensor in span.made:
            address[tensor], place[tensor] = UNKNOWN, self._backends[tensor]
        for read, its_address, its_place, size in held:
            address[read], place[read], sizes[read] = its_address, its_place, size

    def _span(self, again: Again, order: Sequence[Placed], fixed: set[int]) -> _Span | None:
        """A period to be done again, None where the three differ. fixed: a pipeline's copies."""
        starts = again.starts
        first, second, third = (self._done[start:end] for start, end in pairwise(starts))
        before, after = self._alike(first, second, again.loose), self._alike(second, third, again.loose)
        if before is None or after is None:
            return None
        periods = [order[start:end] for start, end in pairwise(starts)] if fixed else []
        read = [{source for placed in period for source in placed[1] if source in fixed} for period in periods]
        if any(placed[0] in fixed for period in periods for placed in period) or any(a != b for a, b in pairwise(read)):
            return None  # each has copies of its own
        made = {tensor for tensor, _, _ in second if tensor >= 0}
        early, leaves = {*self._early.leaves}, [leaf for leaf in self._early.leaves if leaf in before.values()]
        earlier = {tensor for tensor, _, _ in self._done[: starts[1]] if tensor >= 0}
        moved: list[tuple[int, int]] = []
        for tensor in dict.fromkeys(s for _, own, last in second for s in (*own, *last) if s not in made):
            if tensor in early or tensor not in earlier:  # else it has no address
                continue
            if tensor not in before or before[tensor] != after[tensor]:
                return None
            moved.append((tensor, before[tensor]))
        at = self._early.leaves.index(leaves[0]) if leaves else 0
        if [*self._early.leaves[at : at + len(leaves)]] != leaves:
            return None
        sized = [one for one in again.sized if one[0] in made]
        left = [one for one in again.sized if one[0] not in made and one[0] not in earlier]
        return _Span(starts[1], starts[2], again.times, tuple(made), tuple(moved), tuple(leaves), sized, left)

    def _alike(self, one: Sequence[_Done], other: Sequence[_Done], loose: frozenset[int]) -> dict[int, int] | None:
        """Which tensors of one period stand for which of the next, None for none. loose: as of Again."""
        if len(one) != len(other):
            return None
        found: dict[int, int] = {}
        for first, second in zip(one, other, strict=True):
            if (first[0] < 0) != (second[0] < 0) or [*map(len, first[1:])] != [*map(len, second[1:])]:
                return None
            for a, b in zip((first[0], *first[1], *first[2]), (second[0], *second[1], *second[2]), strict=True):
                if found.setdefault(a, b) != b:
                    return None
        sizes, backends = self._sizes, self._backends
        if any(backends[a] != backends[b] for a, b in found.items()):
            return None
        if any(sizes[a] != sizes[b] and b not in loose for a, b in found.items()):
            return None
        return found


def _pack(
    done: Sequence[_Done], sizes: Sequence[int], pools: Sequence[Pool], place: list[int], address: list[int]
) -> None:
    """Gives each result its place, and frees what nothing reads later."""
    takes, gives = [pool.take for pool in pools], [pool.give for pool in pools]
    for tensor, own, last in done:
        if tensor >= 0:
            size = sizes[tensor]
            for source in own:
                at = address[source]
                if at >= 0 and sizes[source] >= size:
                    # It takes the place of what nothing else needs; what is left over is freed.
                    address[tensor], place[tensor] = at, place[source]
                    address[source] = UNKNOWN
                    if sizes[source] != size:
                        pools[place[source]].cut(at, sizes[source], size)
                    break
            else:
                address[tensor] = takes[place[tensor]](size)
        for source in last:
            at = address[source]
            if at >= 0:  # weights and caches have no address here
                gives[place[source]](at, sizes[source])
                address[source] = UNKNOWN


def _times(pool: Pool, size: int, times: int) -> int:
    """The first address of several copies."""
    first = pool.take(size)
    for _ in range(times - 1):
        pool.take(size)
    return first


def _done(order: Sequence[Placed], count: int, kept: set[int], there: set[int]) -> list[_Done]:
    """The operations with what they are the last to read. kept: what is never freed; there: what has its place."""
    left = [0] * count
    for placed in order:
        for source in placed[1]:
            left[source] += 1
    found: list[_Done] = []
    for tensor, sources, own, stored in order:
        mine = tuple([s for s in own if left[s] == 1 and s not in kept]) if own else own
        last: tuple[int, ...] = ()
        for source in sources:
            more = left[source] - 1
            left[source] = more
            if not more and source not in kept:
                last = (*last, source) if last else (source,)
        found.append((UNKNOWN if stored or tensor in there else tensor, mine, last))
    return found
