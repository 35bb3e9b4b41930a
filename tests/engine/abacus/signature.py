"""How a running abacus would look in a process list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "abacus",
    "title": "Abacus",
    "commands": ((r"abacus", r"count"),),
    "model_flags": ("--beads-of",),
    "model_positional": True,
    "planned": True,
    "launch": ("abacus", "count"),
}
