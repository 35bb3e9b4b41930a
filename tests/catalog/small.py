"""A catalogue of a few models, for tests that go through all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from kvplanner.catalog import models, naming
from kvplanner.catalog.models import ModelEntry

# What is worked out from the index and kept.
_FROM_INDEX = (models._names, models._haystacks, naming._by_squeezed_name)


@contextmanager
def catalogue_of(entries: Sequence[ModelEntry]) -> Iterator[None]:
    """Only these models are in the catalogue meanwhile; nothing that is kept of them outlives it."""
    few = tuple(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "index", lambda: few)
        _forget()
        yield
    _forget()


def _forget() -> None:
    for kept in _FROM_INDEX:
        kept.cache_clear()
