"""How many bytes a weight takes on the GPU after vLLM's post-processing: scales widened, merged, padded, repacked."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights_shard import Local
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import TensorGroup

_FLOATS: Final = ("float64", "float32", "bfloat16", "float16")


def resident(group: TensorGroup, local: Local, spec: ModelSpec, settings: Settings) -> int:
    """Bytes of one layer's tensors of a group on a rank."""
    fmt = group.format
    if fmt.layout == "dense" and fmt.name in _FLOATS:
        return local.elements * unquantised_bytes(fmt.name, spec, settings)
    return local.copies * fmt.bytes_of(local.shape)


def unquantised_bytes(stored: str, spec: ModelSpec, settings: Settings) -> int:
    """Bytes per element of an unquantised tensor: the model's dtype is cast to the engine's, others keep theirs."""
    return DTYPE_BYTES[settings.dtype if stored == spec.dtype else stored]


def unquantised_first(spec: ModelSpec, settings: Settings) -> bool:
    """Whether the engine loads 16-bit weights in full before it quantises them."""
    return settings.quantization is not None and spec.quantization is None and settings.version < (17, 0)


def notes(model: object, settings: Settings) -> tuple[str, ...]:
    """What is not exact about this format on this GPU."""
    del model, settings
    return ()
