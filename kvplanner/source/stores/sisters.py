"""Other files of a model that lie on this machine: what the last search found, opened as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from kvplanner.catalog import naming
from kvplanner.errors import PlannerError
from kvplanner.files import data_folder
from kvplanner.model.model import Model
from kvplanner.source.resolve import open_model
from kvplanner.source.stores import local


def on_this_machine(model_id: str) -> Iterator[tuple[str, Model]]:
    """Models that are named as made from the same one, each with what opens it; those that cannot be read are left out.

    No disk is searched: a search, as the window and `kvplanner local` make it, keeps what it finds.
    """
    own = naming.parse(model_id)
    for found in local.remembered(data_folder()) if own is not None else ():
        said = naming.parse(found.name)
        if found.problem or said is None or own is None or said.base.id != own.base.id:
            continue
        try:
            yield found.key, open_model(found.key)
        except (PlannerError, OSError):
            continue
