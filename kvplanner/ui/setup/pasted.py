"""A whole command line pasted into the form: known as such, and where it belongs."""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput

ELSEWHERE: Final = "this is a whole command line. Paste it into the model chooser (Ctrl+1) to plan it"


def is_command(text: str) -> bool:
    """Whether a text starts a server: `vllm serve …`, its module, or its container."""
    from kvplanner.engine.signature import signatures
    from kvplanner.request.launch import take_apart

    if not any(mark.isspace() for mark in text):
        return False
    if not any(found.launch and found.launch[0] in text for found in signatures()):
        return False
    try:
        return take_apart((text,)).launched
    except BadInput:
        return True  # of quotes that do not close: what reads it says so
