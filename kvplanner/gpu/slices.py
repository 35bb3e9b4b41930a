"""Slices of cards (MIG) as the GPUs of a server: what a plan over several of them has to say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvplanner.gpu.spec import Device

_SLICE: Final = re.compile(r"\bMIG \d")


def said_of_slices(devices: Sequence[Device]) -> str:
    """A warning where a server is to run over several slices, "" elsewhere.

    CUDA enumerates a single slice for a process, and slices have no peer access to each other (NVIDIA's user guide of
    multi-instance GPUs, on CUDA device enumeration and on its limitations).
    """
    gpus = [device.gpu for device in devices if device.kind == "gpu"]
    if len(gpus) < 2 or not any(_SLICE.search(name) for name in {gpu.name for gpu in gpus}):
        return ""
    text = "CUDA shows a process one slice (MIG) only: a server over several of them may not start"
    sizes = {int(gpu.total.value) for gpu in gpus if gpu.total is not None}
    if max(sizes, default=0) > 1.02 * min(sizes, default=0):
        return f"{text}, and these are of unequal size: each gives no more than the smallest has"
    return text
