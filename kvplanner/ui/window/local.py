"""This machine's GPUs, asked for at once: for arguments that name them before a window shows."""

from __future__ import annotations

from kvplanner.gpu.spec import Machine


def probe_now() -> Machine | None:
    """What NVML answers, None for nothing."""
    from kvplanner.observe.local import probe
    from kvplanner.observe.machine import local_machine

    return local_machine(probe())
