"""The numbers of a plan as estimates: what each GPU and the host hold, with formula, inputs and band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kvplanner.engine.llamacpp import runtime
from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settle import Settled
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.estimate import Estimate, Input, band_of_sum, banded, exact, least_sure, measured
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model
from kvplanner.model.spec import Moe
from kvplanner.record import NamedTuple, late, later
from kvplanner.units import MIB, format_bytes, round_up

# Architectures whose compute buffers were held against llama.cpp's own, and by how much they may be off.
CHECKED: Final = frozenset(
    {"afmoe", "apertus", "arcee", "baichuan", "bailingmoe", "bailingmoe2", "bailingmoe3", "chatglm", "codeshell",
     "cohere2", "cohere2moe", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek32", "dots1", "ernie4_5",
     "ernie4_5-moe", "exaone", "exaone-moe", "exaone4", "falcon", "falcon-h1", "gemma", "gemma2", "gemma3", "gemma3n",
     "gemma4", "glm-dsa", "glm4", "glm4moe", "gpt-oss", "gptneox", "granite", "granitehybrid", "granitemoe", "grok",
     "grovemoe", "hunyuan-dense", "hunyuan-moe", "hy_v3", "internlm2", "jais2", "jamba", "kimi-linear", "laguna",
     "lfm2", "lfm2moe", "llama", "llama4", "maincoder", "mamba", "mamba2", "mellum", "mimo2", "minicpm", "minicpm3",
     "minimax-m2", "minimax-m3", "mistral3", "mistral4", "muse-glimmer", "nemotron", "nemotron_h", "nemotron_h_moe",
     "olmo", "olmo2", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo3",
     "plm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
     "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3", "stablelm", "starcoder2", "step35", "xverse"}
)  # fmt: skip
_FLOOR: Final = 64 * MIB
# By how much the graph of Ollama's own engine may be smaller or larger than llama.cpp's of the same model.
_OWN_GRAPH: Final = (0.4, 1.0)
# By how much Vulkan's order changes buffers of 114 models in the newest build: 19 of 20 are within this; half by 2 %.
_REORDERED: Final = (0.13, 0.3)
_FUSED_EXPERTS: Final = 15
# Projectors take from 150 MiB (with flash attention) to 2.4 GiB at the largest image, by public reports.
_PROJECTOR: Final = (500 * MIB, 150 * MIB, 2450 * MIB)


@late("compute")
class OnGpu(NamedTuple):
    """What one GPU holds.

    first, last: of its layers, -1 without any; output: it has the logits' matrix; part: of all that, with the others.
    """

    device: Device
    total: int
    cuda_total: int
    other: Estimate
    context: Estimate
    weights: Estimate
    kv: Estimate
    compute: Estimate
    workspace: Estimate | None
    late: Estimate
    first: int
    last: int
    output: bool
    part: bool = False

    @property
    def base(self) -> int:
        """What is there before the first buffer."""
        return self.total - self.cuda_total + self.other.value + self.context.value

    @property
    def role(self) -> str:
        """The layers, for people: "layers 0-17"."""
        if self.first < 0:
            return "output" if self.output else "no layers"
        layers = f"layers {self.first}-{self.last}" if self.last > self.first else f"layer {self.first}"
        everything = f"{layers} and output" if self.output else layers
        return f"part of {everything}" if self.part else everything


@late("compute")
class OnHost(NamedTuple):
    """What the host holds. mapped: its weights are a view of the file, but for the bytes that are `repacked`.

    locked: the view stays in RAM. experts: layers on the GPUs whose experts lie here.
    """

    weights: Estimate
    kv: Estimate
    compute: Estimate
    output: Estimate
    mapped: bool
    layers: int
    repacked: int = 0
    locked: bool = False
    experts: int = 0

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.weights.value + self.kv.value + self.compute.value + self.output.value

    @property
    def kept(self) -> int:
        """What the system cannot drop: all but what is mapped and not locked."""
        return self.bytes - (self.weights.value - self.repacked if self.mapped and not self.locked else 0)


def totals(device: Device) -> tuple[int, int]:
    """Bytes of a GPU, and what CUDA sees of them."""
    total = device.gpu.total.value if device.gpu.total else 0
    seen = device.gpu.cuda_total.value if device.gpu.cuda_total else total
    return total, seen


def other_of(device: Device, seen: int) -> Estimate:
    """What other programs hold."""
    if device.free_bytes is None:
        return exact(0, "{other}", Input("other", 0, "B", "nothing was given"))
    taken = max(seen - device.free_bytes, 0)
    return exact(taken, "{seen} − {free}", Input("seen", seen, "B", "what CUDA sees"),
                 Input("free", device.free_bytes, "B", device.free_source or "given"))  # fmt: skip


# Of a card, what Windows 10 and 11 let a process have: 81 to 97 % by public reports (TensorFlow 22623, Ollama 9167).
_WDDM: Final = (0.10, 0.03, 0.19)


def with_windows(other: Estimate, device: Device, total: int, seen: int) -> Estimate:
    """What other programs hold, and what Windows keeps of the card; what was measured as free is without both."""
    if device.free_bytes is not None:
        return other
    value, low, high = (max(round(share * total) - (total - seen), 0) for share in _WDDM)
    return banded(
        value, low, high, "assumed", "{kept by Windows}",
        Input("kept by Windows", value, "B", "10 % of the card, less what the driver reserves; 3 to 19 % are reported"),
    )  # fmt: skip


def free_at_load(device: Device) -> int:
    """What llama.cpp prints as free: its own context is there by then."""
    total, seen = totals(device)
    free = seen - other_of(device, seen).value
    return max(free - runtime.context(device.gpu, total).value, 0)


def on_gpus(model: Model, settled: Settled, sizes: Sizes, drafted: Sizes | None) -> tuple[OnGpu, ...]:
    """Every GPU in use. drafted: the draft model's sizes on the same GPUs."""
    return tuple(_on_gpu(model, settled, sizes, drafted, index) for index in range(len(settled.gpus)))


def _on_gpu(model: Model, settled: Settled, sizes: Sizes, drafted: Sizes | None, index: int) -> OnGpu:
    device = settled.gpus[index]
    total, seen = totals(device)
    home = 0 if sizes.shared else index
    layers = [layer for layer, at in enumerate(sizes.placed.placement.layers) if at == home]
    extra: list[Input] = []
    if index == 0 and settled.projector_bytes and settled.projector_on_gpu:
        extra.append(Input("projector", settled.projector_bytes, "B", "--mmproj-size"))
    if index == 0 and settled.adapter_bytes:
        extra.append(Input("adapters", settled.adapter_bytes, "B", "--lora-size"))
    extra += _steering(model, settled, layers)
    workspace = None
    if index == 0 and settled.projector_bytes and settled.projector_on_gpu:
        value, low, high = _PROJECTOR
        workspace = banded(value, low, high, "assumed", "{projector's buffer}", Input(
            "projector's buffer", value, "B", "at its largest image; 150 MiB to 2.4 GiB are reported"))  # fmt: skip
    other = other_of(device, seen)
    if settled.wddm:
        other = with_windows(other, device, total, seen)
    return OnGpu(
        device, total, seen, other, runtime.context(device.gpu, total),
        weights(model, sizes.placed.device_bytes[index], len(layers), drafted, index, tuple(extra)),
        context(model, sizes, index, drafted), later(partial(compute, model, sizes, index, drafted, device.gpu.vendor)),
        workspace,
        runtime.late(device.gpu), layers[0] if layers else -1, layers[-1] if layers else -1,
        sizes.placed.output == home, sizes.shared,
    )  # fmt: skip


def _steering(model: Model, settled: Settled, layers: Sequence[int]) -> list[Input]:
    """A control vector: one f32 row for each layer but the first (llama_adapter_cvec of llama.cpp)."""
    count = sum(layer > 0 for layer in layers)
    if not settled.steered or not count:
        return []
    row = round_up(4 * model.spec.hidden_size, 128)
    return [Input("control vector", row * count, "B", f"{row:,} bytes for each of {count} layers")]


def projector_bytes(settled: Settled) -> int:
    """What a projector on the first GPU takes, its buffer among it; 0 without one."""
    own = settled.projector_bytes if settled.projector_on_gpu else 0
    return own + _PROJECTOR[0] if own else 0


def weights(
    model: Model, tensor_bytes: int, layers: int, drafted: Sizes | None, index: int, extra: tuple[Input, ...]
) -> Estimate:
    """A model buffer; with a what-if mix, as wide as its own band."""
    source = f"tensors of {layers} layers, each padded as CUDA asks"
    terms = [Input("tensors", tensor_bytes, "B", source), *extra]
    if drafted is not None:
        terms.append(Input("draft model", drafted.placed.device_bytes[index], "B", "all its tensors on this GPU"))
    value = sum(int(term.value) for term in terms)
    formula = " + ".join(f"{{{term.name}}}" for term in terms)
    if model.inventory is not None and model.inventory.exact:
        return exact(value, formula, *terms)
    return _as_stored(model, value, formula, terms)


def _as_stored(model: Model, value: int, formula: str, terms: Sequence[Input]) -> Estimate:
    """Tensors that are not known one by one: a little less or more, or as wide as the whole model's size."""
    stored = model.stored
    if stored is None or not stored.value or stored.basis != "assumed":
        return banded(value, value - value // 200, value + value // 50, "analytic", formula, *terms)
    low, high = (value * bound // stored.value for bound in (stored.low, stored.high))
    return banded(value, low, high, stored.basis, formula, *terms).with_notes(*stored.notes)


def context(model: Model, sizes: Sizes, index: int, drafted: Sizes | None = None) -> Estimate:
    """A context buffer: cells of keys and values, and recurrent state."""
    kv, state, cells = sizes.kv[index], sizes.state[index], sizes.cells
    per_cell = sizes.per_cell[index]
    terms: list[Input] = []
    formula: list[str] = []
    full = cells.full * cells.streams
    windows = kv - per_cell * full
    if per_cell:
        terms += [Input("cells", full, "cells", "the context, padded"),
                  Input("bytes per cell", per_cell, "B", "layers of full attention here")]  # fmt: skip
        formula.append("{cells} × {bytes per cell}")
    if windows:
        terms.append(Input("windows", windows, "B", f"{cells.window * cells.streams:,} cells of sliding-window layers"))
        formula.append("{windows}")
    if state:
        terms.append(Input("state", state, "B", f"recurrent layers, {cells.rows} sequences in f32"))
        formula.append("{state}")
    value = kv + state
    if drafted is not None:
        own = drafted.context(index)
        terms.append(Input("draft model", own, "B", "its own cache, of the same context"))
        formula.append("{draft model}")
        value += own
    return exact(value, " + ".join(formula) or "{none}", *(terms or [Input("none", 0, "B", "no layer keeps a cache")]))


def compute(
    model: Model, sizes: Sizes, index: int, drafted: Sizes | None = None, vendor: str = "custom"
) -> Estimate:  # fmt: skip
    """A compute buffer, with how sure it is on this architecture and placement. vendor: of the GPU."""
    shape = sizes.shape
    value = sizes.compute.gpus[index] if index != HOST else sizes.compute.host
    copies = 4 if sizes.compute.pipelined else 1
    inputs = [
        Input("reserved", value, "B", "the largest moment of a micro-batch's graph, as ggml's allocator packs it"),
        Input("tokens", shape.tokens, "tokens", "of a micro-batch"),
        Input("rows of logits", shape.outputs, "", "that are reserved"),
        Input("copies of inputs", copies, "", "of masks and of what passes between GPUs" if copies > 1 else ""),
    ]
    formula = "{reserved}"
    if drafted is not None:
        own = drafted.compute.gpus[index] if index != HOST else drafted.compute.host
        value += own
        inputs.append(Input("draft model", own, "B", "its own graph"))
        formula += " + {draft model}"
    below, above, why = _doubt(model, sizes)
    margin = 0 if model.spec.model_type in CHECKED else _FLOOR
    notes = [why] if why else []
    fused = _fused_experts(model, sizes) if vendor == "nvidia" and value and index != HOST else 0
    if fused:
        notes.append(
            f"where CUDA fuses the sum of experts, up to {format_bytes(fused)} more: builds since September 2026"
        )
    if _is_reordered(sizes, vendor) and index != HOST:
        below, above = max(below, _REORDERED[0]), max(above, _REORDERED[1])
        notes.append("Vulkan and Metal put the graph in an order of their own, which is not followed here")
    return banded(
        value, value - round(value * below), value + max(round(value * above), margin if value else 0) + fused,
        "analytic", formula, *inputs,
    ).with_notes(*notes)  # fmt: skip


def _fused_experts(model: Model, sizes: Sizes) -> int:
    """What CUDA keeps where it weighs and adds the experts' results in one kernel: those results as they were.

    For 2 to 15 experts of a token. Part of it may lie where memory is free at that moment anyway.
    """
    if not sizes.how.fused_sums or sizes.how.own_graph:
        return 0
    used = [mlp.top_k * (mlp.hidden or model.spec.hidden_size) for layer in model.spec.layers for mlp in layer.mlps
            if isinstance(mlp, Moe) and 2 <= mlp.top_k <= _FUSED_EXPERTS]  # fmt: skip
    return 4 * sizes.shape.tokens * max(used, default=0)


def _is_reordered(sizes: Sizes, vendor: str) -> bool:
    """Whether the backend reorders a graph: Vulkan and Metal do."""
    return vendor not in ("nvidia", "custom") and sizes.how.reordered


def _doubt(model: Model, sizes: Sizes) -> tuple[float, float, str]:
    """By what shares a compute buffer may be smaller or larger, and why.

    Measured on 3,900 buffers of 110 models beside llama.cpp's own: with everything on GPUs 99 of 100 are within 0.5 %,
    else within 1 %; single ones of the latter were 9 % smaller or 20 % larger. Fused operations of real GPUs, which
    keep some tensors longer, are not among them: they only add.
    """
    arch = model.spec.model_type
    if sizes.how.own_graph:
        return (*_OWN_GRAPH, "Ollama's own engine builds its graph itself, of which little is public")
    if arch not in CHECKED:
        return 0.25, 0.25, f"the graph of {arch!r} was not held against llama.cpp's own"
    if sizes.shape.wide_mask:
        return 0.05, 0.1, "older builds are less well known"
    if HOST in sizes.placed.placement.layers or sizes.how.overridden or not sizes.how.cache_offload:
        return 0.03, 0.06, "with layers or caches on the host"
    return 0.01, 0.03, ""


def tightest(gpus: Sequence[OnGpu]) -> int:
    """The GPU with the least to spare."""

    def spare(gpu: OnGpu) -> int:
        return gpu.total - gpu.base - gpu.weights.value - gpu.kv.value - gpu.compute.value

    return min(range(len(gpus)), key=lambda index: spare(gpus[index]), default=0)


def on_host(model: Model, settled: Settled, sizes: Sizes, tensors: Tensors) -> OnHost:
    """What the host holds."""
    tensor_bytes, count = sizes.placed.host_bytes, sizes.placed.placement.layers.count(HOST)
    place = settled.settings.place
    repacked = _repacked(tensors) if place.repack and not settled.gpus else 0
    source = "the embedding table and all that stays off the GPUs" if settled.gpus else "all of the model"
    terms = [Input("tensors", tensor_bytes, "B", source)]
    if repacked and place.mmap:
        terms.append(Input("repacked", repacked, "B", "matrices copied into the order that AVX2 reads them in"))
    if settled.projector_bytes and not settled.projector_on_gpu:
        terms.append(Input("projector", settled.projector_bytes, "B", "--mmproj-size"))
    terms += _steering(model, settled, [i for i, at in enumerate(sizes.placed.placement.layers) if at == HOST])
    formula = " + ".join(f"{{{term.name}}}" for term in terms)
    total = sum(int(term.value) for term in terms)
    kept = exact(total, formula, *terms)
    if model.inventory is not None and not model.inventory.exact:
        kept = _as_stored(model, total, formula, terms)
    return OnHost(
        kept, context(model, sizes, HOST), later(partial(compute, model, sizes, HOST)),
        _output(model, settled, sizes), place.mmap, count,
        repacked if place.mmap else 0, place.mlock, experts_away(tensors, sizes),
    )  # fmt: skip


def _output(model: Model, settled: Settled, sizes: Sizes) -> Estimate:
    rows = Input("slots", sizes.shape.slots, "", "")
    vocabulary = Input("vocabulary", model.spec.vocab_size, "", "4 bytes each")
    if not settled.settings.context.embeddings:
        return exact(sizes.output, "4 × {slots} × {vocabulary}", rows, vocabulary)
    if not sizes.output:
        return exact(0, "0")
    width = Input("hidden size", model.spec.hidden_size, "", "of an embedding")
    return exact(sizes.output, "4 × {slots} × ({vocabulary} + {hidden size})", rows, vocabulary, width)


def experts_away(tensors: Tensors, sizes: Sizes) -> int:
    """Layers that are on a GPU but for experts on the host."""
    at = sizes.placed.placement.layers
    return sum(
        at[layer] != HOST and any(tensor.expert and tensor.name in names for tensor in tensors.layers[layer])
        for layer, names in sizes.placed.host_names.items() if layer >= 0
    )  # fmt: skip


def _repacked(tensors: Tensors) -> int:
    """Bytes of the matrices that a server without a GPU repacks: of the layers and of the output."""
    layers = sum(t.host_bytes for layer in tensors.layers for t in layer if t.repacked)
    tied = tensors.tied.host_bytes if tensors.tied is not None and tensors.tied.repacked else 0
    return layers + tied + sum(t.host_bytes for t in tensors.outputs if t.repacked)


def given(estimate: Estimate, kind: str, measured_bytes: dict[str, int]) -> Estimate:
    """The estimate, or the value that was given in its place."""
    return measured(measured_bytes[kind], "--measured") if kind in measured_bytes else estimate


def total_band(terms: tuple[Estimate, ...]) -> Estimate:
    """A sum with its band."""
    value = sum(term.value for term in terms)
    below, above = band_of_sum(terms)
    return banded(value, value - below, value + above, least_sure(terms))


def read_per_token(model: Model, tensors: Tensors, sizes: Sizes) -> int:
    """Bytes of the host's weights that one token needs: of experts only as many as are routed to."""
    routed = next((m for layer in model.spec.layers for m in layer.mlps if isinstance(m, Moe)), None)
    share = min(routed.top_k / max(routed.experts, 1), 1.0) if routed else 1.0
    total = 0.0
    for layer, names in sizes.placed.host_names.items():
        if layer >= 0:
            total += sum(t.bytes * (share if t.expert else 1.0) for t in tensors.layers[layer] if t.name in names)
    return round(total)
