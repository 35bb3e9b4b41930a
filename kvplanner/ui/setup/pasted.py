"""A whole command line pasted into the form: known as such, and where it belongs."""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput

ELSEWHERE: Final = "this is a whole command line. Paste it into the model chooser (Ctrl+1) to plan it"


def is_command(text: str) -> bool:
    """Whether a text starts a server: `vllm serve …`, its module, or its container."""
    from kvplanner.engine.registry import engine, names
    from kvplanner.request.launch import take_apart

    if not any(mark.isspace() for mark in text):
        return False
    for name in names():
        launch = engine(name).launch
        try:
            if launch[0] in text and take_apart(launch, (text,)).launched:
                return True
        except BadInput:
            return True  # of quotes that do not close: what reads it says so
    return False
