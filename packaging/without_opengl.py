"""Run first in the packaged application: stand-ins for Qt's OpenGL modules, which make 10 MB.

pyqtgraph imports both at its own import and uses them only where a view is asked to draw through OpenGL, which none of
ours is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAMES = ("PySide6.QtOpenGL", "PySide6.QtOpenGLWidgets")


class _StandIns:
    """Finds the two modules, and makes them. Of no class of importlib.abc: that reads a dozen modules at each start."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _NAMES else None  # type: ignore[arg-type]  # it does what one does

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__.endswith("Widgets"):
            from PySide6.QtWidgets import QWidget

            # A class of pyqtgraph's is derived from it as the module is read.
            module.__dict__["QOpenGLWidget"] = QWidget


sys.meta_path.insert(0, _StandIns())
