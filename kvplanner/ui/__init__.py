"""The window. Nothing below this package imports QtWidgets; importing the package itself imports no Qt."""

from __future__ import annotations

import builtins
import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvplanner.report.sheet import Sheet

BAD_INPUT = 2
_PLAIN_IMPORT: Final = builtins.__import__  # no Qt has been loaded yet


def run(argv: Sequence[str]) -> int:
    """Show the window, or render a screenshot of it; `argv` is what follows `gui`. Returns the exit status."""
    # Nothing made at start is garbage: looking for it costs a twentieth of the time until the first plan. It is
    # looked for again once the window is filled.
    gc.disable()
    from kvplanner.errors import PlannerError
    from kvplanner.ui.window.arguments import parse

    try:
        arguments = parse(argv)
        _import_qt()
        if arguments.screenshot is not None:
            from kvplanner.ui.window.run import make_app
            from kvplanner.ui.window.screenshot import take

            return take(make_app(), arguments)
        from kvplanner.ui.window.run import show

        return show(arguments)
    except PlannerError as error:
        sys.stderr.write(f"kvplanner: {error}\n")
        return BAD_INPUT
    finally:
        gc.enable()  # a picture or a refusal ends before any window is filled


def _import_qt() -> None:
    """Load PySide6 and put Python's own import back in place.

    PySide6 6.11 replaces it by one that reads the source text of every module imported later, to find out which may
    ask for names in snake case (`from __feature__ import …`): a tenth of a start, and nothing here asks for them.
    """
    import PySide6.QtCore  # noqa: F401 - what loading it does

    builtins.__import__ = _PLAIN_IMPORT


def pdf(made: Sheet, when: str) -> bytes:
    """A report as the bytes of a PDF, drawn without a window; no display is needed. Raises PlannerError."""
    from PySide6.QtGui import QGuiApplication

    from kvplanner.ui.export.document import document

    application = QGuiApplication.instance() or QGuiApplication(["kvplanner", "-platform", "offscreen"])
    found = document(made, when=when)
    del application
    return found
