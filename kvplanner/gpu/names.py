"""GPU names as forms, buttons and lists show them."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=512)
def short_name(name: str) -> str:
    """A GPU's name without what goes without saying."""
    for word in ("NVIDIA ", "GeForce "):
        name = name.replace(word, "")
    return name
