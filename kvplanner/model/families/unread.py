"""Architectures that vLLM's registries list and no reader here reads: refused by name, with what is known of them.

Their configs keep sizes in remote code, in several encoders, or in layers that run more than once, or came too late to
be read. A folder's headers say what they store all the same.
"""

from __future__ import annotations

from kvplanner.model.served import served


def why(architecture: str) -> str:
    """Why an architecture that vLLM knows is not read, "" for one that no release of it lists."""
    known = served().get(architecture)
    if known is None:
        return ""
    since = f" since 0.{known.first[0]}" if known.absent is not None else ""
    until = f" until 0.{known.last[0]}.{known.last[1]}" if known.last is not None else since
    return f"which vLLM serves{until}: its layers or encoders are not modelled here"
