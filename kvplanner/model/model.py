"""Model: a model to plan for, from whichever source it was read."""

from __future__ import annotations

from kvplanner.estimate import Estimate
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from kvplanner.record import NamedTuple


class Model(NamedTuple):
    """A model to plan for: what it is, its tensors and where both came from.

    id: hub id, file name or store name. stored_bytes: of the files' tensors, exact or by rule.
    source_kind: "catalogue", "config", "safetensors", "gguf", "hub" ...; inventory None: the layers are known but
    the tensors are not. problems: contradictions to tell the user. asks: whole numbers that the model's own package
    sets for its engine, by the engine's name of them ("num_ctx").
    """

    id: str
    spec: ModelSpec
    inventory: Inventory | None
    source_kind: str
    source_detail: str = ""
    weight_format: str = ""
    parameters: int | None = None
    stored: Estimate | None = None
    problems: tuple[str, ...] = ()
    asks: tuple[tuple[str, int], ...] = ()
