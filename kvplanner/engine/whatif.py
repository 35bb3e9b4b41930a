"""A model as if its weights were stored in another format: what `PlanRequest.weight_format` asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.identity import by_identity
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model

if TYPE_CHECKING:
    from kvplanner.engine.protocol import Engine

# Those that people choose most of the formats that engines of GGUF files have.
_USUAL: Final = ("GGUF Q8_0", "GGUF Q6_K", "GGUF Q5_K_M", "GGUF Q4_K_M", "GGUF Q3_K_M")


@by_identity(8, lambda _, name: name)
def as_format(model: Model, name: str) -> Model:
    """The model as if its weights were stored in another format of WHATIF_FORMATS; itself when they already are.

    Raises UnknownName, and NotModelled where the tensors are not known.
    """
    from kvplanner.model import whatif

    if model.weight_format == name:
        return model
    if model.inventory is None:
        raise NotModelled("its tensors are not known, so no other format can be planned", model.id, "Open its folder")
    held = f", which holds {model.weight_format}" if model.weight_format else ""
    made = whatif.reformat(model.inventory, model.spec, name)
    return model._replace(
        spec=whatif.respec(model.spec, name),
        inventory=made,
        stored=whatif.stored(model.inventory, model.spec, name, made),
        weight_format=name,
        source_detail=f"as if in {name}, from {model.source_detail or model.source_kind}{held}",
    )


def refused(model: Model, engine: Engine, version: str | None, machine: Machine | None = None) -> dict[str, str]:
    """The formats of WHATIF_FORMATS that cannot be planned for a model under an engine's version, each with why.

    machine: that must run them, None for any. Nothing where that is no version of the engine's, which a plan says.
    """
    from kvplanner.model import dynamic, whatif

    try:
        engine.options(version)
    except PlannerError:
        return {}
    why = {name: "" for name in whatif.WHATIF_FORMATS if name != model.weight_format}
    for name in why:
        method = whatif.respec(model.spec, name).quantization or ""
        unknown = "its tensors are not known" if model.inventory is None else ""
        made = dynamic.cannot_make(name.removeprefix("GGUF "), model.spec.quantization)
        why[name] = unknown or made or engine.cannot_load(method, version, machine)
    return {name: reason for name, reason in why.items() if reason}


def is_converted(model: Model, why_not: Mapping[str, str]) -> bool:
    """Whether an engine loads a format of its own alone (GGUF), and the model is in another; why_not: `refused`."""
    others = ("FP8", "AWQ 4-bit", "GPTQ 4-bit", "bitsandbytes 4-bit")
    only = "GGUF BF16" not in why_not and all(name in why_not for name in others)
    return only and model.inventory is not None and model.spec.quantization not in ("gguf", "mxfp4")


def with_format(request: PlanRequest, cannot_load: Callable[[str], str] | None = None) -> PlanRequest:
    """The request with its model in the weight format that it asks for.

    cannot_load: the engine's, of an engine of GGUF files that does not refuse others later. Raises BadInput where it
    says why.
    """
    wished = request.weight_format
    if wished is None:
        return request
    if cannot_load is not None and request.model.weight_format != wished:
        from kvplanner.model import whatif

        why = cannot_load(whatif.respec(request.model.spec, wished).quantization or "")
        if why:
            has = [name for name in _USUAL if name != request.model.weight_format]
            raise BadInput(f"there are no weights in {wished}: {why}", "--weight-format",
                           f"Name one that it has: {', '.join(has)}, or leave it out")  # fmt: skip
    return request._replace(model=as_format(request.model, wished))
