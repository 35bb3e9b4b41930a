"""A compute graph over several backends: which operation runs where, and what must be copied.

Behaviour: ggml-backend.cpp and ggml-alloc.c of ggml 0.25.3 (llama.cpp 0.5.0-dev, October 2026). Backends are counted
from 0 for the GPUs in order; the host is the last. Tensors go by their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplanner.engine.llamacpp.compute.laid import UNKNOWN, Again, Early, Laid, Placed
from kvplanner.record import NamedTuple

# An operation: its result, what it reads, whether it may overwrite a source, and whether its result lies in memory
# that is allocated elsewhere (a cache) and so takes none.
_Node = tuple[int, tuple[int, ...], bool, bool]


class Repeat(NamedTuple):
    """Layers that are built three times and come `times` more often behind the second: the first, and how many.

    built: the weights of the three times; weights: the same with all that are not built in between. Both are empty
    where layers of one place in the pattern have weights of one size.
    """

    first: int
    period: int
    times: int
    built: Sequence[Mapping[str, tuple[int, int]]] = ()
    weights: Sequence[Mapping[str, tuple[int, int]]] = ()


class Graph:
    """Collects operations in the order in which llama.cpp's graph holds them, then reserves.

    devices: GPUs. copies: of every input of a split, 4 when the devices work as a pipeline.
    offload: whether large batches on the host's weights run on the first GPU.
    """

    def __init__(self, devices: int, *, copies: int = 1, offload: bool = True) -> None:
        self.host = devices
        self._copies = copies
        self._offload = offload and devices > 0
        self.sizes: list[int] = []
        self._backend: list[int] = []
        self._weight: set[int] = set()
        self._shared: dict[str, int] = {}
        self._output: set[int] = set()
        self._inputs: list[int] = []
        self._once: set[int] = set()
        self._leaves: list[int] = []
        self._extra: dict[int, int] = {}
        self._views: dict[int, int] = {}
        self._nodes: list[_Node] = []
        self._marks: list[int] = []
        self._weight_tensors: dict[int, list[int]] = {}  # by a weight's identity: its tensors here
        self._copied: dict[tuple[int, int], int] = {}
        self._unassigned = False

    def _tensor(self, bytes_: int, backend: int) -> int:
        tensor = len(self.sizes)
        self.sizes.append(bytes_)
        self._backend.append(backend)
        return tensor

    def input(self, bytes_: int, *, once: bool = False) -> int:
        """What the host fills in before each batch. once: it is kept once where a pipeline has copies of the others."""
        tensor = self._tensor(bytes_, self.host)
        self._inputs.append(tensor)
        if once:
            self._once.add(tensor)
        return tensor

    def leaf(self, bytes_: int) -> int:
        """A tensor that no operation gives: it has its place from the start, where it is first read."""
        tensor = self._tensor(bytes_, UNKNOWN)
        self._leaves.append(tensor)
        return tensor

    def cache(self, bytes_: int, backend: int) -> int:
        """A layer's keys, values or states, as an operation sees them."""
        return self._tensor(bytes_, backend)

    def view(self, source: int, bytes_: int) -> int:
        """A part of a tensor: only it is copied to another backend."""
        tensor = self._tensor(bytes_, UNKNOWN)
        self._views[tensor] = source
        return tensor

    def op(self, bytes_: int, *sources: int, inplace: bool = False, on: int | None = None, stored: bool = False) -> int:
        """An operation without weights.

        inplace: it may overwrite a source of the same layout. on: the backend that it is bound to; without one it goes
        where its neighbours are. stored: its result lies in a cache.
        """
        if on is None:
            self._unassigned = True
            on = UNKNOWN
        sizes = self.sizes
        tensor = len(sizes)
        sizes.append(bytes_)
        self._backend.append(on)
        self._nodes.append((tensor, sources, inplace, stored))
        return tensor

    def with_extra(self, tensor: int, bytes_: int) -> int:
        """A tensor that takes more than its size in a GPU's buffer, but not on the host nor where it is copied to."""
        if bytes_:
            self._extra[tensor] = bytes_
        return tensor

    def weighted(
        self, bytes_: int, weight: tuple[int, int], *sources: int, inplace: bool = False, big: bool = True,
        shared: str = "", last: bool = False,
    ) -> int:  # fmt: skip
        """An operation with a weight of (bytes, backend): it runs where the weight is.

        big: it works on at least 32 rows, so that a GPU takes it over from the host. shared: the name of a weight that
        several operations read: it is copied once. last: the operation reads its weight after its other sources.
        """
        size, home = weight
        backend = home
        if home == self.host and self._offload and big:
            backend = 0
            known = self._shared.get(shared)
            read = self._tensor(size, home) if known is None else known
            self._weight.add(read)
            self._weight_tensors.setdefault(id(weight), []).append(read)
            if shared:
                self._shared[shared] = read
            sources = (*sources, read) if last else (read, *sources)
        sizes = self.sizes
        tensor = len(sizes)
        sizes.append(bytes_)
        self._backend.append(backend)
        self._nodes.append((tensor, sources, inplace, False))
        return tensor

    def expand(self, tensor: int) -> int:
        """Puts a tensor into the graph with all that it needs; here everything already is."""
        return tensor

    def displaced(self, bytes_: int, weight: tuple[int, int], *sources: int) -> int:
        """An operation that no GPU can do: the host does it, with a copy of the weight."""
        copied = self._tensor(*weight)
        self._weight.add(copied)
        return self.op(bytes_, copied, *sources, on=self.host)

    def mark(self) -> None:
        """Marks where a layer begins."""
        self._marks.append(len(self._nodes))

    def output(self, tensor: int) -> None:
        """Marks what is read after the batch: its memory is not used again."""
        self._output.add(tensor)

    def laid_out(self, repeats: Sequence[Repeat] = (), stand_ins: Sequence[int] = ()) -> Laid:
        """The graph with a backend for each operation, ready to be packed; nothing can be added afterwards.

        repeats: layers that come more often than they were built. stand_ins: which GPU each is like, () for none that
        is like another.
        """
        if self._unassigned:
            self._assign()
        if self._leaves:
            self._place_leaves()
        order, copies = self._split()
        for tensor, bytes_ in self._extra.items():
            if self._backend[tensor] != self.host:
                self.sizes[tensor] += bytes_
        early = Early(self._inputs, self._leaves, copies, self._copies, self._once)
        again = self._again(order, repeats) if repeats else ()
        host_adds = bool(stand_ins) and any(self._backend[n[0]] == self.host for n in self._nodes[self._marks[0] :])
        return Laid(
            order, self.sizes, self._backend, self._output, early, self.host, again, stand_ins, host_adds=host_adds
        )

    def _again(self, order: Sequence[Placed], repeats: Sequence[Repeat]) -> list[Again]:
        """Where the periods stand in the order."""
        nodes, marks = self._nodes, self._marks
        firsts = [[nodes[marks[one.first + of * one.period]][0] for of in range(4)] for one in repeats]
        wanted = {tensor for of in firsts for tensor in of}
        place = {placed[0]: at for at, placed in enumerate(order) if placed[0] in wanted}
        found = []
        for repeat, of in zip(repeats, firsts, strict=True):
            one, two, three, end = (place[tensor] for tensor in of)
            found.append(Again((one, two, three, end), repeat.times, *self._resized(repeat)))
        return found

    def _resized(self, repeat: Repeat) -> tuple[frozenset[int], list[tuple[int, tuple[int, ...]]]]:
        """Copies of weights, whose sizes differ from layer to layer, each with its size in each further period.

        What a layer leaves to do stands in the next one's period, and what is copied may stand in the one before.
        """
        loose: set[int] = set()
        sized = []
        for at, weights in enumerate(repeat.built):
            like = range(at, len(repeat.weights), repeat.period)[: 1 + repeat.times]
            for name, weight in weights.items():
                for tensor in self._weight_tensors.get(id(weight), ()):
                    copy = self._copied.get((tensor, 0))
                    if copy is not None:
                        loose |= {tensor, copy}
                        sized.append((copy, tuple(repeat.weights[layer][name][0] for layer in like)))
        return frozenset(loose), sized

    def _place_leaves(self) -> None:
        """Leaves lie where they are read first."""
        backend, left = self._backend, set(self._leaves)
        for tensor, sources, _, _ in self._nodes:
            for source in sources:
                if source in left:
                    backend[source] = backend[tensor]
                    left.remove(source)

    def _assign(self) -> None:
        """Backends of operations that nothing binds: those of their neighbours, GPUs before the host."""
        backend, host = self._backend, self.host
        assigned = [backend[node[0]] for node in self._nodes]
        for skip_host in (True, False):
            for _ in range(2):  # downwards, then upwards
                current = UNKNOWN
                for at, own in enumerate(assigned):
                    if own == UNKNOWN:
                        assigned[at] = current
                    else:
                        current = UNKNOWN if skip_host and own == host else own
                assigned.reverse()
            if UNKNOWN not in assigned:
                break
        for node, own in zip(self._nodes, assigned, strict=True):
            backend[node[0]] = host if own == UNKNOWN else own

    def _split(self) -> tuple[list[Placed], list[int]]:
        """The nodes, each split's after copies of what it takes from other backends; and those copies."""
        order: list[Placed] = []
        copies: list[int] = []
        copied = self._copied
        start = 0  # of the current split in `order`
        taken = 0  # inputs of the current split
        current = UNKNOWN
        backend, weight, views = self._backend, self._weight, self._views
        for node in self._nodes:
            tensor, sources, inplace, stored = node
            own = backend[tensor]
            # A weight that must be copied is the first thing that its operation reads, and begins a new split.
            if own != current or (taken and sources and sources[0] in weight and backend[sources[0]] != own):
                current, start, taken = own, len(order), 0
            for source in sources:
                if backend[source] != current:
                    break
            else:  # as most are: nothing comes from elsewhere
                order.append((tensor, sources, sources if inplace else (), stored))
                continue
            moved = False
            for source in sources:
                if backend[source] == current:
                    continue
                moved = True
                root = views.get(source, source)
                if backend[root] == current:
                    continue
                if (source, current) not in copied:
                    copy = self._tensor(self.sizes[source], current)
                    copied[source, current] = copy
                    copies.append(copy)
                    # The source is kept until it is copied; both stand at the start of the split.
                    at = start + 2 * taken
                    order[at:at] = ((UNKNOWN, (root,), (), True), (copy, (), (), False))
                    taken += 1
            own_sources = sources if inplace else ()
            if moved:
                # Nothing takes the place of a view, but a copy of one is a tensor like any other.
                if inplace:
                    kept = [copied.get((s, current), UNKNOWN if s in views else s) for s in sources]
                    own_sources = tuple(s for s in kept if s != UNKNOWN)
                sources = tuple(copied.get((s, current)) or views.get(s, s) for s in sources)
            order.append((tensor, sources, own_sources, stored))
        return order, copies


class Deferred(Graph):
    """Holds operations back until one that is put into the graph needs them, as llama.cpp's own graphs do.

    ggml_build_forward_expand of ggml.c: what an operation reads comes before it, its first source first.
    """

    def __init__(self, devices: int, *, copies: int = 1, offload: bool = True) -> None:
        super().__init__(devices, copies=copies, offload=offload)
        self._waiting: dict[int, _Node] = {}

    def op(self, bytes_: int, *sources: int, inplace: bool = False, on: int | None = None, stored: bool = False) -> int:
        """As of Graph; what is stored in a cache is put into the graph at once."""
        if on is None:
            self._unassigned = True
            on = UNKNOWN
        tensor = self._tensor(bytes_, on)
        self._waiting[tensor] = tensor, sources, inplace, stored
        return self.expand(tensor) if stored else tensor

    def weighted(
        self, bytes_: int, weight: tuple[int, int], *sources: int, inplace: bool = False, big: bool = True,
        shared: str = "", last: bool = False,
    ) -> int:  # fmt: skip
        """As of Graph."""
        tensor = super().weighted(bytes_, weight, *sources, inplace=inplace, big=big, shared=shared, last=last)
        self._waiting[tensor] = self._nodes.pop()
        return tensor

    def expand(self, tensor: int) -> int:
        """Puts a tensor into the graph with all that it needs."""
        waiting, views = self._waiting, self._views
        if tensor not in waiting:
            viewed = views.get(tensor)
            if viewed is not None:
                self.expand(viewed)
            return tensor
        node = waiting.pop(tensor)
        for source in node[1]:
            if source in waiting or source in views:
                self.expand(source)
        self._nodes.append(node)
        return tensor
