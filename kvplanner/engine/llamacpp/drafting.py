"""The layers of a model that predict several tokens ahead, as the draft model that llama.cpp makes of them.

`--spec-type draft-mtp`: a second context over the same model (common_speculative_init of common/speculative.cpp,
0.5.0-dev, October 2026), with the same length and slots, cells in the draft's own types and logits for the slots alone.
Its layers are loaded beside the model's own; embedding and output are shared with it.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.engine.llamacpp.tensors import Tensors
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mla

MTP: Final = "draft-mtp"
_FLAG: Final = "--spec-type draft-mtp"


def prediction_layers(model: Model) -> Model:
    """The model of the prediction layers alone. Raises BadInput where the file holds none."""
    spec, inventory = model.spec, model.inventory
    own = [group for group in inventory.outside if group.place == "mtp"] if inventory is not None else []
    if not spec.mtp_layers or inventory is None or not own:
        raise BadInput(
            "the model has no layers that predict further tokens", _FLAG, "Leave it out, or name a draft model"
        )
    like = next(
        (layer for layer in reversed(spec.layers) if any(isinstance(m, Attention | Mla) for m in layer.mixers)),
        spec.layers[-1],
    )
    block = tuple(group._replace(place="layer") for group in own)
    layers = spec.mtp_layers
    return model._replace(
        spec=spec._replace(layers=(like,), layer_of=(0,) * layers, mtp_layers=0),
        # The groups of all prediction layers stand together: all of them are counted with the first.
        inventory=inventory._replace(
            blocks=(block, ()), block_of=(0, *(1,) * (layers - 1)),
            outside=tuple(group for group in inventory.outside if group.place != "mtp"),
        ),
    )  # fmt: skip


def beside(settings: Settings, own: Sizes) -> Settings:
    """The settings of the second context: its layers lie where the output does."""
    output = own.placed.output
    gpus = len(own.placed.device_bytes)
    place = settings.place._replace(
        gpu_layers=0 if output == HOST else None, overrides="", cpu_experts=None,
        shares=tuple(float(gpu == output) for gpu in range(gpus)) if output != HOST and gpus > 1 else (),
    )  # fmt: skip
    if settings.place.split_mode == "tensor":
        place = settings.place
    return settings._replace(place=place)


def layers_alone(drafted: Sizes, tensors: Tensors) -> Sizes:
    """The second context's sizes with the weights of the prediction layers only: the rest is the model's own."""
    held = drafted.placed
    block = [tensor for layer in tensors.layers for tensor in layer]
    count, size = len(held.device_bytes), sum(tensor.device_bytes for tensor in block)
    on_gpus = [0] * count
    if held.output != HOST and drafted.shared:
        on_gpus = [size // count] * count
    elif held.output != HOST:
        on_gpus[held.output] = size
    on_host = 0 if held.output != HOST else sum(tensor.host_bytes for tensor in block)
    return drafted._replace(placed=held._replace(device_bytes=tuple(on_gpus), host_bytes=on_host))
