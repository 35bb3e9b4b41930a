"""This machine's GPUs for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplanner.errors import NotModelled

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Machine


def show(*, as_json: bool) -> int:
    """Prints what is seen once."""
    raise NotModelled("cannot be watched yet", "--local", "")


def watch(*, as_json: bool) -> int:
    """Prints what is seen again and again until interrupted."""
    return show(as_json=as_json)


def machine() -> Machine | None:
    """The GPUs that an engine started here would see, None when there is none to be seen."""
    return None
