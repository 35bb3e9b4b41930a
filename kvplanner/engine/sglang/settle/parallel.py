"""Which device each rank runs on, and which parallel sizes a model allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.shard import uneven
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mixer, State
from kvplanner.units import counted

_MOST: Final = 64  # as the options allow
SIZES: Final = ("tp_size", "pp_size", "dp_size")
Stages = tuple[tuple[Device, ...], ...]


def as_started(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options of a server that is started with these: SGLang's own default is one GPU."""
    if any(name in options for name in SIZES):
        return dict(options)
    return {**options, SIZES[0]: 1}


def allowed(name: str, model: Model) -> tuple[int, ...]:
    """The sizes of a parallel option that a model allows, ascending; empty for other options."""
    if name == "tp_size":
        return _tensor_sizes(model)
    if name == "pp_size":
        return tuple(range(1, min(max(model.spec.num_layers, 1), _MOST) + 1))
    return ()


@by_identity(64, lambda _: None)
def _tensor_sizes(model: Model) -> tuple[int, ...]:
    return tuple(size for size in range(1, _MOST + 1) if _divides(model, size))


def _divides(model: Model, size: int) -> bool:
    if not all(_mixer_divides(mixer, size) for layer in model.spec.layers for mixer in layer.mixers):
        return False
    if model.inventory is None:
        return True
    groups = (
        group for group, _ in model.inventory.groups() if group.place not in ("tower", "mtp") and group.kind != "state"
    )
    return all(uneven(group, size) is None for group in groups)


def _mixer_divides(mixer: Mixer, size: int) -> bool:
    if isinstance(mixer, State):
        return not any(count % size for count in (mixer.heads, mixer.channels))
    if isinstance(mixer, Attention):
        return not mixer.heads % size and not (mixer.kv_heads % size and size % mixer.kv_heads)
    return not mixer.heads % size


def devices_of(request: PlanRequest, settings: Settings) -> tuple[tuple[Stages, ...], int]:
    """The devices of each replica's pipeline stages, and how many GPUs no rank uses.

    Raises BadInput when GPUs are missing.
    """
    parallel = settings.parallel
    tp, pp, replicas = parallel.tp, parallel.pp, parallel.replicas
    world = tp * pp * replicas
    gpus = request.machine.gpus
    if world > len(gpus):
        sizes = {"tp_size": tp, "pp_size": pp, "dp_size": replicas}
        words = " × ".join(f"{name.removesuffix('_size')} {size}" for name, size in sizes.items() if size > 1)
        blamed = max(sizes, key=lambda name: sizes[name])
        raise BadInput(
            f"{words or 'this plan'} needs {counted(world, 'GPU', 'GPUs')} and {counted(len(gpus), 'is', 'are')} given",
            "--" + blamed.replace("_", "-"), "Add GPUs or lower the parallel sizes",
        )  # fmt: skip
    rows = [tuple(gpus[start : start + tp]) for start in range(0, world, tp)]
    return tuple(tuple(rows[r * pp : (r + 1) * pp]) for r in range(replicas)), len(gpus) - world
