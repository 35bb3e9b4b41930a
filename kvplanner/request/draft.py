"""The draft model of speculative decoding, opened; and what it means when it cannot be."""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.engine.draft import DraftWish
from kvplanner.errors import BadInput, PlannerError
from kvplanner.model.model import Model
from kvplanner.request.standin import file_stem, is_elsewhere


def open_draft(wish: DraftWish | None, open_model: Callable[[str], Model]) -> Model | None:
    """The draft model where its layers count, else None.

    Raises BadInput, naming the flag, where it cannot be opened and no plan can be made without.
    """
    if wish is None:
        return None
    name = file_stem(wish.name) if is_elsewhere(wish.name) else wish.name
    try:
        return open_model(name)
    except PlannerError as error:
        if wish.optional:
            return None
        raise BadInput(
            f"the draft model cannot be opened: {error.what}", wish.flag, error.remedy or "Name another one"
        ) from error
