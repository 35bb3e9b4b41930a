"""Run first in the packaged application: stand-ins for Qt's OpenGL modules, which make 10 MB.

pyqtgraph imports both at its own import and uses them only where a view is asked to draw through OpenGL, which none of
ours is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_NAMES: Final = ("PySide6.QtOpenGL", "PySide6.QtOpenGLWidgets")


class _StandIns(MetaPathFinder, Loader):
    """Finds the two modules, and makes them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__.endswith("Widgets"):
            from PySide6.QtWidgets import QWidget

            # A class of pyqtgraph's is derived from it as the module is read.
            module.__dict__["QOpenGLWidget"] = QWidget


sys.meta_path.insert(0, _StandIns())
