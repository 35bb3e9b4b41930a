"""Memory that closed windows leave: given back to the system."""

from __future__ import annotations

import gc
import sys
from ctypes import CDLL
from functools import _lru_cache_wrapper
from typing import Final

from PySide6.QtGui import QPixmapCache

from kvplanner.engine.shared.identity import forget

# Of glibc's malloc.h; elsewhere there is no such function.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE: Final = 64 << 10
_ARENAS: Final = 2
# Icons that Qt scaled: a window at twice the usual resolution shows 100 KB of them.
_PIXMAPS_KIB: Final = 4096


def keep_small() -> None:
    """Let glibc take each large block from the system by itself and give it back when it is freed.

    Otherwise the first one that is freed, a picture's or a long text's, teaches it to keep such blocks, up to 32 MB
    each, in its heaps, where the small ones that came to lie between them hold the pages: 15 MB and more after an
    hour's work. Python's threads work one at a time and need no heap each. Of the icons that Qt scaled it keeps few:
    none is found again once its window is closed.
    """
    QPixmapCache.setCacheLimit(_PIXMAPS_KIB)
    try:
        set_up = CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_up(_M_MMAP_THRESHOLD, _LARGE)
    set_up(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Forget what was worked out for models that may be closed by now, collect what refers to itself, and let glibc
    return the pages that are free: by itself it keeps most of them.

    20 to 40 MB after windows that were worked in; another C library gives its pages back by itself.
    """
    _forget()
    QPixmapCache.clear()
    gc.collect()
    try:
        trim = CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)


def _forget() -> None:
    """Empty what remembers results. Those without a limit are tables of the program's own and stay."""
    forget()
    for name, module in [*sys.modules.items()]:
        if not name.startswith("kvplanner."):
            continue
        for value in [*vars(module).values()]:
            if isinstance(value, _lru_cache_wrapper) and value.cache_info().maxsize is not None:
                value.cache_clear()
