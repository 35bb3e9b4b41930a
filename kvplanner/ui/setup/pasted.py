"""A whole command, or whatever else starts a server, pasted into the form: known as such, and where it belongs."""

from __future__ import annotations

from typing import Final

ELSEWHERE: Final = "this is a whole command line. Paste it into the model chooser (Ctrl+1) to plan it"


def is_command(text: str) -> bool:
    """Whether a text starts a server: a command, its container, a compose file, a call …"""
    if not any(mark.isspace() or mark == "(" for mark in text):
        return False
    from kvplanner.request.pasted import starts_server

    return starts_server(text)
