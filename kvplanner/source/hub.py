"""Models of the Hub by name: from this machine's cache, and online only when that is allowed."""

from __future__ import annotations

from kvplanner.engine.base import Model
from kvplanner.errors import BadInput
from kvplanner.source import hub_cache


def open_model(name: str, *, allow_network: bool = False) -> Model:
    """The model "org/name[@revision]". Raises BadInput when it is not at hand."""
    from kvplanner.source import resolve

    folder = hub_cache.find(name)
    if folder is None:
        raise BadInput("is not in the Hub cache of this machine", f"hub:{name}", "Download it, or open its folder")
    return resolve.open_path(folder)
