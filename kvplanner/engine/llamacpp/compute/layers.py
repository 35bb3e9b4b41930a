"""The operations of one layer, in the order of llama.cpp's graph.

Source: llama-graph.cpp and the models' own files of llama.cpp 0.5.0-dev (October 2026). Sizes are bytes of f32 results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.engine.llamacpp.compute.graph import Graph
from kvplanner.model.spec import LayerSpec
from kvplanner.record import NamedTuple

F32: Final = 4
F16: Final = 2
INT: Final = 4
OFFLOAD_ROWS: Final = 32  # GGML_OP_OFFLOAD_MIN_BATCH

# Architectures whose norms subtract the mean as well.
PLAIN_NORM: Final = frozenset(
    {"bloom", "codeshell", "cohere2", "cohere2moe", "command-r", "dbrx", "falcon", "gpt2", "gptneox", "jais", "jais2",
     "mpt", "nemotron", "olmo", "orion", "phi2", "stablelm", "starcoder", "starcoder2"}
)  # fmt: skip

# What of a mixer is left to do once llama.cpp has put the mixer itself into the graph: called when something reads
# its result, which may be after the next layer has looked its states up.
Rest = Callable[[], int]


def same(hidden: int) -> int:
    """Nothing is left to do."""
    return hidden


class Shape(NamedTuple):
    """What all layers share.

    tokens: of a micro-batch; slots: sequences; full, window: cells of one stream; streams: of them.
    outputs: rows of logits. key_type, value_type: of the cache; flash: flash attention.
    hidden, vocabulary: widths. arch: the architecture's name in GGUF. transposed: values are kept so that no
    transposing is left to attention without flash attention. wide_mask: masks are 32-bit and narrowed on the device.
    rotated: heads are rotated before they are quantised. copies_reserved: the buffer holds flash attention's 16-bit
    copies of a cache of another type (else the CUDA pool does). both_inputs, late_rows, xielu, latent, row_inputs,
    fused_gates, copied_heads, copied_values, latent_values, blocks, spare_copies: as of Build. no_kernel: the GPUs have
    no flash attention for the cache's types. snapshots: of each sequence's recurrent state that an operation gives,
    more than one where drafted tokens can be taken back.
    """

    arch: str
    hidden: int
    vocabulary: int
    tokens: int
    slots: int
    outputs: int
    full: int
    window: int
    streams: int
    key_type: str
    value_type: str
    flash: bool
    transposed: bool = False
    wide_mask: bool = False
    rotated: bool = True
    copies_reserved: bool = True
    both_inputs: bool = True
    late_rows: bool = True
    xielu: bool = True
    latent: bool = True
    row_inputs: bool = True
    fused_gates: bool = True
    copied_heads: bool = False
    copied_values: bool = False
    latent_values: bool = False
    blocks: str = "positions"
    no_kernel: bool = False
    snapshots: int = 1
    spare_copies: bool = True


class IndexInputs(NamedTuple):
    """Of sparse attention: where new keys of its side cache go, its mask, and the matrix that turns its heads."""

    rows: int
    mask: int
    rotation: int


class BlockInputs(NamedTuple):
    """Of block-sparse attention: where its index's new keys go, biases of blocks, the mask by positions, and the cells
    of positions and the blocks of cells. widened: the mask that the graph made 32-bit, once it has.
    """

    rows: int
    bias: int
    mask: int
    places: int
    cells: int
    widened: dict[int, int]


class DecayInputs(NamedTuple):
    """Of lightning attention: slopes of heads, and how queries, keys and pairs of a sequence's tokens fade."""

    slopes: int
    queries: int
    keys: int
    pairs: int


class Inputs(NamedTuple):
    """What every layer reads: positions, masks, and where new keys and values go.

    scales: of Llama 4's queries, by position. states, other_states: which sequences' states are looked up, and which
    (none) are left aside.
    rotations: the matrices that keys and values are rotated by before they are quantised, by whether they are windows'.
    narrowed: masks that the graph made 16-bit, by whether they are the windows'.
    side: of the side cache of sparse attention; blocks: of attention that sees blocks; decays: of lightning attention.
    """

    positions: int
    mask: int | None
    window_mask: int | None
    key_rows: int
    value_rows: int
    window_key_rows: int
    window_value_rows: int
    output_rows: int
    states: int
    other_states: int
    scales: int
    rotations: Mapping[bool, tuple[int | None, int | None]]
    narrowed: dict[bool, int]
    side: IndexInputs | None = None
    blocks: BlockInputs | None = None
    decays: DecayInputs | None = None


class Weights(NamedTuple):
    """A layer's tensors: name → (bytes, backend)."""

    sizes: Mapping[str, tuple[int, int]]

    def has(self, name: str) -> bool:
        """Whether the layer has a matrix or vector of this name."""
        return name in self.sizes


class Layer:
    """Builds one layer into a graph.

    device: that holds it; cache: the backend of its cache. bound: norms run on `device` whatever stands before them
    (everything is offloaded). fixed: so does every operation without weights (no weight lies on the host).
    reads: the backend of the earlier layer's cache that a layer without its own reads. turned: it heeds positions.
    cache_offload: caches lie with their layers, not all on the host.
    """

    def __init__(
        self, graph: Graph, shape: Shape, inputs: Inputs, weights: Weights, spec: LayerSpec, *, device: int, cache: int,
        bound: bool, fixed: bool, turns: int = 0, reads: int | None = None, turned: bool = True,
        cache_offload: bool = True,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.shape = shape
        self.inputs = inputs
        self.weights = weights
        self.spec = spec
        self.device = device
        self.cache = cache
        self.bound = bound
        self.fixed = fixed
        self._op = graph.op
        self._home = device if fixed else None
        self.turns = turns
        self.reads = reads
        self.turned = turned
        self.cache_offload = cache_offload
        self.row = F32 * shape.tokens  # bytes of one f32 column for all tokens

    # -- small operations ---------------------------------------------------------------------------------------------

    def op(self, bytes_: int, *sources: int, inplace: bool = False, on: int | None = None) -> int:
        """An operation without weights; where everything is offloaded it stays on the layer's device."""
        return self._op(bytes_, *sources, inplace=inplace, on=self._home if on is None else on)

    def turn(self, bytes_: int, source: int, *, inplace: bool = False, table: bool = True) -> int:
        """Heads turned by their positions. table: by the model's own factors, if it has any."""
        if not self.turned:
            return source
        if not self.turns or not table:
            return self.op(bytes_, source, self.inputs.positions, inplace=inplace)
        return self.graph.weighted(
            bytes_,
            (self.turns, self.device),
            source,
            self.inputs.positions,
            inplace=inplace,
            big=self.is_big(None),
            shared="rope_freqs.weight",
        )

    def matmul(self, name: str, width: int, source: int, *, rows: int | None = None, count: int = 1) -> int:
        """A product with a weight, and its bias; a weight that the layer lacks is taken to be there, of no size."""
        graph = self.graph
        size = (self.row if rows is None else F32 * rows) * width * count
        big = self.is_big(rows)
        out = graph.weighted(size, self._weight(name), source, big=big)
        bias = name.removesuffix(".weight") + ".bias"
        if self.weights.has(bias):
            out = graph.weighted(size, self._weight(bias), out, inplace=True, big=big)
        return out

    def is_big(self, rows: int | None) -> bool:
        """Whether a GPU takes an operation on the host's weights over: from 32 rows on."""
        return (self.shape.tokens if rows is None else rows) >= OFFLOAD_ROWS

    def pick(self, source: int, rows: int) -> int:
        """The rows that logits are wanted of."""
        return self.op(F32 * rows * self.shape.hidden, source, self.inputs.output_rows)

    def _weight(self, name: str) -> tuple[int, int]:
        return self.weights.sizes.get(name) or (0, self.device)

    def norm(
        self, source: int, name: str, *, bytes_: int | None = None, inplace: bool = True, rows: int | None = None
    ) -> int:
        """A norm and its scale; only RMS norms can take the place of what they read."""
        graph = self.graph
        size = graph.sizes[source] if bytes_ is None else bytes_
        inplace = inplace and self.shape.arch not in PLAIN_NORM
        weighed = self.weights.has(name)  # one without a weight is bound to no layer
        out = self.op(size, source, inplace=inplace, on=self.device if self.bound and weighed else None)
        if weighed:
            out = graph.weighted(size, self._weight(name), out, inplace=True, big=self.is_big(rows))
        return out

    def scaled(self, name: str, source: int) -> int:
        """Each row scaled by a vector, in place."""
        return self.graph.weighted(self.graph.sizes[source], self._weight(name), source, inplace=True)

    def mask(self, windowed: bool) -> int:
        """The mask that attention reads; older builds narrow it on the device when it is first needed."""
        inputs = self.inputs
        held = inputs.window_mask if windowed else inputs.mask
        assert held is not None
        if not self.shape.wide_mask or not self.shape.flash:
            return held
        narrowed = inputs.narrowed.get(windowed)
        if narrowed is None:
            narrowed = inputs.narrowed[windowed] = self.op(self.graph.sizes[held] // 2, held)
        return narrowed
