"""The estimate by which Ollama before 0.30 decides how many layers go on GPUs: weights, cache and graph, roughly.

Source: GraphSize of fs/ggml/ggml.go and EstimateGPULayers of llm/memory.go, Ollama 0.5 to 0.12.10, whose log tells it
as "offload ... memory.required"; since 0.12.11 GraphSize alone, for models that llama.cpp's runner serves. Held against
public log lines in tests/engine/llamacpp/ollama_logs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.llamacpp.cache import state_row_bytes
from kvplanner.engine.llamacpp.ollama.eras import Era
from kvplanner.engine.llamacpp.tensors import Tensor, tensors_of
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mixer, Mla, Moe, State
from kvplanner.record import NamedTuple
from kvplanner.units import MIB

# What Ollama leaves of each CUDA or ROCm GPU.
MINIMUM: Final = 457 * MIB
_CELL_BYTES: Final = {"f16": 2.0, "q8_0": 1.0, "q4_0": 0.5}
_PERIOD: Final = 6  # every sixth layer of gemma3 sees the whole context
_KEPT: Final = 4096  # cells that gpt-oss's window layers keep in Ollama's engine


class Facts(NamedTuple):
    """What of a model file the estimate reads, sizes in bytes of the file.

    heads, kv_heads: by layer, 0 for a layer without attention. key, value: elements of a head. layers: tensors of each
    layer. output: of the output layer, or the embedding table that stands for it. expert_gate: gate matrices of the
    first layer's experts; width: theirs. state: bytes that a recurrent layer keeps.
    projector, projector_graph: of vision that the file holds.
    """

    architecture: str
    embedding: int
    vocabulary: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    key: int
    value: int
    layers: tuple[int, ...]
    output: int
    expert_gate: int = 0
    width: int = 0
    window: int = 0
    state: int = 0
    projector: int = 0
    projector_graph: int = 0

    @property
    def most_heads(self) -> int:
        """Query heads of the layer that has most."""
        return max(self.heads, default=1) or 1

    @property
    def most_kv(self) -> int:
        """KV heads of the layer that has most."""
        return max(self.kv_heads, default=1) or 1

    @property
    def shared(self) -> int:
        """Query heads for each KV head, as the graph of unknown architectures is guessed by."""
        return self.most_heads // (min(self.kv_heads, default=1) or 1)


def facts_of(model: Model, era: Era, *, own: bool) -> Facts:
    """What the estimate reads of a model. own: in Ollama's own engine, whose files hold vision too."""
    spec, tensors = model.spec, tensors_of(model)
    mixers = [tuple(spec.layers[index].mixers) for index in spec.layer_of]
    heads, kv_heads = zip(*(_heads(found, era) for found in mixers), strict=True)
    first = next((m for found in mixers for m in found if isinstance(m, Attention | Mla)), None)
    key, value = _head_sizes(first, era) if first is not None else (0, 0)
    window = next((m.window for found in mixers for m in found if isinstance(m, Attention) and m.window), 0) or 0
    routed = next((m for layer in spec.layers for m in layer.mlps if isinstance(m, Moe)), None)
    output = [t for t in tensors.outputs if t.name in ("output.weight", "output_norm.weight")]
    if not any(t.name == "output.weight" for t in output) and tensors.tied is not None:
        output.append(tensors.tied)
    projector, graph = _vision(model) if own else (0, 0)
    return Facts(
        spec.model_type, spec.hidden_size, spec.vocab_size, heads, kv_heads, key, value,
        tuple(sum(t.bytes for t in layer) for layer in tensors.layers), sum(t.bytes for t in output),
        _bytes_of(tensors.layers[0], "ffn_gate_exps.weight"), routed.width if routed else 0,
        window, _state(mixers), projector, graph,
    )  # fmt: skip


def _heads(mixers: Sequence[Mixer], era: Era) -> tuple[int, int]:
    """Query and KV heads of a layer; latent attention has one KV head once llama.cpp keeps latents."""
    for mixer in mixers:
        if isinstance(mixer, Attention):
            return mixer.heads, mixer.kv_heads
        if isinstance(mixer, Mla):
            return mixer.heads, 1 if era.build.latent else mixer.heads
    return 0, 0


def _head_sizes(mixer: Attention | Mla, era: Era) -> tuple[int, int]:
    if isinstance(mixer, Attention):
        return mixer.head_size, mixer.head_size_v
    if era.build.latent:
        return mixer.kv_lora_rank + mixer.qk_rope, mixer.kv_lora_rank
    return mixer.qk_nope + mixer.qk_rope, mixer.head_size_v


def _bytes_of(layer: Sequence[Tensor], name: str) -> int:
    return next((tensor.bytes for tensor in layer if tensor.name == name), 0)


def _state(mixers: Sequence[Sequence[Mixer]]) -> int:
    """Bytes of convolution and state that a recurrent layer keeps for one sequence."""
    state = next((m for found in mixers for m in found if isinstance(m, State)), None)
    return state_row_bytes(state) if state is not None else 0


# Encoders whose graph Ollama's estimate knows: pixels on an edge, pixels of a patch.
_IMAGES: Final = {"gemma3": (896, 14), "mistral3": (1540, 14)}


def _vision(model: Model) -> tuple[int, int]:
    """Bytes of a file's vision in 16 bits, and of its graph at the largest image (VisionGraphSize)."""
    tower = next((t for t in model.spec.towers if t.kind == "vision"), None)
    if tower is None:
        return 0, 0
    size, patch = _IMAGES.get(model.spec.model_type, (0, 1))
    patches = (size // patch) ** 2
    graph = 4 * (size * size * 3 + tower.hidden_size * patch + patches * patches * tower.heads)
    if model.spec.model_type in ("qwen2vl", "qwen25vl"):
        pixels, patch = 28 * 28 * 1280, 14
        patches = pixels // (patch * patch)
        graph = 4 * (2 * pixels * 3 + patches * 3 * patch * patch + patches * patches * tower.heads
                     + tower.hidden_size * patches)  # fmt: skip
    return 2 * tower.params, graph if size or "qwen" in model.spec.model_type else 0


class Graph(NamedTuple):
    """The cache by layer, and the graph with all layers on a GPU and with some."""

    cache: tuple[int, ...]
    full: int
    partial: int


def graph_of(facts: Facts, era: Era, *, context: int, batch: int, slots: int, cache_type: str, flash: bool) -> Graph:
    """GraphSize. context: tokens of all slots together."""
    cache = _cache(facts, era, context, batch, slots, _CELL_BYTES.get(cache_type, 2.0))
    full, partial = _known_graph(facts, context, batch)
    if facts.architecture == "gpt-oss":
        plain = sum(_plain_cache(facts, context, _CELL_BYTES.get(cache_type, 2.0)))
        if era.gpt_oss == "none":  # one formula for all of them from 0.11.5 on
            partial = (4 * slots + (context >> 10) + 110) * MIB if flash else 2 * facts.shared * plain // 6
        else:
            full = 4 * facts.shared * plain // 6
            partial = 2 * full if era.gpt_oss == "twice" else full
    if not partial:
        partial = facts.shared * sum(cache) // 6
    return Graph(cache, full or partial, partial)


def _plain_cache(facts: Facts, context: int, cell: float) -> list[int]:
    """Every layer with attention alike, and recurrent layers with their state in 32 bits."""
    return [
        int(context * (facts.key + facts.value) * kv * cell) if heads and kv else facts.state
        for heads, kv in zip(facts.heads, facts.kv_heads, strict=True)
    ]


def _cache(facts: Facts, era: Era, context: int, batch: int, slots: int, cell: float) -> tuple[int, ...]:
    found = _plain_cache(facts, context, cell)
    if not era.per_layer:
        return tuple(found)
    row = (facts.key + facts.value) * facts.most_kv * cell
    if facts.architecture == "gemma3":
        near = int((slots * facts.window + batch) * row)
        found = [size if (layer + 1) % _PERIOD == 0 else near for layer, size in enumerate(found)]
    if facts.architecture == "gpt-oss":
        near = int((slots * _KEPT + batch) * row)
        found = [near if layer % 2 == 0 else size for layer, size in enumerate(found)]
    return tuple(found)


def _known_graph(facts: Facts, context: int, batch: int) -> tuple[int, int]:
    """The graph with all layers and with some on a GPU, 0 and 0 for architectures that are guessed."""
    arch, e, v, heads, kv = (
        facts.architecture, facts.embedding, facts.vocabulary, facts.most_heads, facts.most_kv
    )  # fmt: skip
    head, key = e // heads, facts.key
    logits, table = 4 * batch * (e + v), e * v * 105 // 128
    scores = context * (1 + heads)
    if arch in ("llama", "llama4"):
        full = max(4 * batch * (1 + 4 * e + scores), logits)
        if facts.expert_gate:
            return full, max(
                3 * facts.expert_gate + 4 * batch * (2 * facts.width + kv + e + context + head * kv),
                4 * (context * batch * heads + context * head * kv + batch * 1024 + head * kv * batch),
            )
        attention = 4 * batch * (1 + e + max(context, e)) + e * e * 9 // 16 + 4 * context * (batch * heads + head * kv)
        return full, 4 * batch * e + max(attention, logits + table)
    if arch in ("gemma", "gemma2", "gemma3", "gemma3n"):
        full = max(logits, 4 * batch * (2 + scores + 2 * e + 2 * key * heads))
        attention = 4 * batch * (2 * e + 1 + 2 * key * heads + scores) + 4 * key * context * 8
        partial = max(4 * e * batch + table + 4 * v * batch, attention + e * key * heads * 9 // 16)
        more = 4 if arch == "gemma3n" else 1
        return full * more, partial * more
    if arch == "command-r":
        return max(logits, 4 * batch * (2 + 4 * e + scores)), max(
            logits + table, 4 * batch * (1 + 2 * e + scores) + 4 * e * context + e * e * 9 // 16
        )
    if arch == "qwen2":
        return max(logits, 4 * batch * (1 + 2 * e + scores)), max(
            logits + table, 4 * (batch * (1 + 2 * e + scores) + e * (1 + context))
        )
    if arch == "phi2":
        return max(logits, 4 * batch * (1 + 4 * e + scores)), max(
            4 * batch * (2 * e + v) + table, 4 * batch * (2 + 3 * e + scores)
        )
    if arch == "stablelm":
        full = 4 * batch * (scores + 3 * e + 2)
        return full, max(4 * batch * (v + 2 * e), full)
    if arch == "deepseek2":
        scores = context * (1 + kv)
        return max(4 * batch * (3 * e + v), 4 * batch * (3 * e + 2 + scores + 2 * key * kv)), max(
            4 * batch * (3 * e + v) + table,
            4 * batch * (2 * e + 1 + 2 * key * kv + scores) + 4 * key * context * kv + e * key * kv * 9 // 16,
        )
    return 0, 0


class Estimate(NamedTuple):
    """What Ollama's log tells as "offload": layers on each GPU (the output among them), and sizes in bytes."""

    split: tuple[int, ...]
    full: int
    required: int
    cache: int
    weights: int
    output: int
    graph_full: int
    graph_partial: int
    allocations: tuple[int, ...]
    whole: bool

    @property
    def layers(self) -> int:
        """Layers on GPUs, the output layer among them."""
        return sum(self.split)


def place(
    facts: Facts, graph: Graph, era: Era, free: Sequence[int], *, wanted: int = -1, overhead: int = 0,
    projector: int = 0,
) -> Estimate:  # fmt: skip
    """EstimateGPULayers. free: of each GPU, as it comes; wanted: layers asked for, -1 for as many as fit."""
    full, partial = (graph.partial, graph.partial) if len(free) > 1 else (graph.full, graph.partial)
    inside = facts.projector + facts.projector_graph
    first = projector or (0 if era.vision else inside)
    last = facts.output + (inside if era.vision and not projector else 0)
    layers = [weight + cells for weight, cells in zip(facts.layers, graph.cache, strict=True)]
    spare = max(*facts.layers, facts.output, facts.projector) + graph.cache[0] if era.spare_largest else layers[0]
    gpus = _Gpus(free, overhead + max(full, partial), spare, first)
    overflow = 0 if gpus.with_room or not era.vision else first
    count = len(layers)
    for layer in range(count - 1, -1, -1) if era.backwards else range(count):
        asked = wanted < 0 or gpus.placed < wanted
        if (not asked or not gpus.add(layer, layers[layer])) and era.backwards:
            overflow += layers[layer]
    whole = gpus.placed >= count
    if not era.backwards:
        overflow += max(count - gpus.placed, 0) * layers[-1]
    if last:
        if wanted < 0 or gpus.placed < wanted:
            gpus.add_last(last)
        if gpus.placed < count + 1:
            whole = False
            overflow += last
    held = gpus.with_graph(full if whole else partial)
    return Estimate(
        tuple(gpus.split), sum(held) + overflow, sum(held), sum(graph.cache), sum(facts.layers), facts.output, full,
        partial, tuple(held), whole,
    )  # fmt: skip


class _Gpus:
    """What layers are put on, one after another. beside: bytes of each that stay for the graph."""

    def __init__(self, free: Sequence[int], beside: int, spare: int, first: int) -> None:
        self.free, self.beside, self.placed = free, beside, 0
        self.held, self.split = [0] * len(free), [0] * len(free)
        self.with_room: list[int] = []
        for index, room in enumerate(free):
            if room >= beside + (0 if self.with_room else first) + MINIMUM + 2 * spare:
                self.with_room.append(index)
                self.held[index] += MINIMUM + spare
        if self.with_room:
            self.held[self.with_room[0]] += first

    def _takes(self, index: int, size: int) -> bool:
        if self.free[index] <= self.beside + self.held[index] + size:
            return False
        self.held[index] += size
        self.split[index] += 1
        self.placed += 1
        return True

    def add(self, layer: int, size: int) -> bool:
        """A layer, in turn on those that have room; one without room gets no further layer."""
        while self.with_room:
            at = layer % len(self.with_room)
            if self._takes(self.with_room[at], size):
                return True
            del self.with_room[at]
        return False

    def add_last(self, size: int) -> None:
        """The output layer, on whichever has room."""
        for remaining in range(len(self.with_room), 0, -1):
            if self._takes(self.with_room[self.placed % remaining], size):
                return

    def with_graph(self, size: int) -> list[int]:
        """What each holds in the end."""
        return [held + (size if layers else 0) for held, layers in zip(self.held, self.split, strict=True)]


def totals(found: Estimate, era: Era) -> tuple[int, int]:
    """Weights in all and of the layers, as the log tells them: before 0.6.3 the cache among them."""
    if era.beside:
        return found.weights + found.output, found.weights
    return found.weights + found.cache, found.weights + found.cache - found.output


def as_logged(size: int) -> str:
    """A size as Ollama's log writes it: "11.4 GiB", "519.5 MiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
