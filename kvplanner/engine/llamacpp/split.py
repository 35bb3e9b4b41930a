"""Tensors that are divided among GPUs: `-sm tensor` within layers, `-sm row` by rows of matrices.

-sm tensor: llama_meta_device_get_split_state of llama-model.cpp and ggml-backend-meta.cpp, 0.5.0-dev (October 2026).
Every extent is cut at multiples of a granularity that keeps whole heads and whole quantised blocks; each cut is rounded
down, and the GPU that takes the remainder changes from layer to layer. What no rule names lies whole on every GPU.
-sm row: the split buffers of ggml-cuda.cu, until pull request 24216 removed them in June 2026.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Sequence
from typing import Final

from kvplanner.engine.llamacpp import cache
from kvplanner.engine.llamacpp.cache import CacheTypes, Cells
from kvplanner.engine.llamacpp.place import single, split_points
from kvplanner.engine.llamacpp.tensors import Tensor, Tensors
from kvplanner.model.spec import Attention, LayerSpec, Mixer, ModelSpec, Moe, State
from kvplanner.record import NamedTuple

# llm_arch_supports_sm_tensor: architectures that -sm tensor refuses.
REFUSED: Final = frozenset(
    {"grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe",
     "deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5", "nemotron_h", "nemotron_h_moe",
     "granitehybrid", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3",
     "glm5-next", "qwen3tts", "qwen4exp"}
)  # fmt: skip
# Their queries carry a gate, and their linear attention is cut by pairs of key and value heads.
_GATED: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_STATE_BYTES: Final = 4
_ROW_STEP: Final = 512
_WIDE: Final = 128


class Segment(NamedTuple):
    """Part of an extent that is cut on its own. times: as often in a row; step: cuts lie at multiples of it."""

    extent: int
    times: int
    step: int


class Cut(NamedTuple):
    """How a tensor is divided. by_rows: along its rows, else along its columns."""

    by_rows: bool
    segments: tuple[Segment, ...]


def slices(segments: Sequence[Segment], shares: Sequence[float], gpus: int, rotation: int) -> tuple[int, ...]:
    """The extent that each GPU has of all segments together.

    shares: one for each GPU, or none of them for equal ones. rotation: the GPU that is served first; the one that is
    served last has what rounding down leaves.
    """
    running: list[float] = []
    for index in range(gpus):
        share = single(shares[(index + rotation) % gpus]) if any(shares) else 0.0
        running.append(single(share + running[-1]) if running else share)
    found = [0] * gpus
    for extent, times, step in segments:
        low = 0
        for index in range(gpus):
            high = extent
            if index < gpus - 1:
                if running[-1]:
                    high = int(single(single(single(extent) * running[index]) / running[-1]))
                else:
                    high = extent * (index + 1) // gpus
                high -= high % step
            found[(index + rotation) % gpus] += times * (high - low)
            low = high
    return tuple(found)


class _Layer(NamedTuple):
    """What the rules ask of a layer. attention, state: its mixer; output_block, down_block: elements of a quantised
    block of the matrices after attention and of the feed-forward block; experts: 1 without; inner: their width."""

    attention: Attention | None
    state: State | None
    output_block: int
    down_block: int
    inner: int
    experts: int
    gpus: int
    gated: bool

    @property
    def query_step(self) -> int:
        """Elements of queries at whose multiples a layer of full attention is cut: whole groups of heads."""
        if self.attention is None:
            return 1
        group = self.attention.heads // max(self.attention.kv_heads, 1) * self.attention.head_size
        block = self.output_block
        while block < _WIDE and block * self.gpus < group:
            block *= 2
        return math.lcm(max(group, 1), block)

    @property
    def key_step(self) -> int:
        """The same of keys."""
        if self.attention is None:
            return 1
        return max(self.query_step // max(self.attention.heads // max(self.attention.kv_heads, 1), 1), 1)

    @property
    def value_step(self) -> int:
        """The same of values, whose heads may have another size."""
        if self.attention is None:
            return 1
        return max(self.key_step // self.attention.head_size, 1) * self.attention.head_size_v

    @property
    def state_step(self) -> int:
        """Elements of linear attention at whose multiples it is cut."""
        size = self.state.key_size if self.state is not None else 1
        return math.lcm(math.lcm(self.output_block, _WIDE), max(size, 1))


class Within:
    """-sm tensor: bytes of each GPU of every tensor and cache. shares: of --tensor-split, empty for equal ones."""

    def __init__(self, spec: ModelSpec, tensors: Tensors, gpus: int, shares: Sequence[float]) -> None:
        self.gpus = gpus
        self._shares = tuple(shares)
        self._spec = spec
        self._layers: dict[tuple[int, int], _Layer] = {}
        self._tensors = tensors
        self._rotations = _rotations(spec, gpus)
        self._last = len(tensors.layers) % gpus

    def key(self, layer: int, home: int) -> Hashable:
        """Layers of one block with the same key are divided alike."""
        return self._rotations[layer], self._spec.layer_of[layer], home

    def bytes(self, tensor: Tensor, layer: int, home: int) -> tuple[int, ...]:
        """What each GPU holds of a tensor. layer: -1 outside the layers; home: not asked, all GPUs are one."""
        del home
        if layer < 0:
            cut = _output_cut(tensor)
            rotation, experts = self._last, 1
        else:
            facts = self._facts(layer)
            cut = _cut(tensor, facts)
            rotation, experts = self._rotations[layer], facts.experts if tensor.expert else 1
        if cut is None:
            return (tensor.device_bytes,) * self.gpus
        parts = slices(cut.segments, self._shares, self.gpus, rotation)
        if cut.by_rows:
            return tuple(tensor.part(columns=tensor.columns, rows=part * experts) for part in parts)
        return tuple(tensor.part(columns=part, rows=tensor.rows) for part in parts)

    def cache(
        self, layer: int, cells: Cells, types: CacheTypes
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """By GPU: bytes of a layer's cells, of its recurrent state, and of one more cell."""
        facts, rotation = self._facts(layer), self._rotations[layer]
        kv, state, each = [0] * self.gpus, [0] * self.gpus, [0] * self.gpus
        for mixer in self._spec.layers[self._spec.layer_of[layer]].mixers:
            if isinstance(mixer, State):
                for gpu, size in enumerate(self._state(mixer, facts, rotation)):
                    state[gpu] += size * cells.rows
                continue
            rows = cells.streams * (cells.window if cache.is_windowed(mixer) else cells.full)
            for type_, widths in self._cells(mixer, facts, rotation, types):
                for gpu, width in enumerate(widths):
                    kv[gpu] += cache.tensor_bytes(type_, width, rows, True) if width else 0
                    if not cache.is_windowed(mixer):
                        each[gpu] += cache.row_bytes(type_, width)
        return tuple(kv), tuple(state), tuple(each)

    def _cells(
        self, mixer: Mixer, facts: _Layer, rotation: int, types: CacheTypes
    ) -> list[tuple[str, tuple[int, ...]]]:
        keys, values, index = cache.widths(mixer)
        found = [
            (type_, slices([Segment(width, 1, step)], self._shares, self.gpus, rotation))
            for type_, width, step in ((types.key, keys, facts.key_step), (types.value, values, facts.value_step))
            if width
        ]
        if index:
            found.append((types.key, (index,) * self.gpus))
        return found

    def _state(self, mixer: State, facts: _Layer, rotation: int) -> tuple[int, ...]:
        """Bytes of one sequence's state."""
        if mixer.kind != "gated_delta":
            return (cache.state_row_bytes(mixer),) * self.gpus
        conv, step = max(mixer.conv_kernel - 1, 0), facts.state_step
        keys, values = mixer.key_heads * mixer.key_size, mixer.heads * mixer.head_size
        if facts.gated and self._spec.model_type != "qwen3next":
            ratio = mixer.heads // max(mixer.key_heads, 1)
            rows = [Segment(keys * conv, 2 + ratio, step * conv)]
            held = [Segment(mixer.key_heads * mixer.head_size * mixer.head_size, ratio, step * mixer.key_size)]
        else:
            rows = [Segment(keys * conv, 2, step * conv), Segment(values * conv, 1, step * conv)]
            held = [Segment(values * mixer.key_size, 1, step * mixer.key_size)]
        both = (slices(parts, self._shares, self.gpus, rotation) for parts in (rows, held))
        return tuple(_STATE_BYTES * sum(sizes) for sizes in zip(*both, strict=True))

    def _facts(self, layer: int) -> _Layer:
        block = self._tensors.layers[layer]
        key = (id(block), self._spec.layer_of[layer])
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = _facts(block, self._spec.layers[key[1]], self.gpus, self._spec.model_type)
        return found


def _facts(block: tuple[Tensor, ...], layer: LayerSpec, gpus: int, architecture: str) -> _Layer:
    named = {tensor.name: tensor for tensor in block}

    def first(*names: str) -> Tensor | None:
        return next((named[name] for name in names if name in named), None)

    output = first("attn_output.weight", "ssm_out.weight")
    down = first("ffn_down.weight", "ffn_down_exps.weight")
    return _Layer(
        next((m for m in layer.mixers if isinstance(m, Attention)), None),
        next((m for m in layer.mixers if isinstance(m, State)), None),
        output.block if output is not None else 1, down.block if down is not None else 1,
        down.columns if down is not None else 0,
        next((m.experts for m in layer.mlps if isinstance(m, Moe)), 1), gpus, architecture in _GATED,
    )  # fmt: skip


def _rotations(spec: ModelSpec, gpus: int) -> tuple[int, ...]:
    """For each layer, the GPU that is served first: earlier layers of its kind are counted."""
    counts: dict[tuple[bool, bool], int] = {}
    found: list[int] = []
    for index in spec.layer_of:
        mixers = spec.layers[index].mixers
        kind = any(isinstance(m, State) for m in mixers), any(cache.is_windowed(m) for m in mixers)
        found.append(counts.get(kind, 0) % gpus)
        counts[kind] = counts.get(kind, 0) + 1
    return tuple(found)


def _output_cut(tensor: Tensor) -> Cut | None:
    """Outside the layers the output matrix alone is divided, to the row; a tied embedding is whole everywhere."""
    if tensor.name == "output.weight":
        return Cut(True, (Segment(tensor.rows, 1, 1),))
    if tensor.name == "output.bias":
        return Cut(False, (Segment(tensor.columns, 1, 1),))
    return None


_FFN_IN: Final = re.compile(r"ffn_(up|gate|gate_up)(_exps)?\.(weight|bias)")
_FFN_OUT: Final = re.compile(r"ffn_down(_exps)?\.weight")
_STATE_HEADS: Final = re.compile(r"ssm_dt\.bias|ssm_a|ssm_(alpha|beta|ba)\.weight")
_STATE_WIDE: Final = re.compile(r"(attn_qkv|attn_gate|ssm_conv1d|ssm_out)\.weight")
_ATTENTION: Final = re.compile(r"attn_(q|k|v|qkv)\.(weight|bias)")


def _cut(tensor: Tensor, layer: _Layer) -> Cut | None:
    """How a layer's tensor is divided, None where each GPU has all of it."""
    name = tensor.name
    if _FFN_IN.fullmatch(name):
        return _feedforward_cut(tensor, layer)
    if _FFN_OUT.fullmatch(name):
        return Cut(False, (Segment(tensor.columns, 1, math.lcm(layer.down_block, _WIDE)),))
    if layer.state is not None and layer.state.kind == "gated_delta":
        return _linear_cut(tensor, layer, layer.state)
    return _attention_cut(tensor, layer, layer.attention) if layer.attention is not None else None


def _feedforward_cut(tensor: Tensor, layer: _Layer) -> Cut:
    """Up and gate are cut where down is; where both are one matrix, each half on its own."""
    bias = tensor.name.endswith(".bias") and not tensor.expert
    extent = tensor.columns if tensor.name.endswith(".bias") else tensor.rows // (layer.experts if tensor.expert else 1)
    step = math.lcm(layer.down_block, _WIDE)
    halves = 2 if layer.inner and extent == 2 * layer.inner else 1
    return Cut(not (bias or tensor.name.endswith(".bias")), (Segment(extent // halves, halves, step),))


def _attention_cut(tensor: Tensor, layer: _Layer, mixer: Attention) -> Cut | None:
    name = tensor.name
    by_rows = name.endswith(".weight")
    extent = tensor.rows if by_rows else tensor.columns
    queries = layer.query_step
    if name == "attn_output.weight":
        return Cut(False, (Segment(tensor.columns, 1, queries // mixer.head_size * mixer.head_size_v),))
    if name == "attn_sinks.weight":
        return Cut(False, (Segment(tensor.columns, 1, queries // mixer.head_size),))
    if name in ("attn_q_norm.weight", "attn_k_norm.weight"):
        return Cut(True, (Segment(tensor.rows, 1, 1),)) if tensor.rows > 1 else None
    if name == "attn_gate.weight":
        return Cut(True, (Segment(tensor.rows, 1, queries // mixer.head_size if extent == mixer.heads else queries),))
    if not _ATTENTION.fullmatch(name):
        return None
    # A gate that comes with the queries doubles them.
    wide = mixer.heads * mixer.head_size * (2 if layer.gated else 1)
    step = math.lcm(2 * queries, layer.output_block) if layer.gated else queries
    keys, values = mixer.kv_heads * mixer.head_size, mixer.kv_heads * mixer.head_size_v
    if name.startswith("attn_qkv"):
        parts = Segment(wide, 1, step), Segment(keys, 1, layer.key_step), Segment(values, 1, layer.value_step)
        return Cut(by_rows, parts)
    if name.startswith("attn_q."):
        return Cut(by_rows, (Segment(extent, 1, step),))
    return Cut(by_rows, (Segment(extent, 1, layer.value_step if name.startswith("attn_v") else layer.key_step),))


def _linear_cut(tensor: Tensor, layer: _Layer, mixer: State) -> Cut | None:
    """Linear attention: by whole key heads with the value heads that go with them."""
    name, step, size = tensor.name, layer.state_step, max(mixer.key_size, 1)
    # ssm_out is cut along its columns, as vectors of one number for each head are; all others by rows.
    by_rows = name not in ("ssm_out.weight", "ssm_a", "ssm_dt.bias")
    extent = tensor.rows if by_rows else tensor.columns if tensor.columns > 1 else tensor.rows
    keys = mixer.key_heads * size
    ratio = mixer.heads // max(mixer.key_heads, 1)
    paired = layer.gated and extent % max(ratio, 1) == 0 and not name.startswith("ssm_ba")
    if _STATE_HEADS.fullmatch(name):
        heads = step // size * (2 if name.startswith("ssm_ba") else 1)
        return Cut(by_rows, (Segment(extent // ratio, ratio, heads) if paired else Segment(extent, 1, heads),))
    if not _STATE_WIDE.fullmatch(name):
        return None
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        return Cut(by_rows, (Segment(keys, 2, step), Segment(extent - 2 * keys, 1, step)))
    return Cut(by_rows, (Segment(extent, 1, step),))


_UNSPLIT: Final = re.compile(r"(ssm_conv1d|shortconv\.conv|attn_[kv]_b|.*norm.*)\.weight")


class ByRows:
    """-sm row: rows of the matrices of a layer on all GPUs; the rest, experts too, on the layer's own.

    shares: of --tensor-split, or the GPUs' whole memory; tiles: rows at whose multiples each GPU's kernels are cut.
    """

    def __init__(self, shares: Sequence[float], tiles: Sequence[int]) -> None:
        self.gpus = len(shares)
        # Where the rows of each GPU begin.
        self._starts = (0.0, *split_points(shares)[:-1], 1.0)
        used = (tile for tile, low, high in zip(tiles, self._starts, self._starts[1:], strict=False) if low < high)
        self._tile = max(used, default=_WIDE)

    def key(self, layer: int, home: int) -> Hashable:
        """Layers of one block and one home are divided alike."""
        del layer
        return home

    def bytes(self, tensor: Tensor, layer: int, home: int) -> tuple[int, ...]:
        """What each GPU holds of a tensor of the GPU `home`."""
        del layer
        whole = tuple(tensor.device_bytes if gpu == home else 0 for gpu in range(self.gpus))
        matrix = tensor.name.endswith(".weight") and tensor.columns > 1 and tensor.rows > 1
        if not matrix or tensor.expert or _UNSPLIT.fullmatch(tensor.name):
            return whole
        ends = [int(single(single(tensor.rows) * start)) for start in self._starts[:-1]]
        ends = [*(end - end % self._tile for end in ends), tensor.rows]
        rows = [high - low for low, high in itertools.pairwise(ends)]
        if not rows[home]:
            return whole
        spare = (_ROW_STEP - tensor.columns % _ROW_STEP) % _ROW_STEP
        row = tensor.bytes // tensor.rows
        return tuple(row * count + row * spare // tensor.columns if count else 0 for count in rows)
