"""Rows of the index of models: what a list shows of a record, worked out from its config."""

from __future__ import annotations

from typing import Any

from kvplanner.catalog.stored import as_stored, logical, stored_size
from kvplanner.model.families import read_config


def index_row(
    record: dict[str, Any], *, family: str, licence: str | None, released: str | None, offset: int = -1
) -> list[Any]:
    """The fields of a ModelEntry for a record, which is told which of them come from class defaults.

    Raises BadInput or NotModelled where the record's config cannot be read.
    """
    spec, inventory = read_config(record["config"], where=record["id"], side_quant=record.get("side_quant"))
    spec, inventory, _ = as_stored(record, spec, inventory)
    stored = stored_size(record, spec.quantization, inventory).value
    if any(name.endswith("max_position_embeddings") for name in spec.defaulted):
        record.setdefault("defaults", []).append("max_position_embeddings")
    lower = bool(record.get("defaults") or record.get("derived"))
    return [
        record["id"], family, spec.architecture, logical(inventory), stored, spec.quantization, spec.context_length,
        licence, released, int(lower), "", offset,
    ]  # fmt: skip
