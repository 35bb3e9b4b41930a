"""Memory that closed windows leave: given back to the system."""

from __future__ import annotations

import gc


def give_back() -> None:
    """Collect what refers to itself, and let glibc return the pages that are free: by itself it keeps most of them.

    20 to 40 MB after windows that were worked in; another C library gives its pages back by itself.
    """
    from ctypes import CDLL

    gc.collect()
    try:
        trim = CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)
