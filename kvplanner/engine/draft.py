"""The draft model that a plan needs beside its own."""

from __future__ import annotations

from kvplanner.record import NamedTuple


class DraftWish(NamedTuple):
    """A draft model whose layers count. flag: where it is named, for messages.

    optional: a plan can be made without its layers, where it cannot be opened.
    """

    name: str
    flag: str
    optional: bool = False
