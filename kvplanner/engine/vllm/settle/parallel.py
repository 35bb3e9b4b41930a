"""The parallel sizes, those that follow from the GPUs when none is set, and which device each rank runs on."""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.settings import Parallel, Settings
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mixer, ModelSpec, State
from kvplanner.units import counted

Stages = tuple[tuple[Device, ...], ...]
_MOST = 64  # as the options allow
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


# Why a parallel size is 1.
_SIZES: Mapping[str, str] = {
    "tensor_parallel_size": "each layer is whole",
    "pipeline_parallel_size": "all layers are on every GPU of a replica",
    "data_parallel_size": "one replica",
    "decode_context_parallel_size": "a request's cache is not split by tokens",
    "prefill_context_parallel_size": "a prompt is not split",
}


def settle_parallel(spec: ModelSpec, book: Book) -> Parallel:
    """Ranks and how the model is spread over them. Raises BadInput for sizes below 1 and for an uneven partition."""
    tp, pp, dp, dcp, pcp = (int(book.settle(name, 1, why)) for name, why in _SIZES.items())
    for name, size in zip(_SIZES, (tp, pp, dp, dcp, pcp), strict=True):
        if size < 1:
            raise BadInput(f"{size} is not a number of ranks", "--" + name.replace("_", "-"), "Give 1 or more")
    experts = bool(book.settle("enable_expert_parallel", False, "off"))
    balanced = bool(book.settle("enable_eplb", False, "off"))
    redundant = int(book.settle("num_redundant_experts", 0, "none"))
    book.settle("all2all_backend", "allgather_reducescatter", "the one that needs no further library")
    return Parallel(
        tp=tp, pp=pp, dp=dp, dcp=dcp, pcp=pcp, expert_parallel=experts,
        redundant_experts=redundant if balanced else 0, pp_partition=_partition(book, pp, spec.num_layers),
        dbo=bool(book.settle("enable_dbo", False, "off")),
        custom_all_reduce=not book.settle("disable_custom_all_reduce", False, "off"),
    )  # fmt: skip


def _partition(book: Book, stages: int, layers: int) -> tuple[int, ...]:
    text = book.settle("pp_layer_partition", None, "even")
    if text is None:
        return ()
    try:
        parts = tuple(int(p) for p in str(text).split(","))
    except ValueError:
        raise BadInput(
            f"{text!r} is not a list of layer counts", "VLLM_PP_LAYER_PARTITION", "Write for example 20,20"
        ) from None
    if len(parts) != stages or sum(parts) != layers or min(parts) < 0:
        raise BadInput(
            f"{text} does not split {layers} layers over {stages} stages", "VLLM_PP_LAYER_PARTITION",
            "Give one count per stage; the counts add up to the model's layers",
        )  # fmt: skip
    return parts


def derive(request: PlanRequest) -> tuple[PlanRequest, dict[str, Resolved]]:
    """The request with a tensor-parallel size that uses its GPUs, when it sets no parallel size itself.

    vLLM's own default is 1; a plan for several GPUs is meant for all of them, and its command line says so.
    """
    count = len(request.machine.devices)
    if count <= 1 or any(name in request.options for name in _PARALLEL):
        return request, {}
    size = largest_tensor_parallel(request.model, count)
    reason = f"{count} GPUs given: the largest size up to {count} that the model divides by"
    derived = request._replace(options={**request.options, "tensor_parallel_size": size})
    return derived, {"tensor_parallel_size": Resolved(size, "derived", reason)}


def as_started(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options of a server that is started with these: vLLM's own default is one GPU."""
    if any(name in options for name in _PARALLEL):
        return dict(options)
    return {**options, _PARALLEL[0]: 1}


def largest_tensor_parallel(model: Model, gpus: int) -> int:
    """The largest tensor-parallel size up to `gpus` that the model's heads and tensors divide by."""
    return next((size for size in range(gpus, 1, -1) if _divides(model, size)), 1)


def allowed(name: str, model: Model) -> tuple[int, ...]:
    """The sizes of a parallel option that a model allows, ascending; empty for other options."""
    if name == "tensor_parallel_size":
        return _tensor_sizes(model)
    if name == "pipeline_parallel_size":
        return tuple(range(1, min(max(model.spec.num_layers, 1), _MOST) + 1))
    return ()


@by_identity(64, lambda _: None)
def _tensor_sizes(model: Model) -> tuple[int, ...]:
    return tuple(size for size in range(1, _MOST + 1) if _divides(model, size))


@by_identity(256, lambda _, size: size)
def _divides(model: Model, size: int) -> bool:
    heads = all(_mixer_divides(mixer, size) for layer in model.spec.layers for mixer in layer.mixers)
    return heads and (model.inventory is None or weights.divides(model, size))


def _mixer_divides(mixer: Mixer, size: int) -> bool:
    if isinstance(mixer, State):
        return not any(count % size for count in (mixer.heads, mixer.key_heads, mixer.channels))
    if mixer.heads % size:
        return False
    return not isinstance(mixer, Attention) or mixer.kv_heads % size == 0 or size % mixer.kv_heads == 0


def devices_of(request: PlanRequest, settings: Settings) -> tuple[tuple[Stages, ...], int]:
    """The devices of each replica's pipeline stages, and how many GPUs no rank uses.

    Ranks follow the engine's order: replicas, then stages, then tensor ranks. Raises BadInput when GPUs are missing.
    """
    tp, pp, dp = settings.parallel.tp, settings.parallel.pp, settings.parallel.dp
    world = settings.parallel.world
    gpus = request.machine.gpus
    if world > len(gpus):
        raise _too_few(request, {name: size for name, size in zip(_PARALLEL, (tp, pp, dp), strict=True) if size > 1},
                       world, len(gpus))  # fmt: skip
    rows = [tuple(gpus[start : start + tp]) for start in range(0, world, tp)]
    return tuple(tuple(rows[r * pp : (r + 1) * pp]) for r in range(dp)), len(gpus) - world


def _too_few(request: PlanRequest, sizes: Mapping[str, int], world: int, given: int) -> BadInput:
    """The error at the size that asks for most, of those that the user set where there are some."""
    words = " × ".join(f"{name.removesuffix('_size').replace('_', ' ')} {size}" for name, size in sizes.items())
    asked = [name for name in sizes if name in request.options] or [*sizes]
    blamed = max(asked, key=lambda name: sizes[name], default=_PARALLEL[0])
    one = len(sizes) == 1
    return BadInput(
        f"{words or 'this plan'} {'needs' if one or not sizes else 'need'} {counted(world, 'GPU', 'GPUs')} "
        f"and {counted(given, 'is', 'are')} given",
        "--" + blamed.replace("_", "-"),
        f"Add GPUs or give at most {given}" if one and given else "Add GPUs or lower the parallel sizes",
    )
