"""The buffers of one model under given settings: weights, context, compute and output, by device.

The four are what llama.cpp prints and what its memory table calls model, context and compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kvplanner.engine.llamacpp import cache, place
from kvplanner.engine.llamacpp.builds import NO_FLASH, PLAIN_TYPES, has_kernel
from kvplanner.engine.llamacpp.cache import CacheTypes, Cells
from kvplanner.engine.llamacpp.compute.attention import as_heads, as_latent
from kvplanner.engine.llamacpp.compute.chain import How, Reserved, chain_of, reserved
from kvplanner.engine.llamacpp.compute.chained import Chain
from kvplanner.engine.llamacpp.compute.feedforward import displaces
from kvplanner.engine.llamacpp.compute.layers import Shape
from kvplanner.engine.llamacpp.compute.recurrent import EARLY
from kvplanner.engine.llamacpp.place import HOST, Placed, Spread
from kvplanner.engine.llamacpp.settings import PlaceSettings, Settings
from kvplanner.engine.llamacpp.split import ByRows, Within
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec, Mixer, Mla, ModelSpec, Moe, State
from kvplanner.record import NamedTuple, late, later
from kvplanner.units import round_up

_REMEMBERED: Final = 64
_F32: Final = 4
# Sizes of heads for which CUDA has flash attention whatever they share, with values of the same size; and others, with
# the values that go with them and how many queries must share a key, in multiples.
_HEADS: Final = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_PAIRED_HEADS: Final = {192: (128, 8), 320: (256, 32), 512: (512, 2), 576: (512, 2)}


@late("compute")
class Sizes(NamedTuple):
    """Bytes by GPU, and on the host.

    kv, state, per_cell: of each GPU, then of the host: cells, recurrent state, and what one more cell of full
    attention costs. cells: of the context. flash: whether flash attention is on. compute: found when it is first read,
    which takes far longer than all the rest. output: logits' own buffer on the host. shared: the GPUs work on every
    layer together, so that the placement tells them apart from the host alone.
    """

    placed: Placed
    cells: Cells
    flash: bool
    kv: tuple[int, ...]
    state: tuple[int, ...]
    per_cell: tuple[int, ...]
    compute: Reserved
    output: int
    shape: Shape
    how: How
    shared: bool = False

    def moved(self, tensors: Tensors) -> int:
        """Bytes of weights that lie on the host, but for what always does."""
        return self.placed.host_bytes - sum(tensor.host_bytes for tensor in tensors.inputs)

    def context(self, device: int) -> int:
        """The context buffer of a GPU (HOST: of the host)."""
        return self.kv[device] + self.state[device]

    def kept(self, device: int) -> int:
        """What of a GPU's buffers is not the compute buffer."""
        return self.placed.device_bytes[device] + self.context(device)

    def on_gpu(self, device: int) -> int:
        """All buffers of a GPU."""
        return self.kept(device) + self.compute.gpus[device]


def layers_of(spec: ModelSpec) -> int:
    """Layers that -ngl counts besides the output layer."""
    return spec.num_layers


def resolve_flash(
    settings: Settings, spec: ModelSpec, placed: Placed, *, gpus: int, full_heads: bool = False
) -> tuple[bool, bool]:  # fmt: skip
    """Whether flash attention is on, and whether values are kept transposed.

    auto: on where values are quantised, for nothing else reads those (llama_init_from_model); else on, unless it would
    run on another device than its layer's (resolve_fused_ops of llama-context.cpp): where a layer on the host has no
    cache of its own that binds it, where overrides draw it away, in hybrids whose caches all lie on the host or whose
    next look-up is on a GPU, and where a GPU has no kernel for the keys or the heads of a layer. full_heads: latent
    attention keeps every head.
    """
    asked = settings.context.flash
    if is_plain(settings, spec):
        return False, True
    if asked == "auto" and settings.context.value_type not in PLAIN_TYPES:
        return True, False
    if asked == "auto" and gpus and not _have_kernels(settings, spec, placed, full_heads):
        return False, False
    if asked == "auto" and gpus and settings.place.op_offload and _strays(spec, placed):
        return False, False
    if asked == "auto" and gpus and _is_stranded(spec, placed, kv_offload=settings.place.kv_offload):
        return False, False
    if asked == "auto" and _is_drawn_away(spec, placed):
        return False, False
    return True, False


def is_plain(settings: Settings, spec: ModelSpec) -> bool:
    """Whether flash attention is off before any device is asked: the cache is padded less then."""
    asked = settings.context.flash
    return asked == "off" or spec.model_type in NO_FLASH or (asked == "auto" and not settings.build.flash_auto)


def _have_kernels(settings: Settings, spec: ModelSpec, placed: Placed, full_heads: bool) -> bool:
    """Whether CUDA has flash attention for the cache and the heads of every layer on a GPU.

    By ggml_cuda_get_best_fattn_kernel of fattn.cu.
    """
    if not settings.build.real_kernels:
        return True
    on_gpu = {
        index for device, index in zip(placed.placement.layers, spec.layer_of, strict=True) if device != HOST
    }  # fmt: skip
    typed = has_kernel(settings.build, settings.context.key_type, settings.context.value_type)
    for mixer in {mixer for index in on_gpu for mixer in spec.layers[index].mixers}:
        if isinstance(mixer, Mla):
            mixer = as_heads(mixer) if full_heads else as_latent(mixer)
        if not isinstance(mixer, Attention):
            continue
        shared = mixer.heads // max(mixer.kv_heads, 1)  # queries to a key
        values, together = _PAIRED_HEADS.get(mixer.head_size, (mixer.head_size, 1))
        known = mixer.head_size in _HEADS or mixer.head_size in _PAIRED_HEADS
        if not typed or not known or mixer.head_size_v != values or shared % together:
            return False
    return True


def _strays(spec: ModelSpec, placed: Placed) -> bool:
    """Whether a layer on the host has no cache of its own: nothing binds its attention to the host."""
    return any(
        isinstance(mixer, Attention) and not mixer.owns_cache
        for device, index in zip(placed.placement.layers, spec.layer_of, strict=True)
        if device == HOST
        for mixer in spec.layers[index].mixers
    )


def _is_drawn_away(spec: ModelSpec, placed: Placed) -> bool:
    """Whether overrides draw attention off its layer's GPU: its sinks are on another, or all of its matrices are on the
    host and it has no cache of its own that binds it."""
    if any("attn_sinks.weight" in away for away in placed.strays.values()):
        return True
    return any(
        "attn_q.weight" in names and not mixer.owns_cache
        for layer, names in placed.host_names.items()
        if layer >= 0 and placed.placement.layers[layer] != HOST
        for mixer in spec.layers[spec.layer_of[layer]].mixers
        if isinstance(mixer, Attention)
    )


def _is_stranded(spec: ModelSpec, placed: Placed, *, kv_offload: bool) -> bool:
    """Whether some attention stands between a cache and a later look-up that draw it off its layer's device.

    What follows it in its layer is put off, so that a recurrent layer's look-up comes next. GPUs draw before the host.
    """
    if not any(_is_early(m) for layer in spec.layers for m in layer.mixers):
        return False
    layers, homes = [spec.layers[index] for index in spec.layer_of], placed.placement.layers
    for index, layer in enumerate(layers):
        after = _next_early(layers, index) if any(isinstance(m, Attention) for m in layer.mixers) else None
        if after is None:
            continue
        cached, look_up = (homes[index], homes[after]) if kv_offload else (HOST, HOST)
        if (look_up if cached == HOST else cached) != homes[index]:
            return True
    return False


def _next_early(layers: Sequence[LayerSpec], index: int) -> int | None:
    """The layer whose states are looked up right after a layer's attention, None where something stands between."""
    if any(_is_early(m) for m in layers[index].mixers):
        return index
    if any(isinstance(mlp, Moe) for mlp in layers[index].mlps):
        return None
    for number, after in enumerate(layers[index + 1 :], index + 1):
        if any(_is_early(m) for m in after.mixers):
            return number
        if after.mixers or any(isinstance(mlp, Moe) for mlp in after.mlps):
            return None
    return None


def _is_early(mixer: Mixer) -> bool:
    return isinstance(mixer, State) and mixer.kind in EARLY


def ubatch_of(settings: Settings, cells_context: int) -> int:
    """Tokens of a micro-batch: no more than a batch, which is no more than the context."""
    return min(settings.context.ubatch, settings.context.batch, cells_context)


def outputs_of(settings: Settings, ubatch: int) -> int:
    """Rows of logits that are reserved."""
    if settings.context.outputs is not None:
        return min(settings.context.outputs, ubatch)
    if settings.build.limited_outputs:
        return min(settings.context.slots * (1 + settings.context.draft_rows), ubatch)
    return ubatch


def output_bytes(settings: Settings, spec: ModelSpec, rows: int) -> int:
    """The host's buffer of logits and embeddings of so many rows (llama_context::output_reserve)."""
    if not settings.context.embeddings:
        return _F32 * spec.vocab_size * rows
    return _F32 * (spec.vocab_size + spec.hidden_size) * rows if settings.build.logits_beside else 0


def _state_rows(settings: Settings, spec: ModelSpec) -> int:
    """Rows of recurrent state of a slot: more than one where drafted tokens can be taken back."""
    return 1 + (settings.context.draft_rows if spec.model_type in cache.ROLLBACK else 0)


def cells_for(settings: Settings, spec: ModelSpec, context: int) -> Cells:
    """The cells of a context of `context` tokens."""
    asked = settings.context
    padding = settings.build.plain_padding if is_plain(settings, spec) else settings.build.padding
    padded = round_up(context, padding)
    whole = padded if settings.build.pads_whole else context
    rows = _state_rows(settings, spec)
    return cache.cells_of(
        whole, asked.slots, asked.unified, min(asked.ubatch, asked.batch, padded), window=cache.window_of(spec),
        full_window=asked.full_window or not settings.build.windows, padding=padding, state_rows=rows,
    )  # fmt: skip


class Cards(NamedTuple):
    """The GPUs in use, in order. free: bytes, by which layers are shared out without --tensor-split.

    totals: bytes, by which rows are; tiles: rows at whose multiples they are cut (64 before Volta). Empty: as free.
    """

    free: tuple[int, ...]
    totals: tuple[int, ...] = ()
    tiles: tuple[int, ...] = ()


class _Layout(NamedTuple):
    """Where everything lies; the same for every context. within: of -sm tensor, whose graph is that of one GPU."""

    placed: Placed
    how: How
    chain: Chain
    within: Within | None


class Sizer:
    """Sizes one model on given GPUs, and remembers what does not change with the context. measured: as of How."""

    def __init__(self, model: Model, tensors: Tensors, cards: Cards, *, measured: bool = False) -> None:
        self.model = model
        self.tensors = tensors
        self.cards = cards
        self.measured = measured
        self._layouts: dict[tuple[PlaceSettings, bool, bool], _Layout] = {}
        self._sizes: dict[tuple[Settings, bool], Sizes] = {}

    def sizes(self, settings: Settings, *, can_pipeline: bool = True) -> Sizes:
        """The sizes. Raises ValueError for overrides that name no buffer."""
        key = settings, can_pipeline
        found = self._sizes.get(key)
        if found is None:
            if len(self._sizes) > _REMEMBERED:
                self._sizes.clear()
            found = self._sizes[key] = self._size(settings, can_pipeline=can_pipeline)
        return found

    def _size(self, settings: Settings, *, can_pipeline: bool) -> Sizes:
        spec, asked = self.model.spec, settings.context
        layout = self._layout(settings)
        build = settings.build
        how = layout.how._replace(own_graph=build.own_graph, fused_sums=build.fused_sums, reordered=build.reordered)
        how = how if can_pipeline else how._replace(can_pipeline=False)
        heads = not settings.build.latent or old_latent(self.model)
        flash, transposed = resolve_flash(settings, spec, layout.placed, gpus=how.gpus, full_heads=heads)
        cells = cells_for(settings, spec, asked.tokens)
        caches = _caches(self.model, settings, layout, cells, len(self.cards.free), transposed=transposed)
        ubatch = ubatch_of(settings, cells.context)
        tokens = round_up(ubatch, asked.slots)  # graph_reserve shares a micro-batch evenly among the slots
        shape = Shape(
            spec.model_type, spec.hidden_size, spec.vocab_size, tokens, asked.slots, outputs_of(settings, ubatch),
            cells.full, cells.window, cells.streams, asked.key_type, asked.value_type, flash, transposed,
            settings.build.wide_mask, settings.build.rotated, settings.build.copies_reserved,
            settings.build.both_inputs, spec.model_type in settings.build.late_rows, settings.build.xielu,
            settings.build.latent, settings.build.row_inputs, settings.build.fused_gates, settings.build.copied_heads,
            settings.build.copied_values, settings.build.latent_values, settings.build.blocks,
            no_kernel=not has_kernel(settings.build, asked.key_type, asked.value_type),
            snapshots=_state_rows(settings, spec), spare_copies=settings.build.spare_copies,
        )  # fmt: skip
        return Sizes(
            layout.placed, cells, flash, *caches, compute=later(partial(_compute, spec, layout, shape, how)),
            output=output_bytes(settings, spec, asked.slots), shape=shape,
            how=how if layout.within is None else how._replace(gpus=layout.within.gpus),
            shared=layout.within is not None,
        )  # fmt: skip

    def _layout(self, settings: Settings) -> _Layout:
        key = settings.place, settings.build.output_first, settings.build.xielu
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) > _REMEMBERED:
                self._layouts.clear()
            found = self._layouts[key] = self._lay_out(settings)
        return found

    def _lay_out(self, settings: Settings) -> _Layout:
        spec, at, tensors = self.model.spec, settings.place, self.tensors
        gpus, layers = len(self.cards.free), len(tensors.layers)
        names = [f"CUDA{index}" for index in range(gpus)]
        within: Within | None = None
        spread: Spread | None = None
        if at.split_mode == "tensor" and gpus:
            # All GPUs are one device; tensors may be kept from it, but not put on one of its GPUs.
            spread = within = Within(spec, tensors, gpus, (*at.shares, *(0.0,) * gpus)[:gpus] if at.shares else ())
            shares: tuple[float, ...] = (1.0,)
            names = []
        else:
            shares = at.shares or tuple(float(value) for value in self.cards.free)
            shares = (*shares, *(0.0,) * (gpus - len(shares)))[:gpus]
            if at.split_mode == "row" and gpus > 1:
                rows = shares if at.shares else tuple(map(float, self.cards.totals or self.cards.free))
                spread = ByRows(rows, self.cards.tiles or (128,) * gpus)
        placement = place.place(layers, at.gpu_layers, shares, output_first=settings.build.output_first)
        overrides = place.overrides_of(at.overrides, names, ("CPU", "CUDA_Host"))
        if at.cpu_experts is not None:
            # A number beyond the layers names tensors that no model has.
            overrides += place.expert_overrides(min(at.cpu_experts, layers) or None)
        placed = place.load(tensors, placement, gpus, overrides, architecture=spec.model_type, spread=spread)
        wanted = at.gpu_layers
        everything = wanted is None or wanted < 0 or wanted > layers
        how = How(
            1 if within else gpus,
            everything,
            at.kv_offload,
            at.op_offload,
            at.split_mode == "layer",
            bool(overrides),
            measured=self.measured,
            displaced=displaces(spec.model_type, xielu=settings.build.xielu),
        )
        return _Layout(placed, how, chain_of(spec, tensors, placed, how), within)


def _compute(spec: ModelSpec, layout: _Layout, shape: Shape, how: How) -> Reserved:
    found = reserved(spec, layout.chain, shape, how)
    if layout.within is None:
        return found
    return found._replace(gpus=found.gpus * layout.within.gpus)  # one buffer is asked for: every GPU allocates it whole


def size_up(
    model: Model, tensors: Tensors, settings: Settings, free: Sequence[int], *, can_pipeline: bool = True,
    measured: bool = False,
) -> Sizes:  # fmt: skip
    """The sizes of one model, once. free: as of Cards; measured: as of How.

    Raises ValueError for overrides that name no buffer.
    """
    return Sizer(model, tensors, Cards(tuple(free)), measured=measured).sizes(settings, can_pipeline=can_pipeline)


def _caches(
    model: Model, settings: Settings, layout: _Layout, cells: Cells, gpus: int, *, transposed: bool
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Cells, states, and what one more cell costs, by GPU, the host's last."""
    spec, asked = model.spec, settings.context
    build = settings.build
    types = CacheTypes(asked.key_type, asked.value_type, transposed, build.latent_values, build.blocks == "positions")
    widest = cache.widest_value(spec) if transposed else 0
    old = not settings.build.latent or old_latent(model)
    hybrid = any(isinstance(m, State) for layer in spec.layers for m in layer.mixers)
    kv, state, each = [0] * (gpus + 1), [0] * (gpus + 1), [0] * (gpus + 1)
    known: dict[tuple[int, bool], tuple[int, int, int]] = {}
    for number, (device, index) in enumerate(zip(layout.placed.placement.layers, spec.layer_of, strict=True)):
        on_gpu = device != HOST and settings.place.kv_offload
        if on_gpu and layout.within is not None:
            for sums, more in zip((kv, state, each), layout.within.cache(number, cells, types), strict=True):
                for gpu, size in enumerate(more):
                    sums[gpu] += size
            continue
        key = (index, on_gpu)
        found = known.get(key)
        if found is None:
            layer = spec.layers[index]
            wide = widest if layer.mixers or not hybrid else 0
            both = cache.layer_bytes(layer, cells, types, widest_value=wide, old_mla=old, on_gpu=on_gpu)
            held = sum(cache.state_row_bytes(m) * cells.rows for m in layer.mixers if isinstance(m, State))
            found = known[key] = (both - held, held, cache.cell_bytes(layer, types, widest_value=wide, old_mla=old))
        at = device if on_gpu else gpus
        kv[at] += found[0]
        state[at] += found[1]
        each[at] += found[2]
    return tuple(kv), tuple(state), tuple(each)


def is_latent(model: Model) -> bool:
    """Whether attention works on a latent vector and keeps it (hparams.is_mla of llama.cpp)."""
    return not old_latent(model) and any(isinstance(m, Mla) for layer in model.spec.layers for m in layer.mixers)


def old_latent(model: Model) -> bool:
    """Whether latent attention is kept by full heads: an old conversion without the split key-value matrix."""
    if not any(isinstance(m, Mla) for layer in model.spec.layers for m in layer.mixers) or model.inventory is None:
        return False
    paths = {group.path for block in model.inventory.blocks for group in block}
    return "attn_kv_b" in paths and "attn_k_b" not in paths
