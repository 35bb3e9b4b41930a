"""One small module per family of architectures: a config.json becomes a ModelSpec and an Inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.model.families import (
    compressed,
    dense,
    encoders,
    gated,
    gemma4,
    kda,
    latent,
    mixed,
    multimodal,
    nemotron,
    sparse,
    statespace,
)
from kvplanner.model.families.read import Reader, read_with
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory

READERS: Final[dict[str, Reader]] = {
    name: reader
    for module in (
        compressed,
        dense,
        encoders,
        gated,
        gemma4,
        kda,
        latent,
        mixed,
        multimodal,
        nemotron,
        sparse,
        statespace,
    )
    for name, reader in module.READERS.items()
}


def read_config(
    config: Mapping[str, object], *, where: str = "config.json", side_quant: Mapping[str, object] | None = None
) -> tuple[ModelSpec, Inventory]:
    """Read a config.json; side_quant is the content of hf_quant_config.json.

    Raises BadInput or NotModelled, each naming the field and what was expected.
    """
    return read_with(READERS, config, where, side_quant)


def architectures() -> tuple[str, ...]:
    """The architectures that have a reader, sorted."""
    return tuple(sorted(READERS))
